"""An answer and its numbered passages in, checked quotes out.

A marker is a number in square brackets ([3], [1, 2], [1-3], 【1】, ［2］). It stands for the
sentence that it ends. The quote of a citation is the sentence (or the two neighbours) of the
passage that best covers the answer's sentence, by idf-weighted terms (words; character bigrams in
unsegmented scripts). Every quote is compared with the version's own text. Knows nothing of models.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from index.records import Passage, Span
from retriever import sentences, terms
from retriever.abstention import is_abstention
from retriever.support import Sentence, SentencePool, term_set

Origin = Literal["marker", "aligned", "extracted"]
ReadText = Callable[[Passage], str]

ALIGN_SUPPORT = 0.5
"""An answer's sentence without a marker needs this share of its weight in one quote."""
MARKER_SUPPORT = 0.15
"""Below this share a marker's own passage does not support the sentence at all."""
_MARKER = re.compile(
    r"[ \t]*[\[【［]\s*(?:passages?|sources?|段落|资料)?\s*"
    r"(\d{1,3}(?:\s*[,，、;\-–]\s*\d{1,3})*)\s*[\]】］]",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(\d+)(?:\s*[-–]\s*(\d+))?")


@dataclass(frozen=True, slots=True)
class Citation:
    """One checked quote: `quote` is `text[start:end]` of the document's version."""

    number: int
    """The passage's number in the prompt, from 1."""
    document: str
    version: str
    store_id: str
    start: int
    end: int
    quote: str
    verified: bool
    """The server read the version's text and found exactly `quote` at `[start, end)`."""
    origin: Origin
    page: int | None
    headings: tuple[str, ...]
    answer_span: Span
    """The sentence of the answer that the quote stands for."""


@dataclass(frozen=True, slots=True)
class Cited:
    """An answer whose markers all resolve, and what they resolve to.

    `dropped` counts numbers that name no passage; `unsupported` counts numbers whose passage
    holds next to nothing of the sentence. Both are gone from `answer`.
    """

    answer: str
    citations: tuple[Citation, ...]
    dropped: int
    unsupported: int = 0


@dataclass(frozen=True, slots=True)
class _Bare:
    """An answer without its markers, and where each number stood."""

    text: str
    marks: tuple[tuple[int, int], ...]
    """(offset in `text`, number), in order."""
    dropped: int


def resolve(answer: str, numbered: Sequence[Passage], read_text: ReadText) -> Cited:
    """Resolve an answer's markers; where it wrote none, align its sentences to the passages.

    Numbers that name no passage are removed and counted; repeats within a sentence are merged;
    [1, 2] becomes [1][2]. A marker whose passage shares less than `MARKER_SUPPORT` of the
    sentence's weight is removed and counted (not where the two are in different scripts, and not
    for sentences of fewer than three terms: there, terms prove nothing). Without any marker that
    resolves, each sentence is aligned to the quote that covers it best, if at least
    `ALIGN_SUPPORT` is covered. An abstaining answer gets no citation.
    """
    bare = _strip_markers(answer, len(numbered))
    if is_abstention(bare.text) or not numbered:
        return Cited(bare.text, (), bare.dropped + (0 if numbered else len(bare.marks)))
    pool = SentencePool(numbered)
    spans = sentences.split(bare.text)
    if not bare.marks:
        aligned = tuple(_align(bare.text, spans, pool, read_text))
        return Cited(bare.text, aligned, bare.dropped)
    kept, citations, unsupported = _resolve_marks(bare, spans, pool, read_text)
    return _with_markers(bare, spans, kept, citations, unsupported)


def cite(
    pool: SentencePool,
    first: Sentence,
    last: Sentence,
    answer_span: Span,
    *,
    origin: Origin,
    read_text: ReadText,
) -> Citation:
    """Make the citation of the sentences from `first` to `last` of one passage, and check it."""
    passage = pool.passages[first.passage]
    start, end = passage.start + first.start, passage.start + last.end
    quote = passage.text[first.start : last.end]
    return Citation(
        number=first.passage + 1,
        document=passage.document,
        version=passage.version,
        store_id=passage.store_id,
        start=start,
        end=end,
        quote=quote,
        verified=read_text(passage)[start:end] == quote,
        origin=origin,
        page=passage.page,
        headings=passage.headings,
        answer_span=answer_span,
    )


def _numbers(listed: str) -> list[int]:
    found: list[int] = []
    for first, last in _NUMBER.findall(listed):
        low, high = int(first), int(last or first)
        found.extend(range(low, high + 1) if low <= high < low + 20 else {low, high})
    return found


def _strip_markers(answer: str, num_passages: int) -> _Bare:
    parts: list[str] = []
    marks: list[tuple[int, int]] = []
    length = dropped = taken = 0
    for match in _MARKER.finditer(answer):
        parts.append(answer[taken : match.start()])
        length += len(parts[-1])
        taken = match.end()
        for number in _numbers(match[1]):
            if 1 <= number <= num_passages:
                marks.append((length, number))
            else:
                dropped += 1
    parts.append(answer[taken:])
    text = "".join(parts)
    shift = len(text) - len(text.lstrip())
    text = text.strip()
    placed = tuple((min(max(at - shift, 0), len(text)), number) for at, number in marks)
    return _Bare(text, placed, dropped)


def _sentence_of(at: int, spans: Sequence[Span]) -> int:
    """Give the position of the sentence that a marker at offset `at` ends (the first, if none)."""
    before = [i for i, span in enumerate(spans) if span.start < at]
    return before[-1] if before else 0


def _resolve_marks(
    bare: _Bare, spans: Sequence[Span], pool: SentencePool, read_text: ReadText
) -> tuple[list[tuple[int, int]], list[Citation], int]:
    """Give the marks that stay (offset, number), their citations, and how many were unsupported."""
    kept: list[tuple[int, int]] = []
    citations: list[Citation] = []
    unsupported = 0
    seen: set[tuple[int, int]] = set()
    for at, number in bare.marks:
        index = _sentence_of(at, spans)
        if not spans or (index, number) in seen:
            continue
        seen.add((index, number))
        span = spans[index]
        words = bare.text[span.start : span.end]
        first, last, support = _best_quote(words, pool, passage=number - 1)
        if (
            first is None
            or last is None
            or (support < MARKER_SUPPORT and _can_judge(words, pool.passages[number - 1].text))
        ):
            unsupported += 1
            continue
        kept.append((at, number))
        made = cite(pool, first, last, span, origin="marker", read_text=read_text)
        if not any(c.number == number and c.start == made.start for c in citations):
            citations.append(made)
    return kept, citations, unsupported


def _can_judge(words: str, passage_text: str) -> bool:
    return len(term_set(words)) >= 3 and terms.same_script(words, passage_text)


def _with_markers(
    bare: _Bare,
    spans: Sequence[Span],
    kept: Sequence[tuple[int, int]],
    citations: Sequence[Citation],
    unsupported: int,
) -> Cited:
    """Write the kept markers back, and move the answer spans to where their sentences now are."""
    shifts: list[tuple[int, int]] = []
    parts: list[str] = []
    taken = 0
    for at, number in kept:
        before = bare.text[taken:at]
        spaced = bool(parts) and not before
        lead = "" if spaced or at == 0 or terms.language_of(bare.text) == "zh" else " "
        marker = f"{lead}[{number}]"
        parts += [before, marker]
        shifts.append((at, len(marker)))
        taken = at
    parts.append(bare.text[taken:])
    moved = tuple(_moved(citation, shifts) for citation in citations)
    return Cited("".join(parts), moved, bare.dropped, unsupported)


def _moved(citation: Citation, shifts: Sequence[tuple[int, int]]) -> Citation:
    old = citation.answer_span
    start = old.start + sum(width for at, width in shifts if at < old.start or at == 0)
    start = min(start, old.start + sum(width for _, width in shifts))
    end = old.end + sum(width for at, width in shifts if at < old.end)
    return dataclasses.replace(citation, answer_span=Span(start, max(start, end)))


def _align(
    answer: str, spans: Sequence[Span], pool: SentencePool, read_text: ReadText
) -> Iterator[Citation]:
    for span in spans:
        words = answer[span.start : span.end]
        first, last, support = _best_quote(words, pool, passage=None)
        if first is not None and last is not None and support >= ALIGN_SUPPORT:
            yield cite(pool, first, last, span, origin="aligned", read_text=read_text)


def _best_quote(
    words: str, pool: SentencePool, *, passage: int | None
) -> tuple[Sentence | None, Sentence | None, float]:
    """Find the sentence, or two neighbours that cover clearly more, with the best coverage."""
    wanted = term_set(words)
    best: tuple[Sentence | None, Sentence | None, float] = (None, None, -1.0)
    previous: Sentence | None = None
    for sentence in pool.sentences:
        if passage is not None and sentence.passage != passage:
            continue
        single = pool.coverage(wanted, sentence.terms)
        if single > best[2]:
            best = (sentence, sentence, single)
        if previous is not None and previous.passage == sentence.passage:
            pair = pool.coverage(wanted, sentence.terms | previous.terms)
            if pair > best[2] + 0.15:
                best = (previous, sentence, pair)
        previous = sentence
    return best
