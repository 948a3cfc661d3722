"""Distances and next tokens of neighbours go in; the mixture of log-probabilities comes out.

Everything in log space: −inf is legal, nan never. Pure arithmetic on tensors: knows nothing of
stores, models or requests. Shape letters: W positions, K neighbours, V vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def log_weights(distances: Tensor, temperature: float) -> Tensor:
    """Turn squared L2 distances [W, K] (inf: no neighbour) into normalised log-weights [W, K].

    softmax(−d / T) (Khandelwal 2020, eq. 2). A position without any neighbour gets −inf only.

    >>> log_weights(torch.tensor([[0.0, 0.0, math.inf]]), 1.0).exp().tolist()
    [[0.5, 0.5, 0.0]]
    """
    has_any = torch.isfinite(distances).any(dim=-1, keepdim=True)
    nearest = distances.min(dim=-1, keepdim=True).values
    scaled = torch.where(has_any, (nearest - distances) / temperature, torch.zeros_like(distances))
    return torch.log_softmax(scaled, dim=-1).masked_fill(~has_any, -math.inf)


def gathered(log_weight: Tensor, values: Tensor) -> Tensor:
    """Give each neighbour the log of the joint weight of all that share its value: [W, K].

    >>> gathered(torch.tensor([[0.25, 0.5, 0.25]]).log(), torch.tensor([[7, 3, 7]])).exp().tolist()
    [[0.5, 0.5, 0.5]]
    """
    ordered, order = values.sort(dim=-1, stable=True)
    is_next = torch.nn.functional.pad(ordered.diff(dim=-1) != 0, (1, 0))
    group = is_next.long().cumsum(dim=-1)
    weights = log_weight.gather(-1, order).double().exp()
    sums = torch.zeros_like(weights).scatter_add(-1, group, weights)
    joint = sums.log().gather(-1, group).to(log_weight.dtype)
    return torch.empty_like(joint).scatter(-1, order, joint)


def mix(logp: Tensor, log_weight: Tensor, values: Tensor, lam: float) -> Tensor:
    """Mix p = (1 − λ) p_LM + λ p_kNN (Khandelwal 2020, eq. 3) at every position.

    `logp` [W, V] normalised, `log_weight` [W, K] normalised, `values` [W, K] in [0, V), anything
    where there is no neighbour. Gives [W, V], normalised. A position without neighbours keeps its
    log-probabilities; λ = 0 gives back the very tensor that came.
    """
    has_any = torch.isfinite(log_weight).any(dim=-1)
    if lam == 0.0 or not bool(has_any.any()):
        return logp
    # A missing neighbour borrows the value of the nearest one, so that all writes agree.
    nearest = log_weight.argmax(dim=-1, keepdim=True)
    values = torch.where(torch.isfinite(log_weight), values, values.gather(-1, nearest))
    values = torch.where(has_any.unsqueeze(-1), values, torch.zeros_like(values))
    joint = gathered(log_weight, values) + math.log(lam)
    kept = logp + (math.log1p(-lam) if lam < 1.0 else -math.inf)
    mixed = kept.scatter(-1, values, torch.logaddexp(kept.gather(-1, values), joint))
    return torch.where(has_any.unsqueeze(-1), mixed, logp)
