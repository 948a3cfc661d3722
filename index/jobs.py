"""A durable queue: work goes in, and comes out to one worker at a time under a lease.

A worker that stops telling that it lives loses its job to the next one; after MAX_ATTEMPTS the job
is failed for good. Knows nothing of what the jobs do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, Update, and_, insert, or_, select, update

from index.core import Part, fresh_id
from index.errors import Conflict, NotFound
from index.filters import check_words
from index.records import JobRecord, JobState
from index.schema import jobs

MAX_ATTEMPTS = 5
_LIVE = ("queued", "running")


def require_running(connection: Connection, job_id: str, worker: str | None) -> None:
    """Refuse work for a job that is not running, or not leased to `worker`. Raises Conflict."""
    row = connection.execute(select(jobs).where(jobs.c.id == job_id)).first()
    if row is None:
        raise NotFound(f"no job {job_id!r}")
    if row.state != "running" or (worker is not None and row.worker != worker):
        raise Conflict(
            f"the job {job_id!r} is {row.state} (worker {row.worker!r}), not running for "
            f"{worker!r}; its lease was lost or it was cancelled, and nothing was changed"
        )


def finish_inside(
    connection: Connection, job_id: str, result: Mapping[str, Any], now: float
) -> None:
    """Mark a job done inside the caller's transaction."""
    connection.execute(
        update(jobs)
        .where(jobs.c.id == job_id)
        .values(state="done", result=dict(result), lease_until=None, updated=now)
    )


def cancel_inside(connection: Connection, store_id: str, now: float) -> None:
    """Cancel all live jobs of a store that is being deleted."""
    connection.execute(
        update(jobs)
        .where(jobs.c.store_id == store_id, jobs.c.state.in_(_LIVE))
        .values(state="cancelled", lease_until=None, updated=now)
    )


class Jobs(Part):
    """Public methods for jobs."""

    def enqueue(
        self,
        kind: str,
        *,
        tenant: str,
        store_id: str | None,
        payload: Mapping[str, Any],
        dedupe_key: str | None = None,
    ) -> JobRecord:
        """Queue a job; where a live one of this kind has the same `dedupe_key`, give that one."""
        check_words(kind, what="a job's kind")
        now = self._core.clock()
        with self._core.write() as (connection, _):
            if dedupe_key is not None:
                same = select(jobs).where(
                    jobs.c.tenant == tenant,
                    jobs.c.kind == kind,
                    jobs.c.dedupe_key == dedupe_key,
                    jobs.c.state.in_(_LIVE),
                )
                if (row := connection.execute(same).first()) is not None:
                    return _record(row)
            job_id = fresh_id("job_")
            connection.execute(
                insert(jobs).values(
                    id=job_id,
                    tenant=tenant,
                    store_id=store_id,
                    kind=kind,
                    payload=dict(payload),
                    state="queued",
                    dedupe_key=dedupe_key,
                    attempts=0,
                    lease_s=0.0,
                    run_after=now,
                    progress={},
                    created=now,
                    updated=now,
                )
            )
            return _by_id(connection, job_id)

    def claim_job(
        self, worker: str, *, lease_s: float, kinds: Sequence[str] | None = None
    ) -> JobRecord | None:
        """Lease the oldest job that may run now, or give None.

        A running job whose lease ran out may run again; one that used up its attempts fails.
        """
        now = self._core.clock()
        with self._core.database.read() as connection:
            if connection.execute(_runnable(now, kinds)).first() is None:
                return None
        with self._core.write() as (connection, _):
            connection.execute(_exhausted(now))
            row = connection.execute(_runnable(now, kinds)).first()
            if row is None:
                return None
            connection.execute(
                update(jobs)
                .where(jobs.c.pk == row.pk)
                .values(
                    state="running",
                    worker=worker,
                    attempts=jobs.c.attempts + 1,
                    lease_s=lease_s,
                    lease_until=now + lease_s,
                    updated=now,
                )
            )
            return _by_id(connection, row.id)

    def heartbeat(self, job_id: str, worker: str, progress: Mapping[str, Any]) -> bool:
        """Renew the lease and note the progress; False: the job was lost or cancelled, so stop."""
        now = self._core.clock()
        with self._core.write() as (connection, _):
            changed = connection.execute(
                _held(job_id, worker).values(
                    progress=dict(progress), lease_until=now + jobs.c.lease_s, updated=now
                )
            )
            return changed.rowcount > 0

    def finish_job(
        self, job_id: str, worker: str, *, result: Mapping[str, Any] | None = None
    ) -> bool:
        """Mark a job done; False where the worker had lost it."""
        values = {"state": "done", "result": None if result is None else dict(result)}
        return self._end(job_id, worker, values)

    def fail_job(
        self, job_id: str, worker: str, *, error: str, code: str, retry_in_s: float | None
    ) -> bool:
        """Mark a job failed, or queue it again after `retry_in_s`; False where it was lost.

        A job that has used up its attempts is failed even where a retry is asked for.
        """
        values: dict[str, Any] = {"error": error, "error_code": code, "state": "failed"}
        if retry_in_s is not None and self.get_job(job_id).attempts < MAX_ATTEMPTS:
            values |= {"state": "queued", "run_after": self._core.clock() + retry_in_s}
        return self._end(job_id, worker, values)

    def release_job(self, job_id: str, worker: str) -> bool:
        """Queue a job again that its worker must let go of; no attempt is spent. False: lost."""
        values = {
            "state": "queued",
            "attempts": jobs.c.attempts - 1,
            "run_after": self._core.clock(),
        }
        return self._end(job_id, worker, values)

    def amend_job(self, job_id: str, payload: Mapping[str, Any], *, tenant: str) -> None:
        """Replace the payload of a job that has ended. Raises NotFound, Conflict for a live one."""
        with self._core.write() as (connection, _):
            self._of_tenant(connection, job_id, tenant)
            changed = connection.execute(
                update(jobs)
                .where(jobs.c.id == job_id, jobs.c.state.not_in(_LIVE))
                .values(payload=dict(payload))
            )
            if not changed.rowcount:
                raise Conflict(f"the job {job_id!r} has not ended; cancel it first")

    def cancel_job(self, job_id: str, *, tenant: str) -> JobRecord:
        """Cancel a job that has not ended; its worker learns it from its next heartbeat."""
        with self._core.write() as (connection, _):
            self._of_tenant(connection, job_id, tenant)
            connection.execute(
                update(jobs)
                .where(jobs.c.id == job_id, jobs.c.state.in_(_LIVE))
                .values(state="cancelled", lease_until=None, updated=self._core.clock())
            )
            return _by_id(connection, job_id)

    def get_job(self, job_id: str, *, tenant: str | None = None) -> JobRecord:
        """Give a job (of one tenant, if named). Raises NotFound."""
        with self._core.database.read() as connection:
            if tenant is not None:
                self._of_tenant(connection, job_id, tenant)
            return _by_id(connection, job_id)

    def list_jobs(
        self, *, tenant: str, store_id: str | None = None, state: JobState | None = None
    ) -> list[JobRecord]:
        """Give a tenant's jobs, oldest first."""
        statement = select(jobs).where(jobs.c.tenant == tenant).order_by(jobs.c.pk)
        if store_id is not None:
            statement = statement.where(jobs.c.store_id == store_id)
        if state is not None:
            statement = statement.where(jobs.c.state == state)
        with self._core.database.read() as connection:
            return [_record(row) for row in connection.execute(statement)]

    def _end(self, job_id: str, worker: str, values: dict[str, Any]) -> bool:
        values |= {"lease_until": None, "updated": self._core.clock()}
        with self._core.write() as (connection, _):
            return connection.execute(_held(job_id, worker).values(**values)).rowcount > 0

    def _of_tenant(self, connection: Connection, job_id: str, tenant: str) -> None:
        statement = select(jobs.c.pk).where(jobs.c.id == job_id, jobs.c.tenant == tenant)
        if connection.execute(statement).first() is None:
            raise NotFound(f"no job {job_id!r}")


