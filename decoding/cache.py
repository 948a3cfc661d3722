"""Token ids go in, logits and keys come out; the transformers cache in between belongs to it alone.

Knows nothing of shapers, sampling or requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from backbone import Forward, LanguageModel
from index.errors import Cancelled, Conflict


class KV:
    """The attention state of one sequence under one backbone.

    `can_rollback` is probed on the cache of this very model: recurrent layers cannot go back,
    and then nothing may be drafted. `can_trim` says that all layers keep every token, so that old
    ones can be forgotten. `length` counts the fed tokens, forgotten ones included.
    """

    def __init__(self, model: LanguageModel, *, chunk: int = 512) -> None:
        self._model = model
        self._chunk = chunk
        self._cache: DynamicCache | None = DynamicCache(config=model.model.config)
        self.can_rollback = bool(self._cache.is_croppable)
        self.can_trim = all(type(layer) is DynamicLayer for layer in self._cache.layers)
        self._is_recording = False
        self._num_trimmed = 0
        self.length = 0

    def prefill(
        self, ids: Sequence[int], *, cancelled: Callable[[], bool] = lambda: False
    ) -> Forward:
        """Read a prompt in chunks; give logits [1, 1, V] and keys [1, 1, D] of its last token.

        The head runs for the last token only. Raises Cancelled between chunks.
        """
        last = (len(ids) - 1) // self._chunk * self._chunk
        for start in range(0, last, self._chunk):
            if cancelled():
                raise Cancelled("the request was cancelled while its prompt was read")
            self._forward(ids[start : start + self._chunk], want_logits=False)
        forward = self._forward(ids[last:], num_logits=1)
        return Forward(forward.logits, forward.keys[:, -1:])

    def step(self, ids: Sequence[int]) -> Forward:
        """Feed W tokens after all fed so far; give logits [1, W, V] and keys [1, W, D]."""
        return self._forward(ids)

    def feed(self, ids: Sequence[int]) -> Tensor:
        """Feed W tokens without running the head; give their keys [1, W, D]."""
        return self._forward(ids, want_logits=False).keys

    def trim(self, *, first: int, last: int) -> None:
        """Forget all but the `first` and the `last` fed tokens; positions go on as they were.

        The first few must stay: attention rests on them, and without them the hidden states are
        ruined (Xiao 2023, attention sinks). Raises Conflict where `can_trim` is false.
        """
        if not self.can_trim:
            raise Conflict(
                f"the cache of {self._model.name!r} has sliding or recurrent layers and cannot be "
                "trimmed; open a new one"
            )
        surplus = self.length - self._num_trimmed - first - last
        if surplus <= 0:
            return
        for layer in self._open_cache().layers:
            layer.keys = _without(layer.keys, first, surplus)
            layer.values = _without(layer.values, first, surplus)
        self._num_trimmed += surplus

    def record(self) -> None:
        """Keep what a rollback past a sliding window needs; call before prefill, if drafts come."""
        self._open_cache().activate_past_recording()
        self._is_recording = True

    def rollback(self, num: int) -> None:
        """Forget the last `num` fed tokens (0: settle a recording cache). Raises Conflict."""
        if not self.can_rollback:
            raise Conflict(
                f"the backbone {self._model.name!r} has recurrent layers, and its cache cannot "
                "be rolled back; decode without drafts"
            )
        if not 0 <= num <= (limit := self.length - self._num_trimmed):
            raise Conflict(f"can roll back 0 to {limit} tokens, not {num}")
        if num or self._is_recording:
            self._open_cache().crop(-num)
        self.length -= num

    def drop(self) -> None:
        """Free the cache; the object cannot be used afterwards."""
        self._cache = None
        self.length = 0

    def _open_cache(self) -> DynamicCache:
        if self._cache is None:
            raise Conflict("this cache was dropped; open a new one")
        return self._cache

    def _forward(
        self, ids: Sequence[int], *, want_logits: bool = True, num_logits: int = 0
    ) -> Forward:
        end = self.length + len(ids)
        device = self._model.model.device
        forward = self._model.forward(
            torch.tensor([list(ids)], device=device),
            cache=self._open_cache(),
            attention_mask=torch.ones(1, end - self._num_trimmed, dtype=torch.long, device=device),
            position_ids=torch.arange(self.length, end, device=device).unsqueeze(0),
            want_logits=want_logits,
            num_logits=num_logits,
        )
        self.length = end
        return forward


def _without(states: Tensor, first: int, num: int) -> Tensor:
    """Take `num` tokens after the `first` out of states [R, heads, T, width]."""
    return torch.cat([states[..., :first, :], states[..., first + num :, :]], dim=-2)
