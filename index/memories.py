"""Public methods for token memory: what is missing, commit, read, forget.

Arrays of one document go in, a view of a store's entries comes out. Knows nothing of models.
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, exists, insert, select

from index.catalogue import find_documents, store_row
from index.commits import advance_generation
from index.core import Part
from index.errors import FingerprintMismatch
from index.memory import check_arrays, parts_of
from index.records import DocumentRecord, MemoryArrays, MemoryView
from index.schema import documents, memory_segments, pack_sha


class Memories(Part):
    """Public methods for the token memory of a store."""

    def pending_memory(self, store_id: str, backbone_fingerprint: str) -> list[DocumentRecord]:
        """Give the documents that have no entries under this backbone yet, by name."""
        with self._core.database.read() as connection:
            pk, _ = store_row(connection, store_id)
            has_entries = exists(
                select(1).where(
                    memory_segments.c.document == documents.c.pk,
                    memory_segments.c.backbone == backbone_fingerprint,
                )
            )
            return find_documents(connection, documents.c.store == pk, ~has_entries)

    def commit_memory(
        self, document: DocumentRecord, backbone_fingerprint: str, arrays: MemoryArrays
    ) -> bool:
        """Make a document's entries searchable; False where that version is gone meanwhile.

        Entries that are there already stay as they are. Raises InvalidInput, StorageFailed, and
        FingerprintMismatch where keys of another width are there under the same fingerprint.
        """
        check_arrays(document, arrays)
        written = self._core.folder.write_temporary(parts_of(arrays))
        try:
            with self._core.write() as (connection, _):
                pk = connection.execute(
                    select(documents.c.store).where(documents.c.pk == document.id)
                ).scalar()
                if pk is None:
                    return False
                key = {"document": document.id, "backbone": backbone_fingerprint}
                if connection.execute(select(memory_segments).filter_by(**key)).first() is None:
                    _check_width(connection, pk, backbone_fingerprint, arrays)
                    name = f"memory-{written.name}"
                    self._core.folder.publish(written.name, self._core.folder.segments / name)
                    connection.execute(
                        insert(memory_segments).values(
                            **key,
                            name=name,
                            num_bytes=written.num_bytes,
                            sha=pack_sha(written.sha256),
                            num_tokens=len(arrays.tokens),
                            key_dim=arrays.keys.shape[1],
                        )
                    )
                    advance_generation(connection, pk)
        finally:
            self._core.folder.discard_temporary(written.name)
        return True

    def memory(self, store_id: str, backbone_fingerprint: str) -> MemoryView:
        """Give all entries of a store under a backbone, of its present generation.

        Each segment is verified when first read. Raises NotFound, Damaged.
        """

        def load(connection: Connection) -> MemoryView | None:
            pk, store = store_row(connection, store_id)
            return self._core.memories.view(connection, pk, store, backbone_fingerprint)

        with self._core.snapshot(load) as (_, view):
            return view

    def forget_memory(self, document: DocumentRecord, backbone_fingerprint: str) -> bool:
        """Drop a document's entries, so that the next memory job builds them; False if none."""
        with self._core.write() as (connection, garbage):
            own = (
                memory_segments.c.document == document.id,
                memory_segments.c.backbone == backbone_fingerprint,
            )
            name = connection.execute(select(memory_segments.c.name).where(*own)).scalar()
            if name is None:
                return False
            garbage.segments.append(name)
            connection.execute(delete(memory_segments).where(*own))
            pk, _ = store_row(connection, document.store_id)
            advance_generation(connection, pk)
        self._core.memories.forget(pk, backbone_fingerprint)
        return True


def _check_width(connection: Connection, pk: int, backbone: str, arrays: MemoryArrays) -> None:
    width = connection.execute(
        select(memory_segments.c.key_dim)
        .join(documents, documents.c.pk == memory_segments.c.document)
        .where(documents.c.store == pk, memory_segments.c.backbone == backbone)
        .where(memory_segments.c.num_tokens > 1)
        .limit(1)
    ).scalar()
    if width is not None and len(arrays.keys) and width != arrays.keys.shape[1]:
        raise FingerprintMismatch(
            f"the token memory under {backbone!r} has keys of {width} numbers, not of "
            f"{arrays.keys.shape[1]}: another model or hook made them; delete the documents and "
            "ingest them again"
        )
