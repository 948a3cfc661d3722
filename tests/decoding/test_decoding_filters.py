"""Warp filters against transformers' own, at one position and at many."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformers import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from decoding import filters

FILTERS: list[tuple[str, Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = [
    ("temper", lambda x: filters.temper(x, 0.7), lambda x: TemperatureLogitsWarper(0.7)(None, x)),
    ("top_k", lambda x: filters.keep_top_k(x, 5), lambda x: TopKLogitsWarper(5)(None, x)),
    ("top_p", lambda x: filters.keep_top_p(x, 0.8), lambda x: TopPLogitsWarper(0.8)(None, x)),
    ("min_p", lambda x: filters.keep_min_p(x, 0.1), lambda x: MinPLogitsWarper(0.1)(None, x)),
]
NAMES = [name for name, _, _ in FILTERS]


def _logp(positions: int, vocabulary: int = 50, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.log_softmax(3 * torch.randn(positions, vocabulary, generator=generator), dim=-1)


@pytest.mark.parametrize(("name", "ours", "theirs"), FILTERS, ids=NAMES)
@pytest.mark.parametrize("positions", [1, 7])
def test_a_filter_gives_the_distribution_that_transformers_gives(
    name: str, ours: Callable[[Tensor], Tensor], theirs: Callable[[Tensor], Tensor], positions: int
) -> None:
    logp = _logp(positions)
    expected = torch.softmax(theirs(logp.clone()), dim=-1)
    assert torch.allclose(torch.softmax(ours(logp), dim=-1), expected, atol=1e-6)
    assert not torch.allclose(torch.softmax(logp, dim=-1), expected, atol=1e-3)


@pytest.mark.parametrize(("name", "ours", "theirs"), FILTERS, ids=NAMES)
def test_many_positions_are_filtered_as_one_by_one_and_the_input_is_left_alone(
    name: str, ours: Callable[[Tensor], Tensor], theirs: Callable[[Tensor], Tensor]
) -> None:
    logp = _logp(6)
    kept = logp.clone()
    together = ours(logp)
    assert torch.equal(together, torch.cat([ours(logp[w : w + 1]) for w in range(6)]))
    assert torch.equal(logp, kept)


def test_the_likeliest_token_always_stays() -> None:
    logp = _logp(4)
    best = logp.argmax(dim=-1)
    for strict in (
        filters.keep_top_p(logp, 0.0),
        filters.keep_top_k(logp, 1),
        filters.keep_min_p(logp, 1.0),
        filters.temper(logp, 1e-30),
        filters.greedy(logp),
    ):
        assert torch.equal(strict.argmax(dim=-1), best)
        assert torch.equal((filters.normalise(strict).exp() > 0.999).sum(dim=-1), torch.ones(4))


def test_tokens_that_are_already_forbidden_stay_forbidden_and_nothing_is_nan() -> None:
    logp = _logp(3)
    logp[:, 10:] = -math.inf
    for _, ours, _ in FILTERS:
        out = filters.normalise(ours(logp))
        assert not out.isnan().any()
        assert bool(out[:, 10:].isneginf().all())


def test_a_row_where_nothing_is_allowed_stays_so_without_nan() -> None:
    nothing = torch.full((2, 5), -math.inf)
    assert torch.equal(filters.normalise(nothing), nothing)


def test_equals_of_the_kth_token_stay_too() -> None:
    logp = torch.log(torch.tensor([[0.3, 0.2, 0.2, 0.2, 0.1]]))
    assert int(torch.isfinite(filters.keep_top_k(logp, 2)).sum()) == 4
    assert filters.keep_top_k(logp, 9) is logp
