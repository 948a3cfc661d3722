"""Vector segments in the catalogue: writes new ones, merges small ones, keeps tables up to date.

A commit's vectors become one segment; it absorbs its neighbours while they are no larger than
itself, so a store of any history has few files. Segments of a store never overlap in chunk ids.
Knows nothing of documents beyond the ranges of chunk ids that were deleted.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Sequence

import numpy as np
from sqlalchemy import Connection, Row, bindparam, delete, insert, select, update

from index.errors import Damaged
from index.files import Folder, Vanished
from index.records import StoreRecord
from index.schema import documents, pack_sha, stores, tombstones, unpack_sha, vector_segments
from index.vectors import Rows, Segment, VectorTable, read_segment

MAX_MERGED_BYTES = 16 << 20
REWRITE_SHARE = 0.25

logger = logging.getLogger(__name__)

_OF_STORE = (
    select(vector_segments)
    .where(vector_segments.c.store == bindparam("store"))
    .order_by(vector_segments.c.first_id)
)
_RANGES = (
    select(documents.c.first_chunk, documents.c.num_chunks)
    .where(documents.c.store == bindparam("store"), documents.c.num_chunks > 0)
    .order_by(documents.c.first_chunk)
)
_PRUNED = select(stores.c.pruned).where(stores.c.pk == bindparam("pk"))
_DEATHS = select(tombstones.c.first_chunk, tombstones.c.num_chunks).where(
    tombstones.c.store == bindparam("store"), tombstones.c.generation > bindparam("after")
)


def segments_of(connection: Connection, store: int) -> list[Segment]:
    """Give a store's segments by ascending chunk ids."""
    return [_segment(row) for row in connection.execute(_OF_STORE, {"store": store})]


def live_mask(connection: Connection, store: int, rows: Rows) -> np.ndarray:
    """Say which rows [N] belong to a document that the catalogue holds."""
    ranges = np.array(
        [tuple(row) for row in connection.execute(_RANGES, {"store": store})], np.int64
    ).reshape(-1, 2)
    return _covered(rows.ids, ranges)


def append(
    connection: Connection, folder: Folder, store: int, dimension: int, rows: Rows
) -> list[str]:
    """Write rows as a segment, absorbing small neighbours; give the names of replaced files."""
    absorbed: list[Segment] = []
    num_rows = len(rows.ids)
    for segment in reversed(segments_of(connection, store)):
        total = (num_rows + segment.num_rows) * (8 + 4 * dimension)
        if segment.num_rows - segment.num_dead > num_rows or total > MAX_MERGED_BYTES:
            break
        absorbed.append(segment)
        num_rows += segment.num_rows
    return _replace(connection, folder, store, dimension, absorbed[::-1], rows)


def bury(
    connection: Connection,
    folder: Folder,
    store: StoreRecord,
    pk: int,
    ranges: Sequence[tuple[int, int]],
) -> list[str]:
    """Mark (first chunk, number) ranges dead at the store's next generation.

    Segments with nothing alive are dropped, those with much dead are written anew. Gives the names
    of files that are garbage once the transaction is committed.
    """
    ranges = [(first, count) for first, count in ranges if count]
    if not ranges:
        return []
    connection.execute(
        insert(tombstones),
        [
            {"store": pk, "generation": store.generation + 1, "first_chunk": f, "num_chunks": n}
            for f, n in ranges
        ],
    )
    garbage: list[str] = []
    for segment in segments_of(connection, pk):
        died = sum(n for first, n in ranges if segment.first_id <= first <= segment.last_id)
        if not died:
            continue
        num_dead = segment.num_dead + died
        connection.execute(
            update(vector_segments)
            .where(vector_segments.c.pk == segment.pk)
            .values(num_dead=num_dead)
        )
        is_small = segment.num_bytes <= MAX_MERGED_BYTES
        if num_dead >= segment.num_rows or (
            is_small and num_dead > REWRITE_SHARE * segment.num_rows
        ):
            segment = dataclasses.replace(segment, num_dead=num_dead)
            garbage += rewrite(connection, folder, pk, store.dimension, segment)
    return garbage


def rewrite(
    connection: Connection, folder: Folder, store: int, dimension: int, segment: Segment
) -> list[str]:
    """Write a segment anew without its dead rows (or drop it); a damaged one stays as it is."""
    if segment.num_dead >= segment.num_rows:
        connection.execute(delete(vector_segments).where(vector_segments.c.pk == segment.pk))
        return [segment.name]
    none = Rows(np.empty(0, np.int64), np.empty((0, dimension), np.float32))
    return _replace(connection, folder, store, dimension, [segment], none)


