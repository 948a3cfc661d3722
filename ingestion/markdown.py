"""Markdown goes in; blocks come out: ATX and setext headings, fences, pipe tables, lists.

HTML, Word, PowerPoint, spreadsheets and CSV arrive here too, as the Markdown made of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from index.records import Span
from ingestion.blocks import Block, Lines, Match, match_law, match_list, scan

_ATX = re.compile(r"^ {0,3}(#{1,6})(?:[ \t]+(.*?))?[ \t]*#*\s*$")
_SETEXT = re.compile(r"^ {0,3}(=+|-{2,})\s*$")
_FENCE = re.compile(r"^\s*(`{3,}|~{3,})")
_DELIMITER = re.compile(r"^\s*\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?\s*)?$")


def match_heading(lines: Lines, i: int, _before: Sequence[Block]) -> Match | None:
    """Match `## title`, or a title underlined by `===` or `---`."""
    line = lines.lines[i]
    if found := _ATX.match(line):
        level = len(found.group(1))
        title = _plain(found.group(2) or "")
        return Match(replace(lines.block("heading", i, i), level=level, title=title), i + 1)
    follows = i + 1 < len(lines) and _SETEXT.match(lines.lines[i + 1])
    if follows and line.strip() and lines.is_blank(i - 1 if i else len(lines)):
        if _SETEXT.match(line) or "|" in line:
            return None
        level = 1 if follows.group(1)[0] == "=" else 2
        block = replace(lines.block("heading", i, i + 1), level=level, title=_plain(line))
        return Match(block, i + 2)
    return None


def _plain(title: str) -> str:
    title = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", title)
    return " ".join(re.sub(r"[*`]+|\\(?=\W)", "", title).split())


def match_fence(lines: Lines, i: int, _before: Sequence[Block]) -> Match | None:
    """Match a fenced block, up to its closing fence or the end of the text."""
    found = _FENCE.match(lines.lines[i])
    if found is None:
        return None
    fence = found.group(1)
    last = i + 1
    while last < len(lines):
        closing = lines.lines[last].strip()
        if closing.startswith(fence) and not closing.strip(fence[0]):
            break
        last += 1
    last = min(last, len(lines) - 1)
    block = replace(lines.block("code", i, last), parts=tuple(lines.starts[i : last + 1]))
    return Match(block, last + 1)


def match_table(lines: Lines, i: int, _before: Sequence[Block]) -> Match | None:
    """Match a pipe table: a header row, a row of dashes, rows up to a line without a pipe."""
    if "|" not in lines.lines[i] or i + 1 >= len(lines):
        return None
    if not _DELIMITER.match(lines.lines[i + 1]):
        return None
    last = i + 1
    while last + 1 < len(lines) and "|" in lines.lines[last + 1]:
        last += 1
    header = lines.span(i, i) if lines.lines[i].strip(" |\t") else None
    parts = (lines.starts[i], *lines.starts[i + 2 : last + 1])
    block = replace(lines.block("table", i, last), parts=parts, header=header)
    return Match(block, last + 1)


def markdown_blocks(text: str) -> list[Block]:
    """Cut Markdown into blocks."""
    matchers = (match_heading, match_fence, match_table, match_law, match_list)
    return scan(text, matchers, (match_heading, match_fence, match_table, match_law))


def markdown_title(text: str) -> str | None:
    """Give the first level-one heading, if the text has one."""
    for block in markdown_blocks(text[:20_000]):
        if block.kind == "heading" and block.level == 1:
            return block.title or None
    return None


def header_cells(text: str, header: Span) -> list[str]:
    """List the cells of a header row."""
    row = text[header.start : header.end].strip().strip("|")
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)]