def _held(job_id: str, worker: str) -> Update:
    return update(jobs).where(
        jobs.c.id == job_id, jobs.c.worker == worker, jobs.c.state == "running"
    )


def _runnable(now: float, kinds: Sequence[str] | None) -> Any:
    statement = (
        select(jobs.c.pk, jobs.c.id)
        .where(
            or_(
                and_(jobs.c.state == "queued", jobs.c.run_after <= now),
                and_(jobs.c.state == "running", jobs.c.lease_until < now),
            )
        )
        .order_by(jobs.c.pk)
        .limit(1)
    )
    return statement if kinds is None else statement.where(jobs.c.kind.in_(kinds))


def _exhausted(now: float) -> Update:
    return (
        update(jobs)
        .where(jobs.c.state == "running", jobs.c.lease_until < now, jobs.c.attempts >= MAX_ATTEMPTS)
        .values(
            state="failed",
            error=f"its worker ended without an answer {MAX_ATTEMPTS} times",
            error_code="worker_lost",
            lease_until=None,
            updated=now,
        )
    )


def _by_id(connection: Connection, job_id: str) -> JobRecord:
    row = connection.execute(select(jobs).where(jobs.c.id == job_id)).first()
    if row is None:
        raise NotFound(f"no job {job_id!r}")
    return _record(row)


def _record(row: Row[Any]) -> JobRecord:
    return JobRecord(
        id=row.id,
        tenant=row.tenant,
        store_id=row.store_id,
        kind=row.kind,
        payload=row.payload,
        state=row.state,
        attempts=row.attempts,
        worker=row.worker,
        lease_until=row.lease_until,
        run_after=row.run_after,
        progress=row.progress,
        result=row.result,
        error=row.error,
        error_code=row.error_code,
        created=row.created,
        updated=row.updated,
    )
