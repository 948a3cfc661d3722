"""A span of prose goes in; where its sentences start comes out (Latin, CJK and other full stops).

Rules, no model: a stop followed by white space and a beginning of a sentence, unless the word
before it is an abbreviation or an initial; a CJK stop needs no white space after it.
"""

from __future__ import annotations

import re

_CLOSERS = r"[\"'”’»)\]）】」』》〉]*"
_END = re.compile(
    rf"(?P<cjk>[。！？｡]+{_CLOSERS}\s*)"
    rf"|(?P<latin>[.!?…]+{_CLOSERS}\s+)(?=[^\sa-zà-öø-ÿа-я,;:)\]])"
    rf"|(?P<other>[۔؟।॥።]+{_CLOSERS}\s*)"
    r"|(?P<gap>\n[ \t　]*\n\s*)"
)
_WORD_BEFORE = re.compile(r"([^\W\d_]+(?:\.[^\W\d_]+)*)\.$")
_ABBREVIATIONS = frozenset(
    ("mr", "mrs", "ms", "dr", "prof", "sr", "jr", "st", "vs", "etc", "cf", "al", "fig", "figs",
     "eq", "eqs", "no", "nos", "vol", "pp", "ed", "eds", "inc", "ltd", "co", "corp", "dept",
     "approx", "resp", "sec", "ch", "art", "e.g", "i.e", "u.s", "u.k", "a.m", "p.m", "ph.d",
     "z.b", "d.h", "usw", "bzw", "nr", "abb", "vgl")
)  # fmt: skip


def _is_abbreviated(text: str, start: int, stop: int) -> bool:
    found = _WORD_BEFORE.search(text, max(start, stop - 24), stop)
    if found is None:
        return False
    word = found.group(1)
    return word.lower() in _ABBREVIATIONS or (len(word) == 1 and word.isupper())


def sentence_starts(text: str, start: int, end: int) -> list[int]:
    """List where sentences start in `text[start:end]`; the first is always `start`.

    >>> sentence_starts("See Dr. No. It is old. 好。再见。", 0, 27)
    [0, 12, 23, 25]
    """
    starts = [start]
    for match in _END.finditer(text, start, end):
        if match.lastgroup == "latin":
            stop = match.start()
            if text[stop] == "." and _is_abbreviated(text, start, stop + 1):
                continue
        if match.end() < end:
            starts.append(match.end())
    return starts
