"""A text in, the spans of its sentences out: English, Chinese and their likes.

Spans are code points, in order, without overlap, without surrounding white space; everything that
is not white space is in one of them. Knows nothing of passages or scores.
"""

from __future__ import annotations

import re

from index.records import Span

_CLOSERS = "\"'”’»)\\]）】」』》"
_END = re.compile(
    rf"[.!?…]+[{_CLOSERS}]*(?=\s)"  # Latin: an end needs white space after it
    rf"|[。！？]+[{_CLOSERS}]*"  # full width: it needs none
    r"|\n[ \t]*(?=\n)"  # an empty line
    r"|\n"  # judged in `_breaks_line`
)
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[“\"'])(?:mr|mrs|ms|dr|prof|st|mt|vs|e\.g|i\.e|cf|al|eq|approx|dept|est|ca|gen|col|"
    r"lt|sgt|capt|rev|hon|gov|sen|rep|jan|feb|mar|apr|jun|jul|aug|sept|sep|oct|nov|dec|u\.s|u\.k|"
    r"u\.n|ph\.d|z\. ?b|d\. ?h|u\. ?a|bzw|nr|(?-i:[A-Z]))\.$",
    re.IGNORECASE,
)
_BEFORE_NUMBER = re.compile(
    r"(?:^|[\s(\[])(?:no|nos|fig|figs|vol|pp|p|ch|sec|art|para|pat)\.$", re.IGNORECASE
)
_LIST_NUMBER = re.compile(r"(?:^|\n)\s*\(?(?:\d{1,3}|[a-z])\.$")
_BULLET = re.compile(
    r"\s*(?:[-*+•·●▪]\s|\(?\d{1,3}[.)]\s|[#|>=~`:]|\.\.\s|第[\d一二三四五六七八九十百千零]+[条章节款])"
)
_CJK = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\uff01-\uff60\u3000-\u303f]"
)
_RULE_LINE = re.compile(r"\s*([=\-~^\"'`*+#_.:|])\1{2,}\s*$")
_SOFT_LIMIT = 600
_SOFT_BREAK = re.compile(r"[;；]\s*|\n")


def split(text: str) -> list[Span]:
    """Cut `text` into sentences.

    Breaks after `.`, `!`, `?` before white space (not after abbreviations, initials, list
    numbers), after 。！？, at empty lines, before list items, headings and table rows, and at a
    line's end in Chinese text. A wrapped line of Latin prose does not break. Sentences longer
    than 600 characters are cut again at semicolons and line ends.

    >>> [(s.start, s.end) for s in split("Dr. No came. He left.")]
    [(0, 12), (13, 21)]
    """
    spans: list[Span] = []
    start = 0
    for match in _END.finditer(text):
        if _is_end(text, start, match):
            _append(spans, text, start, match.end())
            start = match.end()
    _append(spans, text, start, len(text))
    return spans


def _is_end(text: str, start: int, match: re.Match[str]) -> bool:
    found = match.group()
    if found.startswith("\n"):
        return _breaks_line(text, match.start())
    if not found.startswith("."):
        return True
    if found.startswith("..") or len(found.rstrip(_CLOSERS.replace("\\", ""))) > 1:
        return True
    head = text[max(start, match.start() - 16) : match.start() + 1]
    if _LIST_NUMBER.search(text[max(start - 1, match.start() - 8, 0) : match.start() + 1]):
        return False
    after = text[match.end() : match.end() + 40].lstrip()
    if after[:1].islower():
        return False
    if after[:1].isdigit() and _BEFORE_NUMBER.search(head):
        return False
    return not _ABBREVIATION.search(head)


def _breaks_line(text: str, at: int) -> bool:
    """Tell whether the line end at `at` also ends a sentence."""
    after_at = at + 1
    next_line = text[after_at : (text.find("\n", after_at) + 1 or len(text) + 1) - 1]
    if not next_line.strip() or _BULLET.match(next_line) or _RULE_LINE.match(next_line):
        return True
    line_start = text.rfind("\n", 0, at) + 1
    line = text[line_start:at].rstrip()
    if not line or _RULE_LINE.match(line) or line.lstrip().startswith(("|", "#")):
        return True
    return bool(_CJK.match(line[-1]))


def _append(spans: list[Span], text: str, start: int, end: int) -> None:
    """Add `[start, end)` without its white space; cut it where it is very long."""
    while True:
        while start < end and text[start].isspace():
            start += 1
        while end > start and text[end - 1].isspace():
            end -= 1
        if start == end:
            return
        cut = _SOFT_BREAK.search(text, start + 40, end) if end - start > _SOFT_LIMIT else None
        if cut is None or cut.end() >= end:
            spans.append(Span(start, end))
            return
        spans.append(Span(start, start + len(text[start : cut.end()].rstrip())))
        start = cut.end()
