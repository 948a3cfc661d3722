"""A text and its format go in; its blocks come out: headings, paragraphs, lists, code, tables.

Blocks are spans in order; only white space lies between them. Each format is a row of matchers,
tried in turn at every line that begins a block. Knows nothing of tokens or chunk sizes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from index.records import Span

BlockKind = Literal["heading", "paragraph", "list", "code", "table"]


@dataclass(frozen=True, slots=True)
class Block:
    """A span of one kind.

    `level` above 0 opens a section called `title` (a heading, or a paragraph such as 第三条 that
    carries its own label). `parts` are the offsets at which lines, items or rows begin.
    """

    kind: BlockKind
    start: int
    end: int
    level: int = 0
    title: str = ""
    parts: tuple[int, ...] = ()
    header: Span | None = None
    caption: Span | None = None


class Lines:
    """A text as lines, with their offsets."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.split("\n")
        self.starts: list[int] = []
        position = 0
        for line in self.lines:
            self.starts.append(position)
            position += len(line) + 1

    def __len__(self) -> int:
        return len(self.lines)

    def end(self, number: int) -> int:
        """Give the offset just after a line's last character."""
        return self.starts[number] + len(self.lines[number])

    def is_blank(self, number: int) -> bool:
        """Say whether a line is missing, empty or white space."""
        return number >= len(self.lines) or not self.lines[number].strip()

    def block(self, kind: BlockKind, first: int, last: int) -> Block:
        """Make a block of the lines `first` to `last`, inclusive."""
        return Block(kind, self.starts[first], self.end(last))

    def span(self, first: int, last: int) -> Span:
        """Give the span of the lines `first` to `last`, inclusive."""
        return Span(self.starts[first], self.end(last))


@dataclass(frozen=True, slots=True)
class Match:
    """A block, and the number of the first line after it."""

    block: Block
    after: int


Matcher = Callable[[Lines, int, Sequence[Block]], Match | None]

_LIST = re.compile(r"^\s*(?:[-*+•]|\(?\d{1,4}[.)]|[（(][一二三四五六七八九十]+[）)])\s*\S")
_NOT_LIST = re.compile(r"^ {0,3}(?:#{1,6}\s|`{3}|~{3}|\|)")
_CHAPTER = re.compile(
    r"^\s*(第[一二三四五六七八九十百千零〇两\d]{1,9}(?P<unit>[编篇章节])(?=[\s　]|$).{0,60})$"
)
_ARTICLE = re.compile(
    r"^[\s　]*(第[一二三四五六七八九十百千零〇两\d]{1,9}条(?:之[一二三四五六七八九十]+)?)[\s　]*"
)
_CHAPTER_LEVEL = {"编": 2, "篇": 2, "章": 3, "节": 4}
ARTICLE_LEVEL = 9


def match_law(lines: Lines, i: int, _before: Sequence[Block]) -> Match | None:
    """Match a Chinese statute's 第N章 (a heading) or 第N条 (a paragraph with a label)."""
    line = lines.lines[i]
    if "第" not in line[:12]:
        return None
    if found := _CHAPTER.match(line):
        level = _CHAPTER_LEVEL[found.group("unit")]
        title = " ".join(found.group(1).split())
        return Match(replace(lines.block("heading", i, i), level=level, title=title), i + 1)
    if found := _ARTICLE.match(line):
        block = lines.block("paragraph", i, i)
        return Match(replace(block, level=ARTICLE_LEVEL, title=found.group(1)), i + 1)
    return None


def match_list(lines: Lines, i: int, _before: Sequence[Block]) -> Match | None:
    """Match a run of list items with their continuation lines."""
    if not _LIST.match(lines.lines[i]):
        return None
    parts = [lines.starts[i]]
    last = i
    j = i + 1
    while j < len(lines):
        if lines.is_blank(j):
            following = j + 1
            if lines.is_blank(following) or not lines.lines[following][:1].isspace():
                break
        elif _NOT_LIST.match(lines.lines[j]):
            break
        elif _LIST.match(lines.lines[j]):
            parts.append(lines.starts[j])
            last = j
        elif lines.lines[j][:1].isspace() or not lines.is_blank(j - 1):
            last = j
        else:
            break
        j += 1
    return Match(replace(lines.block("list", i, last), parts=tuple(parts)), last + 1)


