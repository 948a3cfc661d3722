"""The worker process: claims jobs, ingests documents, builds token memory, reports progress.

`python -m rag_api.worker` is started by the server, which sends the settings as one line of JSON
on its standard input; when that input ends, the server is gone and so is the worker.
Knows nothing of HTTP.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from index.errors import Busy, Cancelled, GraftError, NotFound
from index.records import StoreRecord
from rag_api import processes
from rag_api.settings import Settings, settings_from_plain
from rag_api.wiring import Graft

if TYPE_CHECKING:
    from index import JobRecord
    from ingestion import Outcome

log = logging.getLogger("graft.worker")
KINDS = ("ingest", "memory")
IDLE_S = 0.25
BEAT_S = 1.0
GRACE_S = 5.0
"""How long a job in hand may take to stop before the process ends over it."""
RETRY_S = 5.0


class Heart:
    """Keeps a job's lease and its shown progress alive, and learns of its cancellation."""

    def __init__(self, graft: Graft, job: JobRecord, worker: str, stop: threading.Event) -> None:
        self._graft = graft
        self._job = job
        self._worker = worker
        self._stop = stop
        self._lost = threading.Event()
        self._done = threading.Event()
        self._progress: dict[str, Any] = {}
        self._thread = threading.Thread(target=self._beat, name="heart", daemon=True)

    def __enter__(self) -> Heart:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def progress(self, stage: str, done: int, total: int, unit: str) -> None:
        """Remember how far the job is; the next beat writes it down."""
        counts = {**self._progress.get("counts", {}), unit: [done, total]}
        self._progress = {
            "stage": stage,
            "done": done,
            "total": total,
            "unit": unit,
            "counts": counts,
        }

    def cancelled(self) -> bool:
        """Say whether the work should stop: lost, cancelled, or the process is to end."""
        return self._lost.is_set() or self._stop.is_set()

    def lost(self) -> bool:
        """Say whether the job is no longer this worker's."""
        return self._lost.is_set()

    def _beat(self) -> None:
        """Beat until the job is done or lost; it is lost too once no beat came through a lease."""
        lease_s = self._graft.settings.lease_s
        last = time.monotonic()
        while not self._done.wait(min(BEAT_S, lease_s / 4)):
            try:
                is_ours = self._graft.index.heartbeat(self._job.id, self._worker, self._progress)
            except GraftError as error:
                log.warning("job %s: no heartbeat: %s", self._job.id, error.message)
                is_ours = time.monotonic() - last < lease_s
            else:
                last = time.monotonic()
            if not is_ours:
                self._lost.set()
                return


