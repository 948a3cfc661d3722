"""A question and passages in, the passages' own best sentences out, each a checked quote.

Right where the backbone is too small to be trusted: nothing is generated. Knows nothing of
language models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from index.errors import InvalidInput
from index.records import Passage, Span
from retriever.abstention import abstention
from retriever.answerability import ABSTAIN_BELOW, CITE_BELOW, of_relevance
from retriever.citations import Citation, ReadText, cite
from retriever.relevance import Relevance, SentenceEmbedder, value_sentences
from retriever.support import Sentence, SentencePool
from retriever.terms import language_of

_SHARPNESS = 9.0
"""Turns differences of value into odds; fitted with the weights of `relevance`."""
_ENOUGH = 0.95
"""Sentences are added until the odds say that the answer is among them."""


@dataclass(frozen=True, slots=True)
class Extractive:
    """Sentences of the documents as an answer; abstains with no citation.

    `answerability` in [0, 1] says how probable it is that the passages answer at all.
    """

    answer: str
    citations: tuple[Citation, ...]
    answerability: float


def answer(
    question: str,
    passages: Sequence[Passage],
    read_text: ReadText,
    *,
    max_sentences: int = 3,
    abstain: bool = False,
    embedder: SentenceEmbedder | None = None,
) -> Extractive:
    """Answer with one to `max_sentences` sentences of the passages, in document order.

    Sentences are taken best first until it is probable enough that the answer is among them.
    With `abstain`, a question that the passages hardly answer gets the abstaining answer; without
    it, an answer that next to nothing supports carries no citations. No passages: it abstains.
    """
    if max_sentences < 1:
        raise InvalidInput(
            f"max_sentences must be at least 1; got {max_sentences!r}", param="max_sentences"
        )
    pool = SentencePool(passages)
    relevance = value_sentences(question, pool, embedder=embedder)
    probability = of_relevance(question, relevance)
    chosen = _choose(pool, relevance, max_sentences)
    if not chosen or (abstain and probability < ABSTAIN_BELOW):
        return Extractive(abstention(question), (), probability)
    words, citations = _compose(chosen, pool, read_text)
    return Extractive(words, citations if probability >= CITE_BELOW else (), probability)


def _choose(pool: SentencePool, relevance: Relevance, max_sentences: int) -> list[Sentence]:
    """Take the best sentences that say something, none twice, in document order."""
    taken: list[Sentence] = []
    if not pool.sentences:
        return taken
    odds = np.exp(_SHARPNESS * (relevance.values - relevance.values.max()))
    share = 0.0
    for i in np.argsort(-relevance.values, kind="stable"):
        sentence = pool.sentences[int(i)]
        if sentence.terms and not any(_overlap(pool, sentence, other) for other in taken):
            taken.append(sentence)
            share += float(odds[i] / odds.sum())
        if len(taken) == max_sentences or share >= _ENOUGH:
            break
    first_seen = {_home(pool, s): s.passage for s in sorted(taken, key=lambda s: -s.passage)}
    return sorted(taken, key=lambda s: (first_seen[_home(pool, s)], _span(pool, s).start))


def _home(pool: SentencePool, sentence: Sentence) -> tuple[str, str]:
    passage = pool.passages[sentence.passage]
    return passage.store_id, passage.document


def _span(pool: SentencePool, sentence: Sentence) -> Span:
    """Give the sentence's place in the version's text."""
    start = pool.passages[sentence.passage].start
    return Span(start + sentence.start, start + sentence.end)


def _overlap(pool: SentencePool, one: Sentence, other: Sentence) -> bool:
    """Tell whether two sentences are the same words: chunks overlap, and documents repeat."""
    if one.text == other.text:
        return True
    a, b = _span(pool, one), _span(pool, other)
    return _home(pool, one) == _home(pool, other) and a.start < b.end and b.start < a.end


def _compose(
    chosen: Sequence[Sentence], pool: SentencePool, read_text: ReadText
) -> tuple[str, tuple[Citation, ...]]:
    """Join the sentences, white space folded, and cite each where it stands in the answer."""
    answer_text = ""
    citations: list[Citation] = []
    for sentence in chosen:
        words = " ".join(sentence.text.split())
        if answer_text and language_of(words) != "zh":
            answer_text += " "
        span = Span(len(answer_text), len(answer_text) + len(words))
        answer_text += words
        citations.append(
            cite(pool, sentence, sentence, span, origin="extracted", read_text=read_text)
        )
    return answer_text, tuple(citations)
