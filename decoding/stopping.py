"""Settled token texts go in; texts that no stop string can reach any more come out.

Knows nothing of models or token ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Released:
    """Texts of tokens, in order, that may be shown; `is_stopped` says a stop string was met."""

    texts: tuple[str, ...]
    is_stopped: bool


class StopStrings:
    """Finds the first complete stop string, across tokens; holds back what may become one.

    The match is the one that ends first, and of those the longest: it does not depend on how the
    text is cut into tokens. Stop strings are removed, with all that follows them.

    >>> stops = StopStrings(("END",))
    >>> stops.push("the E"), stops.push("N"), stops.push("D of")
    (Released(texts=(), is_stopped=False), Released(texts=(), is_stopped=False), \
Released(texts=('the ', '', ''), is_stopped=True))
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held: list[str] = []

    def push(self, text: str) -> Released:
        """Take the text of the next token."""
        self._held.append(text)
        buffer = "".join(self._held)
        found = [(at + len(stop), at) for stop in self._stops if (at := buffer.find(stop)) >= 0]
        if found:
            return Released(self._cut(min(found)[1]), True)
        return Released(self._release(len(buffer) - self._num_undecided(buffer)), False)

    def finish(self) -> Released:
        """Give all that is held: no more text comes."""
        texts, self._held = tuple(self._held), []
        return Released(texts, False)

    def _num_undecided(self, buffer: str) -> int:
        """Count the characters at the end that begin a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for size in range(min(longest, len(buffer)), 0, -1):
            if any(stop.startswith(buffer[-size:]) for stop in self._stops):
                return size
        return 0

    def _release(self, length: int) -> tuple[str, ...]:
        """Let go of the tokens that end within the first `length` characters."""
        end = num = 0
        for text in self._held:
            end += len(text)
            if end > length:
                break
            num += 1
        released, self._held = tuple(self._held[:num]), self._held[num:]
        return released

    def _cut(self, length: int) -> tuple[str, ...]:
        """Let go of all tokens, shortened to `length` characters in all."""
        texts: list[str] = []
        for text in self._held:
            texts.append(text[: max(length, 0)])
            length -= len(text)
        self._held = []
        return tuple(texts)
