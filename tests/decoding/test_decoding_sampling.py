"""Penalties, biases and the target: against transformers, and the same on drafted positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from transformers import RepetitionPenaltyLogitsProcessor

from decoding import PosRng, Request, ShaperState, Source, Stage, StepView
from decoding.filters import normalise
from decoding.sampling import shapers_of
from decoding.target import choose, compute, open_shapers, sources_of
from index.errors import InvalidInput, ModelError

V = 40
BASE = Request(prompt=(1, 2, 2, 3), temperature=1.0)


def _view(logits: Tensor, prefix: Sequence[int], draft: Sequence[int] = ()) -> StepView:
    """Show one row of logits [W, V]."""
    shape = (1, logits.shape[0])
    return StepView(
        (prefix,),
        logits[None],
        torch.zeros(*shape, 2),
        torch.ones(shape, dtype=torch.bool),
        (draft,),
    )


def _logits(positions: int, seed: int = 0) -> Tensor:
    return 3 * torch.randn(positions, V, generator=torch.Generator().manual_seed(seed))


def test_without_shapers_the_target_is_the_backbones_own_bit_for_bit() -> None:
    logits = _logits(3)
    assert shapers_of(BASE) == []
    target = compute(_view(logits, BASE.prompt), 0, [])
    assert torch.equal(target.logq, torch.log_softmax(logits, dim=-1))
    assert target.logp is target.logq


def test_the_repetition_penalty_equals_that_of_transformers() -> None:
    request = replace(BASE, repetition_penalty=1.7)
    logits = _logits(1)
    opened = open_shapers(shapers_of(request), request)
    expected = RepetitionPenaltyLogitsProcessor(1.7)(
        torch.tensor([request.prompt]), logits.clone()
    ).log_softmax(dim=-1)
    ours = compute(_view(logits, request.prompt), 0, opened).logq
    assert torch.allclose(ours, expected, atol=1e-5)
    assert not torch.allclose(ours, logits.log_softmax(dim=-1), atol=1e-3)


def test_presence_and_frequency_count_the_output_and_not_the_prompt() -> None:
    request = replace(BASE, presence_penalty=0.5, frequency_penalty=0.25)
    opened = open_shapers(shapers_of(request), request)
    view = _view(_logits(1), request.prompt)
    assert torch.allclose(compute(view, 0, opened).logq, compute(view, 0, []).logq, atol=1e-6)
    for item in opened:
        item.state.commit((7, 7, 9), view, 0)
    expected = view.logits[0].clone()
    expected[0, 7] -= 1.0
    expected[0, 9] -= 0.75
    assert torch.allclose(compute(view, 0, opened).logq, expected.log_softmax(dim=-1), atol=1e-6)


def test_a_bias_of_minus_infinity_forbids_and_a_great_one_forces() -> None:
    request = replace(BASE, logit_bias={3: -math.inf, 5: 100.0})
    logq = compute(
        _view(_logits(2), request.prompt), 0, open_shapers(shapers_of(request), request)
    ).logq
    assert bool(logq[:, 3].isneginf().all())
    assert bool((logq[:, 5].exp() > 0.999).all())


ALL = replace(
    BASE,
    temperature=0.8,
    top_k=20,
    top_p=0.9,
    min_p=0.01,
    repetition_penalty=1.3,
    presence_penalty=0.4,
    frequency_penalty=0.3,
    logit_bias={4: 2.0, 6: -math.inf},
)


@pytest.mark.parametrize("request_", [ALL, replace(ALL, temperature=0.0)])
def test_e3_every_setting_holds_on_every_drafted_position(request_: Request) -> None:
    logits, draft = _logits(4), (4, 8, 4)
    at_once = compute(
        _view(logits, request_.prompt, draft), 0, open_shapers(shapers_of(request_), request_)
    )
    opened = open_shapers(shapers_of(request_), request_)
    for w in range(4):
        view = _view(logits[w : w + 1], [*request_.prompt, *draft[:w]])
        alone = compute(view, 0, opened)
        assert torch.allclose(alone.logq[0], at_once.logq[w], atol=1e-5)
        assert torch.allclose(alone.logp[0], at_once.logp[w], atol=1e-5)
        for item in opened:
            item.state.commit(draft[w : w + 1], view, 0)


def test_shaping_is_pure_so_asking_twice_gives_the_same() -> None:
    opened = open_shapers(shapers_of(ALL), ALL)
    view = _view(_logits(3), ALL.prompt, (1, 2))
    logits = view.logits.clone()
    first, second = compute(view, 0, opened), compute(view, 0, opened)
    assert torch.equal(first.logq, second.logq)
    assert torch.equal(view.logits, logits)


def test_stages_run_in_their_order_whatever_the_order_given() -> None:
    seen: list[Stage] = []
    stages: list[Stage] = ["warp", "mix", "penalty", "steer", "constrain"]
    opened = open_shapers([_Spy(stage, seen) for stage in stages], BASE)
    compute(_view(_logits(1), BASE.prompt), 0, opened)
    assert seen == ["steer", "mix", "constrain", "penalty", "warp"]


class _Spy:
    """A shaper that notes when it acts, and may shift, poison or claim a share."""

    fingerprint: str | None = None

    def __init__(
        self, stage: Stage, seen: list[Stage], *, add: float = 0.0, share: float = 0.0
    ) -> None:
        self.stage = stage
        self.seen = seen
        self.add = add
        self.share = share

    def open(self, request: Request) -> ShaperState:
        return self

    def shape(self, logp: Tensor, view: StepView, row: int) -> Tensor:
        self.seen.append(self.stage)
        return logp + self.add if self.add else logp

    def commit(self, ids: Sequence[int], view: StepView, row: int) -> None:
        pass

    def provenance(self, position: int) -> tuple[Source, ...]:
        return (Source(self.stage, "v", 0, 1, self.share),) if self.share else ()


def test_a_target_with_nan_or_without_any_token_is_an_error() -> None:
    view = _view(_logits(2), BASE.prompt)
    with pytest.raises(ModelError, match="nan"):
        compute(view, 0, open_shapers([_Spy("mix", [], add=math.nan)], BASE))
    with pytest.raises(InvalidInput, match="forbid every token"):
        compute(view, 0, open_shapers([_Spy("constrain", [], add=-math.inf)], BASE))


def test_a_later_mixture_thins_the_shares_of_an_earlier_one() -> None:
    opened = open_shapers([_Spy("mix", [], share=0.5), _Spy("mix", [], share=0.75)], BASE)
    shares = [source.share for source in sources_of(opened, 0)]
    assert shares == [0.75, 0.125]  # and the backbone keeps the last 0.125


@pytest.mark.parametrize("settings", [BASE, ALL])
def test_drawn_tokens_follow_the_target_and_a_wrong_target_is_seen(settings: Request) -> None:
    logits = _logits(1, seed=4) / 2
    logq = compute(
        _view(logits, settings.prompt), 0, open_shapers(shapers_of(settings), settings)
    ).logq[0]
    drawn = np.bincount([choose(logq, PosRng(seed), 11) for seed in range(20_000)], minlength=V)
    over = np.bincount([choose(logq, PosRng(3), at) for at in range(20_000)], minlength=V)
    wrong = normalise(logq / 1.1)
    for counts in (drawn, over):
        assert _p_value(counts, logq) > 1e-6
        assert _p_value(counts, wrong) < 1e-9


def _p_value(counts: np.ndarray, logq: Tensor) -> float:
    """Test counts against a distribution (chi-square; rare tokens in one class)."""
    expected = logq.double().exp().numpy() * counts.sum()
    assert counts[expected == 0].sum() == 0
    often = expected >= 10
    rare = (counts[~often].sum(), expected[~often].sum())
    table = [*zip(counts[often], expected[often], strict=True), *([rare] if rare[1] > 1 else [])]
    seen, awaited = np.array(table, dtype=float).T
    return float(stats.chisquare(seen, awaited * seen.sum() / awaited.sum()).pvalue)


def test_a_point_mass_is_drawn_whatever_the_noise() -> None:
    logq = torch.full((V,), -math.inf)
    logq[17] = 0.0
    assert {choose(logq, PosRng(seed), 0) for seed in range(50)} == {17}