class Worker:
    """Runs jobs one after the other until told to stop."""

    def __init__(self, graft: Graft, stop: threading.Event, *, name: str | None = None) -> None:
        self._graft = graft
        self._stop = stop
        self.name = name or f"worker-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._handlers: Mapping[str, Callable[[JobRecord, Heart], dict[str, Any]]] = {
            "ingest": self._ingest,
            "memory": self._memory,
        }

    def run(self) -> None:
        """Claim and run jobs; sleep a little where there is none."""
        while not self._stop.is_set():
            if not self.run_one():
                self._stop.wait(IDLE_S)

    def run_one(self) -> bool:
        """Run one job, if there is one; say whether there was."""
        settings = self._graft.settings
        job = self._graft.index.claim_job(self.name, lease_s=settings.lease_s, kinds=KINDS)
        if job is None:
            return False
        with Heart(self._graft, job, self.name, self._stop) as heart:
            try:
                result = self._handlers[job.kind](job, heart)
            except Cancelled:
                self._interrupted(job, heart)
            except GraftError as error:
                retry = error.retry_after_s if isinstance(error, Busy) else None
                self._fail(job, error.message, error.code, retry)
            except Exception as error:
                log.exception("job %s (%s) failed", job.id, job.kind)
                self._fail(
                    job, f"internal error: {type(error).__name__}", "internal_error", RETRY_S
                )
            else:
                self._graft.index.finish_job(job.id, self.name, result=result)
        return True

    def _interrupted(self, job: JobRecord, heart: Heart) -> None:
        if not heart.lost():  # this process is to end: the next one goes on at once
            self._graft.index.release_job(job.id, self.name)

    def _fail(self, job: JobRecord, error: str, code: str, retry_in_s: float | None) -> None:
        self._graft.index.fail_job(job.id, self.name, error=error, code=code, retry_in_s=retry_in_s)

    def _store(self, job: JobRecord) -> StoreRecord:
        assert job.store_id is not None
        return self._graft.stores.get(job.store_id, tenant=job.tenant)

    def _ingest(self, job: JobRecord, heart: Heart) -> dict[str, Any]:
        from ingestion import SourceFile

        store = self._store(job)
        outcomes: dict[str, dict[str, Any]] = {}
        items, sources = [], []
        for item in job.payload["items"]:
            try:
                self._graft.files.get(item["file_id"], tenant=job.tenant)
            except NotFound as error:
                outcomes[item["file_id"]] = {
                    "status": "failed",
                    "error": error.message,
                    "code": error.code,
                }
                continue
            items.append(item)
            sources.append(
                SourceFile(
                    name=item["name"],
                    sha256=item["sha256"],
                    attributes=item["attributes"],
                    file_id=item["file_id"],
                )
            )
        made = self._graft.documents.ingest(
            store,
            sources,
            progress=heart.progress,
            cancelled=heart.cancelled,
            during_job=job.id,
            worker=self.name,
        )
        for item, outcome in zip(items, made, strict=True):
            outcomes[item["file_id"]] = outcome_json(outcome)
        if heart.cancelled() or any(isinstance(o.error, Cancelled) for o in made):
            raise Cancelled("the job was cancelled")
        return self._after_ingest(job, outcomes)

    def _after_ingest(
        self, job: JobRecord, outcomes: Mapping[str, dict[str, Any]]
    ) -> dict[str, Any]:
        failed = [outcome for outcome in outcomes.values() if outcome["status"] == "failed"]
        if len(outcomes) == len(failed) == 1:
            raise JobFailed(failed[0]["error"], failed[0]["code"])
        if self._graft.settings.memory.auto_limit_tokens:
            store = self._store(job)
            self._graft.index.enqueue(
                "memory",
                tenant=job.tenant,
                store_id=store.id,
                payload={"auto": True},
                dedupe_key=f"auto:{store.id}:{store.generation}",
            )
        return {"outcomes": dict(outcomes)}

    def _memory(self, job: JobRecord, heart: Heart) -> dict[str, Any]:
        store = self._store(job)
        limit = self._graft.settings.memory.auto_limit_tokens
        if job.payload.get("auto"):
            pending = self._graft.memory.pending_tokens(store)
            if pending > limit:
                return {
                    "skipped": f"{pending} tokens are pending and {limit} are built by themselves; "
                    f"run `graft memory build --store {store.name}`"
                }
        built = self._graft.memory.build(store, progress=heart.progress, cancelled=heart.cancelled)
        return {"documents": built.num_documents, "tokens": built.num_tokens}


class JobFailed(GraftError):
    """The only document of a job could not be ingested; the job fails with its error."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """Give what became of one source as JSON data."""
    document = outcome.document
    return {
        "document": outcome.name,
        "status": outcome.status,
        "error": outcome.error.message if outcome.error is not None else None,
        "code": outcome.error.code if outcome.error is not None else None,
        "duplicate_of": outcome.duplicate_of,
        "chunks": document.num_chunks if document is not None else 0,
        "coverage": document.coverage if document is not None else 0.0,
        "warnings": list(document.warnings) if document is not None else [],
    }


def run(settings: Settings, stop: threading.Event) -> None:
    """Work with these settings until told to stop."""
    graft = Graft(settings)
    try:
        Worker(graft, stop).run()
    finally:
        graft.close()


def main() -> None:
    """Read the settings from standard input, then work until that input ends."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    settings = settings_from_plain(json.loads(sys.stdin.readline()))
    processes.prepare(settings)
    processes.forbid_network()
    stop = threading.Event()
    threading.Thread(target=_end_with_parent, args=(stop,), name="parent", daemon=True).start()
    run(settings, stop)


def _end_with_parent(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()
    threading.Timer(GRACE_S, lambda: os._exit(0)).start()


if __name__ == "__main__":
    main()
