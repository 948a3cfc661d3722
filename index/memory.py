"""Token-memory segments: the arrays of a document go in, one table of a store's entries comes out.

A segment is raw and little-endian: `[T] int32` tokens, starts, ends, then `[T-1, D] float16` keys.
The table grows in place behind the views that were handed out, and each segment is read and
verified once. Knows nothing of tokenizers or models.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, bindparam

from index.catalogue import DOCUMENTS, AnyRow, document_record
from index.errors import Damaged, InvalidInput
from index.files import Folder, read_verified
from index.records import DocumentRecord, IntArray, MemoryArrays, MemoryView, StoreRecord
from index.schema import documents, memory_segments, unpack_sha

_REMEDY = (
    "it is derived from the document's text: Index.repair() drops it, and the next memory job "
    "builds it again"
)

_ROWS = (
    DOCUMENTS.add_columns(
        memory_segments.c.name.label("segment"),
        memory_segments.c.num_bytes.label("segment_bytes"),
        memory_segments.c.sha.label("segment_sha"),
        memory_segments.c.num_tokens,
        memory_segments.c.key_dim,
    )
    .outerjoin(
        memory_segments,
        (memory_segments.c.document == documents.c.pk)
        & (memory_segments.c.backbone == bindparam("backbone")),
    )
    .where(documents.c.store == bindparam("store"))
    .order_by(documents.c.pk)
)


def rows_of(connection: Connection, store: int, backbone: str) -> list[AnyRow]:
    """Give the store's documents, each with its segment under a backbone (`segment` None: none)."""
    return list(connection.execute(_ROWS, {"store": store, "backbone": backbone}))


def check_arrays(document: DocumentRecord, arrays: MemoryArrays) -> None:
    """Refuse arrays that cannot be the memory of this document. Raises InvalidInput."""
    num_tokens = len(arrays.tokens)
    for name in ("tokens", "starts", "ends"):
        array = getattr(arrays, name)
        if array.shape != (num_tokens,) or not np.issubdtype(array.dtype, np.integer):
            raise InvalidInput(f"expected {name} as [{num_tokens}] integers, got {array.shape}")
    keys = arrays.keys
    if keys.ndim != 2 or len(keys) != max(num_tokens - 1, 0) or keys.dtype != np.float16:
        raise InvalidInput(
            f"expected keys as [{max(num_tokens - 1, 0)}, D] float16, got {keys.shape} {keys.dtype}"
        )
    if not np.isfinite(keys).all():
        raise InvalidInput(f"the keys of {document.name!r} hold a value that is not finite")
    if not num_tokens:
        return
    if arrays.tokens.min() < 0 or arrays.tokens.max() >= 2**31:
        raise InvalidInput(f"expected token ids from 0 to 2^31 - 1 in {document.name!r}")
    if (
        arrays.starts.min() < 0
        or arrays.ends.max() > document.num_chars
        or (arrays.starts > arrays.ends).any()
    ):
        raise InvalidInput(
            f"expected token spans inside the {document.num_chars} characters of {document.name!r}"
        )


def parts_of(arrays: MemoryArrays) -> tuple[memoryview, ...]:
    """Give the raw bytes of a segment."""
    columns = [
        np.ascontiguousarray(column, dtype="<i4")
        for column in (arrays.tokens, arrays.starts, arrays.ends)
    ]
    keys = np.ascontiguousarray(arrays.keys, dtype="<f2")
    return tuple(array.data.cast("B") for array in (*columns, keys) if array.size)


def read_arrays(folder: Path, row: AnyRow) -> MemoryArrays:
    """Read and verify the segment of a row of `memory_segments`. Raises Damaged, Vanished."""
    path = folder / row.segment
    data = read_verified(
        path, num_bytes=row.segment_bytes, sha256=unpack_sha(row.segment_sha), remedy=_REMEDY
    )
    count, dim = row.num_tokens, row.key_dim
    if len(data) != 12 * count + 2 * max(count - 1, 0) * dim:
        raise Damaged(f"{str(path)!r} does not hold {count} tokens with keys of {dim}; {_REMEDY}")
    columns = np.frombuffer(data, dtype="<i4", count=3 * count).reshape(3, count).astype(np.int64)
    keys = np.frombuffer(data, dtype="<f2", offset=12 * count)
    return MemoryArrays(
        tokens=columns[0],
        starts=columns[1],
        ends=columns[2],
        keys=keys.reshape(max(count - 1, 0), dim),
    )


