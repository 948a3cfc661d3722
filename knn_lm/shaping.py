"""A token memory and its settings go in; a mix-stage shaper with provenance comes out.

Knows nothing of the engine's loop, of HTTP, or of how the memory was built.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from decoding import Request, ShaperState, Source, Stage, StepView
from index.errors import InvalidInput
from index.records import Span
from knn_lm import mixing
from knn_lm.memory import Neighbours, TokenMemory


@dataclass(frozen=True, slots=True)
class KnnSettings:
    """A constant λ, the number of neighbours, and a temperature in units of the store's scale."""

    lam: float = 0.25
    k: int = 32
    temperature: float = 0.25

    def __post_init__(self) -> None:
        if not 0.0 <= self.lam <= 1.0:
            raise InvalidInput(f"lambda must be in [0, 1], got {self.lam}", param="lambda")
        if not 1 <= self.k <= 4096:
            raise InvalidInput(f"k must be in [1, 4096], got {self.k}", param="k")
        if not (self.temperature > 0.0 and math.isfinite(self.temperature)):
            raise InvalidInput(
                f"temperature must be a number over 0, got {self.temperature}", param="temperature"
            )


class KnnShaper:
    """Mixes the next tokens of the nearest entries into the target.

    λ = 0 and an empty memory give back the very tensor that came (nothing is searched).
    """

    stage: Stage = "mix"

    def __init__(self, memory: TokenMemory, settings: KnnSettings) -> None:
        self.memory = memory
        self.settings = settings
        self.fingerprint: str | None = memory.fingerprint

    def open(self, request: Request) -> ShaperState:
        """Begin a request."""
        return _KnnState(self.memory, self.settings, len(request.prompt))


@dataclass(frozen=True, slots=True)
class _Mixture:
    """What one view gave: kept so that provenance need not search again."""

    view: StepView
    row: int
    neighbours: Neighbours
    values: Tensor
    log_weights: Tensor
    logp: Tensor


@dataclass(slots=True)
class _KnnState:
    memory: TokenMemory
    settings: KnnSettings
    num_committed: int
    sources: dict[int, tuple[Source, ...]] = field(default_factory=dict)
    latest: _Mixture | None = None

    def shape(self, logp: Tensor, view: StepView, row: int) -> Tensor:
        """Mix at every position of the row."""
        if self.settings.lam == 0.0 or len(self.memory) == 0:
            return logp
        neighbours = self.memory.search(view.hidden[row], self.settings.k)
        values = self.memory.values[neighbours.entries.clamp(min=0)].to(logp.device)
        if int(values.max()) >= logp.shape[-1]:
            raise InvalidInput(
                f"the token memory holds token {int(values.max())}, the backbone knows "
                f"{logp.shape[-1]}; rebuild the memory"
            )
        temperature = self.settings.temperature * self.memory.scale
        weights = mixing.log_weights(neighbours.distances, temperature).to(logp.device)
        mixed = mixing.mix(logp, weights, values, self.settings.lam)
        self.latest = _Mixture(view, row, neighbours, values, weights, mixed)
        return mixed

    def commit(self, ids: Sequence[int], view: StepView, row: int) -> None:
        """Keep the sources of the accepted tokens."""
        latest = self.latest
        for offset, token in enumerate(ids):
            if latest is not None and latest.view is view and latest.row == row:
                sources = self._sources(latest, offset, token)
                if sources:
                    self.sources[self.num_committed + offset] = sources
        self.num_committed += len(ids)
        self.latest = None

    def provenance(self, position: int) -> tuple[Source, ...]:
        """Give the sources of a committed token, greatest share first."""
        return self.sources.get(position, ())

    def _sources(self, mixture: _Mixture, at: int, token: int) -> tuple[Source, ...]:
        """Give each neighbour that said `token` its share of the probability; merge their spans."""
        is_it = (mixture.values[at] == token) & torch.isfinite(mixture.log_weights[at])
        log_share = (
            mixture.log_weights[at][is_it] + math.log(self.settings.lam) - mixture.logp[at, token]
        )
        entries = mixture.neighbours.entries[at][is_it.cpu()].tolist()
        by_document: dict[tuple[str, str], list[tuple[Span, float]]] = {}
        for entry, share in zip(entries, log_share.exp().tolist(), strict=True):
            if share > 0.0:
                document = self.memory.document(entry)
                found = by_document.setdefault((document.name, document.version), [])
                found.append((self.memory.span(entry), share))
        sources = [
            Source(name, version, span.start, span.end, min(share, 1.0))
            for (name, version), found in by_document.items()
            for span, share in merged(found)
        ]
        return tuple(sorted(sources, key=lambda source: -source.share))


def merged(spans: Sequence[tuple[Span, float]]) -> list[tuple[Span, float]]:
    """Join spans that overlap or touch, adding their shares.

    >>> merged([(Span(4, 6), 0.25), (Span(0, 2), 0.125), (Span(2, 3), 0.5)])
    [(Span(start=0, end=3), 0.625), (Span(start=4, end=6), 0.25)]
    """
    result: list[tuple[Span, float]] = []
    for span, share in sorted(spans, key=lambda each: (each[0].start, each[0].end)):
        if result and span.start <= result[-1][0].end:
            last, sum_of = result[-1]
            result[-1] = (Span(last.start, max(last.end, span.end)), sum_of + share)
        else:
            result.append((span, share))
    return result
