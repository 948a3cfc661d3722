"""Vector segments and the table made of them in memory: raw rows go in, exact hits come out.

A segment is `[N] int64` chunk ids and `[N, E] float32` vectors, raw and little-endian. In memory a
store is one append-only table in the order of chunk ids, searched by FAISS's flat kernel (the one
inside IndexFlatIP) without a second copy; rows outside a selection are skipped before top-k.
Tables never change: a newer one shares the buffer and sees more rows, so readers need no lock.
Knows nothing of SQL.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import faiss
import numpy as np
import numpy.typing as npt

from index.errors import Damaged, InvalidInput, NotFound
from index.files import read_verified
from index.records import FloatArray, Hit, IntArray

BoolArray = npt.NDArray[np.bool_]
MAX_DEAD_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Segment:
    """A vector segment's row."""

    pk: int
    name: str
    num_bytes: int
    sha256: str
    num_rows: int
    num_dead: int
    first_id: int
    last_id: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Chunk ids [N] int64, ascending, and their vectors [N, E] float32."""

    ids: IntArray
    vectors: FloatArray

    def parts(self) -> tuple[memoryview, ...]:
        """Give the raw little-endian bytes of a segment."""
        ids = np.ascontiguousarray(self.ids, dtype="<i8")
        vectors = np.ascontiguousarray(self.vectors, dtype="<f4")
        return tuple(array.data.cast("B") for array in (ids, vectors) if array.size)

    def keep(self, mask: BoolArray) -> Rows:
        """Give the rows where the mask is true."""
        return self if mask.all() else Rows(self.ids[mask], self.vectors[mask])


def read_segment(folder: Path, segment: Segment, dimension: int, remedy: str) -> Rows:
    """Read and verify a segment. Raises Damaged, Vanished."""
    path = folder / segment.name
    data = read_verified(path, num_bytes=segment.num_bytes, sha256=segment.sha256, remedy=remedy)
    expected = segment.num_rows * (8 + 4 * dimension)
    if len(data) != expected:
        raise Damaged(f"{str(path)!r} should have {expected} bytes, not {len(data)}; {remedy}")
    ids = np.frombuffer(data, dtype="<i8", count=segment.num_rows)
    vectors = np.frombuffer(data, dtype="<f4", offset=8 * segment.num_rows)
    return Rows(ids, vectors.reshape(segment.num_rows, dimension))


@dataclass(frozen=True, slots=True)
class VectorTable:
    """The vectors of one store at one generation; immutable.

    `live` is None where every row lives; else [N] booleans.
    """

    generation: int
    buffer: FloatArray = field(repr=False)  # [capacity, E], rows beyond len(ids) are not ours
    ids: IntArray = field(repr=False)
    live: BoolArray | None = None

    @classmethod
    def empty(cls, dimension: int, generation: int) -> VectorTable:
        """Give a table without rows."""
        return cls(generation, np.empty((0, dimension), np.float32), np.empty(0, np.int64))

    @property
    def dimension(self) -> int:
        """The length E of a vector."""
        return int(self.buffer.shape[1])

    @property
    def last_id(self) -> int:
        """The greatest chunk id here; 0 if none."""
        return int(self.ids[-1]) if len(self.ids) else 0

    @property
    def num_live(self) -> int:
        """The number of living chunks."""
        return len(self.ids) if self.live is None else int(np.count_nonzero(self.live))

    def advance(
        self, generation: int, added: list[Rows], dead: list[tuple[int, int]]
    ) -> VectorTable:
        """Give the table of a later generation.

        `added` has ids above ours only; `dead` are half-open ranges of chunk ids that were deleted
        since. Must be called on the newest table of its buffer (the caches hold a lock).
        """
        ids = np.concatenate([self.ids, *(rows.ids for rows in added)])
        buffer = self.buffer
        if len(ids) > len(buffer):
            buffer = np.empty((max(len(ids) * 5 // 4, 64), self.dimension), np.float32)
            buffer[: len(self.ids)] = self.buffer[: len(self.ids)]
        filled = len(self.ids)
        for rows in added:
            buffer[filled : filled + len(rows.ids)] = rows.vectors
            filled += len(rows.ids)
        live = np.ones(len(ids), np.bool_)
        if self.live is not None:
            live[: len(self.live)] = self.live
        for start, end in dead:
            live[slice(*np.searchsorted(ids, (start, end)))] = False
        if live.all():
            return VectorTable(generation, buffer, ids, None)
        if np.count_nonzero(live) < (1 - MAX_DEAD_SHARE) * len(ids):
            return VectorTable(generation, buffer[: len(ids)][live], ids[live], None)
        return VectorTable(generation, buffer, ids, live)

    def search(self, vector: FloatArray, k: int, selected: IntArray | None) -> list[Hit]:
        """Give the k greatest inner products, ties by chunk id; `selected` ids only, if given."""
        query = _check_query(vector, self.dimension)
        mask = self.live
        if selected is not None:
            mask = np.zeros(len(self.ids), np.bool_)
            mask[self.rows_of(selected)] = True
        found = len(self.ids) if mask is None else int(np.count_nonzero(mask))
        k = min(k, found)
        if k < 1:
            return []
        scores = np.empty((1, k), np.float32)
        rows = np.empty((1, k), np.int64)
        # The bits must outlive the selector, which keeps a bare pointer to them.
        bits = None if mask is None else np.packbits(mask, bitorder="little")
        selector = (
            None if bits is None else faiss.IDSelectorBitmap(len(self.ids), faiss.swig_ptr(bits))
        )
        faiss.knn_inner_product(
            faiss.swig_ptr(query),
            faiss.swig_ptr(self.buffer),
            self.dimension,
            1,
            len(self.ids),
            k,
            faiss.swig_ptr(scores),
            faiss.swig_ptr(rows),
            selector,
        )
        hits = [
            Hit(int(self.ids[row]), float(score))
            for row, score in zip(rows[0], scores[0], strict=True)
            if row >= 0
        ]
        return sorted(hits, key=lambda hit: (-hit.score, hit.chunk_id))

    def rows_of(self, chunk_ids: IntArray) -> IntArray:
        """Give the row of each chunk id [N]. Raises NotFound for an id that is not alive here."""
        wanted = np.asarray(chunk_ids, np.int64)
        rows = np.searchsorted(self.ids, wanted)
        inside = rows < len(self.ids)
        good = inside.copy()
        good[inside] = self.ids[rows[inside]] == wanted[inside]
        if self.live is not None:
            good[good] = self.live[rows[good]]
        if not good.all():
            raise NotFound(f"no chunk with the id {int(wanted[~good][0])} in this store")
        return rows.astype(np.int64)

    def has(self, chunk_id: int) -> bool:
        """Say whether a chunk is alive here."""
        row = int(np.searchsorted(self.ids, chunk_id))
        if row >= len(self.ids) or self.ids[row] != chunk_id:
            return False
        return self.live is None or bool(self.live[row])

    def vectors_of(self, chunk_ids: IntArray) -> FloatArray:
        """Give vectors [N, E] in the order asked."""
        return self.buffer[self.rows_of(chunk_ids)]

    def live_ids(self) -> IntArray:
        """Give the ids of all living chunks, ascending."""
        return self.ids if self.live is None else self.ids[self.live]


def _check_query(vector: FloatArray, dimension: int) -> FloatArray:
    query = np.ascontiguousarray(vector, dtype=np.float32)
    if query.shape != (dimension,):
        raise InvalidInput(
            f"expected a query vector of shape ({dimension},), got {query.shape}; "
            "embed the query with the store's embedder"
        )
    if not np.isfinite(query).all():
        raise InvalidInput("the query vector holds a value that is not finite")
    return query
