"""Text goes in, lexical terms come out; the same rule for documents and for queries.

A term is a word of the NFKC-normalised, case-folded text. Scripts that are written without
spaces (Han, kana, Hangul, Thai, Lao, Khmer, Myanmar) have no words to find: their runs become
overlapping pairs of characters, and the run's last character alone, so that a query of one
character, sent as a prefix, finds it anywhere in a run. Knows nothing of SQLite.
"""

from __future__ import annotations

import re
import unicodedata

RULE = f"1:{unicodedata.unidata_version}"
"""Names the rule; an index made by another one is built again."""

MAX_TERM_CHARS = 64
MAX_QUERY_TERMS = 256

_ASCII_WORD = re.compile(r"[a-z0-9]+")
_UNSEGMENTED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029"
    "\u3040-\u30ff\u3100-\u318f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff"
    "\uf900-\ufaff\uff66-\uffdc\U0001b000-\U0001b16f\U00020000-\U0003ffff]+"
)


class _Separators(dict[int, str]):
    """Map what is no letter, digit or mark to a space; remembers what it was asked."""

    def __missing__(self, point: int) -> str:
        character = chr(point)
        kept = unicodedata.category(character)[0] in "LNM"
        found = self[point] = character if kept else " "
        return found


_SEPARATORS = _Separators()


def terms_of(text: str) -> list[str]:
    """Give the terms of a passage, in order, repeated as often as they occur.

    >>> terms_of("Größe der 国際標準化 (ＩＳＯ)")
    ['grösse', 'der', '国際', '際標', '標準', '準化', '化', 'iso']
    """
    terms: list[str] = []
    for word in _words(text):
        if word.isascii():
            terms.append(word[:MAX_TERM_CHARS])
            continue
        for piece, is_run in _pieces(word):
            if is_run:
                terms.extend(_pairs(piece))
                terms.append(piece[-1])
            else:
                terms.append(piece[:MAX_TERM_CHARS])
    return terms


def query_terms(query: str) -> list[tuple[str, bool]]:
    """Give the distinct terms of a query, each with whether it is a prefix.

    >>> query_terms("天")
    [('天', True)]
    """
    found: dict[tuple[str, bool], None] = {}
    for word in _words(query):
        for piece, is_run in _pieces(word):
            if not is_run:
                found[(piece[:MAX_TERM_CHARS], False)] = None
            elif len(piece) == 1:
                found[(piece, True)] = None
            else:
                found.update(dict.fromkeys((pair, False) for pair in _pairs(piece)))
    return list(found)[:MAX_QUERY_TERMS]


def _words(text: str) -> list[str]:
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return folded.translate(_SEPARATORS).split()


def _pieces(word: str) -> list[tuple[str, bool]]:
    pieces, last = [], 0
    for run in _UNSEGMENTED.finditer(word):
        if run.start() > last:
            pieces.append((word[last : run.start()], False))
        pieces.append((run.group(), True))
        last = run.end()
    if last < len(word):
        pieces.append((word[last:], False))
    return pieces


def _pairs(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run) - 1)]
