"""Rows of ids in, padded tensors out: ids, attention mask and positions, all made from lengths.

Padding may be any id, also one that is in use as a word or an end token (E12).
Knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from index.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Batch:
    """`ids`, `attention_mask` and `position_ids`, each `[R, W]` int64; positions count real tokens.

    Padded slots have mask 0 and position 0.
    """

    ids: Tensor
    attention_mask: Tensor
    position_ids: Tensor


def pad(
    rows: Sequence[Sequence[int]], *, side: Literal["left", "right"] = "right", pad_id: int = 0
) -> Batch:
    """Pad rows to one width. Raises InvalidInput for no rows or an empty one.

    >>> pad([[5, 6], [7]], side="left").position_ids.tolist()
    [[0, 1], [0, 0]]
    """
    if not rows or not all(rows):
        raise InvalidInput(f"expected rows with tokens, came lengths {[len(row) for row in rows]}")
    width = max(len(row) for row in rows)
    ids = torch.full((len(rows), width), pad_id, dtype=torch.long)
    mask = torch.zeros_like(ids)
    positions = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        place = slice(width - len(row), width) if side == "left" else slice(0, len(row))
        ids[i, place] = torch.tensor(row, dtype=torch.long)
        mask[i, place] = 1
        positions[i, place] = torch.arange(len(row))
    return Batch(ids, mask, positions)
