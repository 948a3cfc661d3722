"""reStructuredText goes in; blocks come out: underlined titles, literal blocks, tables, lists.

A title's level is the order in which its underline style first appears, as docutils has it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from index.records import Span
from ingestion.blocks import Block, Lines, Match, match_law, match_list, scan

_RULE = re.compile(r"^([!-/:-@\[-`{-~])\1{2,}\s*$")
_CODE = re.compile(
    r"^\s*\.\. (?:code|code-block|sourcecode|parsed-literal|prompt|doctest|list-table|csv-table|"
    r"raw|math|literalinclude)::"
)
_CAPTION = re.compile(r"^\s*\.\. (?:table|list-table|csv-table):: *(\S.*)$")
_SIMPLE = re.compile(r"^\s*=+(?:[ \t]+=+)+\s*$")
_GRID = re.compile(r"^\s*\+(?:[-=]+\+)+\s*$")
_GRID_HEAD = re.compile(r"^\s*\+(?:=+\+)+\s*$")


class Titles:
    """Matches section titles and remembers their styles in order."""

    def __init__(self) -> None:
        self._styles: list[tuple[str, bool]] = []

    def match(self, lines: Lines, i: int, _before: Sequence[Block]) -> Match | None:
        """Match a title with an underline, or with a rule above and below."""
        if lines.is_blank(i + 1):
            return None
        over = _RULE.match(lines.lines[i])
        if over is not None:
            under = _RULE.match(lines.lines[i + 2]) if not lines.is_blank(i + 2) else None
            if under is None or under.group(1) != over.group(1):
                return None
            return self._title(lines, i, i + 1, i + 2, (over.group(1), True))
        under = _RULE.match(lines.lines[i + 1])
        title = lines.lines[i]
        if under is None or title[:1].isspace() or len(under.group().rstrip()) < len(title) * 0.6:
            return None
        return self._title(lines, i, i, i + 1, (under.group(1), False))

    def _title(
        self, lines: Lines, first: int, title: int, last: int, style: tuple[str, bool]
    ) -> Match | None:
        if _RULE.match(lines.lines[title]):
            return None
        if style not in self._styles:
            self._styles.append(style)
        block = replace(
            lines.block("heading", first, last),
            level=self._styles.index(style) + 1,
            title=re.sub(r"[`*]+", "", " ".join(lines.lines[title].split())),
        )
        return Match(block, last + 1)


def _indented_to(lines: Lines, i: int, indent: int) -> int:
    """Give the last line of the run that is blank or indented by more than `indent`."""
    last = i
    j = i + 1
    while j < len(lines):
        line = lines.lines[j]
        if line.strip():
            if len(line) - len(line.lstrip()) <= indent:
                break
            last = j
        j += 1
    return last


def match_literal(lines: Lines, i: int, before: Sequence[Block]) -> Match | None:
    """Match a code directive with its body, or an indented block after a paragraph's `::`."""
    line = lines.lines[i]
    indent = len(line) - len(line.lstrip())
    if _CODE.match(line):
        last = _indented_to(lines, i, indent)
    elif indent and before and lines.text[before[-1].start : before[-1].end].endswith("::"):
        last = _indented_to(lines, i, indent - 1)
    else:
        return None
    block = replace(lines.block("code", i, last), parts=tuple(lines.starts[i : last + 1]))
    return Match(block, last + 1)


def match_table(lines: Lines, i: int, before: Sequence[Block]) -> Match | None:
    """Match a grid table or a simple table."""
    line = lines.lines[i]
    match: Match | None = None
    if _GRID.match(line):
        match = _grid(lines, i)
    elif _SIMPLE.match(line):
        match = _simple(lines, i)
    if match is not None and before:
        caption = _directive_caption(lines.text, before[-1])
        match = Match(replace(match.block, caption=caption), match.after)
    return match


def _directive_caption(text: str, block: Block) -> Span | None:
    found = _CAPTION.match(text[block.start : block.end].split("\n", 1)[0])
    return Span(block.start + found.start(1), block.start + found.end(1)) if found else None


def _grid(lines: Lines, i: int) -> Match:
    last = i
    while last + 1 < len(lines) and lines.lines[last + 1].strip()[:1] in ("+", "|"):
        last += 1
    rules = [j for j in range(i, last + 1) if _GRID.match(lines.lines[j])]
    head = next((j for j in rules if _GRID_HEAD.match(lines.lines[j])), None)
    header = lines.span(i + 1, head - 1) if head is not None and head > i + 1 else None
    parts = [lines.starts[i]]
    parts += [lines.starts[j + 1] for j in rules if j >= (head or i + 1) and j < last]
    block = replace(lines.block("table", i, last), parts=tuple(parts), header=header)
    return Match(block, last + 1)


def _simple(lines: Lines, i: int) -> Match | None:
    rules = [i]
    j = i + 1
    while j < len(lines):
        if _SIMPLE.match(lines.lines[j]):
            rules.append(j)
            if lines.is_blank(j + 1):
                break
        j += 1
    if len(rules) < 2:
        return None
    last = rules[-1]
    has_header = len(rules) > 2
    body = rules[1] + 1 if has_header else i + 1
    header = lines.span(i + 1, rules[1] - 1) if has_header and rules[1] > i + 1 else None
    indent = len(lines.lines[i]) - len(lines.lines[i].lstrip())
    rows = [
        lines.starts[j]
        for j in range(body, last)
        if lines.lines[j][indent : indent + 1].strip() and j not in rules
    ]
    parts = (lines.starts[i], *rows) if has_header or not rows else (lines.starts[i], *rows[1:])
    block = replace(lines.block("table", i, last), parts=parts, header=header)
    return Match(block, last + 1)


def rst_blocks(text: str) -> list[Block]:
    """Cut reStructuredText into blocks."""
    titles = Titles()
    matchers = (match_table, titles.match, match_literal, match_law, match_list)
    return scan(text, matchers, (match_table,))
