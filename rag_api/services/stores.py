"""Vector stores: created with the embedder of the settings, found by id or name, deleted.

Knows nothing of HTTP, of documents' contents or of the language model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from index.errors import InvalidInput, NotFound
from index.records import StoreRecord

if TYPE_CHECKING:
    from rag_api.settings import ChunkingPart
    from rag_api.wiring import Graft

MAX_NAME = 256


class Stores:
    """The stores of a data folder, tenant by tenant."""

    def __init__(self, graft: Graft) -> None:
        self._graft = graft

    def create(
        self,
        name: str,
        *,
        tenant: str,
        chunking: ChunkingPart | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> StoreRecord:
        """Create a store; its chunk sizes and embedder stay what they are now.

        Raises Conflict for a name that is taken, InvalidInput for a splitter that does not exist.
        """
        if not name.strip() or len(name) > MAX_NAME:
            raise InvalidInput(f"a store's name has 1 to {MAX_NAME} characters", param="name")
        sizes = chunking or self._graft.settings.chunking
        _check_splitter(sizes.splitter)
        embedder = self._graft.embedder
        return self._graft.index.create_store(
            name,
            tenant=tenant,
            embedder=self._graft.settings.embedder_source,
            embedder_fingerprint=embedder.fingerprint,
            dimension=embedder.dimension,
            chunking={"size": sizes.size, "overlap": sizes.overlap, "splitter": sizes.splitter},
            metadata=metadata or {},
        )

    def get(self, store: str, *, tenant: str) -> StoreRecord:
        """Find a store by id or name; another tenant's is unknown."""
        return self._graft.index.get_store(store, tenant=tenant)

    def get_or_create(self, name: str, *, tenant: str) -> tuple[StoreRecord, bool]:
        """Find a store, or create it; True says that it is new."""
        try:
            return self.get(name, tenant=tenant), False
        except NotFound:
            return self.create(name, tenant=tenant), True

    def list(self, *, tenant: str) -> list[StoreRecord]:
        """List a tenant's stores."""
        return self._graft.index.list_stores(tenant=tenant)

    def update(
        self,
        store: str,
        *,
        tenant: str,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> StoreRecord:
        """Rename a store or replace its metadata."""
        found = self.get(store, tenant=tenant)
        return self._graft.index.update_store(found.id, tenant=tenant, name=name, metadata=metadata)

    def delete(self, store: str, *, tenant: str) -> StoreRecord:
        """Delete a store with all that is in it; work that is on its way for it is cancelled."""
        found = self.get(store, tenant=tenant)
        self._graft.jobs.cancel_for_store(found)
        self._graft.index.delete_store(found.id, tenant=tenant)
        self._graft.memory.forget(found.id)
        return found


def _check_splitter(splitter: str) -> None:
    from ingestion.chunking import STRUCTURE

    if splitter != STRUCTURE:
        from ingestion.foreign import check_splitter

        check_splitter(splitter)
