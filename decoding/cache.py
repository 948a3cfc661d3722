"""Token ids go in, logits and keys come out; the transformers cache in between belongs to it alone.

Knows nothing of shapers, sampling or requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from transformers import DynamicCache

from backbone import Forward, LanguageModel
from index.errors import Cancelled, Conflict


class KV:
    """The attention state of one sequence under one backbone.

    `can_rollback` is probed on the cache of this very model: recurrent layers cannot go back,
    and then nothing may be drafted.
    """

    def __init__(self, model: LanguageModel, *, chunk: int = 512) -> None:
        self._model = model
        self._chunk = chunk
        self._cache: DynamicCache | None = DynamicCache(config=model.model.config)
        self.can_rollback = bool(self._cache.is_croppable)
        self._is_recording = False
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
        if not 0 <= num <= self.length:
            raise Conflict(f"can roll back 0 to {self.length} tokens, not {num}")
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
        forward = self._model.forward(
            torch.tensor([list(ids)]),
            cache=self._open_cache(),
            attention_mask=torch.ones(1, end, dtype=torch.long),
            position_ids=torch.arange(self.length, end).unsqueeze(0),
            want_logits=want_logits,
            num_logits=num_logits,
        )
        self.length = end
        return forward
