"""Passages in, their sentences with idf-weighted terms out; says how far one covers another.

A term's weight is its inverse document frequency over the sentences at hand, so what every
sentence says counts little. Knows nothing of models, markers or prompts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from index.records import Passage
from retriever import sentences, terms


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a passage: `passages[passage].text[start:end]`."""

    passage: int
    start: int
    end: int
    text: str
    terms: frozenset[str]


class SentencePool:
    """All sentences of some passages, in order of passage and place."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = tuple(passages)
        self.sentences = tuple(_sentences(passages))
        counts = Counter(term for sentence in self.sentences for term in sentence.terms)
        num = len(self.sentences)
        self._idf = {term: math.log(1 + (num - c + 0.5) / (c + 0.5)) for term, c in counts.items()}
        self._unknown = math.log(1 + (num + 0.5) / 0.5)

    def weight(self, wanted: Iterable[str]) -> float:
        """Add up the weights of terms; one that no sentence holds weighs most."""
        return sum(self._idf.get(term, self._unknown) for term in wanted)

    def coverage(self, wanted: frozenset[str], held: frozenset[str]) -> float:
        """Give the share in [0, 1] of `wanted`'s weight that `held` has; 0 for no `wanted`."""
        total = self.weight(wanted)
        return self.weight(wanted & held) / total if total > 0 else 0.0


def term_set(text: str) -> frozenset[str]:
    """Give the distinct content terms of a text."""
    return frozenset(terms.terms(text))


def _sentences(passages: Sequence[Passage]) -> Iterable[Sentence]:
    for position, passage in enumerate(passages):
        for span in sentences.split(passage.text):
            words = passage.text[span.start : span.end]
            yield Sentence(position, span.start, span.end, words, term_set(words))
