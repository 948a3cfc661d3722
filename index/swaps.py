"""One store takes the place of another: same id, same name, other documents' vectors, at once.

Two stores with the same documents go in; the second one, under the first one's id, comes out.
Knows nothing of why a store is made anew.
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, select, update

from index import lexical
from index.blobs import release_blobs
from index.catalogue import find_documents, store_row
from index.commits import remove
from index.core import Part
from index.errors import Conflict
from index.records import DocumentRecord, StoreRecord
from index.schema import documents, memory_segments, stores, tombstones, vector_segments


class Swaps(Part):
    """The public method that swaps stores."""

    def replace_store(self, store_id: str, made_id: str) -> StoreRecord:
        """Put the store `made_id` in the place of `store_id`, whose id, name and jobs it takes.

        Token memory goes over with the documents, for it hangs on the words alone. Raises NotFound,
        and Conflict (nothing is changed) unless both hold the same versions of the same documents
        with the same attributes and files.
        """
        with self._core.write() as (connection, garbage):
            pk, store = store_row(connection, store_id)
            made_pk, made = store_row(connection, made_id)
            old = find_documents(connection, documents.c.store == pk)
            new = find_documents(connection, documents.c.store == made_pk)
            if [_likeness(each) for each in old] != [_likeness(each) for each in new]:
                raise Conflict(
                    f"the documents of {store.name!r} changed meanwhile; bring the new store up "
                    "to date and try again"
                )
            _hand_memory_over(connection, old, new)
            lexical.clear(connection, pk)
            versions = remove(self._core, connection, pk, store, old, garbage, with_lexical=False)
            garbage.blobs += release_blobs(connection, versions)
            lexical.drop(connection, pk)
            for table in (vector_segments, tombstones):
                connection.execute(delete(table).where(table.c.store == pk))
            connection.execute(delete(stores).where(stores.c.pk == pk))
            connection.execute(
                update(stores)
                .where(stores.c.pk == made_pk)
                .values(
                    id=store.id,
                    name=store.name,
                    metadata=dict(store.metadata),
                    created=store.created,
                    generation=1 + max(store.generation, made.generation),
                )
            )
            garbage.stores.append(pk)
            return store_row(connection, store.id)[1]


def _likeness(document: DocumentRecord) -> tuple[object, ...]:
    attributes = sorted((key, repr(value)) for key, value in document.attributes.items())
    return document.name, document.version, attributes, document.file_id


def _hand_memory_over(
    connection: Connection, old: list[DocumentRecord], new: list[DocumentRecord]
) -> None:
    """Give the new documents the old ones' token memory where the words are the same."""
    for before, after in zip(old, new, strict=True):
        if before.text_sha != after.text_sha or not before.memories:
            continue
        present = select(memory_segments.c.backbone).where(memory_segments.c.document == after.id)
        there = set(connection.execute(present).scalars())
        connection.execute(
            update(memory_segments)
            .where(
                memory_segments.c.document == before.id,
                memory_segments.c.backbone.not_in(there),
            )
            .values(document=after.id)
        )
