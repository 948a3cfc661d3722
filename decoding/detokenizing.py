"""Token ids go in one by one; the text that each adds comes out once it can no longer change.

Knows nothing of stop strings, nor of any tokenizer's inside: it only needs `decode`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

_BROKEN = "\ufffd"
_NUM_CONTEXT = 4
_NUM_OPEN = 3
"""A character has at most four bytes, so an unfinished one lives in the last three tokens."""


class Detokenizer:
    """Cuts `decode(ids)` into one text a token; joined, the texts are `decode(ids)`.

    Tokens of a character that is not whole get an empty text, and the token that completes it
    the character. Decoding runs over a window (a few settled tokens and the open ones), since
    some tokenizers treat the first token of what they decode differently.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._context: list[int] = []
        self._open: list[int] = []

    def push(self, token: int) -> list[str]:
        """Take a token; give the texts of the tokens that are settled by it, oldest first."""
        self._open.append(token)
        text = self._text(self._open)
        if not text.endswith(_BROKEN):
            return self._settle(len(self._open), text)
        return self._settle_broken(text)

    def finish(self) -> list[str]:
        """Settle what is open; bytes that never became a character read as U+FFFD."""
        return self._settle(len(self._open), self._text(self._open)) if self._open else []

    def _text(self, ids: Sequence[int]) -> str:
        if not self._context:
            return self._decode(ids)
        head = self._decode(self._context)
        return self._decode([*self._context, *ids])[len(head) :]

    def _settle(self, num: int, text: str) -> list[str]:
        """Close the `num` oldest open tokens, whose joint text this is."""
        self._context = [*self._context, *self._open[:num]][-_NUM_CONTEXT:]
        self._open = self._open[num:]
        return [*[""] * (num - 1), text]

    def _settle_broken(self, whole: str) -> list[str]:
        """Let go of bytes that can no longer become a character, so that few stay open."""
        for num in range(len(self._open) - _NUM_OPEN, 0, -1):
            head = self._text(self._open[:num])
            if whole.startswith(head) and head + self._text_after(num) == whole:
                return self._settle(num, head)
        return []

    def _text_after(self, num: int) -> str:
        return self._decode(self._open[num:])