def _replace(
    connection: Connection,
    folder: Folder,
    store: int,
    dimension: int,
    old: Sequence[Segment],
    rows: Rows,
) -> list[str]:
    merged, absorbed = _absorb(connection, folder, store, dimension, old)
    ids = np.concatenate([*(part.ids for part in merged), rows.ids])
    if not len(ids) or (old and not absorbed and not len(rows.ids)):
        return []
    vectors = np.concatenate([*(part.vectors for part in merged), rows.vectors])
    written = folder.write_segment("vectors", Rows(ids, vectors).parts())
    if absorbed:
        keys = [segment.pk for segment in absorbed]
        connection.execute(delete(vector_segments).where(vector_segments.c.pk.in_(keys)))
    connection.execute(
        insert(vector_segments).values(
            store=store,
            name=written.name,
            num_bytes=written.num_bytes,
            sha=pack_sha(written.sha256),
            num_rows=len(ids),
            num_dead=0,
            first_id=int(ids[0]),
            last_id=int(ids[-1]),
        )
    )
    return [segment.name for segment in absorbed]


def _absorb(
    connection: Connection, folder: Folder, store: int, dimension: int, old: Sequence[Segment]
) -> tuple[list[Rows], list[Segment]]:
    """Read the newest of `old` that are whole (they must stay neighbours of what follows)."""
    merged: list[Rows] = []
    absorbed: list[Segment] = []
    for segment in reversed(old):
        try:
            rows = read_segment(folder.segments, segment, dimension, "it was left as it is")
        except (Damaged, Vanished) as error:
            logger.warning("a segment is not merged: %s", error)
            break
        merged.insert(0, rows.keep(live_mask(connection, store, rows)))
        absorbed.insert(0, segment)
    return merged, absorbed


class VectorCache:
    """The newest table of each store, shared by all threads of a process."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._locks: dict[int, threading.Lock] = {}
        self._tables: dict[int, VectorTable] = {}

    def table(self, connection: Connection, pk: int, store: StoreRecord) -> VectorTable | None:
        """Give the table of the connection's snapshot; None if a newer one has replaced it.

        Raises Damaged, and Vanished where a later commit has replaced a file of the snapshot.
        """
        held = self._tables.get(pk)
        if held is None or held.generation < store.generation:
            with self._lock:
                lock = self._locks.setdefault(pk, threading.Lock())
            with lock:
                held = self._tables.get(pk)
                if held is None or held.generation < store.generation:
                    held = self._tables[pk] = self._advance(connection, pk, store, held)
        return held if held.generation == store.generation else None

    def forget(self, pk: int) -> None:
        """Drop a store that was deleted."""
        self._tables.pop(pk, None)
        with self._lock:
            self._locks.pop(pk, None)

    def held(self) -> set[int]:
        """Name the stores of which something is held."""
        with self._lock:
            return self._tables.keys() | self._locks.keys()

    def _advance(
        self, connection: Connection, pk: int, store: StoreRecord, held: VectorTable | None
    ) -> VectorTable:
        pruned = connection.execute(_PRUNED, {"pk": pk}).scalar_one()
        if held is None or held.generation < pruned:
            held = VectorTable.empty(store.dimension, -1)
        dead = [
            (row.first_chunk, row.first_chunk + row.num_chunks)
            for row in connection.execute(_DEATHS, {"store": pk, "after": held.generation})
        ]
        added = [
            self._read_new(connection, pk, store, segment, held.last_id)
            for segment in segments_of(connection, pk)
            if segment.last_id > held.last_id
        ]
        return held.advance(store.generation, added, dead)

    def _read_new(
        self, connection: Connection, pk: int, store: StoreRecord, segment: Segment, after: int
    ) -> Rows:
        rows = read_segment(
            self._folder.segments, segment, store.dimension, remedy_for(connection, pk, segment)
        )
        return rows.keep(live_mask(connection, pk, rows) & (rows.ids > after))


def remedy_for(connection: Connection, store: int, segment: Segment) -> str:
    """Say what to do when a segment is damaged: which documents to ingest again."""
    names = connection.execute(
        select(documents.c.name)
        .where(
            documents.c.store == store,
            documents.c.num_chunks > 0,
            documents.c.first_chunk.between(segment.first_id, segment.last_id),
        )
        .order_by(documents.c.name)
    ).scalars()
    listed = list(names)
    more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
    return (
        "restore the file from a backup, or delete and ingest again the documents whose vectors "
        f"it holds: {', '.join(map(repr, listed[:5]))}{more}"
    )


def _covered(ids: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """Say which ids fall into one of the disjoint ascending (first, number) ranges."""
    if not len(ranges):
        return np.zeros(len(ids), np.bool_)
    place = np.searchsorted(ranges[:, 0], ids, side="right") - 1
    first, count = ranges[place, 0], ranges[place, 1]
    covered: np.ndarray = (place >= 0) & (ids < first + count)
    return covered


def _segment(row: Row[tuple[object, ...]]) -> Segment:
    return Segment(
        pk=row.pk,
        name=row.name,
        num_bytes=row.num_bytes,
        sha256=unpack_sha(row.sha),
        num_rows=row.num_rows,
        num_dead=row.num_dead,
        first_id=row.first_id,
        last_id=row.last_id,
    )
