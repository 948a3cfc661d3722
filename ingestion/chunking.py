"""A parsed text and a tokenizer go in; chunks come out: spans sized in the embedder's own tokens.

Every code point that is not white space lies in a chunk; starts and ends strictly increase; white
space at a chunk's ends belongs to no chunk (but a line of code keeps its indentation). Sizes above
the embedder's limit are lowered to it, so nothing is ever cut in silence (M3): what stands around a
chunk's words when it is embedded (headings, caption, header row) takes at most five eighths of
the limit, by design, and is shortened before the words are: its own words are in other chunks.
`num_tokens` counts tokens of the whole text's tokenisation; the limit itself is checked exactly.
Knows nothing of files or of vectors.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from index.errors import InvalidInput
from index.records import Chunk, ParsedText, Span
from ingestion.packing import Packer, Run
from ingestion.tokenmap import Tokenizing, TokenMap, no_check
from ingestion.units import Cut, Table, Unit, better_cut, build_units

STRUCTURE = "structure"
SIZE, OVERLAP = 256, 32
_SLACK = 4
_MAX_CHARS_PER_TOKEN = 16


@dataclass(frozen=True, slots=True)
class ChunkSettings:
    """How to cut: `size` and `overlap` in tokens of the embedder; the splitter by name.

    `splitter` is "structure" (Graft's own) or the name of one of LangChain's.
    Raises InvalidInput for sizes that make no sense (P4).
    """

    size: int = SIZE
    overlap: int = OVERLAP
    splitter: str = STRUCTURE

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InvalidInput(
                f"chunk size must be at least 1 token, came {self.size!r}", param="size"
            )
        if not 0 <= self.overlap < self.size:
            raise InvalidInput(
                f"overlap must be at least 0 and smaller than the chunk size {self.size!r}, "
                f"came {self.overlap!r}; lower the overlap or raise the size",
                param="overlap",
            )

    @classmethod
    def of(cls, chunking: Mapping[str, int | str]) -> ChunkSettings:
        """Read the settings that a store was created with; missing ones take their defaults."""
        known = {"size", "overlap", "splitter"}
        if unknown := sorted(set(chunking) - known):
            raise InvalidInput(f"unknown chunk settings {unknown!r}; known: {sorted(known)!r}")
        size, overlap = chunking.get("size", SIZE), chunking.get("overlap", OVERLAP)
        if not isinstance(size, int) or not isinstance(overlap, int):
            raise InvalidInput(f"size and overlap must be integers, came {size!r} and {overlap!r}")
        return cls(size, overlap, str(chunking.get("splitter", STRUCTURE)))


def split(
    parsed: ParsedText,
    settings: ChunkSettings,
    tokenizing: Tokenizing,
    *,
    check: Callable[[], None] = no_check,
) -> list[Chunk]:
    """Cut a text into chunks; an empty list where there is only white space.

    `check` is called often on the way and may raise, to end a long split early.
    Raises InvalidInput for an unknown splitter, or a LangChain splitter whose output is not made
    of spans of the text (C2).
    """
    if settings.splitter != STRUCTURE:
        from ingestion.foreign import split_by_name

        return split_by_name(parsed, settings, tokenizing)
    return StructureSplitter(parsed, settings, tokenizing, check=check).chunks()


class StructureSplitter:
    """Cuts one text along its own structure."""

    def __init__(
        self,
        parsed: ParsedText,
        settings: ChunkSettings,
        tokenizing: Tokenizing,
        *,
        check: Callable[[], None] = no_check,
    ) -> None:
        self._check = check
        self._text = parsed.text
        self._parsed = parsed
        self._tokenizing = tokenizing
        self._max = tokenizing.max_tokens
        if self._max < 8:
            raise InvalidInput(f"the embedder must read at least 8 tokens, it reads {self._max!r}")
        self._size = min(settings.size, self._max)
        self._overlap = min(settings.overlap, self._size // 2)
        self._tokens = TokenMap(parsed.text, tokenizing, check=check)
        self._path_costs: dict[tuple[str, ...], tuple[tuple[str, ...], int]] = {}
        self._tables: dict[tuple[int, int], Table] = {}

    def chunks(self) -> list[Chunk]:
        """Cut the text."""
        units = self._fitting_units()
        if not units:
            return []
        ends = np.array([u.start for u in units] + [len(self._text)], dtype=np.int64)
        before = self._tokens.rank(ends).tolist()
        packer = Packer(
            units,
            before,
            budget=lambda i: self._budget(units[i]),
            size=self._size,
            overlap=self._overlap,
        )
        starts: list[int] = ends.tolist()
        result: list[Chunk] = []
        for run in packer.runs():
            self._check()
            chunk = self._chunk(units, run, starts)
            if chunk is not None:
                result += self._after(result[-1] if result else None, chunk)
        return result

    def _after(self, last: Chunk | None, chunk: Chunk) -> list[Chunk]:
        """Fit a chunk; where halves would lie within the last one, its overlap is given up."""
        parts = self._fitted(chunk)
        if last is None or chunk.start >= last.end:
            return parts
        if len(parts) == 1 and chunk.start > last.start:
            return parts
        rest = trim(self._text, last.end, chunk.end)
        if rest is None:
            return []
        return self._fitted(self._moved(chunk, rest))

    def _moved(self, chunk: Chunk, span: Span) -> Chunk:
        return replace(
            chunk,
            start=span.start,
            end=span.end,
            num_tokens=self._tokens.count(span.start, span.end),
            page=page_of(self._parsed.page_starts, span.start),
        )

    def _fitting_units(self) -> list[Unit]:
        """Cut the text into units none of which is larger than a chunk may be.

        What is glued to a heading or a header row leaves room for it, so that neither stands alone.
        """
        units = build_units(self._text, self._parsed.format, title=self._parsed.title)
        result: list[Unit] = []
        glued_from = 0
        for number, unit in enumerate(units):
            self._check()
            end = units[number + 1].start if number + 1 < len(units) else len(self._text)
            if unit.cut != Cut.NEVER:
                glued_from = unit.start
            result.append(unit)
            glued = self._tokens.count(glued_from, unit.start)
            for start in self._piece_starts(unit, end, glued):
                result.append(replace(unit, start=start, cut=Cut.PIECE))
        return result

    def _piece_starts(self, unit: Unit, end: int, glued: int) -> list[int]:
        budget = self._budget(unit)
        limit = budget - glued if glued * 2 <= budget else budget
        starts: list[int] = []
        start = unit.start
        while self._tokens.count(start, end) > limit or end - start > limit * _MAX_CHARS_PER_TOKEN:
            hard = min(self._tokens.after(start, limit), start + limit * _MAX_CHARS_PER_TOKEN)
            hard = min(max(hard, start + 1), end)
            if hard == end:
                break
            start = better_cut(self._text, start + (hard - start) // 2, hard)
            starts.append(start)
            limit = budget
        return starts

    def _budget(self, unit: Unit) -> int:
        """How many tokens of words a chunk that begins at `unit` may hold."""
        around = self._path(unit.path)[1]
        if unit.table is not None:
            table = self._table(unit.table)
            for span in (table.header, table.caption):
                around += self._tokens.count(span.start, span.end) + 1 if span else 0
        return max(1, min(self._size, self._max - around - _SLACK))

    def _path(self, path: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
        """Shorten a path of titles to a quarter of the limit, outermost first; with its cost."""
        if path not in self._path_costs:
            kept = path
            cost = self._count_path(kept)
            while kept and cost > self._max // 4:
                kept = kept[1:]
                cost = self._count_path(kept)
            self._path_costs[path] = kept, cost
        return self._path_costs[path]

    def _count_path(self, path: tuple[str, ...]) -> int:
        return self._tokenizing.count_tokens(" > ".join(path)) + 1 if path else 0

    def _table(self, table: Table) -> Table:
        """Shorten a header row to a quarter of the limit and a caption to an eighth."""
        key = (table.start, table.end)
        if key not in self._tables:
            header = self._shortened(table.header, self._max // 4)
            caption = self._shortened(table.caption, self._max // 8)
            self._tables[key] = replace(table, header=header, caption=caption)
        return self._tables[key]

    def _shortened(self, span: Span | None, num_tokens: int) -> Span | None:
        if span is None or self._tokens.count(span.start, span.end) <= num_tokens:
            return span
        end = min(self._tokens.after(span.start, num_tokens), span.end)
        return Span(span.start, end) if end > span.start else None

    def _chunk(self, units: Sequence[Unit], run: Run, starts: Sequence[int]) -> Chunk | None:
        span = trim(
            self._text, starts[run.first], starts[run.last], keep_indent=units[run.first].is_code
        )
        if span is None:
            return None
        table = next((u.table for u in units[run.first : run.last] if u.table), None)
        table = self._table(table) if table is not None else None
        return Chunk(
            start=span.start,
            end=span.end,
            num_tokens=self._tokens.count(span.start, span.end),
            headings=self._path(_common_path(units[run.first : run.last]))[0],
            page=page_of(self._parsed.page_starts, span.start),
            header=table.header if table else None,
            caption=table.caption if table else None,
        )

    def _fitted(self, chunk: Chunk) -> list[Chunk]:
        """Halve a chunk until what is embedded fits; counts exactly only where it may not.

        A cut piece can have more tokens than the same piece had within its text (a word of
        WordPiece above 100 letters is one unknown token until it is cut).
        """
        length = chunk.end - chunk.start
        around = self._around(chunk)
        is_plainly_fine = (
            chunk.num_tokens + around <= self._max * 0.9 and length <= 8 * chunk.num_tokens
        )
        if is_plainly_fine or length < 2:
            return [chunk]
        if self._tokenizing.count_tokens(chunk.embedded_text(self._text)) <= self._max:
            return [chunk]
        middle = better_cut(self._text, chunk.start + length // 4, chunk.start + length // 2)
        halves = (trim(self._text, chunk.start, middle), trim(self._text, middle, chunk.end))
        return [
            part
            for half in halves
            if half is not None
            for part in self._fitted(self._moved(chunk, half))
        ]

    def _around(self, chunk: Chunk) -> int:
        """Count what `embedded_text` puts around the chunk's words."""
        around = self._path(chunk.headings)[1]
        for span in (chunk.header, chunk.caption):
            if span is not None and not chunk.start <= span.start < chunk.end:
                around += self._tokens.count(span.start, span.end) + 1
        return around


def _common_path(units: Sequence[Unit]) -> tuple[str, ...]:
    first, *others = {u.path: None for u in units}
    length = len(first)
    for path in others:
        shared = 0
        while shared < min(length, len(path)) and path[shared] == first[shared]:
            shared += 1
        length = shared
    return first[:length]


def trim(text: str, start: int, end: int, *, keep_indent: bool = False) -> Span | None:
    """Take white space off a span's ends; None if nothing else is there."""
    words = text[start:end]
    stripped = words.strip()
    if not stripped:
        return None
    first = start + len(words) - len(words.lstrip())
    last = start + len(words.rstrip())
    if keep_indent:
        line = text.rfind("\n", start, first) + 1
        first = max(start, line) if text[max(start, line) : first].isspace() else first
    return Span(first, last)


def page_of(page_starts: Sequence[int], start: int) -> int | None:
    """Give the one-based page of an offset; None where the text has no pages."""
    return bisect_right(page_starts, start) or 1 if page_starts else None
