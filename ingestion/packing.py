"""Units and token counts go in; the spans of chunks come out, each a run of whole units.

Greedy and near-linear: take what fits, then step back to the best place to cut in the fuller half.
Knows nothing of formats, headings' words or embedders.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ingestion.units import Cut, Unit


@dataclass(frozen=True, slots=True)
class Run:
    """The units `[first, last)` of one chunk."""

    first: int
    last: int


class Packer:
    """Packs the units of one text.

    `before[i]` is the number of tokens before unit i (one more entry than units: the total last);
    `budget(i)` is the most tokens that a chunk beginning at unit i may hold.
    """

    def __init__(
        self,
        units: Sequence[Unit],
        before: Sequence[int],
        *,
        budget: Callable[[int], int],
        size: int,
        overlap: int,
    ) -> None:
        self._units = units
        self._before = before
        self._budget = budget
        self._small = size // 4
        self._overlap = overlap
        self._next_section = self._sections()

    def runs(self) -> list[Run]:
        """Pack everything; starts and ends strictly increase."""
        runs: list[Run] = []
        first, done = 0, 0
        while done < len(self._units):
            last = self._end(first, done)
            runs.append(Run(first, last))
            first, done = self._overlap_start(first, last), last
        return runs

    def _tokens(self, first: int, last: int) -> int:
        return self._before[last] - self._before[first]

    def _sections(self) -> list[int]:
        """For each unit the number of the first later unit that opens a section (or the end)."""
        following = len(self._units)
        result = [following] * len(self._units)
        for i in range(len(self._units) - 1, -1, -1):
            result[i] = following
            if self._units[i].cut == Cut.SECTION:
                following = i
        return result

    def _end(self, first: int, done: int) -> int:
        """Choose where a chunk that begins at `first` ends; always beyond `done`."""
        limit = self._budget(first)
        reach = bisect_right(self._before, self._before[first] + limit) - 1
        reach = min(max(reach, done + 1), len(self._units))
        stop = self._section_stop(first, done, reach)
        stop = self._table_stop(first, done, stop)
        if stop < reach or reach == len(self._units):
            return stop
        return self._best_cut(first, done, stop, limit)

    def _section_stop(self, first: int, done: int, reach: int) -> int:
        """Stop before the first section that does not wholly fit beside small ones before it."""
        opens = first == 0 or self._units[first].cut == Cut.SECTION
        stop = self._next_section[first]
        while stop < reach:
            too_long = self._next_section[stop] > reach
            if stop > done and (not opens or too_long or self._tokens(first, stop) >= self._small):
                return stop
            stop = self._next_section[stop]
        return reach

    def _table_stop(self, first: int, done: int, reach: int) -> int:
        """Keep a table whole if it fits in a chunk of its own; never run on after its last row."""
        begun = self._units[first].table
        if begun is not None and self._units[first].start > begun.start:
            end = first
            while end < reach and self._units[end].table is begun:
                end += 1
            return end if end > done else reach
        cut = self._units[reach].table if reach < len(self._units) else None
        if cut is None or self._units[reach].start == cut.start:
            return reach
        start = reach
        while start > first and self._units[start - 1].table is cut:
            start -= 1
        return start if start > done and self._tokens(first, start) >= self._small else reach

    def _best_cut(self, first: int, done: int, reach: int, limit: int) -> int:
        """Give the best cut in the fuller half, the latest among equals."""
        best, best_cut = reach, self._units[reach].cut
        for k in range(reach - 1, max(done, first), -1):
            if self._tokens(first, k) * 2 < limit:
                break
            if self._units[k].cut > best_cut:
                best, best_cut = k, self._units[k].cut
        return best

    def _overlap_start(self, first: int, last: int) -> int:
        """Step back over whole sentences or lines of the same section, at most `overlap` tokens."""
        units = self._units
        if last == len(units) or units[last].cut == Cut.SECTION:
            return last
        start = last
        while start - 1 > first:
            previous = units[start - 1]
            if previous.table is not None or units[last].table is not None or previous.is_heading:
                break
            if units[start].cut == Cut.SECTION or self._tokens(start - 1, last) > self._overlap:
                break
            start -= 1
        while start < last and self._tokens(start, last + 1) > self._budget(start):
            start += 1
        return start
