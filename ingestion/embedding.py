"""Chunks' texts go in, vectors come out: cached ones first, the rest in slices of about a second.

Slices are cut from all texts sorted by length, so that there is little padding, and are as large
as the measured speed allows, so that a cancelled run stops soon.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from index.errors import Cancelled
from index.records import FloatArray, Progress
from ingestion.tokenmap import Tokenizing

_SLICE_S = 0.8
_FIRST_TOKENS = 1024
_MAX_TOKENS = 2**20


class PassageEmbedder(Tokenizing, Protocol):
    """What the pipeline needs of `backbone.Embedder`."""

    @property
    def fingerprint(self) -> str:
        """Which exact model makes the vectors."""

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    def encode_passages(self, texts: Sequence[str]) -> FloatArray:
        """Embed passages, [N, E] float32, unit length."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A text to embed, named by the SHA-256 of its words, with its length in tokens."""

    sha: str
    text: str
    num_tokens: int


class SlicedEmbedding:
    """Embeds many texts with one embedder, and learns how fast it is."""

    def __init__(self, embedder: PassageEmbedder) -> None:
        self._embedder = embedder
        self._slice_tokens = _FIRST_TOKENS

    def embed(
        self, wanted: Sequence[Wanted], *, progress: Progress, cancelled: Callable[[], bool]
    ) -> dict[str, FloatArray]:
        """Embed each distinct text once, `sha -> [E]`; raises Cancelled between two slices."""
        texts = sorted({w.sha: w for w in wanted}.values(), key=lambda w: -w.num_tokens)
        vectors: dict[str, FloatArray] = {}
        for part in self._slices(texts):
            if cancelled():
                raise Cancelled("the ingestion was cancelled")
            begun = time.monotonic()
            rows = self._embedder.encode_passages([w.text for w in part])
            self._learn(sum(w.num_tokens for w in part), time.monotonic() - begun)
            vectors.update(zip((w.sha for w in part), rows, strict=True))
            progress("embed", len(vectors), len(texts), "chunks")
        return vectors

    def _slices(self, texts: Sequence[Wanted]) -> Iterator[Sequence[Wanted]]:
        start = 0
        while start < len(texts):
            end, num_tokens = start, 0
            while end < len(texts) and (end == start or num_tokens < self._slice_tokens):
                num_tokens += texts[end].num_tokens
                end += 1
            yield texts[start:end]
            start = end

    def _learn(self, num_tokens: int, seconds: float) -> None:
        fitting = num_tokens * _SLICE_S / max(seconds, 1e-4)
        grown = min(fitting, self._slice_tokens * 4, _MAX_TOKENS)
        self._slice_tokens = max(64, int(grown))


def matrix(vectors: dict[str, FloatArray], shas: Sequence[str], dimension: int) -> FloatArray:
    """Stack the vectors of one document's chunks, [N, E]."""
    if not shas:
        return np.empty((0, dimension), np.float32)
    return np.stack([vectors[sha] for sha in shas]).astype(np.float32, copy=False)
