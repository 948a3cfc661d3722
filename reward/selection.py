"""Candidates and their scores in, the chosen one out; and the search that makes candidates.

`best_of_n` drives the engine by submitting requests and reading handles; it never touches a
model or a cache.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from decoding.protocols import Scorer
from decoding.records import Completion, Request
from index.errors import InvalidInput

AnswerOf = Callable[[Completion], str]


class Selector(Protocol):
    """Chooses one candidate; gives its position."""

    def select(self, candidates: Sequence[Completion], scores: Sequence[float]) -> int: ...


class Handle(Protocol):
    """A running generation."""

    def result(self, timeout: float | None = None) -> Completion: ...

    def cancel(self) -> None: ...


class Submits(Protocol):
    """An engine, as far as a search needs it."""

    def submit(self, request: Request) -> Handle: ...


@dataclass(frozen=True, slots=True)
class Selection:
    """What a search chose: `candidates[chosen]`, and what each candidate was worth."""

    candidates: tuple[Completion, ...]
    scores: tuple[float, ...]
    chosen: int

    @property
    def best(self) -> Completion:
        """Give the chosen completion."""
        return self.candidates[self.chosen]


class BestOfN:
    """Takes the greatest score; the first of equals."""

    def select(self, candidates: Sequence[Completion], scores: Sequence[float]) -> int:
        """Give the position of the greatest score."""
        _check(candidates, scores)
        return max(range(len(scores)), key=lambda i: scores[i])


def plain_answer(completion: Completion) -> str:
    """Give the words of a completion, folded, so that equal answers compare equal."""
    return " ".join(completion.text.casefold().split())


class WeightedBestOfN:
    """Adds the scores of equal answers and takes the best answer's best candidate.

    Scores must lie in [0, 1]. Source: Li et al. (2023), "Making language models better reasoners
    with step-aware verifier", weighted voting.
    """

    def __init__(self, answer_of: AnswerOf = plain_answer) -> None:
        self._answer_of = answer_of

    def select(self, candidates: Sequence[Completion], scores: Sequence[float]) -> int:
        """Give the position of the chosen candidate; InvalidInput for a score outside [0, 1]."""
        _check(candidates, scores)
        for score in scores:
            if not 0.0 <= score <= 1.0:
                raise InvalidInput(
                    f"weighted selection needs scores in [0, 1]; got {score!r}: use a scorer that "
                    "gives probabilities, or BestOfN"
                )
        answers = [self._answer_of(candidate) for candidate in candidates]
        totals: dict[str, float] = {}
        for answer, score in zip(answers, scores, strict=True):
            totals[answer] = totals.get(answer, 0.0) + score
        return max(range(len(scores)), key=lambda i: (totals[answers[i]], scores[i]))


def _check(candidates: Sequence[Completion], scores: Sequence[float]) -> None:
    if not candidates or len(candidates) != len(scores):
        raise InvalidInput(
            f"expected one score for each of one or more candidates; got {len(candidates)} "
            f"candidates and {len(scores)} scores"
        )
    if any(math.isnan(score) for score in scores):
        raise InvalidInput("a scorer gave nan; expected numbers")


def best_of_n(
    engine: Submits,
    request: Request,
    *,
    question: str,
    scorer: Scorer,
    n: int,
    selector: Selector | None = None,
) -> Selection:
    """Generate n candidates with the seeds seed … seed + n − 1, score them, choose one.

    Greedy requests would give n equal texts, so `request.temperature` must be above 0 where
    n > 1. Where a candidate fails or the queue is full (Busy), the others are cancelled and its
    error is raised.
    """
    if n < 1 or (n > 1 and request.temperature <= 0):
        raise InvalidInput(
            f"best_of_n needs n >= 1, and a temperature above 0 where n > 1; got n = {n!r}, "
            f"temperature = {request.temperature!r}"
        )
    handles: list[Handle] = []
    try:
        for i in range(n):
            handles.append(engine.submit(dataclasses.replace(request, seed=request.seed + i)))
        candidates = tuple(handle.result(None) for handle in handles)
    finally:
        for handle in handles:
            handle.cancel()
    scores = tuple(scorer.score(question, candidates))
    return Selection(candidates, scores, (selector or BestOfN()).select(candidates, scores))
