"""A stream's text in, the same text without citation markers that name no passage out.

A marker ([3], [1, 2], [1-3], 【1】) may come in pieces, so text from an opening bracket on is held
back while it can still become one. The finished answer, where every quote is checked, is the last
event's; this keeps what was shown before it from naming sources that do not exist.
Knows nothing of passages beyond how many there are.
"""

from __future__ import annotations

import re

_WORD = r"(?:passages?|sources?|段落|资料)?"
_MARKER = re.compile(
    rf"([ \t]*)[\[【［]\s*{_WORD}\s*(\d{{1,3}}(?:\s*[,，、;\-–]\s*\d{{1,3}})*)\s*[\]】］]",
    re.IGNORECASE,
)
_OPEN = re.compile(
    r"[ \t]+$|[ \t]*[\[【［]\s*(?:[a-z]{0,8}|段落?|资料?)(?:\s*[\d,，、;\-–])*\s*$", re.IGNORECASE
)
_NUMBER = re.compile(r"(\d+)(?:\s*[-–]\s*(\d+))?")


class MarkerFilter:
    """Passes the text of one stream on; None passages leave it as it is."""

    def __init__(self, num_passages: int | None) -> None:
        self._num_passages = num_passages
        self._held = ""

    def feed(self, text: str) -> str:
        """Give what can be shown after this piece; the rest is held back."""
        if self._num_passages is None:
            return text
        words = _MARKER.sub(self._named, self._held + text)
        found = _OPEN.search(words)
        at = found.start() if found is not None else len(words)
        self._held = words[at:]
        return words[:at]

    def rest(self) -> str:
        """Give what is still held back when the stream ends."""
        held, self._held = self._held, ""
        return held

    def _named(self, marker: re.Match[str]) -> str:
        assert self._num_passages is not None
        numbers: list[int] = []
        for first, last in _NUMBER.findall(marker[2]):
            high = min(int(last or first), self._num_passages)
            numbers += range(max(1, int(first)), high + 1)
        kept = "".join(f"[{number}]" for number in dict.fromkeys(numbers))
        return marker[1] + kept if kept else ""
