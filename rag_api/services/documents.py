"""Documents of a store: ingested through the pipeline, listed, read as text, deleted.

Knows nothing of HTTP or of the terminal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from index.errors import Busy, Conflict, GraftError, InvalidInput, NotFound
from index.records import DocumentRecord, Progress, StoreRecord, no_progress
from rag_api.settings import ChunkingPart

if TYPE_CHECKING:
    from ingestion import Outcome, SourceFile
    from rag_api.wiring import Graft

MAX_ROUNDS = 50
"""How often a store that is made anew runs after the changes of the old one."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """What became of one document of a bulk delete."""

    document: str
    deleted: bool
    error: GraftError | None = None


class Documents:
    """The documents of a data folder's stores."""

    def __init__(self, graft: Graft) -> None:
        self._graft = graft

    def ingest(
        self,
        store: StoreRecord,
        sources: Sequence[SourceFile],
        *,
        progress: Progress = no_progress,
        cancelled: Callable[[], bool] = lambda: False,
        during_job: str | None = None,
        worker: str | None = None,
    ) -> list[Outcome]:
        """Parse, chunk, embed and commit; one outcome a source, in order.

        With `during_job` nothing is committed once that job is no longer `worker`'s. Bytes that
        came in as a version that is replaced go; without a job, also those of refused sources.
        Raises FingerprintMismatch where the store was made by another embedder.
        """
        self._graft.check_embedder(store)
        outcomes = self._graft.pipeline.ingest(
            store.id,
            sources,
            progress=progress,
            cancelled=cancelled,
            during_job=during_job,
            worker=worker,
        )
        idle = {outcome.replaced_file for outcome in outcomes if outcome.replaced_file}
        if during_job is None:
            pairs = zip(outcomes, sources, strict=True)
            idle |= {s.file_id for outcome, s in pairs if outcome.error is not None and s.file_id}
        self._graft.files.release(idle, tenant=store.tenant, only_of_documents=True)
        return outcomes

    def list(
        self, store: StoreRecord, *, after: str | None = None, limit: int | None = None
    ) -> list[DocumentRecord]:
        """List the documents of a store, by name."""
        return self._graft.index.list_documents(store.id, after=after, limit=limit)

    def get(self, store: StoreRecord, name: str) -> DocumentRecord:
        """Find a document by name."""
        return self._graft.index.get_document(store.id, name)

    def by_file(self, store: StoreRecord, file_id: str) -> DocumentRecord | None:
        """Find the document that was made of a file."""
        for document in self._graft.index.list_documents(store.id):
            if document.file_id == file_id:
                return document
        return None

    def text(self, store: StoreRecord, name: str) -> str:
        """Give exactly the extracted text of a document."""
        return self._graft.index.text(store.id, name)

    def delete(self, store: StoreRecord, name: str) -> None:
        """Delete one document, also one on its way, and its file where nothing else is made of it.

        Raises NotFound.
        """
        if name not in self._remove(store, [name]):
            raise NotFound(f"no document {name!r} in this store")

    def delete_many(self, store: StoreRecord, names: Sequence[str]) -> Sequence[Deletion]:
        """Delete documents, each by itself; a repeated name refuses the whole call."""
        repeated = sorted(name for name, count in Counter(names).items() if count > 1)
        if repeated:
            raise InvalidInput(
                f"{repeated[0]!r} is named more than once; nothing was deleted", param="documents"
            )
        gone = self._remove(store, names)
        return [
            Deletion(name, True)
            if name in gone
            else Deletion(name, False, NotFound(f"no document {name!r} in this store"))
            for name in names
        ]

    def _remove(self, store: StoreRecord, names: Sequence[str]) -> set[str]:
        """Stop what is on its way, then delete what is there; give the names that were either."""
        before = self._named(store, names)
        files = {document.file_id for document in before if document.file_id is not None}
        stopped = self._graft.jobs.cancel_for(store, files, names)
        present = self._named(store, names)  # what was committed until it was stopped too
        if present:
            self._graft.index.delete_documents(store.id, [document.name for document in present])
        files |= {document.file_id for document in present if document.file_id is not None}
        files |= {file_id for file_id, _ in stopped}
        if present:
            files |= self._graft.files.earlier_versions(present, tenant=store.tenant)
        self._graft.files.release(files, tenant=store.tenant)
        return {document.name for document in (*before, *present)} | {name for _, name in stopped}

    def _named(self, store: StoreRecord, names: Sequence[str]) -> Sequence[DocumentRecord]:
        wanted = set(names)
        return [document for document in self.list(store) if document.name in wanted]

    def reindex(self, store: StoreRecord, *, progress: Progress = no_progress) -> StoreRecord:
        """Make a store anew with the embedder of the settings, from the stored bytes.

        The old one answers, and takes changes, until the new one takes its place, id and name at
        once. Raises Conflict where a document cannot be ingested again; then, as after any other
        exception, everything is as before.
        """
        name = f"{store.id} (reindexing)"
        with suppress(NotFound):  # what a process that was killed has left
            self._graft.stores.delete(name, tenant=store.tenant)
        sizes = ChunkingPart.model_validate(dict(store.chunking))
        made = self._graft.stores.create(name, tenant=store.tenant, chunking=sizes)
        try:
            for _ in range(MAX_ROUNDS):
                self._catch_up(store, made, progress)
                try:
                    return self._graft.index.replace_store(store.id, made.id)
                except Conflict:  # the old store changed meanwhile: take that over too
                    continue
            raise Busy(
                f"store {store.name!r} changes faster than it is made anew; it is as it was; "
                "try again later"
            )
        except BaseException:
            with suppress(NotFound):
                self._graft.stores.delete(made.id, tenant=store.tenant)
            raise

    def _catch_up(self, store: StoreRecord, made: StoreRecord, progress: Progress) -> None:
        """Bring a store that is being made to what the old one holds now."""
        from ingestion import SourceFile

        wanted = self.list(store)
        names = {document.name for document in wanted}
        gone = [each for each in self.list(made) if each.name not in names]
        self._graft.index.delete_documents(made.id, [each.name for each in gone])
        files = {each.file_id for each in gone if each.file_id is not None}
        self._graft.files.release(files, tenant=store.tenant, only_of_documents=True)
        sources = [
            SourceFile(d.name, sha256=d.version, attributes=d.attributes, file_id=d.file_id)
            for d in wanted
        ]
        for outcome, document in zip(
            self.ingest(made, sources, progress=progress), wanted, strict=True
        ):
            if outcome.error is None:
                continue
            there = self._graft.index.find_document(store.id, document.name)
            if there is not None and there.version == document.version:
                raise Conflict(
                    f"{document.name!r} cannot be ingested again ({outcome.error}); "
                    "delete it first. The store is as it was"
                )
