"""Log-probabilities [W, V] in, log-probabilities [W, V] with some of them at −inf out.

Each works on every position alone and keeps at least the likeliest token. Results are not
normalised. Pure arithmetic: knows nothing of requests.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def normalise(logp: Tensor) -> Tensor:
    """Subtract the log of the sum, position by position; a row of −inf stays −inf."""
    total = torch.logsumexp(logp, dim=-1, keepdim=True)
    return logp - torch.where(torch.isfinite(total), total, torch.zeros_like(total))


def greedy(logp: Tensor) -> Tensor:
    """Put all mass on the likeliest token (the first of equals)."""
    best = logp.argmax(dim=-1, keepdim=True)
    return torch.full_like(logp, -math.inf).scatter(-1, best, 0.0)


def temper(logp: Tensor, temperature: float) -> Tensor:
    """Divide by a temperature > 0, the greatest held at 0 so that tiny ones do not overflow."""
    return (logp - logp.max(dim=-1, keepdim=True).values) / temperature


def keep_top_k(logp: Tensor, k: int) -> Tensor:
    """Keep the k likeliest, and all that equal the k-th."""
    if k >= logp.shape[-1]:
        return logp
    least = logp.topk(k, dim=-1).values[..., -1:]
    return logp.masked_fill(logp < least, -math.inf)


def keep_top_p(logp: Tensor, p: float) -> Tensor:
    """Keep the smallest set of likeliest tokens whose mass reaches p (Holtzman 2019, §3.1)."""
    ordered, order = normalise(logp).sort(dim=-1, descending=True, stable=True)
    mass = ordered.double().exp()
    before = mass.cumsum(dim=-1) - mass
    drop = before >= p
    drop[..., 0] = False
    return logp.masked_fill(torch.zeros_like(drop).scatter(-1, order, drop), -math.inf)


def keep_min_p(logp: Tensor, min_p: float) -> Tensor:
    """Keep tokens at least `min_p` times as likely as the likeliest."""
    least = logp.max(dim=-1, keepdim=True).values + math.log(min_p)
    return logp.masked_fill(logp < least, -math.inf)
