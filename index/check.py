"""The doctor's look at a store: every row against its file, every file against its row.

A snapshot and a folder go in, findings come out; nothing is changed.
Knows nothing of how damage is repaired beyond naming it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
from sqlalchemy import Connection, column, select, table, text

from index.blobs import verify_blob
from index.catalogue import AnyRow, chunks_between, named_blobs, named_segments
from index.core import Core
from index.errors import Damaged
from index.files import Vanished
from index.memory import read_arrays
from index.records import Finding
from index.schema import (
    blobs,
    chunks,
    documents,
    files,
    lexical_table,
    memory_segments,
    stores,
    texts,
    unpack_sha,
)
from index.segments import live_mask, remedy_for, segments_of
from index.texts import expand
from index.vectors import Segment, read_segment


def findings(core: Core, connection: Connection) -> Iterator[Finding]:
    """Give all that is wrong in a snapshot. Writers at work may cause findings of files."""
    for row in connection.execute(text("PRAGMA quick_check")):
        if row[0] != "ok":
            yield Finding("database", "catalogue", str(row[0]))
    for row in connection.execute(select(stores.c.pk, stores.c.id, stores.c.dimension)).all():
        yield from _vectors(core, connection, row)
        yield from _lexical(connection, row)
    yield from _texts(connection)
    yield from _memories(core, connection)
    yield from _blobs(core, connection)
    yield from _orphans(core, connection)


def _vectors(core: Core, connection: Connection, store: AnyRow) -> Iterator[Finding]:
    expected = set(
        connection.execute(
            select(chunks.c.pk)
            .join(documents, documents.c.pk == chunks.c.document)
            .where(documents.c.store == store.pk)
        ).scalars()
    )
    last, has_damage = 0, False
    for segment in segments_of(connection, store.pk):
        remedy = remedy_for(connection, store.pk, segment)
        try:
            rows = read_segment(core.folder.segments, segment, store.dimension, remedy)
        except (Damaged, Vanished) as error:
            has_damage = True
            message = str(error) if isinstance(error, Damaged) else f"{error}; {remedy}"
            yield Finding("vectors", segment.name, message)
            continue
        live = live_mask(connection, store.pk, rows)
        problem = _order_problem(segment, rows.ids, last, int((~live).sum()))
        if problem or not np.isfinite(rows.vectors).all():
            yield Finding("vectors", segment.name, problem or "holds values that are not finite")
        last = segment.last_id
        expected -= set(rows.ids[live].tolist())
    if expected and not has_damage:
        yield Finding("vectors", store.id, f"{len(expected)} chunks have no vector")


def _order_problem(segment: Segment, ids: np.ndarray, last: int, num_dead: int) -> str | None:
    if (np.diff(ids) <= 0).any() or int(ids[0]) <= last:
        return "chunk ids are not strictly ascending"
    if (int(ids[0]), int(ids[-1])) != (segment.first_id, segment.last_id):
        return "its row states another range of chunk ids"
    if num_dead != segment.num_dead:
        return f"{num_dead} rows are dead, its row says {segment.num_dead}"
    return None


def _lexical(connection: Connection, store: AnyRow) -> Iterator[Finding]:
    sizes = table(f"{lexical_table(store.pk)}_docsize", column("id"))
    indexed = set(connection.execute(select(sizes.c.id)).scalars())
    expected = set(
        connection.execute(
            select(chunks.c.pk)
            .join(documents, documents.c.pk == chunks.c.document)
            .where(documents.c.store == store.pk)
        ).scalars()
    )
    if indexed != expected:
        yield Finding(
            "lexical",
            store.id,
            f"{len(expected - indexed)} chunks are not in the lexical index, "
            f"{len(indexed - expected)} of its rows have no chunk; it is derived from the texts: "
            "Index.repair() builds it again",
        )


def _texts(connection: Connection) -> Iterator[Finding]:
    statement = select(
        documents.c.pk,
        documents.c.name,
        documents.c.num_chars,
        documents.c.num_chunks,
        documents.c.first_chunk,
        texts.c.sha,
        texts.c.data,
    ).outerjoin_from(documents, texts, texts.c.pk == documents.c.text)
    for row in connection.execute(statement):
        if row.data is None:
            yield Finding("text", row.name, "the document has no text; ingest it again")
            continue
        try:
            words = expand(row.data, unpack_sha(row.sha))
        except Damaged as error:
            yield Finding("text", row.name, error.message)
            continue
        yield from _spans(connection, row, len(words))
    unused = select(texts.c.sha).where(
        ~select(documents.c.pk).where(documents.c.text == texts.c.pk).exists()
    )
    for sha in connection.execute(unused).scalars():
        yield Finding("rows", unpack_sha(sha), "a text that no document holds")


def _spans(connection: Connection, row: AnyRow, num_chars: int) -> Iterator[Finding]:
    own = chunks_between(connection, row.first_chunk, row.num_chunks)
    if num_chars != row.num_chars or len(own) != row.num_chunks:
        yield Finding(
            "rows",
            row.name,
            f"has {num_chars} characters in {len(own)} chunks, its row says {row.num_chars} in "
            f"{row.num_chunks}; delete it and ingest it again",
        )
    if any(not 0 <= chunk.start < chunk.end <= num_chars for _, chunk in own):
        yield Finding("rows", row.name, "a chunk's span is outside the text; ingest it again")


def _memories(core: Core, connection: Connection) -> Iterator[Finding]:
    statement = select(
        memory_segments.c.name.label("segment"),
        memory_segments.c.num_bytes.label("segment_bytes"),
        memory_segments.c.sha.label("segment_sha"),
        memory_segments.c.num_tokens,
        memory_segments.c.key_dim,
        documents.c.name,
        documents.c.num_chars,
    ).outerjoin_from(memory_segments, documents, documents.c.pk == memory_segments.c.document)
    for row in connection.execute(statement):
        if row.name is None:
            yield Finding("memory", row.segment, "belongs to no document")
            continue
        try:
            arrays = read_arrays(core.folder.segments, row)
        except (Damaged, Vanished) as error:
            yield Finding("memory", row.segment, f"{error} (of {row.name!r})")
            continue
        if len(arrays.ends) and int(arrays.ends.max()) > row.num_chars:
            yield Finding("memory", row.segment, f"a span is outside the text of {row.name!r}")


def _blobs(core: Core, connection: Connection) -> Iterator[Finding]:
    for row in connection.execute(select(blobs.c.sha, blobs.c.num_bytes)):
        try:
            verify_blob(core.folder.blobs / row.sha.hex(), row.num_bytes)
        except Damaged as error:
            yield Finding("blob", row.sha.hex(), error.message)
    lost = select(files.c.id).where(~select(blobs.c.sha).where(blobs.c.sha == files.c.sha).exists())
    for file_id in connection.execute(lost).scalars():
        yield Finding("rows", file_id, "the uploaded file has no bytes; upload it again")


def _orphans(core: Core, connection: Connection) -> Iterator[Finding]:
    for folder, named in (
        (core.folder.segments, named_segments(connection)),
        (core.folder.blobs, named_blobs(connection)),
    ):
        for name in sorted(set(os.listdir(folder)) - named):
            yield Finding("orphan", name, "no row names this file; the next start collects it")
