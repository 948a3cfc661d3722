"""Ranked lists in, one ranked list out: fusion, thresholds, diversity. Pure arithmetic.

Scores are "greater is better" throughout; ties keep the order in which keys first came.
Knows nothing of stores, texts or models.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np

from index.records import FloatArray

Key = TypeVar("Key", bound=Hashable)
Scored = list[tuple[Key, float]]


def above(scored: Scored[Key], minimum: float | None) -> Scored[Key]:
    """Keep what scores at least `minimum`; None keeps all, 0.0 and negatives are real bounds.

    >>> above([("a", 0.5), ("b", 0.0), ("c", -0.5)], 0.0)
    [('a', 0.5), ('b', 0.0)]
    """
    if minimum is None:
        return list(scored)
    return [(key, score) for key, score in scored if score >= minimum]


def fuse(lists: Sequence[Scored[Key]], *, weights: Sequence[float], rrf_k: int) -> Scored[Key]:
    """Fuse ranked lists by weighted reciprocal rank: the sum of weight / (rrf_k + rank).

    Ranks start at 1. A list of weight 0 adds nothing, not even keys.
    Source: Cormack, Clarke and Büttcher, SIGIR 2009 (with weights 1 there).

    >>> fuse([[("a", 9.0), ("b", 8.0)], [("b", 0.1)]], weights=[1, 1], rrf_k=60)[0][0]
    'b'
    """
    fused: dict[Key, float] = {}
    for scored, weight in zip(lists, weights, strict=True):
        if weight == 0:
            continue
        for rank, (key, _) in enumerate(scored, start=1):
            fused[key] = fused.get(key, 0.0) + weight / (rrf_k + rank)
    return sorted(fused.items(), key=lambda item: -item[1])


def best(scored: Scored[Key], *, limit: int) -> Scored[Key]:
    """Sort by score, greatest first, and keep at most `limit`."""
    return sorted(scored, key=lambda item: -item[1])[:limit]


def diversify(relevance: Sequence[float], vectors: FloatArray, *, lam: float, k: int) -> list[int]:
    """Choose k of N candidates by maximal marginal relevance; give their positions in order.

    `relevance` [N] is scaled to [0, 1] first; `vectors` [N, E] are unit length. Each step takes
    the greatest lam · relevance − (1 − lam) · (greatest inner product with one taken before).
    Source: Carbonell and Goldstein, SIGIR 1998. With lam = 1 the order is that of relevance.
    """
    num = len(relevance)
    if num == 0:
        return []
    gains = np.asarray(relevance, dtype=np.float64)
    spread = float(gains.max() - gains.min())
    gains = (gains - gains.min()) / spread if spread > 0 else np.ones(num)
    similar = np.asarray(vectors @ vectors.T, dtype=np.float64)
    taken: list[int] = []
    nearest = np.zeros(num)
    left = np.ones(num, dtype=bool)
    while len(taken) < min(k, num):
        value = np.where(left, lam * gains - (1 - lam) * nearest, -np.inf)
        chosen = int(np.argmax(value))
        nearest = similar[chosen] if not taken else np.maximum(nearest, similar[chosen])
        taken.append(chosen)
        left[chosen] = False
    return taken
