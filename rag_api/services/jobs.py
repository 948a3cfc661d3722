"""Jobs: ingestions and memory builds that are asked for here and done by a worker.

Knows nothing of HTTP. What a worker does with a job is in `rag_api.worker`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from index.errors import GraftError, InvalidInput, NotFound
from index.filters import check_attributes
from index.records import DocumentRecord, StoreRecord

if TYPE_CHECKING:
    from index import FileRecord, JobRecord, JobState
    from rag_api.wiring import Graft

Scalar = str | int | float | bool
LIVE = ("queued", "running")
FileState = Literal["in_progress", "completed", "cancelled", "failed"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file that is to become a document of a store."""

    file_id: str
    attributes: Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file's place in a store: the document that it is, or the job that it waits for."""

    file: FileRecord
    store: StoreRecord
    state: FileState
    job_id: str | None = None
    document: DocumentRecord | None = None
    attributes: Mapping[str, Scalar] | None = None
    error: str | None = None
    error_code: str | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """A bulk attachment: one job for the good files, one error for each bad one."""

    job: JobRecord | None
    accepted: tuple[StoredFile, ...]
    refused: tuple[tuple[str, GraftError], ...]


class Jobs:
    """The queue of a data folder."""

    def __init__(self, graft: Graft) -> None:
        self._graft = graft

    def get(self, job_id: str, *, tenant: str) -> JobRecord:
        """Find a job; another tenant's is unknown."""
        return self._graft.index.get_job(job_id, tenant=tenant)

    def list(
        self, *, tenant: str, store_id: str | None = None, state: JobState | None = None
    ) -> list[JobRecord]:
        """List a tenant's jobs."""
        return self._graft.index.list_jobs(tenant=tenant, store_id=store_id, state=state)

    def of_batch(self, store: StoreRecord, batch_id: str, *, tenant: str) -> JobRecord:
        """Find the job of a bulk attachment."""
        unknown = NotFound(f"no batch {batch_id!r} in this store")
        try:
            job = self.get(batch_id.removeprefix("vsfb_"), tenant=tenant)
        except NotFound:
            raise unknown from None
        if job.store_id != store.id or job.kind != "ingest":
            raise unknown
        return job

    def cancel(self, job_id: str, *, tenant: str) -> JobRecord:
        """Ask for a job to stop; what it committed stays."""
        self._graft.index.cancel_job(job_id, tenant=tenant)
        return self.get(job_id, tenant=tenant)

    # ---- files into stores

    def attach(self, store: StoreRecord, wanted: Wanted, *, tenant: str) -> StoredFile:
        """Enqueue one file of this tenant for a store. Raises FingerprintMismatch, NotFound."""
        batch = self.attach_many(store, [wanted], tenant=tenant)
        for _, error in batch.refused:
            raise error
        return batch.accepted[0]

    def attach_many(self, store: StoreRecord, wanted: Sequence[Wanted], *, tenant: str) -> Batch:
        """Enqueue files as one job; a file that is unknown is reported, the others are done."""
        limit = self._graft.settings.limits.batch_items
        if not 1 <= len(wanted) <= limit:
            raise InvalidInput(f"1 to {limit} files at once; {len(wanted)} came", param="file_ids")
        self._graft.check_embedder(store)
        for item in wanted:
            _check_attributes(item.attributes)
        good: list[tuple[FileRecord, Wanted]] = []
        refused: list[tuple[str, GraftError]] = []
        for item in {item.file_id: item for item in wanted}.values():
            try:
                good.append((self._graft.files.get(item.file_id, tenant=tenant), item))
            except NotFound as error:
                refused.append((item.file_id, error))
        job = self._enqueue(store, good, refused, tenant=tenant) if good else None
        accepted = tuple(self._waiting(store, file, item, job) for file, item in good)
        return Batch(job, accepted, tuple(refused))

    def _enqueue(
        self,
        store: StoreRecord,
        good: Sequence[tuple[FileRecord, Wanted]],
        refused: Sequence[tuple[str, GraftError]],
        *,
        tenant: str,
    ) -> JobRecord:
        items = [
            {
                "file_id": file.id,
                "name": file.name,
                "sha256": file.sha256,
                "attributes": dict(wanted.attributes),
            }
            for file, wanted in good
        ]
        payload = {
            "items": items,
            "refused": [{"file_id": name, "error": error.message} for name, error in refused],
        }
        canonical = json.dumps([store.id, items], sort_keys=True).encode()
        return self._graft.index.enqueue(
            "ingest",
            tenant=tenant,
            store_id=store.id,
            payload=payload,
            dedupe_key=hashlib.sha256(canonical).hexdigest(),
        )

    @staticmethod
    def _waiting(
        store: StoreRecord, file: FileRecord, wanted: Wanted, job: JobRecord | None
    ) -> StoredFile:
        job_id = job.id if job is not None else None
        return StoredFile(
            file, store, "in_progress", job_id=job_id, attributes=dict(wanted.attributes)
        )

    def build_memory(self, store: StoreRecord, *, tenant: str) -> JobRecord:
        """Enqueue the token memory of a store."""
        return self._graft.index.enqueue(
            "memory",
            tenant=tenant,
            store_id=store.id,
            payload={},
            dedupe_key=f"asked:{store.id}:{store.generation}",
        )

    # ---- where a file stands

    def stored_file(self, store: StoreRecord, file_id: str, *, tenant: str) -> StoredFile:
        """Say where one file of a store stands. Raises NotFound where it is not in the store."""
        for found in self.stored_files(store, tenant=tenant):
            if found.file.id == file_id:
                return found
        raise NotFound(f"no file {file_id!r} in this store")

    def stored_files(self, store: StoreRecord, *, tenant: str) -> Sequence[StoredFile]:
        """List every file that is in a store, on its way into it, or failed to get there."""
        found: dict[str, StoredFile] = {}
        for document in self._graft.index.list_documents(store.id):
            file = self._file_of(document.file_id, tenant)
            if file is not None:
                found[file.id] = StoredFile(
                    file, store, "completed", document=document, attributes=document.attributes
                )
        for job in sorted(self.list(tenant=tenant, store_id=store.id), key=lambda job: job.created):
            for item in job.payload.get("items", []) if job.kind == "ingest" else []:
                self._add_from_job(found, store, job, item, tenant)
        return list(found.values())

    def _add_from_job(
        self,
        found: dict[str, StoredFile],
        store: StoreRecord,
        job: JobRecord,
        item: Mapping[str, Any],
        tenant: str,
    ) -> None:
        file = self._file_of(str(item["file_id"]), tenant)
        outcome = (job.result or {}).get("outcomes", {}).get(item["file_id"], {})
        state = _state(job, outcome)
        if (
            file is None
            or item.get("dismissed")
            or state == "completed"
            or (state != "in_progress" and file.id in found)
        ):
            return
        found[file.id] = StoredFile(
            file,
            store,
            state,
            job_id=job.id,
            attributes=item.get("attributes"),
            error=outcome.get("error") or job.error,
            error_code=outcome.get("code") or job.error_code,
        )

    def _file_of(self, file_id: str | None, tenant: str) -> FileRecord | None:
        try:
            return None if file_id is None else self._graft.files.get(file_id, tenant=tenant)
        except NotFound:
            return None

    # ---- deletes

    def detach(self, store: StoreRecord, file_id: str, *, tenant: str) -> None:
        """Take a file out of a store: its job is cancelled, its document is gone on return."""
        self.stored_file(store, file_id, tenant=tenant)
        self.cancel_for(store, {file_id})
        document = self._graft.documents.by_file(store, file_id)
        if document is not None:
            self._graft.index.delete_documents(store.id, [document.name])
        self._dismiss(store, file_id)

    def _dismiss(self, store: StoreRecord, file_id: str) -> None:
        """Mark a file in the store's ended jobs, so that it is listed there no longer."""
        for job in self.list(tenant=store.tenant, store_id=store.id):
            items = job.payload.get("items", [])
            marked = [i | {"dismissed": True} if i["file_id"] == file_id else i for i in items]
            if job.state not in LIVE and marked != items:
                payload = {**job.payload, "items": marked}
                self._graft.index.amend_job(job.id, payload, tenant=store.tenant)

    def cancel_for(
        self, store: StoreRecord, file_ids: Collection[str], names: Collection[str] = ()
    ) -> set[tuple[str, str]]:
        """Cancel what is on its way for files or names, so that nothing deleted comes back.

        The other files of a cancelled job go on in a job of their own. Gives the file id and the
        name of all that was cancelled.
        """
        cancelled: set[tuple[str, str]] = set()
        for job in self.list(tenant=store.tenant, store_id=store.id):
            items = job.payload.get("items", [])
            rest = [i for i in items if i["file_id"] not in file_ids and i["name"] not in names]
            if job.state not in LIVE or len(rest) == len(items):
                continue
            self._graft.index.cancel_job(job.id, tenant=store.tenant)
            if rest:
                self._graft.index.enqueue(
                    "ingest",
                    tenant=store.tenant,
                    store_id=store.id,
                    payload={"items": rest, "refused": []},
                )
            cancelled |= {(i["file_id"], i["name"]) for i in items if i not in rest}
        return cancelled

    def waited_for(self, store: StoreRecord) -> set[str]:
        """Give the files that a job of this store still has to ingest."""
        return {
            str(item["file_id"])
            for job in self.list(tenant=store.tenant, store_id=store.id)
            if job.state in LIVE
            for item in job.payload.get("items", [])
        }

    def cancel_for_store(self, store: StoreRecord) -> None:
        """Cancel everything that is on its way for a store."""
        for job in self.list(tenant=store.tenant, store_id=store.id):
            if job.state in LIVE:
                self._graft.index.cancel_job(job.id, tenant=store.tenant)


def _check_attributes(attributes: Mapping[str, Scalar]) -> None:
    """Refuse now what the worker could not commit later. Raises InvalidInput."""
    try:
        check_attributes(attributes)
    except InvalidInput as error:
        raise InvalidInput(error.message, param="attributes") from None


def _state(job: JobRecord, outcome: Mapping[str, Any]) -> FileState:
    if job.state in LIVE:
        return "in_progress"
    if job.state == "cancelled":
        return "cancelled"
    return "failed" if job.state != "done" or outcome.get("status") == "failed" else "completed"
