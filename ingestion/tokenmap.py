"""A text and a tokenizer go in; "how many tokens lie in this span" comes out, in logarithmic time.

The text is tokenised once, in slices, so that memory stays bounded. Counts are those of the whole
text's tokenisation: a span cut out and tokenised alone may differ by a token or two at its ends.
Knows nothing of chunks or of models beyond `Tokenizing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

SLICE_CHARS = 50_000


class Tokenizing(Protocol):
    """What chunking needs of an embedder."""

    @property
    def max_tokens(self) -> int:
        """The most tokens of text that the embedder reads (specials and prefix apart)."""

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text, without specials."""

    def token_spans(self, text: str) -> list[tuple[int, int]]:
        """Give each token's `[start, end)` in code points."""


def slices(text: str, size: int = SLICE_CHARS) -> Iterator[tuple[int, int]]:
    """Cut `[0, len(text))` into spans of at most `size`, at a line's or word's end if possible."""
    start = 0
    while start < len(text):
        end = min(start + size, len(text))
        if end < len(text):
            for mark in ("\n", " "):
                found = text.rfind(mark, start + size // 2, end)
                if found > start:
                    end = found + 1
                    break
        yield start, end
        start = end


def no_check() -> None:
    """Let a long piece of work go on."""


class TokenMap:
    """Where each token of one text starts. `check` is called between slices and may raise."""

    def __init__(
        self, text: str, tokenizing: Tokenizing, *, check: Callable[[], None] = no_check
    ) -> None:
        parts: list[npt.NDArray[np.int64]] = []
        for start, end in slices(text):
            check()
            spans = tokenizing.token_spans(text[start:end])
            parts.append(np.fromiter((s for s, _ in spans), np.int64, len(spans)) + start)
        joined = np.concatenate(parts) if parts else np.empty(0, np.int64)
        self._starts = np.sort(joined, kind="stable")
        self._length = len(text)

    def count(self, start: int, end: int) -> int:
        """Count the tokens that start in `[start, end)`."""
        low, high = np.searchsorted(self._starts, (start, end))
        return int(high - low)

    def rank(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Count the tokens before each of many positions at once."""
        return np.asarray(np.searchsorted(self._starts, positions), dtype=np.int64)

    def after(self, start: int, num_tokens: int) -> int:
        """Give the position before which `num_tokens` tokens from `start` on have started."""
        place = int(np.searchsorted(self._starts, start)) + num_tokens
        return int(self._starts[place]) if place < len(self._starts) else self._length
