"""Look-ups in the catalogue: a connection and a key go in, a record or NotFound comes out.

Knows nothing of files, vectors or the lexical index.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, func, or_, select, text

from index.errors import NotFound
from index.records import Chunk, DocumentRecord, FileRecord, Span, StoreRecord
from index.schema import (
    blobs,
    chunks,
    documents,
    files,
    memory_segments,
    stores,
    texts,
    unpack_sha,
    vector_segments,
)

T = TypeVar("T")
AnyRow = Row[*tuple[Any, ...]]
MAX_BOUND = 500

_own = memory_segments.alias()
_MEMORIES = (
    select(func.json_group_array(_own.c.backbone))
    .where(_own.c.document == documents.c.pk)
    .correlate(documents)
    .scalar_subquery()
)
DOCUMENTS = (
    select(
        documents,
        texts.c.sha.label("text_sha"),
        stores.c.id.label("store_id"),
        _MEMORIES.label("memories"),
    )
    .join_from(documents, texts, texts.c.pk == documents.c.text)
    .join(stores, stores.c.pk == documents.c.store)
)
_CHUNKS = (
    select(chunks)
    .where(chunks.c.pk.between(bindparam("first"), bindparam("last")))
    .order_by(chunks.c.pk)
)
_LAST_STORE = text("SELECT seq FROM sqlite_sequence WHERE name = 'stores'")
_STORE_BY_ID = select(stores).where(stores.c.id == bindparam("id"))


def batched(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Cut a sequence into pieces of at most `size`, for statements with bound lists."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def store_row(connection: Connection, store_id: str) -> tuple[int, StoreRecord]:
    """Give a store's key and record by its id. Raises NotFound."""
    row = connection.execute(_STORE_BY_ID, {"id": store_id}).first()
    if row is None:
        raise NotFound(f"no vector store {store_id!r}")
    return row.pk, store_record(row)


def store_keys(connection: Connection) -> tuple[set[int], int]:
    """Give the keys of all stores, and the greatest key that was ever given."""
    last = connection.execute(_LAST_STORE).scalar() or 0
    return set(connection.execute(select(stores.c.pk)).scalars()), last


def store_of_tenant(connection: Connection, store: str, tenant: str) -> tuple[int, StoreRecord]:
    """Give a tenant's store by id or name. Raises NotFound, the same for unknown and foreign."""
    statement = select(stores).where(
        stores.c.tenant == tenant, or_(stores.c.id == store, stores.c.name == store)
    )
    # An id wins over another store that happens to be named like it.
    rows = sorted(connection.execute(statement), key=lambda row: row.id != store)
    if not rows:
        raise NotFound(f"no vector store {store!r}")
    return rows[0].pk, store_record(rows[0])


def store_record(row: AnyRow) -> StoreRecord:
    """Make the record of a row of `stores`."""
    return StoreRecord(
        id=row.id,
        tenant=row.tenant,
        name=row.name,
        embedder=row.embedder,
        embedder_fingerprint=row.embedder_fingerprint,
        dimension=row.dimension,
        chunking=row.chunking,
        generation=row.generation,
        created=row.created,
        metadata=row._mapping["metadata"],
    )


def find_documents(
    connection: Connection, *conditions: ColumnElement[bool], limit: int | None = None
) -> list[DocumentRecord]:
    """Give the documents that satisfy all conditions, by name."""
    statement: Select[Any] = DOCUMENTS.where(*conditions).order_by(documents.c.name).limit(limit)
    return [document_record(row) for row in connection.execute(statement)]


def find_named(
    connection: Connection, store: int, names: Sequence[str]
) -> dict[str, DocumentRecord]:
    """Give those of the named documents that the store has, by name."""
    found: dict[str, DocumentRecord] = {}
    for some in batched(names, MAX_BOUND):
        for record in find_documents(
            connection, documents.c.store == store, documents.c.name.in_(some)
        ):
            found[record.name] = record
    return found


def document_record(row: AnyRow) -> DocumentRecord:
    """Make the record of a row of the documents' select."""
    return DocumentRecord(
        id=row.pk,
        store_id=row.store_id,
        name=row.name,
        version=unpack_sha(row.version),
        text_sha=unpack_sha(row.text_sha),
        format=row.format,
        media_type=row.media_type,
        num_bytes=row.num_bytes,
        num_chars=row.num_chars,
        num_chunks=row.num_chunks,
        page_starts=tuple(row.page_starts),
        coverage=row.coverage,
        warnings=tuple(row.warnings),
        attributes=row.attributes,
        file_id=row.file_id,
        memories=tuple(sorted(json.loads(row.memories))),
        created=row.created,
    )


def chunks_between(connection: Connection, first: int, count: int) -> list[tuple[int, Chunk]]:
    """Give the (id, chunk) pairs of `count` consecutive ids, those that exist."""
    rows = connection.execute(_CHUNKS, {"first": first, "last": first + count - 1})
    return [(row.pk, chunk_record(row)) for row in rows]


def chunk_record(row: AnyRow) -> Chunk:
    """Make the record of a row of `chunks`."""
    around = row.around or {}
    return Chunk(
        start=row.start,
        end=row.end,
        num_tokens=row.num_tokens,
        headings=tuple(around.get("headings", ())),
        page=row.page,
        header=_span(around.get("header")),
        caption=_span(around.get("caption")),
    )


def around_of(chunk: Chunk) -> dict[str, list[Any]] | None:
    """Give the column's form of what a chunk needs around it."""
    around: dict[str, list[Any]] = {}
    if chunk.headings:
        around["headings"] = list(chunk.headings)
    for name, span in (("header", chunk.header), ("caption", chunk.caption)):
        if span is not None:
            around[name] = [span.start, span.end]
    return around or None


def file_record(row: AnyRow) -> FileRecord:
    """Make the record of a row of `files`."""
    return FileRecord(
        id=row.id,
        tenant=row.tenant,
        name=row.name,
        sha256=unpack_sha(row.sha),
        num_bytes=row.num_bytes,
        purpose=row.purpose,
        created=row.created,
    )


def file_of_tenant(connection: Connection, file_id: str, tenant: str) -> FileRecord:
    """Give a tenant's file by id. Raises NotFound, the same for unknown and foreign."""
    row = connection.execute(
        select(files).where(files.c.tenant == tenant, files.c.id == file_id)
    ).first()
    if row is None:
        raise NotFound(f"no file {file_id!r}")
    return file_record(row)


def named_segments(connection: Connection) -> set[str]:
    """Give the names of all segment files that a row names."""
    names = set(connection.execute(select(vector_segments.c.name)).scalars())
    return names | set(connection.execute(select(memory_segments.c.name)).scalars())


def named_blobs(connection: Connection) -> set[str]:
    """Give the names of all blob files that a row names."""
    return {sha.hex() for sha in connection.execute(select(blobs.c.sha)).scalars()}


def _span(pair: Sequence[int] | None) -> Span | None:
    return None if pair is None else Span(pair[0], pair[1])