def scan(text: str, matchers: Sequence[Matcher], interrupting: Sequence[Matcher]) -> list[Block]:
    """Cut a text into blocks; what no matcher takes is a paragraph up to the next blank line."""
    lines = Lines(text)
    blocks: list[Block] = []
    i = 0
    while i < len(lines):
        if lines.is_blank(i):
            i += 1
            continue
        match = _first(matchers, lines, i, blocks)
        if match is None:
            j = i + 1
            while not lines.is_blank(j) and _first(interrupting, lines, j, blocks) is None:
                j += 1
            match = Match(lines.block("paragraph", i, j - 1), j)
        blocks.append(match.block)
        i = match.after
    return _with_captions(text, blocks)


def _first(
    matchers: Sequence[Matcher], lines: Lines, i: int, blocks: Sequence[Block]
) -> Match | None:
    return next((m for matcher in matchers if (m := matcher(lines, i, blocks))), None)


_CAPTION_WORD = re.compile(
    r"^\W{0,4}(?:table|tab\.|tableau|tabelle|tabla|exhibit|표|表|附表)\s*[\dA-Z一二三四五六七八九十:：.]",
    re.IGNORECASE,
)
_CAPTION_CHARS = 240


def _with_captions(text: str, blocks: list[Block]) -> list[Block]:
    for number, block in enumerate(blocks):
        if block.kind != "table" or block.caption is not None:
            continue
        above = blocks[number - 1] if number else None
        below = blocks[number + 1] if number + 1 < len(blocks) else None
        if above is not None and _is_caption(text, above, is_above=True):
            blocks[number] = replace(block, caption=Span(above.start, above.end))
        elif below is not None and _is_caption(text, below, is_above=False):
            blocks[number] = replace(block, caption=Span(below.start, below.end))
    return blocks


def _is_caption(text: str, block: Block, *, is_above: bool) -> bool:
    if block.kind != "paragraph" or block.end - block.start > _CAPTION_CHARS:
        return False
    words = text[block.start : block.end].strip()
    if _CAPTION_WORD.match(words):
        return True
    one_line = "\n" not in words
    return is_above and one_line and (words.endswith((":", "：")) or words.startswith(("**", "__")))


def plain_blocks(text: str) -> list[Block]:
    """Cut plain text: paragraphs, lists, statutes' chapters and articles."""
    return scan(text, (match_law, match_list), (match_law,))


def line_blocks(text: str) -> list[Block]:
    """Cut records (JSON, JSON lines, logs): one block whose parts are the lines."""
    lines = Lines(text)
    full = [i for i in range(len(lines)) if not lines.is_blank(i)]
    if not full:
        return []
    block = lines.block("code", full[0], full[-1])
    return [replace(block, parts=tuple(lines.starts[i] for i in full))]


_DEFINITION = re.compile(
    r"^(?:export |default |pub(?:\([a-z]+\))? |public |private |static |abstract |final |async )*"
    r"(?:class|def|function|func|fn|impl|struct|enum|interface|trait|type|module|namespace|sub)\s+\w"
)


def code_blocks(text: str) -> list[Block]:
    """Cut source code: runs of lines between blank ones; a top-level definition opens a section."""
    lines = Lines(text)
    blocks: list[Block] = []
    i = 0
    while i < len(lines):
        if lines.is_blank(i):
            i += 1
            continue
        j = i + 1
        while not lines.is_blank(j) and not _DEFINITION.match(lines.lines[j]):
            j += 1
        block = replace(lines.block("code", i, j - 1), parts=tuple(lines.starts[i:j]))
        if _DEFINITION.match(lines.lines[i]):
            block = replace(block, level=1, title=lines.lines[i].strip().rstrip("{:").strip()[:120])
        blocks.append(block)
        i = j
    return blocks
