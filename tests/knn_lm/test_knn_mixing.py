"""The mixture's arithmetic against plain numpy in float64, and its edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from knn_lm import mixing


def _reference(
    logp: np.ndarray, distances: np.ndarray, values: np.ndarray, temperature: float, lam: float
) -> np.ndarray:
    """Mix one position with the paper's formulas: probabilities, float64, one by one."""
    weights: dict[int, float] = {}
    least = min(distances)
    for distance, value in zip(distances, values, strict=True):
        weight = math.exp(-(distance - least) / temperature)
        weights[int(value)] = weights.get(int(value), 0.0) + weight
    total = sum(weights.values())
    p = (1 - lam) * np.exp(logp.astype(np.float64))
    for value, weight in weights.items():
        p[value] += lam * weight / total
    return p


@given(
    seed=st.integers(0, 10_000),
    positions=st.integers(1, 7),
    k=st.integers(1, 12),
    missing=st.integers(0, 12),
    lam=st.sampled_from([0.0, 1e-6, 0.25, 0.9, 1.0]),
    temperature=st.sampled_from([1e-3, 0.5, 10.0, 1e4]),
)
def test_the_mixture_equals_the_formula(
    seed: int, positions: int, k: int, missing: int, lam: float, temperature: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logp = torch.log_softmax(torch.randn(positions, 9, generator=generator), dim=-1)
    distances = (10 * torch.rand(positions, k, generator=generator)).sort(dim=-1).values
    values = torch.randint(0, 9, (positions, k), generator=generator)
    kept = max(0, k - missing)
    distances[:, kept:] = math.inf
    mixed = mixing.mix(logp, mixing.log_weights(distances, temperature), values, lam)
    if lam == 0.0 or kept == 0:
        assert mixed is logp
        return
    assert not mixed.isnan().any()
    assert torch.allclose(mixed.exp().sum(dim=-1), torch.ones(positions), atol=1e-5)
    for w in range(positions):
        expected = _reference(
            logp[w].numpy(), distances[w, :kept].numpy(), values[w, :kept].numpy(), temperature, lam
        )
        with np.errstate(divide="ignore"):
            reference = np.log(expected)
        likely = expected > 1e-30
        assert np.abs(mixed[w].numpy()[likely] - reference[likely]).max() < 1e-4
        assert bool((mixed[w].numpy()[~likely] < -60).all())


def test_positions_with_and_without_neighbours_may_stand_side_by_side() -> None:
    logp = torch.log_softmax(torch.randn(3, 6), dim=-1)
    distances = torch.tensor([[1.0, 2.0], [math.inf, math.inf], [0.0, math.inf]])
    values = torch.tensor([[0, 0], [0, 0], [4, 0]])
    mixed = mixing.mix(logp, mixing.log_weights(distances, 1.0), values, 0.5)
    assert torch.equal(mixed[1], logp[1])
    assert mixed[0, 0].exp() == pytest.approx(0.5 + 0.5 * float(logp[0, 0].exp()), abs=1e-6)
    assert mixed[2, 4].exp() == pytest.approx(0.5 + 0.5 * float(logp[2, 4].exp()), abs=1e-6)
    assert mixed[2, 0].exp() == pytest.approx(0.5 * float(logp[2, 0].exp()), abs=1e-6)


def test_positions_are_mixed_alone_so_their_order_does_not_matter() -> None:
    logp = torch.log_softmax(torch.randn(7, 50), dim=-1)
    distances = torch.rand(7, 5).sort(dim=-1).values
    values = torch.randint(0, 50, (7, 5))
    order = torch.randperm(7)

    def run(index: Tensor) -> Tensor:
        return mixing.mix(
            logp[index], mixing.log_weights(distances[index], 0.3), values[index], 0.4
        )

    together = run(torch.arange(7))
    assert torch.allclose(run(order), together[order], atol=1e-6)
    assert torch.allclose(run(torch.tensor([3])), together[3:4], atol=1e-6)


def test_forbidden_tokens_can_be_brought_back_by_neighbours_only() -> None:
    logp = torch.tensor([[0.0, -math.inf, -math.inf]])
    weights = mixing.log_weights(torch.tensor([[1.0]]), 1.0)
    mixed = mixing.mix(logp, weights, torch.tensor([[1]]), 0.25)
    assert mixed.exp().tolist() == [[0.75, 0.25, 0.0]]
    alone = mixing.mix(logp, weights, torch.tensor([[1]]), 1.0)
    assert alone.tolist() == [[-math.inf, 0.0, -math.inf]]


def test_great_distances_neither_overflow_nor_vanish() -> None:
    weights = mixing.log_weights(torch.tensor([[1e30, 2e30], [3e38, 3e38]]), 1e-3)
    assert weights.exp().tolist() == [[1.0, 0.0], [0.5, 0.5]]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=10))
def test_equal_values_share_their_joint_weight(values: list[int]) -> None:
    weights = torch.log_softmax(torch.randn(1, len(values)), dim=-1)
    joint = mixing.gathered(weights, torch.tensor([values]))[0]
    for i, value in enumerate(values):
        same = [j for j, other in enumerate(values) if other == value]
        assert float(joint[i]) == pytest.approx(
            float(torch.logsumexp(weights[0, same], dim=0)), abs=1e-5
        )
