"""Reading a store: one snapshot of the catalogue and the vectors of the same generation.

Queries go in, hits and passages come out, all as of the moment the view was opened.
Knows nothing of embedding, fusing or reranking.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row, select

from index import lexical
from index.catalogue import MAX_BOUND, batched, chunk_record, find_documents, store_row
from index.core import Core, Part
from index.errors import InvalidInput, NotFound
from index.filters import condition_of
from index.records import (
    AttributeFilter,
    DocumentRecord,
    FloatArray,
    Hit,
    IntArray,
    Passage,
    StoreRecord,
)
from index.schema import chunks, documents, unpack_sha
from index.texts import TextCache
from index.vectors import VectorTable

_PASSAGES = select(
    chunks,
    documents.c.store,
    documents.c.name,
    documents.c.version,
    documents.c.text,
    documents.c.attributes,
).join_from(chunks, documents, documents.c.pk == chunks.c.document)


@contextmanager
def open_view(core: Core, store_id: str) -> Iterator[StoreView]:
    """Give a view of a store's present generation. Raises NotFound, Damaged."""

    def load(connection: Connection) -> tuple[int, StoreRecord, VectorTable] | None:
        pk, store = store_row(connection, store_id)
        table = core.vectors.table(connection, pk, store)
        return None if table is None else (pk, store, table)

    with core.snapshot(load) as (connection, (pk, store, table)):
        yield StoreView(store=store, table=table, pk=pk, connection=connection, texts=core.texts)


class Views(Part):
    """Public methods for reading."""

    def view(self, store_id: str) -> AbstractContextManager[StoreView]:
        """Open a snapshot of a store for the length of a `with`. Raises NotFound, Damaged."""
        return open_view(self._core, store_id)


@dataclass(frozen=True, slots=True)
class StoreView:
    """A store at one generation; for one thread, inside its `with`."""

    store: StoreRecord
    table: VectorTable
    pk: int
    connection: Connection
    texts: TextCache

    def chunk_ids(self, where: AttributeFilter | None) -> IntArray | None:
        """Give the ids of the chunks whose documents match, ascending; None for all."""
        if where is None:
            return None
        rows = self.connection.execute(
            select(documents.c.first_chunk, documents.c.num_chunks)
            .where(documents.c.store == self.pk, condition_of(where))
            .order_by(documents.c.first_chunk)
        )
        ranges = [np.arange(first, first + count, dtype=np.int64) for first, count in rows]
        return np.concatenate(ranges) if ranges else np.empty(0, np.int64)

    def dense(
        self, vector: FloatArray, *, k: int, where: AttributeFilter | None = None
    ) -> list[Hit]:
        """Give the k chunks of greatest inner product with `vector` [E], exactly; best first.

        Chunks that do not match `where` are left out before the k are taken.
        """
        _check_k(k)
        return self.table.search(vector, k, self.chunk_ids(where))

    def lexical(self, query: str, *, k: int, where: AttributeFilter | None = None) -> list[Hit]:
        """Give the k best chunks by BM25 among those that hold a term of the query; best first."""
        _check_k(k)
        condition = None if where is None else condition_of(where)
        return lexical.search(
            self.connection,
            self.pk,
            query,
            k=k,
            condition=condition,
            num_rows=self.table.num_live,
        )

    def passages(
        self, chunk_ids: Sequence[int], scores: Mapping[int, Mapping[str, float]]
    ) -> list[Passage]:
        """Give the passages of chunks in the order asked, with their scores by name.

        Raises NotFound for an id that this store does not have, Damaged for a damaged text.
        """
        wanted = [int(number) for number in chunk_ids]
        rows: dict[int, Row[Any]] = {}
        for some in batched(wanted, MAX_BOUND):
            found = self.connection.execute(
                _PASSAGES.where(chunks.c.pk.in_(some), documents.c.store == self.pk)
            )
            rows.update((row.pk, row) for row in found)
        return [self._passage(rows, number, scores.get(number, {})) for number in wanted]

    def vectors(self, chunk_ids: Sequence[int] | IntArray) -> FloatArray:
        """Give the vectors [N, E] of chunks in the order asked. Raises NotFound."""
        return self.table.vectors_of(np.asarray(chunk_ids, np.int64))

    def documents(self, where: AttributeFilter | None = None) -> list[DocumentRecord]:
        """Give the documents of this generation (those that match), by name."""
        conditions = [documents.c.store == self.pk]
        if where is not None:
            conditions.append(condition_of(where))
        return find_documents(self.connection, *conditions)

    def text(self, name: str) -> str:
        """Give the text of a document of this generation. Raises NotFound, Damaged."""
        key = self.connection.execute(
            select(documents.c.text).where(documents.c.store == self.pk, documents.c.name == name)
        ).scalar()
        if key is None:
            raise NotFound(f"no document {name!r} in the vector store {self.store.id!r}")
        return self.texts.get(self.connection, key)

    def _passage(
        self, rows: Mapping[int, Row[Any]], number: int, scores: Mapping[str, float]
    ) -> Passage:
        if number not in rows:
            raise NotFound(f"no chunk with the id {number} in this store")
        row = rows[number]
        words = self.texts.get(self.connection, row.text)
        chunk = chunk_record(row)
        embedded = chunk.embedded_text(words)
        return Passage(
            chunk_id=number,
            store_id=self.store.id,
            document=row.name,
            version=unpack_sha(row.version),
            start=chunk.start,
            end=chunk.end,
            text=words[chunk.start : chunk.end],
            context=embedded[: len(embedded) - (chunk.end - chunk.start)].rstrip("\n"),
            headings=chunk.headings,
            page=chunk.page,
            scores=dict(scores),
            attributes=row.attributes,
        )


def _check_k(k: int) -> None:
    if k < 1:
        raise InvalidInput(f"expected k of at least 1, got {k}", param="k")
