"""The seams of the engine: what a step shows, and what shapers, drafters and scorers must do.

Shape letters: R rows, W positions, V vocabulary, D hidden. Knows no concrete module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from torch import Tensor

from decoding.randomness import PosRng
from decoding.records import Completion, Request, Source

Stage = Literal["steer", "mix", "constrain", "penalty", "warp"]
STAGES: tuple[Stage, ...] = ("steer", "mix", "constrain", "penalty", "warp")


@dataclass(frozen=True, slots=True)
class StepView:
    """One target forward over all rows, W positions each (1 plain, K+1 verifying a draft of K).

    Position w of row r predicts the token after `prefixes[r] + drafts[r][:w]`. Positions where
    `valid` is false are padding: their numbers mean nothing and must not be committed.
    """

    prefixes: tuple[Sequence[int], ...]
    """R sequences: all committed tokens of a row, prompt included."""
    logits: Tensor
    """[R, W, V] float32, unnormalised, of the frozen backbone."""
    hidden: Tensor
    """[R, W, D] float32: the token-memory keys (input of the last layer's MLP)."""
    valid: Tensor
    """[R, W] bool."""
    drafts: tuple[Sequence[int], ...] = ()
    """R sequences of at most W - 1 proposed tokens; empty: nothing is proposed for any row."""
    layers: Mapping[int, Tensor] = field(default_factory=dict)
    """Requested further layers, each [R, W, D]."""
    branches: Mapping[str, Tensor] = field(default_factory=dict)
    """Logits of named branches (expert, amateur, context-free …), each [R, W, V] float32."""

    def draft(self, row: int) -> Sequence[int]:
        """Give the tokens proposed for a row."""
        return self.drafts[row] if self.drafts else ()


class ShaperState(Protocol):
    """A shaper's part in one request. Advances by committed tokens only."""

    def shape(self, logp: Tensor, view: StepView, row: int) -> Tensor:
        """Give the new log-probabilities [W, V] float32; pure, never writes into `logp`.

        −inf is legal, nan never. `logp` comes normalised and may be returned as it is; what is
        returned need not be normalised, except in the mix stage. Must work for every W.
        """

    def commit(self, ids: Sequence[int], view: StepView, row: int) -> None:
        """Take the accepted tokens: `ids[w]` was chosen at position w of `row` in `view`."""

    def provenance(self, position: int) -> tuple[Source, ...]:
        """Give the sources of the committed token at this place of the sequence, prompt counted.

        Shares are relative to what this shaper returned: they and the share of what it was
        given sum to 1.
        """


class Shaper(Protocol):
    """A module that takes part in the target distribution."""

    @property
    def stage(self) -> Stage:
        """Where it acts; stages run in the order of `STAGES`."""

    @property
    def fingerprint(self) -> str | None:
        """The only backbone it was built for; None: any."""

    def open(self, request: Request) -> ShaperState:
        """Begin a request."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Proposed tokens. `logd` [K, V] are the log-probabilities they were sampled from.

    None for `logd`: a deterministic draft (a point mass at each token).
    """

    ids: tuple[int, ...]
    logd: Tensor | None = None


class DrafterState(Protocol):
    """A drafter's part in one request."""

    def propose(self, k: int, rng: PosRng) -> Draft:
        """Propose at most k tokens after the committed ones; fewer, or none, is fine."""

    def commit(self, ids: Sequence[int]) -> None:
        """Take the accepted tokens."""

    def close(self) -> None:
        """Let go of what the request held."""


class Drafter(Protocol):
    """Proposes tokens that the target verifies; never changes the output."""

    def open(self, request: Request) -> DrafterState:
        """Begin a request."""


ScorerKind = Literal["final", "step", "token"]


class Scorer(Protocol):
    """Values candidates for one question."""

    @property
    def kind(self) -> ScorerKind:
        """When its values mean something: at the end, after each step, at each token."""

    def score(self, question: str, candidates: Sequence[Completion]) -> list[float]:
        """Give one value a candidate, greater is better, in the order given."""
