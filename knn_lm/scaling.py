"""Stored keys and next tokens go in; the distance scale of a store comes out.

It chooses entries by their content and measures how far others are from them. Knows nothing of
queries, temperatures or how a memory is searched beyond the products of its proposer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from index.errors import Damaged

NUM_CONTEXT = 8
"""Tokens, the next one counted, that make two entries the same place of two copies of a text."""
_SAMPLE = 512
_NUM_NEAR = 4
"""Candidates that are re-scored, since the products round."""

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Entries:
    """What the scale is measured on: T entries, those of a document side by side."""

    keys: npt.NDArray[np.float16]
    """[T, D]."""
    values: npt.NDArray[np.int64]
    """[T]: next tokens."""
    document_of: npt.NDArray[np.int64]
    """[T]."""


def measure_scale(entries: Entries, score: Callable[[Tensor], Tensor], *, at_once: int) -> float:
    """Give the median squared distance from an entry to the nearest one of another context.

    Of another context: its last 8 tokens differ, the next token counted (fewer at a document's
    beginning), and its key is not equal. So copies and near-copies of a document do not make the
    scale smaller. At most 512 entries, chosen by their content, stand for all; those without any
    neighbour of another context are left aside, and 1.0 is given where none is left.

    `score` gives the products [N, T] of queries [N, D] that order the entries by distance, and
    `at_once` is how many products may be held. Raises Damaged where a stored key is not its own
    nearest neighbour.
    """
    if len(entries.keys) < 2:
        return 1.0
    content = _hashes(entries.keys)
    context = _contexts(entries.values, entries.document_of)
    sample = np.lexsort((context, content))[:_SAMPLE]
    same = torch.from_numpy(content.view(np.int64)), torch.from_numpy(context.view(np.int64))
    step = max(1, at_once // len(entries.keys))
    nearest = [
        _nearest(entries.keys, torch.from_numpy(sample[at : at + step]), score, same)
        for at in range(0, len(sample), step)
    ]
    found = torch.cat(nearest)
    found = found[torch.isfinite(found)]
    return float(found.median()) if len(found) else 1.0


def _nearest(
    keys: npt.NDArray[np.float16],
    sample: Tensor,
    score: Callable[[Tensor], Tensor],
    same: tuple[Tensor, Tensor],
) -> Tensor:
    """Give each sampled entry's distance to its nearest of another context: [N], inf for none."""
    queries = _stored(keys, sample)
    products = score(queries)
    own = (_stored(keys, products.argmin(dim=-1)) - queries).square().sum(dim=-1)
    if not bool((own <= 1e-6 * float(queries.square().sum(dim=-1).max())).all()):
        raise Damaged(
            "a stored key is not its own nearest neighbour: the search over this memory is wrong; "
            "run `graft doctor`"
        )
    for each in same:
        products.masked_fill_(each[sample].unsqueeze(1) == each, torch.inf)
    best = products.topk(min(_NUM_NEAR, len(keys)), dim=-1, largest=False)
    exact = (_stored(keys, best.indices) - queries.unsqueeze(1)).square().sum(dim=-1)
    is_other = torch.isfinite(best.values) & (exact > 0)
    return exact.masked_fill(~is_other, torch.inf).amin(dim=-1)


def _stored(keys: npt.NDArray[np.float16], entries: Tensor) -> Tensor:
    return torch.from_numpy(keys[entries.numpy()].astype(np.float32))


def _hashes(keys: npt.NDArray[np.float16]) -> Words:
    """Hash the bits of each key: [T]."""
    odd = np.random.Philox(key=1).random_raw(keys.shape[1]) | np.uint64(1)
    words = np.ascontiguousarray(keys).view(np.uint16)
    blocks = [words[at : at + 4096].astype(np.uint64) @ odd for at in range(0, len(words), 4096)]
    return _stirred(np.concatenate(blocks))


def _contexts(values: npt.NDArray[np.int64], document_of: npt.NDArray[np.int64]) -> Words:
    """Hash the tokens that end with each entry's next token, inside its document: [T]."""
    at = np.arange(len(values))
    is_first = np.concatenate([[True], np.diff(document_of) != 0])
    back = at - np.maximum.accumulate(np.where(is_first, at, 0))
    tokens = values.astype(np.uint64) + np.uint64(1)
    hashes = np.zeros(len(values), np.uint64)
    odd = np.random.Philox(key=2).random_raw(NUM_CONTEXT) | np.uint64(1)
    for distance in range(min(NUM_CONTEXT, len(values))):
        part = tokens[: len(values) - distance] * odd[distance]
        hashes[distance:] += np.where(back[distance:] >= distance, part, np.uint64(0))
    return _stirred(hashes)


def _stirred(hashes: Words) -> Words:
    hashes = hashes ^ (hashes >> np.uint64(29))
    return hashes * np.uint64(0xBF58476D1CE4E5B9)
