"""A text and a backbone go in; the text's tokens and keys (its token memory) come out.

Knows nothing of stores, jobs or search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from backbone import LanguageModel
from index.errors import Cancelled, InvalidInput, ModelError
from index.records import MemoryArrays, Progress, no_progress

_BATCH_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens `[start, end)` of one text, of which `[first, end)` give keys."""

    start: int
    first: int
    end: int


def build_arrays(
    model: LanguageModel,
    text: str,
    *,
    window: int = 512,
    stride: int | None = None,
    progress: Progress = no_progress,
    cancelled: Callable[[], bool] = lambda: False,
) -> MemoryArrays:
    """Read a document with the backbone and keep the key of every token but the last.

    The document is read in windows of `window` tokens that begin every `stride` (None: half a
    window), each from a fresh start, so a key has at least `window - stride` tokens before it or
    the whole of what stands before it in the document. Every window starts with what the model's
    own tokenizer puts before any text (`prefix_ids`: a forced begin token, often nothing); that
    gives no entry. Windows of like length share a padded batch; masks come from lengths.

    Raises InvalidInput for sizes that make no sense, Cancelled when `cancelled()` says so between
    two batches, ModelError for keys that float16 cannot hold.
    """
    stride = max(1, window // 2) if stride is None else stride
    room = model.context_length - len(model.prefix_ids)
    if not 1 <= stride <= window <= room:
        raise InvalidInput(
            f"expected 1 <= stride <= window <= {room} (the backbone's context), got stride "
            f"{stride} and window {window}"
        )
    ids, spans = model.encode_spans(text)
    edges = np.array(spans, dtype=np.int64).reshape(-1, 2)
    keys = _keys(model, ids, windows(len(ids) - 1, window, stride), progress, cancelled)
    return MemoryArrays(np.array(ids, dtype=np.int64), edges[:, 0], edges[:, 1], keys)


def windows(num_keys: int, window: int, stride: int) -> list[Window]:
    """Cover `num_keys` tokens: each gives its key in exactly one window.

    >>> windows(5, 4, 2)
    [Window(start=0, first=0, end=4), Window(start=1, first=4, end=5)]
    """
    result: list[Window] = []
    done = 0
    while done < num_keys:
        end = min(done + stride if result else window, num_keys)
        result.append(Window(max(0, end - window), done, end))
        done = end
    return result


def _keys(
    model: LanguageModel,
    ids: Sequence[int],
    parts: Sequence[Window],
    progress: Progress,
    cancelled: Callable[[], bool],
) -> npt.NDArray[np.float16]:
    num_keys = max(0, len(ids) - 1)
    keys = np.empty((num_keys, model.key_dim), dtype=np.float16)
    done = 0
    for batch in _batches(parts):
        if cancelled():
            raise Cancelled("the building of the token memory was cancelled")
        rows = [[*model.prefix_ids, *ids[part.start : part.end]] for part in batch]
        hidden = hidden_states(model, rows)
        for part, states in zip(batch, hidden, strict=True):
            fresh = states[len(states) - (part.end - part.first) :]
            keys[part.first : part.end] = _half(fresh)
            done += part.end - part.first
        progress("keys", done, num_keys, "tokens")
    return keys


def hidden_states(model: LanguageModel, rows: Sequence[Sequence[int]]) -> list[Tensor]:
    """Give the keys [T, D] float32 of every row of ids, read in one padded batch.

    Padding stands on the right and is masked by length, so it cannot reach a key.
    """
    lengths = torch.tensor([len(row) for row in rows])
    width = int(lengths.max())
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
    positions = torch.arange(width).expand(len(rows), -1)
    mask = (positions < lengths.unsqueeze(1)).long()
    is_padded = bool((mask == 0).any())
    forward = model.forward(
        ids,
        cache=None,
        attention_mask=mask if is_padded else None,
        position_ids=positions,
        want_logits=False,
    )
    return [forward.keys[i, : len(row)] for i, row in enumerate(rows)]


def _batches(parts: Sequence[Window]) -> Iterator[list[Window]]:
    """Group windows of like length, the longest first, up to a number of padded tokens."""
    batch: list[Window] = []
    for part in sorted(parts, key=lambda each: each.start - each.end):
        width = batch[0].end - batch[0].start if batch else 1
        if batch and (len(batch) + 1) * width > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(part)
    if batch:
        yield batch


def _half(keys: Tensor) -> npt.NDArray[np.float16]:
    half: npt.NDArray[np.float16] = keys.cpu().to(torch.float16).numpy()
    if not bool(np.isfinite(half).all()):
        raise ModelError(
            f"the backbone's keys reach {float(keys.abs().max()):.3g}, and float16 ends at 65504 "
            "(or they are not numbers); use another backbone or dtype"
        )
    return half
