"""Position-addressed randomness: nothing but the address matters, and the laws are right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from decoding import PosRng

UNIFORM = 0.5199249647568435
GUMBEL = [1.123917962404384, 0.3960363171151924, 0.08097263230199822]
addresses = st.tuples(
    st.integers(-(2**70), 2**70), st.integers(0, 2**40), st.integers(0, 2**32 - 1)
)


@given(addresses, st.integers(1, 50), st.integers(1, 50))
def test_a_number_depends_on_its_address_and_on_nothing_else(
    address: tuple[int, int, int], few: int, more: int
) -> None:
    seed, position, stream = address
    first = PosRng(seed).gumbel(position, few, stream=stream)
    PosRng(seed).gumbel(position + 1, more)
    PosRng(seed + 1).uniform(position, stream)
    again = PosRng(seed).gumbel(position, few + more, stream=stream)
    assert np.array_equal(first, again[:few])


@given(addresses)
def test_another_seed_position_stream_or_kind_gives_other_numbers(
    address: tuple[int, int, int],
) -> None:
    seed, position, stream = address
    numbers = {
        PosRng(seed).uniform(position, stream),
        PosRng(seed + 1).uniform(position, stream),
        PosRng(seed).uniform(position + 1, stream),
        PosRng(seed).uniform(position, (stream + 1) % 2**32),
        float(np.exp(-np.exp(-PosRng(seed).gumbel(position, 1, stream=stream)[0]))),
    }
    assert len(numbers) == 5


def test_numbers_stay_the_same_from_release_to_release() -> None:
    assert PosRng(1).uniform(2, 3) == pytest.approx(UNIFORM, abs=1e-15)
    assert PosRng(1).gumbel(2, 3).tolist() == pytest.approx(GUMBEL, abs=1e-12)


def test_gumbel_and_uniform_numbers_follow_their_laws_and_a_wrong_law_is_seen() -> None:
    gumbel = np.concatenate([PosRng(5).gumbel(i, 100) for i in range(200)])
    uniform = np.array([PosRng(5).uniform(i, 9) for i in range(5000)])
    assert stats.kstest(gumbel, stats.gumbel_r.cdf).pvalue > 1e-4
    assert stats.kstest(uniform, stats.uniform.cdf).pvalue > 1e-4
    assert stats.kstest(gumbel, stats.norm(0.577, 1.28).cdf).pvalue < 1e-9
    assert uniform.min() > 0.0
    assert uniform.max() < 1.0


def test_neighbouring_positions_and_seeds_are_uncorrelated() -> None:
    at = np.stack([PosRng(3).gumbel(i, 2000) for i in range(6)])
    of = np.stack([PosRng(s).gumbel(4, 2000) for s in range(6)])
    for table in (at, of):
        off_diagonal = np.corrcoef(table) - np.eye(6)
        assert np.abs(off_diagonal).max() < 0.1


@pytest.mark.parametrize(("position", "stream"), [(-1, 0), (0, -1), (0, 2**32)])
def test_an_address_that_does_not_exist_is_refused(position: int, stream: int) -> None:
    with pytest.raises(ValueError, match="position"):
        PosRng(0).uniform(position, stream)
