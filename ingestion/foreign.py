"""A text and the name of a LangChain splitter go in; chunks with true spans come out.

LangChain gives strings. Each is searched in the text, forward, by its code points that are not
white space, so that what the splitter stripped or joined anew does no harm; a splitter whose output
is not made of the text (or leaves words out) is refused. Names may say how sizes are counted:
`RecursiveCharacterTextSplitter:words` (or `characters`; `tokens`, the embedder's, is the default).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from langchain_text_splitters import (
    CharacterTextSplitter,
    LatexTextSplitter,
    MarkdownTextSplitter,
    PythonCodeTextSplitter,
    RecursiveCharacterTextSplitter,
    TextSplitter,
    Tokenizer,
    split_text_on_tokens,
)

from index.errors import InvalidInput
from index.records import Chunk, ParsedText, Span
from ingestion.chunking import STRUCTURE, ChunkSettings, page_of, trim
from ingestion.tokenmap import Tokenizing, TokenMap
from ingestion.units import better_cut

_SPLITTERS: dict[str, type[TextSplitter]] = {
    "CharacterTextSplitter": CharacterTextSplitter,
    "LatexTextSplitter": LatexTextSplitter,
    "MarkdownTextSplitter": MarkdownTextSplitter,
    "PythonCodeTextSplitter": PythonCodeTextSplitter,
    "RecursiveCharacterTextSplitter": RecursiveCharacterTextSplitter,
}
_TOKEN_SPLITTER = "TokenTextSplitter"
SPLITTERS = (*_SPLITTERS, _TOKEN_SPLITTER)
LENGTHS = ("tokens", "words", "characters")
_MAX_STEPS, _MAX_STEPS_PER_PIECE = 20_000, 50


def check_splitter(splitter: str) -> None:
    """Refuse a name that is no splitter of LangChain's. Raises InvalidInput."""
    name, _, length = splitter.partition(":")
    if name not in SPLITTERS or (length or LENGTHS[0]) not in LENGTHS:
        raise InvalidInput(
            f"unknown splitter {splitter!r}; known: {STRUCTURE}, {', '.join(SPLITTERS)}, "
            f"each of LangChain's optionally with :{', :'.join(LENGTHS)}",
            param="splitter",
        )


def split_by_name(
    parsed: ParsedText, settings: ChunkSettings, tokenizing: Tokenizing
) -> list[Chunk]:
    """Cut a text with one of LangChain's splitters.

    Raises InvalidInput for an unknown name, and for output that cannot be placed in the text.
    """
    check_splitter(settings.splitter)
    name, _, length = settings.splitter.partition(":")
    tokens = TokenMap(parsed.text, tokenizing)
    if name == _TOKEN_SPLITTER:
        spans = _token_windows(parsed.text, settings, tokenizing)
    else:
        splitter = _SPLITTERS[name](
            chunk_size=settings.size,
            chunk_overlap=settings.overlap,
            length_function=_length_function(length, tokenizing),
        )
        spans = place(parsed.text, splitter.split_text(parsed.text), name=name)
    return [
        Chunk(
            start=part.start,
            end=part.end,
            num_tokens=tokens.count(part.start, part.end),
            page=page_of(parsed.page_starts, part.start),
        )
        for span in spans
        for part in _fitted(parsed.text, span, tokenizing)
    ]


def _length_function(length: str, tokenizing: Tokenizing) -> Callable[[str], int]:
    if length == "characters":
        return len
    if length == "words":
        return lambda text: len(text.split())
    return tokenizing.count_tokens


def _token_windows(text: str, settings: ChunkSettings, tokenizing: Tokenizing) -> list[Span]:
    """Run LangChain's token windows over the embedder's tokens; each is decoded as its span."""
    starts = [start for start, _ in tokenizing.token_spans(text)]
    edges = [0, *starts[1:], len(text)] if starts else [0, len(text)]
    found: list[Span] = []

    def decode(ids: list[int]) -> str:
        if ids and (span := trim(text, edges[ids[0]], edges[ids[-1] + 1])):
            found.append(span)
        return ""

    split_text_on_tokens(
        text=text,
        tokenizer=Tokenizer(
            chunk_overlap=settings.overlap,
            tokens_per_chunk=settings.size,
            decode=decode,
            encode=lambda _text: list(range(len(edges) - 1)),
        ),
    )
    return _increasing(found)


