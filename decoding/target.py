"""One step's view and the opened shapers go in; the one target distribution comes out.

The only place where a target is made, for plain decoding and for verification alike.
Knows nothing of caches, requests or threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from decoding.filters import normalise
from decoding.protocols import STAGES, Shaper, ShaperState, Stage, StepView
from decoding.randomness import PosRng
from decoding.records import Request, Source
from index.errors import InvalidInput, ModelError


@dataclass(frozen=True, slots=True)
class Opened:
    """A shaper's state with the stage it acts in."""

    stage: Stage
    state: ShaperState


@dataclass(frozen=True, slots=True)
class Target:
    """The target of one row: log-probabilities [W, V] float32, normalised.

    `logp` is before the warp stage (what is reported), `logq` after it (what is drawn from).
    """

    logp: Tensor
    logq: Tensor


def open_shapers(shapers: Sequence[Shaper], request: Request) -> list[Opened]:
    """Open all shapers, sorted by stage; within one stage in the order given."""
    ordered = sorted(shapers, key=lambda shaper: STAGES.index(shaper.stage))
    return [Opened(shaper.stage, shaper.open(request)) for shaper in ordered]


def compute(view: StepView, row: int, opened: Sequence[Opened]) -> Target:
    """Compute a row's target at all W positions; a pure function of the view and the states.

    Without shapers it is the backbone's own distribution, bit for bit: what changes nothing
    returns the tensor it was given, and such a tensor is not normalised again.

    Raises ModelError for nan, InvalidInput where no token is allowed.
    """
    logp = torch.log_softmax(view.logits[row].float(), dim=-1)
    before_warp: Tensor | None = None
    for item in opened:
        if item.stage == "warp" and before_warp is None:
            before_warp = logp
        shaped = item.state.shape(logp, view, row)
        logp = logp if shaped is logp else normalise(shaped)
    _check(logp, view.valid[row], opened)
    return Target(logp if before_warp is None else before_warp, logp)


def _check(logp: Tensor, valid: Tensor, opened: Sequence[Opened]) -> None:
    best = logp.max(dim=-1).values[valid]
    names = [type(item.state).__name__ for item in opened]
    if bool(torch.isnan(best).any()):
        raise ModelError(
            "the target distribution has nan; the backbone's logits or one of the shapers "
            f"{names} made it; check the model with `graft doctor`"
        )
    if bool(torch.isneginf(best).any()):
        raise InvalidInput(
            f"the shapers {names} forbid every token; allow at least one "
            "(see logit_bias and constraints)"
        )


def choose(logq: Tensor, rng: PosRng, position: int) -> int:
    """Draw the token of one position from log-probabilities [V].

    It is argmax(log q + Gumbel(seed, position)), in float64: a draw from q (Maddison 2014) that
    depends on nothing but q, seed and position. A point mass needs no noise.

    >>> choose(torch.tensor([0.2, 0.8]).log(), PosRng(1), 5) in (0, 1)
    True
    """
    best = int(logq.argmax())
    if int((logq > -torch.inf).sum()) == 1:
        return best
    noise = torch.from_numpy(rng.gumbel(position, logq.shape[-1])).to(logq.device)
    return int((logq.double() + noise).argmax())


def sources_of(opened: Sequence[Opened], position: int) -> tuple[Source, ...]:
    """Give the sources of a committed token; their shares and the backbone's sum to 1.

    A later mixture thins the shares of an earlier one by what it keeps of its input.
    """
    found: list[Source] = []
    kept = 1.0
    for item in reversed(opened):
        sources = item.state.provenance(position)
        found += [
            Source(each.document, each.version, each.start, each.end, each.share * kept)
            for each in sources
        ]
        kept *= max(0.0, 1.0 - sum(each.share for each in sources))
    return tuple(sorted(found, key=lambda each: -each.share))
