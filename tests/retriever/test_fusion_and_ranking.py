"""Fusion, thresholds and diversity: pure arithmetic against slow or obvious oracles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.errors import InvalidInput
from index.records import FloatArray
from retriever import RetrievalSettings, ranking

keys = st.lists(st.integers(0, 30), unique=True, max_size=12)
scores = st.floats(-10, 10, allow_nan=False)


def ranked(order: list[int]) -> list[tuple[int, float]]:
    return [(key, -float(rank)) for rank, key in enumerate(order)]


@given(keys, keys, st.integers(1, 100), st.floats(0.05, 0.95))
def test_fusion_is_the_weighted_sum_of_reciprocal_ranks(
    dense: list[int], lexical: list[int], rrf_k: int, weight: float
) -> None:
    fused = ranking.fuse(
        [ranked(dense), ranked(lexical)], weights=[weight, 1 - weight], rrf_k=rrf_k
    )
    assert {key for key, _ in fused} == set(dense) | set(lexical)
    for key, score in fused:
        expected = 0.0
        if key in dense:
            expected += weight / (rrf_k + dense.index(key) + 1)
        if key in lexical:
            expected += (1 - weight) / (rrf_k + lexical.index(key) + 1)
        assert score == pytest.approx(expected, abs=1e-12)
    values = [score for _, score in fused]
    assert values == sorted(values, reverse=True)


@given(keys, keys)
def test_a_list_of_weight_zero_changes_nothing(dense: list[int], lexical: list[int]) -> None:
    fused = ranking.fuse([ranked(dense), ranked(lexical)], weights=[1.0, 0.0], rrf_k=2)
    assert [key for key, _ in fused] == dense


@given(st.lists(st.tuples(st.integers(), scores)), scores)
def test_s4_a_threshold_keeps_exactly_what_reaches_it(
    scored: list[tuple[int, float]], minimum: float
) -> None:
    assert ranking.above(scored, minimum) == [item for item in scored if item[1] >= minimum]


def test_s4_zero_is_a_threshold_and_none_is_not() -> None:
    scored = [("a", 0.3), ("b", 0.0), ("c", -0.2)]
    assert [key for key, _ in ranking.above(scored, 0.0)] == ["a", "b"]
    assert [key for key, _ in ranking.above(scored, -0.2)] == ["a", "b", "c"]
    assert [key for key, _ in ranking.above(scored, None)] == ["a", "b", "c"]


def unit_rows(num: int, seed: int) -> FloatArray:
    rows = np.random.default_rng(seed).normal(size=(num, 6)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def slow_mmr(gains: list[float], rows: FloatArray, lam: float, k: int) -> list[int]:
    spread = max(gains) - min(gains)
    scaled = [(g - min(gains)) / spread if spread else 1.0 for g in gains]
    taken: list[int] = []
    while len(taken) < min(k, len(gains)):
        left = [i for i in range(len(gains)) if i not in taken]
        value = {
            i: lam * scaled[i]
            - (1 - lam) * max((float(rows[i] @ rows[j]) for j in taken), default=0.0)
            for i in left
        }
        taken.append(max(left, key=lambda i: value[i]))
    return taken


@given(st.integers(1, 9), st.integers(0, 1000), st.floats(0, 1), st.integers(1, 10))
def test_diversify_equals_the_slow_definition(num: int, seed: int, lam: float, k: int) -> None:
    rows = unit_rows(num, seed)
    gains = np.random.default_rng(seed + 1).normal(size=num).tolist()
    assert ranking.diversify(gains, rows, lam=lam, k=k) == slow_mmr(gains, rows, lam, k)


def test_diversify_with_lambda_one_keeps_the_order_of_relevance() -> None:
    rows = np.ones((4, 1), dtype=np.float32)
    assert ranking.diversify([4.0, 3.0, 2.0, 1.0], rows, lam=1.0, k=4) == [0, 1, 2, 3]


def test_diversify_prefers_a_new_passage_over_a_copy() -> None:
    rows = np.array([[1, 0], [1, 0], [0, 1]], dtype=np.float32)
    assert ranking.diversify([1.0, 0.9, 0.5], rows, lam=0.5, k=2) == [0, 2]
    assert ranking.diversify([], np.zeros((0, 2), dtype=np.float32), lam=0.5, k=2) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"k": 0},
        {"candidates": 0},
        {"rrf_k": 0},
        {"rerank_depth": 0},
        {"mode": "magic"},
        {"mmr_lambda": 1.5},
        {"dense_weight": -0.1},
        {"min_dense": float("nan")},
    ],
)
def test_impossible_settings_are_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput) as caught:
        RetrievalSettings(**wrong)  # type: ignore[arg-type]
    assert caught.value.param == next(iter(wrong))
