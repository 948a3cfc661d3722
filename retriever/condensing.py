"""A question and passages in, the sentences of them that a small backbone should read out.

Small models lose the answer among whole passages and copy what stands first; shown the few
sentences that answer best, they answer twice as often from a third of the tokens
(docs/lab-log.md). Citations still resolve against the whole passages. Knows nothing of prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from index.errors import InvalidInput
from index.records import Passage
from retriever.relevance import SentenceEmbedder, value_sentences
from retriever.support import SentencePool

_GAP = " … "


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A passage, and the words of it to show: its chosen sentences, gaps marked by an ellipsis."""

    passage: Passage
    shown: str
    is_whole: bool


def condense(
    question: str,
    passages: Sequence[Passage],
    *,
    count_tokens: Callable[[str], int],
    budget_tokens: int,
    embedder: SentenceEmbedder | None = None,
) -> tuple[Excerpt, ...]:
    """Choose sentences best first until `budget_tokens` of them are taken; at least one.

    Passages without a chosen sentence are left out; the others keep their order. Sentences that
    overlap in the text (chunks do) are taken once. Raises InvalidInput for a budget below 1.
    """
    if budget_tokens < 1:
        raise InvalidInput(
            f"expected a budget of at least 1 token; got {budget_tokens!r}", param="budget_tokens"
        )
    pool = SentencePool(passages)
    values = value_sentences(question, pool, embedder=embedder).values
    taken: set[int] = set()
    words: set[str] = set()
    used = 0
    for i in np.argsort(-values, kind="stable"):
        sentence = pool.sentences[int(i)]
        if not sentence.terms or sentence.text in words:
            continue
        cost = count_tokens(sentence.text)
        if taken and used + cost > budget_tokens:
            break
        taken.add(int(i))
        words.add(sentence.text)
        used += cost
    return tuple(
        _excerpt(pool, number, taken)
        for number in range(len(pool.passages))
        if any(pool.sentences[i].passage == number for i in taken)
    )


def _excerpt(pool: SentencePool, number: int, taken: set[int]) -> Excerpt:
    """Join the taken sentences of one passage; neighbours keep the white space between them."""
    passage = pool.passages[number]
    own = [i for i, sentence in enumerate(pool.sentences) if sentence.passage == number]
    shown, last = "", -1
    for i in own:
        if i not in taken:
            continue
        sentence = pool.sentences[i]
        if last >= 0:
            before = pool.sentences[last]
            shown += passage.text[before.end : sentence.start] if i == last + 1 else _GAP
        shown += sentence.text
        last = i
    return Excerpt(passage, shown, is_whole=set(own) <= taken)
