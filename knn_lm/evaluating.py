"""A text, a backbone and a shaper go in; the perplexity of the frozen and the mixed model come out.

Teacher-forced through the same target as decoding. Knows nothing of stores, and cannot tell whether
the text is in the memory: whoever calls must see to that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from backbone import LanguageModel
from decoding import Request, Shaper, StepView
from decoding.target import compute, open_shapers
from index.errors import InvalidInput
from knn_lm.building import windows


@dataclass(frozen=True, slots=True)
class Perplexity:
    """Negative log-likelihoods in nats over `num_tokens` tokens (all but the text's first)."""

    frozen_nats: float
    mixed_nats: float
    num_tokens: int

    @property
    def frozen(self) -> float:
        """Give the frozen model's perplexity."""
        return math.exp(self.frozen_nats / self.num_tokens)

    @property
    def mixed(self) -> float:
        """Give the perplexity with the shaper."""
        return math.exp(self.mixed_nats / self.num_tokens)


def perplexity(
    model: LanguageModel,
    text: str,
    shaper: Shaper,
    *,
    window: int = 512,
    stride: int | None = None,
    max_tokens: int | None = None,
) -> Perplexity:
    """Measure a text of at least two tokens in windows as `build_arrays` makes them.

    Every token but the first is predicted once, with at least `window - stride` tokens (half a
    window by default), or all there are, before it.
    """
    ids = model.encode(text)[:max_tokens]
    if len(ids) < 2:
        raise InvalidInput(f"expected a text of at least two tokens, got {len(ids)}")
    frozen = mixed = 0.0
    device = model.model.device
    for part in windows(len(ids) - 1, window, stride or max(1, window // 2)):
        row = [*model.prefix_ids, *ids[part.start : part.end]]
        num = part.end - part.first
        forward = model.forward(torch.tensor([row], device=device), cache=None, num_logits=num)
        assert forward.logits is not None
        view = StepView(
            (row[: len(row) - num + 1],),
            forward.logits,
            forward.keys[:, -num:],
            torch.ones(1, num, dtype=torch.bool, device=device),
            (row[len(row) - num + 1 :],),
        )
        opened = open_shapers([shaper], Request(tuple(row), 1))
        gold = torch.tensor(ids[part.first + 1 : part.end + 1], device=device).unsqueeze(-1)
        frozen -= float(compute(view, 0, ()).logp.gather(-1, gold).double().sum())
        mixed -= float(compute(view, 0, opened).logp.gather(-1, gold).double().sum())
    return Perplexity(frozen, mixed, len(ids) - 1)
