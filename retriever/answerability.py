"""How probable it is that passages answer a question at all: one number in [0, 1].

A logistic function of how much of the question the best sentence (with the one before) covers
and, with an embedder, how far the closest sentence stands out from the median one. Fitted on half
of the articles of XQuAD English and Chinese: each question against all articles (answered) and
against all but its own (not answered). On the other half, with e5-small, AUC is .988 (en) and
.985 (zh); at 0.4, .96 / .93 of the answered are answered and .94 / .94 of the others declined.
Without an embedder AUC is .966 / .946. The thresholds were chosen with that half in
view, so its figures are slightly kind. A store that is about the very thing asked and lacks the
one fact is a harder case than that, and is not measured here. Knows nothing of answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from index.records import Passage
from retriever.relevance import Relevance, SentenceEmbedder, value_sentences
from retriever.support import SentencePool
from retriever.terms import language_of

ABSTAIN_BELOW = 0.4
"""With `abstain`, a question below this is declined."""
CITE_BELOW = 0.1
"""Without `abstain`, an answer to a question below this carries no citation."""


def answerability(
    question: str, passages: Sequence[Passage], *, embedder: SentenceEmbedder | None = None
) -> float:
    """Give the estimated probability that the passages answer the question; 0 for no passages."""
    pool = SentencePool(passages)
    return of_relevance(question, value_sentences(question, pool, embedder=embedder))


def of_relevance(question: str, relevance: Relevance) -> float:
    """Give the same from values that are already there."""
    if relevance.covered.size == 0:
        return 0.0
    covered = float(relevance.covered.max())
    is_zh = language_of(question) == "zh"
    if relevance.closeness.size == 0:
        logit = 15.2 * covered + 1.92 * is_zh - 5.55
    else:
        middle = float(np.median(relevance.closeness))
        margin = (float(relevance.closeness.max()) - middle) / max(1.0 - middle, 1e-6)
        logit = 12.53 * covered + 15.21 * margin + 1.82 * is_zh - 9.36
    return float(1.0 / (1.0 + np.exp(-logit)))
