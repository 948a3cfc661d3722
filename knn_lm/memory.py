"""A store's token memory goes in; the exact nearest entries of hidden states come out.

The search proposes by one matrix product over centred float32 keys and decides by exact distances
to the stored float16 keys, so a batch and single queries find the same neighbours at the same
distances. Knows nothing of requests, sampling or how the memory is stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from index.errors import Damaged, FingerprintMismatch, InvalidInput
from index.records import DocumentRecord, MemoryView, Span
from knn_lm.scaling import Entries, measure_scale

_NUM_SPARE = 16
"""Further candidates that are re-scored, since the matrix product rounds."""
_MAX_PRODUCTS = 1 << 24
"""Distances that are held at once (64 MB)."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The nearest entries of N queries: squared L2, ascending; inf and −1 where there is none."""

    distances: Tensor
    """[N, K] float32."""
    entries: Tensor
    """[N, K] int64."""


class TokenMemory:
    """All entries of one generation, in memory, with the distance scale of this store.

    `scale` is the median squared distance from an entry to the nearest one of another context
    (unequal key, and another last 8 tokens with the next one counted; 1.0 where there is none),
    over at most 512 entries chosen by their content. It depends neither on the order in which
    documents came nor on copies and near-copies of them.
    """

    def __init__(self, view: MemoryView, *, fingerprint: str, key_dim: int) -> None:
        """Load a memory for the backbone with this fingerprint and width of keys.

        Raises FingerprintMismatch where another backbone made it, Damaged where its arrays do not
        fit together or hold numbers that are not finite.
        """
        _check(view, fingerprint, key_dim)
        self.fingerprint = fingerprint
        self.key_dim = key_dim
        self.view = view
        self.values = torch.from_numpy(np.array(view.values, dtype=np.int64))
        self._keys = view.keys
        self._proposer = _Proposer(self._keys)
        entries = Entries(self._keys, view.values, view.document_of)
        self.scale = measure_scale(entries, self._proposer.score, at_once=_MAX_PRODUCTS)

    def __len__(self) -> int:
        return len(self.values)

    def search(self, keys: Tensor, k: int) -> Neighbours:
        """Find the k nearest entries of queries [N, D] float32: [N, K], K = k always.

        Raises InvalidInput for another rank, another width, or k < 1.
        """
        if keys.ndim != 2 or keys.shape[1] != self.key_dim or k < 1:
            raise InvalidInput(
                f"expected queries of shape [N, {self.key_dim}] and k >= 1, came "
                f"{tuple(keys.shape)} and k = {k}"
            )
        keys = keys.to(device="cpu", dtype=torch.float32)
        found = min(k, len(self))
        distances = torch.full((len(keys), k), torch.inf)
        entries = torch.full((len(keys), k), -1, dtype=torch.long)
        step = max(1, _MAX_PRODUCTS // max(1, len(self)))
        for start in range(0, len(keys) if found else 0, step):
            near, which = self._decide(keys[start : start + step], found)
            distances[start : start + step, :found] = near
            entries[start : start + step, :found] = which
        return Neighbours(distances, entries)

    def document(self, entry: int) -> DocumentRecord:
        """Give the document that an entry is from."""
        return self.view.documents[int(self.view.document_of[entry])]

    def span(self, entry: int) -> Span:
        """Give the code points of an entry's next token in its document's text."""
        return Span(int(self.view.starts[entry]), int(self.view.ends[entry]))

    def _decide(self, keys: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Re-score candidates exactly; equals are ordered by value, then by entry.

        Where others may be as near as the k-th, `_settle` looks at all of them, so the distribution
        does not depend on the order in which documents came.
        """
        products = self._proposer.score(keys)
        proposed = products.topk(min(k + _NUM_SPARE, len(self)), dim=-1, largest=False)
        candidates = proposed.indices.sort(dim=-1).values
        by_value = self.values[candidates].sort(dim=-1, stable=True).indices
        candidates = candidates.gather(-1, by_value)
        exact, order = self._exact(keys, candidates).sort(dim=-1, stable=True)
        near, which = exact[:, :k].contiguous(), candidates.gather(-1, order)[:, :k].contiguous()
        if k < exact.shape[1]:
            limits = self._proposer.limits(keys, near[:, -1])
            is_crowded = (exact[:, k] <= near[:, -1]) | (proposed.values[:, -1] <= limits)
            for row in is_crowded.nonzero()[:, 0].tolist():
                rivals = (products[row] <= limits[row]).nonzero()[:, 0]
                near[row], which[row] = self._settle(keys[row], rivals, k)
        return near, which

    def _settle(self, key: Tensor, rivals: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Choose the k nearest of all entries that may be among them, for one query [D].

        Of those that are equally far as the k-th, taken by value, every so many-th is chosen: a
        value keeps its part among them, whatever the order of the entries.
        """
        step = max(1, _MAX_PRODUCTS // self.key_dim)
        exact = torch.cat(
            [self._exact(key[None], part[None])[0] for part in torch.split(rivals, step)]
        )
        farthest = exact.kthvalue(k).values
        nearer, tied = rivals[exact < farthest], rivals[exact == farthest]
        tied = tied[self.values[tied].sort(stable=True).indices]
        places = k - len(nearer)
        middles = (2 * torch.arange(places) + 1) * len(tied) // (2 * places)
        near = torch.cat([exact[exact < farthest], farthest.expand(places)])
        which = torch.cat([nearer, tied[middles]])
        by_value = self.values[which].sort(stable=True).indices
        near, order = near[by_value].sort(stable=True)
        return near, which[by_value][order]

    def _exact(self, keys: Tensor, entries: Tensor) -> Tensor:
        """Give the squared distances of queries [N, D] to stored keys [N, C]: [N, C]."""
        return (self._stored(entries) - keys.unsqueeze(1)).square().sum(dim=-1)

    def _stored(self, entries: Tensor) -> Tensor:
        """Give the stored keys of entries, as float32."""
        return torch.from_numpy(self._keys[entries.numpy()].astype(np.float32))


class _Proposer:
    """Candidates by |k|² − 2 q·k over keys with their mean taken away, which rounds less."""

    def __init__(self, keys: npt.NDArray[np.float16]) -> None:
        self._centred = torch.from_numpy(keys.astype(np.float32))
        self._mean = self._centred.mean(dim=0) if len(keys) else torch.zeros(keys.shape[1])
        self._centred -= self._mean
        self._squares = self._centred.square().sum(dim=-1)

    def score(self, keys: Tensor) -> Tensor:
        """Give the squared distances of queries [N, D] less a constant of each query: [N, T]."""
        return torch.addmm(self._squares, keys - self._mean, self._centred.T, alpha=-2.0)

    def limits(self, keys: Tensor, distances: Tensor) -> Tensor:
        """Give the scores that no entry within these distances [N] exceeds, rounding included."""
        own = (keys - self._mean).square().sum(dim=-1)
        spread = own + distances
        rounding = 1e-5 * spread + 1e-6 * (keys.square().sum(dim=-1) * spread).sqrt()
        return distances - own + rounding


def _check(view: MemoryView, fingerprint: str, key_dim: int) -> None:
    present = [view.documents[i] for i in np.unique(view.document_of) if i < len(view.documents)]
    strangers = [each.name for each in present if fingerprint not in each.memories]
    width = view.keys.shape[1] if view.keys.ndim == 2 else -1
    if strangers or (len(view.keys) and width != key_dim):
        made = sorted({name for each in present for name in each.memories})
        raise FingerprintMismatch(
            f"expected a token memory of backbone {fingerprint!r} with keys of width {key_dim}, "
            f"came one of {made} with width {width} (for instance {strangers[:3]}); build it for "
            "this backbone with `graft ingest`"
        )
    lengths = {
        len(array) for array in (view.keys, view.values, view.starts, view.ends, view.document_of)
    }
    if len(lengths) != 1:
        raise Damaged(f"the arrays of the token memory have different lengths: {sorted(lengths)}")
    if len(view.values) and (
        int(view.values.min()) < 0
        or int(view.document_of.min()) < 0
        or int(view.document_of.max()) >= len(view.documents)
    ):
        raise Damaged("the token memory names tokens or documents that do not exist")
    if not bool(np.isfinite(view.keys).all()):
        raise Damaged("the token memory has keys that are not finite; run `graft doctor`")
