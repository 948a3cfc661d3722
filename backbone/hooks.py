"""Finds the input of a causal LM's last MLP by structure and hands it out call by call.

A model in, a `KeyTap` out. It looks at modules, never at model names: the last block of the
longest list of blocks that hold attention, and in it the first part that owns matrices and takes
no attention mask. That is what comes *after the MLP's norm* in Llama, Qwen, Mistral, Gemma and
GPT-2. In parallel blocks (Phi, GPT-J, Falcon, GPT-NeoX with parallel residual) attention and MLP
read the same residual stream, so the key there is the block's normed input, without the last
layer's own attention. In OPT, which has no MLP module, it is the input of `fc1`.
Knows nothing of token memories, caches or tokenizers.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from index.errors import ModelError

_ADVICE = "token memory needs a transformer (recurrent models have no MLP to take keys from)"


@dataclass(frozen=True, slots=True)
class Hook:
    """Where the keys come from: the module whose first input is read, and its dotted name."""

    name: str
    module: nn.Module


def find_mlp(model: nn.Module) -> Hook:
    """Find the last layer's MLP. Raises ModelError where the structure shows none."""
    blocks: list[tuple[str, nn.ModuleList]] = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) > 0 and _has_attention(module[-1])
    ]
    if not blocks:
        raise ModelError(
            f"expected a stack of blocks with attention in {type(model).__name__}, found none; "
            f"{_ADVICE}"
        )
    name, stack = max(blocks, key=lambda item: len(item[1]))
    for child_name, child in stack[-1].named_children():
        if _has_matrix(child) and not _takes_mask(child):
            return Hook(f"{name}.{len(stack) - 1}.{child_name}:input", child)
    raise ModelError(
        f"expected an MLP in the last block of {type(model).__name__} ({name}), found only "
        f"{[child_name for child_name, _ in stack[-1].named_children()]}; {_ADVICE}"
    )


def _has_attention(block: nn.Module) -> bool:
    return any(_takes_mask(child) and _has_matrix(child) for child in block.children())


def _takes_mask(module: nn.Module) -> bool:
    return "attention_mask" in inspect.signature(module.forward).parameters


def _has_matrix(module: nn.Module) -> bool:
    return any(parameter.ndim >= 2 for parameter in module.parameters())


class KeyTap:
    """Reads the hooked input inside `with tap.reading()`, of the same thread only."""

    def __init__(self, model: nn.Module) -> None:
        hook = find_mlp(model)
        self.name = hook.name
        self._local = threading.local()
        hook.module.register_forward_pre_hook(self._see, with_kwargs=True)

    def _see(self, module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:
        readings: list[Tensor] | None = getattr(self._local, "readings", None)
        if readings is not None:
            readings.append(args[0] if args else next(iter(kwargs.values())))

    @contextmanager
    def reading(self) -> Iterator[list[Tensor]]:
        """Give a list that holds the MLP's input ([R, W, D] or [R·W, D]) after one forward."""
        readings: list[Tensor] = []
        self._local.readings = readings
        try:
            yield readings
        finally:
            self._local.readings = None


def as_keys(reading: Tensor, rows: int, positions: int) -> Tensor:
    """Shape a reading to [R, W, D] float32 (some models flatten rows and positions)."""
    return reading.reshape(rows, positions, -1).to(torch.float32)
