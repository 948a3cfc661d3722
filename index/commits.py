"""Commits of documents and deletes: everything about them becomes visible, or gone, at once.

New documents go in, checked and prepared outside the transaction; rows, words, lexical terms and
one vector segment come out of a single one. Knows nothing of parsing, embedding or jobs' meaning.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row, delete, insert, select, text, update

from index import lexical
from index.blobs import claim_blob
from index.catalogue import MAX_BOUND, around_of, batched, chunk_rows
from index.core import Core, Garbage
from index.errors import Damaged, FingerprintMismatch, InvalidInput
from index.filters import check_attributes, check_words
from index.records import DocumentRecord, NewDocument, StoreRecord, content_sha
from index.schema import chunks, documents, memory_segments, pack_sha, stores, texts
from index.segments import append, bury
from index.terms import RULE, terms_of
from index.texts import compress
from index.vectors import Rows

logger = logging.getLogger(__name__)

_LAST_CHUNK = text("SELECT seq FROM sqlite_sequence WHERE name = 'chunks'")
_PLACES = select(
    documents.c.pk,
    documents.c.text,
    documents.c.version,
    documents.c.first_chunk,
    documents.c.num_chunks,
)

CONTENT_BYTES = 16


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checked document with what its rows need, made before the transaction."""

    document: NewDocument
    version: bytes
    text_sha: bytes
    data: bytes
    contents: list[bytes]
    terms: list[str]


def prepare(new: NewDocument) -> Prepared:
    """Check a document and make its terms and hashes. Raises InvalidInput."""
    check_words(new.name, what="a document's name")
    check_attributes(new.attributes)
    words = new.parsed.text
    _check_chunks(new)
    embedded = [chunk.embedded_text(words) for chunk in new.chunks]
    return Prepared(
        document=new,
        version=pack_sha(new.version),
        text_sha=pack_sha(content_sha(words)),
        data=compress(words),
        contents=[content_key(content_sha(each)) for each in embedded],
        terms=[joined_terms(each) for each in embedded],
    )


def content_key(sha256: str) -> bytes:
    """Give the column's form of a chunk's content SHA-256: its first 16 bytes."""
    return pack_sha(sha256)[:CONTENT_BYTES]


def joined_terms(embedded_text: str) -> str:
    """Give the lexical row of what a chunk shows to the index."""
    return " ".join(terms_of(embedded_text))


def check_store(store: StoreRecord, fingerprint: str, prepared: Sequence[Prepared]) -> None:
    """Refuse vectors of another model or dimension. Raises FingerprintMismatch, InvalidInput."""
    if fingerprint != store.embedder_fingerprint:
        raise FingerprintMismatch(
            f"the vector store {store.name!r} was made with the embedder {store.embedder!r} "
            f"(fingerprint {store.embedder_fingerprint!r}), not with the fingerprint "
            f"{fingerprint!r}; use that embedder again, or ingest into a new store: "
            "`graft ingest PATH --store NEW_NAME`"
        )
    for each in prepared:
        shape = (len(each.document.chunks), store.dimension)
        if each.document.vectors.shape != shape:
            raise InvalidInput(
                f"expected vectors {shape} for {each.document.name!r}, "
                f"got {each.document.vectors.shape}"
            )


def add(
    core: Core, connection: Connection, pk: int, store: StoreRecord, new: Sequence[Prepared]
) -> list[str]:
    """Insert documents that are not there; give the names of replaced segment files."""
    next_chunk = 1 + (connection.execute(_LAST_CHUNK).scalar() or 0)
    ids: list[int] = []
    for each in new:
        key = _insert_document(core, connection, pk, each, next_chunk)
        numbers = range(next_chunk, next_chunk + len(each.contents))
        _insert_chunks(connection, key, each, numbers)
        lexical.insert(connection, pk, zip(numbers, each.terms, strict=True))
        ids.extend(numbers)
        next_chunk += len(numbers)
    if not ids:
        return []
    vectors = np.concatenate([each.document.vectors for each in new])
    rows = Rows(np.array(ids, np.int64), vectors.astype(np.float32, copy=False))
    return append(connection, core.folder, pk, store.dimension, rows)


def remove(
    core: Core,
    connection: Connection,
    pk: int,
    store: StoreRecord,
    old: Sequence[DocumentRecord],
    garbage: Garbage,
    *,
    with_lexical: bool = True,
) -> set[bytes]:
    """Delete documents with all that hangs on them, and note what becomes garbage.

    Gives the versions whose blobs the caller releases, once it has added what it adds.
    """
    rows: list[Row[Any]] = []
    for some in batched([record.id for record in old], MAX_BOUND):
        rows += connection.execute(_PLACES.where(documents.c.pk.in_(some)))
    if with_lexical:
        _delete_lexical(core, connection, pk, rows)
    for row in rows:
        last = row.first_chunk + row.num_chunks - 1
        connection.execute(delete(chunks).where(chunks.c.pk.between(row.first_chunk, last)))
        of_row = memory_segments.c.document == row.pk
        garbage.segments += connection.execute(
            select(memory_segments.c.name).where(of_row)
        ).scalars()
        connection.execute(delete(memory_segments).where(of_row))
        connection.execute(delete(documents).where(documents.c.pk == row.pk))
    ranges = [(row.first_chunk, row.num_chunks) for row in rows]
    garbage.segments += bury(connection, core.folder, store, pk, ranges)
    garbage.texts |= _release_texts(connection, {row.text for row in rows})
    return {row.version for row in rows}


