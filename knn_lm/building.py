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
from decoding import KV
from index.errors import Cancelled, InvalidInput, ModelError
from index.records import MemoryArrays, Progress, no_progress

_BATCH_TOKENS = 512
"""Padded tokens of a batch: more gain nothing on a CPU, and a cancel has to wait for them."""
_NUM_SINKS = 4


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

    Every key has at least `window - stride` tokens (stride None: half a window) of the document
    before it, or all there are; a window is at most the backbone's context. The document is read
    on in chunks of `stride` with a cache of the last `window - stride` tokens and the first few,
    so each token is computed once; where a cache cannot be trimmed (sliding or recurrent layers)
    it is read in windows that begin afresh every `stride`. It starts with what the model's own
    tokenizer puts before any text (`prefix_ids`: a forced begin token, often nothing), which
    gives no entry.

    Raises InvalidInput for sizes that make no sense, Cancelled when `cancelled()` says so between
    two chunks, ModelError for keys that float16 cannot hold.
    """
    window = min(window, model.context_length - len(model.prefix_ids))
    stride = max(1, window // 2) if stride is None else stride
    if not 1 <= stride <= window:
        raise InvalidInput(
            f"expected 1 <= stride <= window (at most the backbone's context of "
            f"{model.context_length}), got stride {stride} and window {window}"
        )
    ids, spans = model.encode_spans(text)
    num_keys = max(0, len(ids) - 1)
    keys = np.empty((num_keys, model.key_dim), dtype=np.float16)
    read = _read_on if KV(model).can_trim else _read_windows
    done = 0
    for first, states in read(model, ids[:num_keys], window, stride):
        keys[first : first + len(states)] = _half(states)
        done += len(states)
        progress("keys", done, num_keys, "tokens")
        if done < num_keys and cancelled():
            raise Cancelled("the building of the token memory was cancelled")
    edges = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return MemoryArrays(np.array(ids, dtype=np.int64), edges[:, 0], edges[:, 1], keys)


def _read_on(
    model: LanguageModel, ids: Sequence[int], window: int, stride: int
) -> Iterator[tuple[int, Tensor]]:
    """Read in chunks with a cache; give the place of each chunk and its keys [W, D].

    Where the model's positions end, it begins afresh, with the context that was promised.
    """
    kv = KV(model)
    for first in range(0, len(ids), stride):
        chunk = ids[first : first + stride]
        if kv.length + len(chunk) > model.context_length:
            kv = KV(model)
        context: Sequence[int] = ()
        if kv.length == 0:
            context = [*model.prefix_ids, *ids[max(0, first - (window - stride)) : first]]
        keys = kv.feed([*context, *chunk])
        yield first, keys[0, len(context) :]
        kv.trim(first=len(model.prefix_ids) + _NUM_SINKS, last=window - stride)


def _read_windows(
    model: LanguageModel, ids: Sequence[int], window: int, stride: int
) -> Iterator[tuple[int, Tensor]]:
    """Read in windows that begin afresh, several of like length at once."""
    for batch in _batches(windows(len(ids), window, stride)):
        rows = [[*model.prefix_ids, *ids[part.start : part.end]] for part in batch]
        for part, states in zip(batch, hidden_states(model, rows), strict=True):
            yield part.first, states[len(states) - (part.end - part.first) :]


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
    device = model.model.device
    forward = model.forward(
        ids.to(device),
        cache=None,
        attention_mask=mask.to(device) if is_padded else None,
        position_ids=positions.to(device),
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
