"""A question and a pool of sentences in, how well each sentence answers out.

A sentence is valued by the share of the question's weight that it covers, what its neighbours
and headings add, the rank of its passage, a number where one is asked for, and, with an embedder,
its closeness to the question. Weights were fitted on half of the articles of XQuAD English and
Chinese (which of them to keep was decided with the other half in view);
`benchmarks/retrieval_quality.py` reports the other half. Knows nothing of citations.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from index.records import FloatArray
from retriever.support import SentencePool, term_set

Values = npt.NDArray[np.float64]

_BEFORE, _AFTER, _RANK, _NUMBER, _CLOSE = 0.5, 0.25, 0.35, 0.15, 0.065
_NOTHING_NEW = 0.12
_MAX_EMBEDDED = 64
_ASKS_NUMBER = re.compile(
    r"\b(?:when|how (?:many|much|long|old|far|large|big|often|tall|high)|"
    r"what (?:year|date|percent\w*|number|version)|which (?:year|version))\b"
    r"|多少|何时|什么时候|几|哪一?年|多[长久大高远]",
    re.IGNORECASE,
)
_HAS_NUMBER = re.compile(r"\d|[一二三四五六七八九十百千万]")


class SentenceEmbedder(Protocol):
    """Unit vectors [N, E] of queries and of passages of at most `max_tokens` tokens."""

    @property
    def max_tokens(self) -> int: ...

    def encode_queries(self, texts: Sequence[str]) -> FloatArray: ...

    def encode_passages(self, texts: Sequence[str]) -> FloatArray: ...

    def count_tokens(self, text: str) -> int: ...

    def token_spans(self, text: str) -> list[tuple[int, int]]: ...


@dataclass(frozen=True, slots=True)
class Relevance:
    """N sentences' values for one question, in the pool's order.

    `values` [N]: greater is better, a difference of 0.1 is about a factor e in the odds.
    `covered` [N] in [0, 1]: the share of the question's weight in a sentence and the one before.
    `closeness` [M]: inner products of question and sentences (at most 64 of them); empty
    without an embedder.
    """

    values: Values
    covered: Values
    closeness: Values


def value_sentences(
    question: str, pool: SentencePool, *, embedder: SentenceEmbedder | None = None
) -> Relevance:
    """Value every sentence of the pool for the question."""
    wanted = term_set(question)
    num = len(pool.sentences)
    values, covered = np.zeros(num), np.zeros(num)
    contexts = [term_set(passage.context) for passage in pool.passages]
    asks_number = _ASKS_NUMBER.search(question) is not None
    for i, sentence in enumerate(pool.sentences):
        before = _neighbour(pool, i, -1) | contexts[sentence.passage]
        own = pool.coverage(wanted, sentence.terms)
        covered[i] = pool.coverage(wanted, sentence.terms | before)
        after = pool.coverage(wanted, sentence.terms | _neighbour(pool, i, 1))
        values[i] = (
            own
            + _BEFORE * (covered[i] - own)
            + _AFTER * (after - own)
            + _RANK / (1 + sentence.passage)
            + _NUMBER * (asks_number and _HAS_NUMBER.search(sentence.text) is not None)
            - _NOTHING_NEW * (sentence.terms <= wanted)
        )
    if embedder is None or num == 0:
        return Relevance(values, covered, np.zeros(0))
    return _add_closeness(question, pool, values, covered, embedder)


def _neighbour(pool: SentencePool, i: int, step: int) -> frozenset[str]:
    """Give the terms of the sentence before or after, if it is of the same passage."""
    j = i + step
    if 0 <= j < len(pool.sentences) and pool.sentences[j].passage == pool.sentences[i].passage:
        return pool.sentences[j].terms
    return frozenset()


def _add_closeness(
    question: str, pool: SentencePool, values: Values, covered: Values, embedder: SentenceEmbedder
) -> Relevance:
    """Add the closeness in standard deviations: the scale of an embedder must not matter."""
    read = np.argsort(-values, kind="stable")[:_MAX_EMBEDDED]
    texts = [_fitting(pool.sentences[i].text, embedder) for i in read]
    asked = embedder.encode_queries([question])[0]
    closeness = np.asarray(embedder.encode_passages(texts) @ asked, dtype=np.float64)
    values = values.copy()
    if len(read) > 2:
        values[read] += _CLOSE * (closeness - closeness.mean()) / (closeness.std() + 1e-6)
    return Relevance(values, covered, closeness)


def _fitting(text: str, embedder: SentenceEmbedder) -> str:
    """Give as much of a very long sentence as the embedder reads; only its value depends on it.

    A text cut off and read alone may have a token more than before, hence the loop.
    """
    room = embedder.max_tokens
    while room > 0 and embedder.count_tokens(text) > embedder.max_tokens:
        text = text[: embedder.token_spans(text)[room - 1][1]]
        room -= 1
    return text
