"""A text and its blocks go in; units come out: the smallest pieces that chunks are packed from.

Units tile the text: each ends where the next begins, so whatever packs whole units covers it all.
Every unit knows how good a place its start is to cut at, and the section and table it lies in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from index.records import Span, TextFormat
from ingestion.blocks import Block, code_blocks, line_blocks, plain_blocks
from ingestion.markdown import markdown_blocks
from ingestion.restructured import rst_blocks
from ingestion.sentences import sentence_starts

_SCANNERS: dict[TextFormat, Callable[[str], list[Block]]] = {
    "plain": plain_blocks,
    "markdown": markdown_blocks,
    "rst": rst_blocks,
    "code": code_blocks,
    "records": line_blocks,
}


class Cut(IntEnum):
    """How good a place a unit's start is to begin a chunk; higher is better."""

    NEVER = 0
    """Glued to what comes before: the first words under a heading, the first row of a table."""
    PIECE = 1
    """Inside a sentence, line or row that is too long by itself."""
    SENTENCE = 2
    LINE = 3
    """A line of code, an item of a list, a row of a table."""
    BLOCK = 4
    SECTION = 5


@dataclass(frozen=True, slots=True)
class Table:
    """A table's header row and caption, and where the table with its caption begins and ends."""

    start: int
    end: int
    header: Span | None
    caption: Span | None


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of text that begins at `start` and ends where the next unit begins."""

    start: int
    cut: Cut
    path: tuple[str, ...] = ()
    table: Table | None = None
    is_code: bool = False
    is_heading: bool = False


def build_units(text: str, text_format: TextFormat, *, title: str | None = None) -> list[Unit]:
    """Cut a whole text into units; an empty list for white space only."""
    blocks = _SCANNERS[text_format](text)
    units: list[Unit] = []
    outline = _Outline(title)
    tables = _tables(blocks)
    after_heading = False
    for number, block in enumerate(blocks):
        if block.level:
            outline.enter(block.level, block.title)
        glued = after_heading or _follows_its_caption(tables.get(number), block)
        first = Cut.NEVER if glued else Cut.SECTION if block.level else Cut.BLOCK
        for index, (start, cut) in enumerate(_starts(text, block)):
            units.append(
                Unit(
                    start=0 if not units else start,
                    cut=first if index == 0 else cut,
                    path=outline.path,
                    table=tables.get(number),
                    is_code=block.kind == "code",
                    is_heading=block.kind == "heading",
                )
            )
        after_heading = block.kind == "heading"
    return units


def _tables(blocks: list[Block]) -> dict[int, Table]:
    """Say which blocks (by number) belong to which table: the table and its caption."""
    found: dict[int, Table] = {}
    for number, block in enumerate(blocks):
        if block.kind != "table":
            continue
        start, end, neighbour = block.start, block.end, None
        if block.caption is not None and block.caption.start < block.start:
            start, neighbour = blocks[number - 1].start, number - 1
        elif block.caption is not None:
            end, neighbour = block.caption.end, number + 1
        table = Table(start, end, block.header, block.caption)
        found[number] = table
        if neighbour is not None:
            found.setdefault(neighbour, table)
    return found


def _follows_its_caption(table: Table | None, block: Block) -> bool:
    return table is not None and table.start < block.start


class _Outline:
    """The path of titles above the present block."""

    def __init__(self, title: str | None) -> None:
        self._open: list[tuple[int, str]] = [(0, title)] if title else []

    def enter(self, level: int, title: str) -> None:
        while self._open and self._open[-1][0] >= level:
            self._open.pop()
        repeats_root = len(self._open) == 1 and self._open[0] == (0, title)
        if title and not repeats_root:
            self._open.append((level, title))

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(title for _, title in self._open)


def _starts(text: str, block: Block) -> Iterator[tuple[int, Cut]]:
    if block.kind in ("code", "table"):
        parts = block.parts or (block.start,)
        for index, part in enumerate(parts):
            is_first_row = block.kind == "table" and index == 1 and block.header is not None
            yield part, Cut.NEVER if is_first_row else Cut.LINE
        return
    parts = block.parts or (block.start,)
    ends = (*parts[1:], block.end)
    for part, end in zip(parts, ends, strict=True):
        for index, start in enumerate(sentence_starts(text, part, end)):
            yield start, Cut.SENTENCE if index else Cut.LINE


_BETTER_CUTS = (
    re.compile(r"\n"),
    re.compile(r"[}\])]\s*,\s*|[;；]\s*"),
    re.compile(r"[,，、:：]\s+|[，、：]|\s\|\s"),
    re.compile(r"\s+"),
)


def better_cut(text: str, low: int, high: int) -> int:
    """Find the best cut in `(low, high]`: a line's, clause's or word's end, else `high`."""
    for pattern in _BETTER_CUTS:
        last = None
        for match in pattern.finditer(text, low, high):
            last = match
        if last is not None and last.end() > low:
            return last.end()
    return high