@dataclass(slots=True)
class _Table:
    """Growing columns; entries [0, filled) are never changed once a view has seen them."""

    keys: npt.NDArray[np.float16]
    columns: IntArray  # [4, capacity]: value, start, end, key of the document
    filled: int = 0
    members: dict[int, int] = field(default_factory=dict)  # document -> its number of entries

    @classmethod
    def with_capacity(cls, capacity: int, dim: int) -> _Table:
        return cls(np.empty((capacity, dim), np.float16), np.empty((4, capacity), np.int64))

    def add(self, document: int, arrays: MemoryArrays) -> None:
        count = len(arrays.keys)
        end = self.filled + count
        if end > len(self.keys) or (not self.filled and self.keys.shape[1] != arrays.keys.shape[1]):
            self._grow(end, arrays.keys.shape[1])
        self.keys[self.filled : end] = arrays.keys
        block = self.columns[:, self.filled : end]
        if count:
            block[0], block[1], block[2] = arrays.tokens[1:], arrays.starts[1:], arrays.ends[1:]
            block[3] = document
        self.filled = end
        self.members[document] = count

    def without(self, gone: set[int]) -> _Table:
        """Give a new table without some documents; views of this one stay as they are."""
        kept = ~np.isin(self.columns[3, : self.filled], list(gone))
        keys, columns = self.keys[: self.filled][kept], self.columns[:, : self.filled][:, kept]
        members = {key: count for key, count in self.members.items() if key not in gone}
        return _Table(keys, columns, len(keys), members)

    def _grow(self, needed: int, dim: int) -> None:
        capacity = max(needed * 5 // 4, 1024)
        grown = _Table.with_capacity(capacity, dim)
        if self.filled:
            grown.keys[: self.filled] = self.keys[: self.filled]
            grown.columns[:, : self.filled] = self.columns[:, : self.filled]
        self.keys, self.columns = grown.keys, grown.columns

    def show(self, records: dict[int, DocumentRecord], generation: int, pending: int) -> MemoryView:
        keys = self.keys[: self.filled]
        values, starts, ends, owner = self.columns[:, : self.filled]
        order = np.array(list(self.members), np.int64)
        counts = np.array(list(self.members.values()), np.int64)
        assert int(counts.sum()) == len(owner)
        return MemoryView(
            keys=keys,
            values=values,
            starts=starts,
            ends=ends,
            document_of=np.repeat(np.arange(len(order)), counts),
            documents=tuple(records[int(key)] for key in order),
            generation=generation,
            pending=pending,
        )


class MemoryCache:
    """The newest table of each (store, backbone), shared by all threads of a process."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._held: dict[tuple[int, str], _Held] = {}

    def view(
        self, connection: Connection, pk: int, store: StoreRecord, backbone: str
    ) -> MemoryView | None:
        """Give the view of the connection's snapshot; None if a newer one has replaced it.

        Raises Damaged, and Vanished where a later commit has replaced a file of the snapshot.
        """
        with self._lock:
            held = self._held.setdefault((pk, backbone), _Held())
        with held.lock:
            if held.view is None or held.view.generation < store.generation:
                held.view = self._advance(connection, pk, store, backbone, held)
            return held.view if held.view.generation == store.generation else None

    def held(self) -> set[int]:
        """Name the stores of which something is held."""
        with self._lock:
            return {pk for pk, _ in self._held}

    def forget(self, pk: int, backbone: str | None = None) -> None:
        """Drop what is held of a store (under one backbone, or all)."""
        with self._lock:
            for key in [k for k in self._held if k[0] == pk and backbone in (None, k[1])]:
                del self._held[key]

    def _advance(
        self, connection: Connection, pk: int, store: StoreRecord, backbone: str, held: _Held
    ) -> MemoryView:
        rows = rows_of(connection, pk, backbone)
        present = {row.pk: row for row in rows if row.segment is not None}
        table = held.table
        names = {key: row.segment for key, row in present.items()}
        # A document's keys may have been dropped and built anew: then its segment has another name.
        if gone := {key for key in table.members if held.names.get(key) != names.get(key)}:
            table = table.without(gone)
        added = [row for key, row in present.items() if key not in table.members]
        if added and not table.filled:
            table = _Table.with_capacity(
                sum(max(row.num_tokens - 1, 0) for row in added), added[0].key_dim
            )
        for row in added:
            table.add(row.pk, read_arrays(self._folder.segments, row))
        held.table, held.names = table, names
        records = {key: document_record(row) for key, row in present.items()}
        return table.show(records, store.generation, len(rows) - len(present))


@dataclass(slots=True)
class _Held:
    lock: threading.Lock = field(default_factory=threading.Lock)
    table: _Table = field(default_factory=lambda: _Table.with_capacity(0, 0))
    names: dict[int, str] = field(default_factory=dict)  # document -> the segment in the table
    view: MemoryView | None = None
