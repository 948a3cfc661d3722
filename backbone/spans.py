"""Text and a fast tokenizer in, ids and code-point spans out, markers in the text left as text.

`PlainTokenizer` works on a Rust tokenizer of its own, in which every marker (special token,
or token that the chat template writes) is matched as ordinary characters, nothing is cut, padded
or added. Knows nothing of models or chats.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tokenizers import Encoding, Tokenizer

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids [T] and, for each, its code points `[start, end)` in the text."""

    ids: list[int]
    spans: list[tuple[int, int]]


class PlainTokenizer:
    """Tokenises text as text: no specials added, none recognised, nothing cut (E11)."""

    def __init__(self, tokenizer: Tokenizer, markers: Mapping[str, int]) -> None:
        """Take over a tokenizer in which exactly the markers are special; see `copy`, `adopt`."""
        self._tokenizer = tokenizer
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        self.markers = dict(markers)
        self._marker_ids = frozenset(self.markers.values())
        self._pattern = re.compile(
            "|".join(re.escape(m) for m in sorted(self.markers, key=len, reverse=True)) or r"(?!)"
        )

    @classmethod
    def copy(cls, tokenizer: Tokenizer, *, chat_template: str = "") -> PlainTokenizer:
        """Make one from a copy, with the template's own markers special too; no offset trimmed."""
        state = json.loads(tokenizer.to_str())
        markers = {}
        for added in state["added_tokens"]:
            if is_marker(added, chat_template):
                added["special"] = True
                markers[added["content"]] = added["id"]
        # The post-processor adds specials and trims blanks off the offsets; neither is wanted.
        state.update(truncation=None, padding=None, post_processor=None)
        return cls(Tokenizer.from_str(json.dumps(state)), markers)

    @classmethod
    def adopt(cls, tokenizer: Tokenizer) -> PlainTokenizer:
        """Make one of a tokenizer that nobody else uses, special tokens being the only markers.

        Copying 250,000 pieces takes seconds. It can still add special tokens when asked to.
        """
        added = tokenizer.get_added_tokens_decoder()
        return cls(tokenizer, {token.content: i for i, token in added.items() if token.special})

    def encode(self, text: str) -> list[int]:
        """Give the ids of a text."""
        return self._encode(text).ids

    def encode_spans(self, text: str) -> Tokens:
        """Give ids and spans that together cover every code point of the text.

        Pieces of one character (bytes of an emoji) all have that character's span; code points
        that give no token (swallowed by the normaliser, or of bytes that the vocabulary lacks)
        belong to the token before them. A text of nothing else has no tokens.
        """
        raw = self._encode(text)
        return Tokens(raw.ids, covering(raw.spans, len(text)))

    def count(self, text: str) -> int:
        """Count the tokens of a text."""
        return len(self._encode(text).ids)

    def raw_spans(self, text: str) -> list[tuple[int, int]]:
        """Give spans as the tokenizer reports them: ascending, within the text, gaps left open."""
        return ascending(self._encode(text).spans, len(text))

    def find_marker(self, text: str) -> re.Match[str] | None:
        """Find the first marker written in a text."""
        return self._pattern.search(text)

    def marker_starts(self, text: str) -> list[int]:
        """List where markers begin in a text, in code points."""
        return [match.start() for match in self._pattern.finditer(text)]

    def _encode(self, text: str) -> Tokens:
        encoding = self._tokenizer.encode(without_surrogates(text), add_special_tokens=False)
        if self._marker_ids.isdisjoint(encoding.ids):
            return Tokens(encoding.ids, encoding.offsets)
        return self._encode_broken(text)

    def _encode_broken(self, text: str) -> Tokens:
        """Encode a text whose markers are also words of the vocabulary, each cut after its first
        character so that no word can be the marker.

        Raises no error: what is then still a marker's id is a single character of its own.
        """
        cuts = [0, *(match.start() + 1 for match in self._pattern.finditer(text)), len(text)]
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        for start, end in pairwise(cuts):
            piece: Encoding = self._tokenizer.encode(
                without_surrogates(text[start:end]), add_special_tokens=False
            )
            ids.extend(piece.ids)
            spans.extend((start + a, start + b) for a, b in piece.offsets)
        return Tokens(ids, spans)


def is_marker(added: dict[str, object], chat_template: str) -> bool:
    """Say whether an added token steers the model: special, written by the template, or `<|…|>`."""
    content = str(added["content"])
    if not content.strip():
        return False
    looks_so = content.startswith("<|") and content.endswith("|>")
    return bool(added["special"]) or looks_so or content in chat_template


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot hold, by U+FFFD one for one."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def ascending(spans: Sequence[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Clamp spans to `[0, length]` and make their starts never decrease."""
    result = []
    floor = 0
    for start, end in spans:
        floor = min(max(start, floor), length)
        result.append((floor, min(max(end, floor), length)))
    return result


def covering(spans: Sequence[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Stretch spans so that they cover `[0, length)`: a gap belongs to the token before it.

    >>> covering([(0, 2), (3, 4), (3, 4)], 6)
    [(0, 3), (3, 6), (3, 6)]
    """
    result = ascending(spans, length)
    if not result:
        return result
    result[0] = (0, result[0][1])
    following = length
    for i in range(len(result) - 1, -1, -1):
        start, end = result[i]
        is_twin = i + 1 < len(result) and result[i + 1][0] == start
        result[i] = (start, max(end, result[i + 1][1] if is_twin else following))
        following = start
    return result