def _increasing(spans: Sequence[Span]) -> list[Span]:
    """Drop spans that lie within a neighbour: overlap alone, or tokens that share a character."""
    kept: list[Span] = []
    for span in spans:
        while kept and kept[-1].start >= span.start and kept[-1].end <= span.end:
            kept.pop()
        if not kept or span.end > kept[-1].end:
            kept.append(span)
    return kept


def _fitted(text: str, span: Span, tokenizing: Tokenizing) -> list[Span]:
    """Cut a span that the embedder could not read whole (sizes may be words or characters)."""
    length = span.end - span.start
    if length < 2 or tokenizing.count_tokens(text[span.start : span.end]) <= tokenizing.max_tokens:
        return [span]
    middle = better_cut(text, span.start + length // 4, span.start + length // 2)
    halves = (trim(text, span.start, middle), trim(text, middle, span.end))
    return [part for half in halves if half for part in _fitted(text, half, tokenizing)]


@dataclass(slots=True)
class _Placed:
    """A piece's place among the text's code points that are not white space."""

    start: int
    end: int


def place(text: str, pieces: Sequence[str], *, name: str) -> list[Span]:
    """Find the pieces' spans; starts and ends strictly increase and no word is left out.

    Searches with bounded backtracking, since a piece of a repetitive text fits in many places.
    Raises InvalidInput naming the splitter where there is no such placing.
    """
    positions = np.flatnonzero(np.fromiter((not c.isspace() for c in text), bool, len(text)))
    words = "".join(text.split())
    wanted = [joined for piece in pieces if (joined := "".join(piece.split()))]
    placed = _search(words, wanted)
    if placed is None:
        raise InvalidInput(
            f"the splitter {name!r} gives pieces that are not spans of the text, or leaves words "
            "out, so citations could not be checked; choose another splitter, such as 'structure'",
            param="splitter",
        )
    spans = [Span(int(positions[p.start]), int(positions[p.end - 1]) + 1) for p in placed]
    return _increasing(spans)


def _search(words: str, wanted: Sequence[str]) -> list[_Placed] | None:
    """Place the pieces in order; a place that led nowhere is not tried again."""
    placed: list[_Placed] = []
    dead: set[tuple[int, int]] = set()
    lengths = [len(piece) for piece in wanted]
    to_come = [*reversed([*itertools.accumulate(reversed(lengths))]), 0]
    for _ in range(_MAX_STEPS + _MAX_STEPS_PER_PIECE * len(wanted)):
        number = len(placed)
        end = placed[-1].end if placed else 0
        if number == len(wanted) and end == len(words):
            return placed
        found = None
        if number < len(wanted):
            overlaps = max(0, to_come[number] - (len(words) - end))
            expected = end - round(overlaps / (len(wanted) - number)) if placed else 0
            found = _next_place(words, wanted[number], placed, dead, expected)
        if found is not None:
            placed.append(found)
        elif placed:
            dead.add((number - 1, placed.pop().start))
        else:
            return None
    return None


def _next_place(
    words: str,
    piece: str,
    placed: Sequence[_Placed],
    dead: set[tuple[int, int]],
    expected: int,
) -> _Placed | None:
    """Give the live place nearest to `expected` that goes on without a gap behind what is placed.

    Most pieces fit in one place only; in a repetitive text the overlap still to be spent says
    which of several is likely.
    """
    last = placed[-1] if placed else _Placed(-1, 0)
    starts: list[int] = []
    start = max(last.start, last.end - len(piece), 0) - 1
    while (start := words.find(piece, start + 1, last.end + len(piece))) >= 0:
        if (len(placed), start) not in dead:
            starts.append(start)
    if not starts:
        return None
    best = min(starts, key=lambda place: abs(place - expected))
    return _Placed(best, best + len(piece))
