"""A request's sampling settings go in; the penalty and warp shapers they ask for come out.

Neutral settings give no shaper, so they cost nothing and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from decoding import filters
from decoding.protocols import Shaper, ShaperState, Stage, StepView
from decoding.records import Request, Source


class Stateless:
    """Base of states that learn nothing from committed tokens and name no source."""

    def commit(self, ids: Sequence[int], view: StepView, row: int) -> None:
        """Learn nothing."""

    def provenance(self, position: int) -> tuple[Source, ...]:
        """Name no source."""
        return ()


@dataclass(frozen=True, slots=True)
class Warp(Stateless):
    """One filter of the warp stage: a function of the log-probabilities alone."""

    function: Callable[[Tensor], Tensor]
    stage: Stage = "warp"
    fingerprint: str | None = None

    def open(self, request: Request) -> ShaperState:
        """Serve as its own state."""
        return self

    def shape(self, logp: Tensor, view: StepView, row: int) -> Tensor:
        """Apply the function at every position."""
        return self.function(logp)


@dataclass(frozen=True, slots=True)
class LogitBias(Stateless):
    """Adds a constant to the log-probability of given tokens."""

    bias: Mapping[int, float]
    stage: Stage = "penalty"
    fingerprint: str | None = None

    def open(self, request: Request) -> ShaperState:
        """Serve as its own state."""
        return self

    def shape(self, logp: Tensor, view: StepView, row: int) -> Tensor:
        """Add the bias at every position."""
        ids = torch.tensor(list(self.bias), dtype=torch.long, device=logp.device)
        values = torch.tensor(list(self.bias.values()), dtype=logp.dtype, device=logp.device)
        return logp.index_add(-1, ids, values.expand(logp.shape[0], -1))


@dataclass(frozen=True, slots=True)
class Penalties:
    """Repetition (Keskar 2019, §4.1), presence and frequency penalties of one request."""

    repetition: float
    presence: float
    frequency: float
    stage: Stage = "penalty"
    fingerprint: str | None = None

    def open(self, request: Request) -> ShaperState:
        """Begin to count."""
        return _PenaltyState(self, list(request.prompt))


@dataclass(slots=True)
class _PenaltyState:
    settings: Penalties
    prompt: list[int]
    output: list[int] = field(default_factory=list)

    def shape(self, logp: Tensor, view: StepView, row: int) -> Tensor:
        """Punish at each position what stands before it, drafted tokens included."""
        rows = [
            self._at(logp[w], [*self.output, *view.draft(row)[:w]], view.logits[row, w])
            for w in range(logp.shape[0])
        ]
        return torch.stack(rows)

    def _at(self, logp: Tensor, output: list[int], logits: Tensor) -> Tensor:
        if self.settings.repetition != 1.0:
            logp = self._punish_repetition(logp, output, logits)
        ids, counts = torch.unique(
            torch.tensor(output, dtype=torch.long, device=logp.device), return_counts=True
        )
        cost = self.settings.frequency * counts.to(logp.dtype) + self.settings.presence
        return logp.index_add(-1, ids, -cost)

    def _punish_repetition(self, logp: Tensor, output: list[int], logits: Tensor) -> Tensor:
        """Divide or multiply seen logits, on the scale of the backbone's own.

        The rule is not invariant to a shift, so log-probabilities are first shifted back by the
        backbone's log-normaliser: without a mixture these are its logits.
        """
        shifted = logp + torch.logsumexp(logits, dim=-1)
        seen = torch.tensor(sorted({*self.prompt, *output}), dtype=torch.long, device=logp.device)
        old = shifted[seen]
        factor = self.settings.repetition
        return shifted.index_copy(-1, seen, torch.where(old < 0, old * factor, old / factor))

    def commit(self, ids: Sequence[int], view: StepView, row: int) -> None:
        """Count the accepted tokens."""
        self.output.extend(ids)

    def provenance(self, position: int) -> tuple[Source, ...]:
        """Name no source."""
        return ()


def shapers_of(request: Request) -> list[Shaper]:
    """List the shapers that a request's own settings ask for, in the order they act."""
    shapers: list[Shaper] = []
    penalties = (
        request.repetition_penalty,
        request.presence_penalty,
        request.frequency_penalty,
    )
    if penalties != (1.0, 0.0, 0.0):
        shapers.append(Penalties(*penalties))
    if request.logit_bias:
        shapers.append(LogitBias(dict(request.logit_bias)))
    return shapers + _warps_of(request)


def _warps_of(request: Request) -> list[Shaper]:
    """List temperature, top-k, top-p, min-p; or only the point mass where nothing is drawn."""
    if request.temperature == 0.0:
        return [Warp(filters.greedy)]
    warps: list[Shaper] = []
    if request.temperature != 1.0:
        warps.append(Warp(lambda logp: filters.temper(logp, request.temperature)))
    if request.top_k > 0:
        warps.append(Warp(lambda logp: filters.keep_top_k(logp, request.top_k)))
    if request.top_p < 1.0:
        warps.append(Warp(lambda logp: filters.keep_top_p(logp, request.top_p)))
    if request.min_p > 0.0:
        warps.append(Warp(lambda logp: filters.keep_min_p(logp, request.min_p)))
    return warps
