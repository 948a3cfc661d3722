"""An answer and its numbered passages in, checked quotes out.

A marker is a number in square brackets ([3], [1, 2], [1-3], 【1】, ［2］). It stands for the
sentence that it ends. The quote of a citation is the sentence (or the two neighbours) of the
passage that best covers the answer's sentence, by idf-weighted terms (words; character bigrams in
unsegmented scripts). Every quote is compared with the version's own text. Knows nothing of models.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
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
_QUESTION = 0.3
"""How much closeness to the question counts between quotes that cover a sentence alike."""
_PAIR = 0.15
"""Two sentences must cover this much more than one to be quoted together."""
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


def resolve(
    answer: str, numbered: Sequence[Passage], read_text: ReadText, *, question: str = ""
) -> Cited:
    """Resolve an answer's markers, and align the sentences that have none to the passages.

    Numbers that name no passage are removed and counted; repeats within a sentence are merged;
    [1, 2] becomes [1][2]. A marker whose passage shares less than `MARKER_SUPPORT` of the
    sentence's weight is removed and counted (not where the two are in different scripts, and not
    for sentences of fewer than three terms: there, terms prove nothing). A sentence without a
    marker that resolves is aligned to the quote that covers it best, if at least `ALIGN_SUPPORT`
    is covered; of quotes that cover it alike, the one nearer to `question` is taken. An abstaining
    answer gets no citation.
    """
    bare = _strip_markers(answer, len(numbered))
    if is_abstention(bare.text) or not numbered:
        return Cited(bare.text, (), bare.dropped)
    quoter = _Quoter(SentencePool(numbered), term_set(question), read_text)
    spans = sentences.split(bare.text)
    kept, citations, unsupported = _resolve_marks(bare, spans, quoter)
    marked = {citation.answer_span for citation in citations}
    for span in spans:
        if span not in marked:
            found = quoter.best(bare.text[span.start : span.end], passage=None)
            if found is not None and found.support >= ALIGN_SUPPORT:
                citations.append(quoter.cite(found, span, origin="aligned"))
    citations.sort(key=lambda citation: citation.answer_span.start)
    text, moved = _with_markers(bare, kept, citations)
    return Cited(text, moved, bare.dropped, unsupported)


@dataclass(frozen=True, slots=True)
class _Quote:
    """Neighbouring sentences of one passage, and the share of the answer's sentence they cover."""

    first: Sentence
    last: Sentence
    support: float


class _Quoter:
    """Finds and checks quotes for the sentences of one answer."""

    def __init__(self, pool: SentencePool, question: frozenset[str], read_text: ReadText) -> None:
        self.pool = pool
        self._near = [_QUESTION * pool.coverage(question, s.terms) for s in pool.sentences]
        self._read_text = read_text

    def best(self, words: str, *, passage: int | None) -> _Quote | None:
        """Find the sentence, or two neighbours that cover clearly more, with the best coverage."""
        wanted = term_set(words)
        pool, found, best_value = self.pool, None, -1.0
        for i, sentence in enumerate(pool.sentences):
            if passage is not None and sentence.passage != passage:
                continue
            single = pool.coverage(wanted, sentence.terms)
            if single + self._near[i] > best_value:
                found, best_value = _Quote(sentence, sentence, single), single + self._near[i]
            before = pool.sentences[i - 1] if i else sentence
            if before is not sentence and before.passage == sentence.passage:
                pair = pool.coverage(wanted, sentence.terms | before.terms)
                value = pair + max(self._near[i], self._near[i - 1]) - _PAIR
                if pair > 0 and value > best_value:
                    found, best_value = _Quote(before, sentence, pair), value
        return found

    def cite(self, quote: _Quote, answer_span: Span, *, origin: Origin) -> Citation:
        return cite(
            self.pool,
            quote.first,
            quote.last,
            answer_span,
            origin=origin,
            read_text=self._read_text,
        )


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
    bare: _Bare, spans: Sequence[Span], quoter: _Quoter
) -> tuple[list[tuple[int, int]], list[Citation], int]:
    """Give the marks that stay (offset, number), their citations, and how many were unsupported."""
    kept: list[tuple[int, int]] = []
    citations: list[Citation] = []
    unsupported = 0
    seen: set[tuple[int, int]] = set()
    for at, number in bare.marks if spans else ():
        index = _sentence_of(at, spans)
        if (index, number) in seen:
            continue
        seen.add((index, number))
        words = bare.text[spans[index].start : spans[index].end]
        quote = quoter.best(words, passage=number - 1)
        if quote is None or (
            quote.support < MARKER_SUPPORT
            and _can_judge(words, quoter.pool.passages[number - 1].text)
        ):
            unsupported += 1
            continue
        kept.append((at, number))
        citations.append(quoter.cite(quote, spans[index], origin="marker"))
    return kept, citations, unsupported


def _can_judge(words: str, passage_text: str) -> bool:
    return len(term_set(words)) >= 3 and terms.same_script(words, passage_text)


def _with_markers(
    bare: _Bare, kept: Sequence[tuple[int, int]], citations: Sequence[Citation]
) -> tuple[str, tuple[Citation, ...]]:
    """Write the kept markers back, and move the answer spans to where their sentences now are."""
    lead = "" if terms.language_of(bare.text) == "zh" else " "
    parts: list[str] = []
    placed: list[tuple[int, int]] = []
    taken = -1
    for at, number in kept:
        marker = f"[{number}]" if at in (taken, 0) else f"{lead}[{number}]"
        parts += [bare.text[max(taken, 0) : at], marker]
        placed.append((at, len(marker)))
        taken = at
    parts.append(bare.text[max(taken, 0) :])
    return "".join(parts), tuple(_moved(citation, placed) for citation in citations)


def _moved(citation: Citation, placed: Sequence[tuple[int, int]]) -> Citation:
    """Shift a sentence by the markers before it; those inside it belong to it."""
    old = citation.answer_span
    start = old.start + sum(width for at, width in placed if at <= old.start)
    end = old.end + sum(width for at, width in placed if at < old.end)
    return dataclasses.replace(citation, answer_span=Span(start, max(start, end)))