def advance_generation(connection: Connection, pk: int) -> None:
    """Move the store to its next generation."""
    connection.execute(
        update(stores).where(stores.c.pk == pk).values(generation=stores.c.generation + 1)
    )


def rebuild_lexical(
    core: Core, connection: Connection, pk: int, *, without: Set[int] = frozenset()
) -> None:
    """Build a store's lexical index again from its texts, but for some documents.

    A damaged text stays out of it with a warning: its passages cannot be shown either.
    """
    lexical.clear(connection, pk)
    for row in connection.execute(_PLACES.where(documents.c.store == pk)).all():
        if row.pk in without:
            continue
        try:
            words = core.texts.get(connection, row.text)
        except Damaged as error:
            logger.warning("a document stays out of the lexical index: %s", error)
            continue
        lexical.insert(connection, pk, lexical_rows(connection, row.pk, words))
    connection.execute(update(stores).where(stores.c.pk == pk).values(lexical=RULE))


def lexical_rows(connection: Connection, document: int, words: str) -> list[tuple[int, str]]:
    """Make the lexical rows of a document again."""
    return [
        (number, joined_terms(chunk.embedded_text(words)))
        for number, chunk in chunk_rows(connection, document)
    ]


def _delete_lexical(core: Core, connection: Connection, pk: int, rows: Sequence[Row[Any]]) -> None:
    for row in rows:
        try:
            words = core.texts.get(connection, row.text)
        except Damaged:
            # Without its words a row cannot be taken out: make the index of all others anew.
            rebuild_lexical(core, connection, pk, without={each.pk for each in rows})
            return
        lexical.delete(connection, pk, lexical_rows(connection, row.pk, words))


def _release_texts(connection: Connection, keys: set[int]) -> set[int]:
    gone = set()
    for key in keys:
        if connection.execute(select(1).where(documents.c.text == key).limit(1)).first() is None:
            connection.execute(delete(texts).where(texts.c.pk == key))
            gone.add(key)
    return gone


def _insert_document(
    core: Core, connection: Connection, pk: int, each: Prepared, first_chunk: int
) -> int:
    new, parsed = each.document, each.document.parsed
    claim_blob(connection, each.version)
    inserted = connection.execute(
        insert(documents).values(
            store=pk,
            name=new.name,
            version=each.version,
            text=_text_key(connection, each),
            format=parsed.format,
            media_type=parsed.media_type,
            num_bytes=new.num_bytes,
            num_chars=len(parsed.text),
            first_chunk=first_chunk,
            num_chunks=len(new.chunks),
            page_starts=list(parsed.page_starts),
            coverage=parsed.coverage,
            warnings=list(parsed.warnings),
            attributes=dict(new.attributes),
            file_id=new.file_id,
            created=core.now(),
        )
    )
    assert inserted.inserted_primary_key is not None
    return int(inserted.inserted_primary_key[0])


def _text_key(connection: Connection, each: Prepared) -> int:
    found = connection.execute(select(texts.c.pk).where(texts.c.sha == each.text_sha)).scalar()
    if found is not None:
        return int(found)
    inserted = connection.execute(insert(texts).values(sha=each.text_sha, data=each.data))
    assert inserted.inserted_primary_key is not None
    return int(inserted.inserted_primary_key[0])


def _insert_chunks(connection: Connection, key: int, each: Prepared, numbers: range) -> None:
    rows = [
        {
            "pk": number,
            "document": key,
            "start": chunk.start,
            "end": chunk.end,
            "num_tokens": chunk.num_tokens,
            "page": chunk.page,
            "around": around_of(chunk),
            "content": content,
        }
        for number, chunk, content in zip(numbers, each.document.chunks, each.contents, strict=True)
    ]
    if rows:
        connection.execute(insert(chunks), rows)


def _check_chunks(new: NewDocument) -> None:
    num_chars = len(new.parsed.text)
    for chunk in new.chunks:
        spans = [(chunk.start, chunk.end)]
        spans += [(s.start, s.end) for s in (chunk.header, chunk.caption) if s is not None]
        for start, end in spans:
            if not 0 <= start < end <= num_chars:
                raise InvalidInput(
                    f"expected a span inside the {num_chars} characters of {new.name!r}, "
                    f"got [{start}, {end})"
                )
    vectors = new.vectors
    if vectors.ndim != 2 or len(vectors) != len(new.chunks) or vectors.dtype != np.float32:
        raise InvalidInput(
            f"expected vectors [{len(new.chunks)}, E] float32 for {new.name!r}, "
            f"got {vectors.shape} {vectors.dtype}"
        )
    if not np.isfinite(vectors).all():
        raise InvalidInput(f"the vectors of {new.name!r} hold a value that is not finite")
