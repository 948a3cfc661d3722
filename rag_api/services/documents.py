"""Documents of a store: ingested through the pipeline, listed, read as text, deleted.

Knows nothing of HTTP or of the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from index.errors import GraftError, InvalidInput, NotFound
from index.records import DocumentRecord, Progress, StoreRecord, no_progress

if TYPE_CHECKING:
    from ingestion import Outcome, SourceFile
    from rag_api.wiring import Graft

Scalar = str | int | float | bool


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
    ) -> list[Outcome]:
        """Parse, chunk, embed and commit; one outcome a source, in order.

        Raises FingerprintMismatch where the store was made by another embedder.
        """
        self._graft.check_embedder(store)
        return self._graft.pipeline.ingest(
            store.id, sources, progress=progress, cancelled=cancelled
        )

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
        """Delete one document. Raises NotFound."""
        self.get(store, name)
        self._graft.index.delete_documents(store.id, [name])

    def delete_many(self, store: StoreRecord, names: Sequence[str]) -> list[Deletion]:
        """Delete documents, each by itself; a repeated name refuses the whole call."""
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise InvalidInput(
                f"{repeated[0]!r} is named more than once; nothing was deleted", param="documents"
            )
        present = {document.name for document in self._graft.index.list_documents(store.id)}
        known = [name for name in names if name in present]
        if known:
            self._graft.index.delete_documents(store.id, known)
        return [
            Deletion(name, True)
            if name in present
            else Deletion(name, False, NotFound(f"no document {name!r} in this store"))
            for name in names
        ]


def attributes_of(given: Mapping[str, Scalar] | None) -> dict[str, Scalar]:
    """Give attributes as the index takes them."""
    return dict(given or {})
