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
from sqlalchemy import Connection, bindparam, delete, insert, select, text, update

from index import lexical
from index.blobs import claim_blobs
from index.catalogue import MAX_BOUND, AnyRow, around_of, batched, chunks_between
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

_LAST_ID = text("SELECT seq FROM sqlite_sequence WHERE name = :name")
_DELETE_CHUNKS = delete(chunks).where(chunks.c.pk.between(bindparam("first"), bindparam("last")))
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
    next_chunk = 1 + _last_id(connection, "chunks")
    next_document = 1 + _last_id(connection, "documents")
    text_keys = _text_keys(connection, new)
    claim_blobs(connection, {each.version for each in new})
    document_rows: list[dict[str, Any]] = []
    chunk_rows: list[dict[str, Any]] = []
    lexical_rows: list[tuple[int, str]] = []
    for key, each in enumerate(new, start=next_document):
        numbers = range(next_chunk, next_chunk + len(each.contents))
        common = {"pk": key, "store": pk, "first_chunk": next_chunk, "created": core.now()}
        document_rows.append(common | _document_values(each, text_keys[each.text_sha]))
        chunk_rows += _chunk_values(key, each, numbers)
        lexical_rows += zip(numbers, each.terms, strict=True)
        next_chunk += len(numbers)
    connection.execute(insert(documents), document_rows)
    if not chunk_rows:
        return []
    connection.execute(insert(chunks), chunk_rows)
    lexical.insert(connection, pk, lexical_rows)
    ids = np.array([row["pk"] for row in chunk_rows], np.int64)
    vectors = np.concatenate([each.document.vectors for each in new])
    return append(connection, core.folder, pk, store.dimension, Rows(ids, vectors))


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
    rows: list[AnyRow] = []
    for some in batched([record.id for record in old], MAX_BOUND):
        rows += connection.execute(_PLACES.where(documents.c.pk.in_(some)))
    if with_lexical:
        _delete_lexical(core, connection, pk, rows)
    for keys in batched([row.pk for row in rows], MAX_BOUND):
        in_memory = memory_segments.c.document.in_(keys)
        garbage.segments += connection.execute(
            select(memory_segments.c.name).where(in_memory)
        ).scalars()
        connection.execute(delete(memory_segments).where(in_memory))
        connection.execute(delete(documents).where(documents.c.pk.in_(keys)))
    spans = [
        {"first": row.first_chunk, "last": row.first_chunk + row.num_chunks - 1} for row in rows
    ]
    if spans:
        connection.execute(_DELETE_CHUNKS, spans)
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
        lexical.insert(connection, pk, _terms_again(connection, row, words))
    connection.execute(update(stores).where(stores.c.pk == pk).values(lexical=RULE))


def _terms_again(connection: Connection, row: AnyRow, words: str) -> list[tuple[int, str]]:
    return [
        (number, joined_terms(chunk.embedded_text(words)))
        for number, chunk in chunks_between(connection, row.first_chunk, row.num_chunks)
    ]


def _delete_lexical(core: Core, connection: Connection, pk: int, rows: Sequence[AnyRow]) -> None:
    terms: list[tuple[int, str]] = []
    for row in rows:
        try:
            words = core.texts.get(connection, row.text)
        except Damaged:
            # Without its words a row cannot be taken out: make the index of all others anew.
            rebuild_lexical(core, connection, pk, without={each.pk for each in rows})
            return
        terms += _terms_again(connection, row, words)
    lexical.delete(connection, pk, terms)


def _release_texts(connection: Connection, keys: set[int]) -> set[int]:
    """Delete those texts that no document holds any more, and give their keys."""
    gone: set[int] = set()
    for some in batched(sorted(keys), MAX_BOUND):
        held = connection.execute(select(documents.c.text).where(documents.c.text.in_(some)))
        unheld = set(some) - set(held.scalars())
        connection.execute(delete(texts).where(texts.c.pk.in_(unheld)))
        gone |= unheld
    return gone


def _last_id(connection: Connection, table: str) -> int:
    return connection.execute(_LAST_ID, {"name": table}).scalar() or 0


def _text_keys(connection: Connection, new: Sequence[Prepared]) -> dict[bytes, int]:
    """Give the key of each text by its SHA-256, inserting those that are new."""
    data = {each.text_sha: each.data for each in new}
    keys: dict[bytes, int] = {}
    for some in batched(list(data), MAX_BOUND):
        found = connection.execute(select(texts.c.sha, texts.c.pk).where(texts.c.sha.in_(some)))
        keys.update((row.sha, row.pk) for row in found)
    missing = [sha for sha in data if sha not in keys]
    numbers = range(1 + _last_id(connection, "texts"), 1 + 2**62)
    keys.update(zip(missing, numbers, strict=False))
    if missing:
        rows = [{"pk": keys[sha], "sha": sha, "data": data[sha]} for sha in missing]
        connection.execute(insert(texts), rows)
    return keys


def _document_values(each: Prepared, text_key: int) -> dict[str, Any]:
    new, parsed = each.document, each.document.parsed
    return {
        "name": new.name,
        "version": each.version,
        "text": text_key,
        "format": parsed.format,
        "media_type": parsed.media_type,
        "num_bytes": new.num_bytes,
        "num_chars": len(parsed.text),
        "num_chunks": len(new.chunks),
        "page_starts": list(parsed.page_starts),
        "coverage": parsed.coverage,
        "warnings": list(parsed.warnings),
        "attributes": dict(new.attributes),
        "file_id": new.file_id,
    }


def _chunk_values(key: int, each: Prepared, numbers: range) -> list[dict[str, Any]]:
    return [
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
