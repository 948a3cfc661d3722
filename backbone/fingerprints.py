"""Weights, tokenizers and settings in, SHA-256 names out: what exactly made a vector or a key.

Two folders with the same numbers under the same tensor names have the same weights hash, however
the file was written. Knows nothing of models beyond their tensors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from torch import Tensor


def combine(**parts: str) -> str:
    """Hash named parts into one fingerprint (64 hex digits)."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def of_tokenizer(tokenizer: Tokenizer) -> str:
    """Hash a tokenizer by what it does: cutting and padding, which callers switch, are left out."""
    state = json.loads(tokenizer.to_str())
    state.update(truncation=None, padding=None)
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def of_state(state: Mapping[str, Tensor]) -> str:
    """Hash tensors by name, dtype, shape and bytes."""
    return _combine_tensors((name, _of_tensor(state[name])) for name in sorted(state))


def of_weights(folder: Path) -> str:
    """Hash all tensors of a folder's safetensors files, one in memory at a time."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - safe_open is no mapping
                found[f"{path.parent.relative_to(folder)}/{name}"] = _of_tensor(
                    file.get_tensor(name)
                )
    return _combine_tensors(sorted(found.items()))


def of_file(path: Path) -> str:
    """Hash a file's bytes (SHA-256, hex)."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _of_tensor(tensor: Tensor) -> str:
    digest = hashlib.sha256(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    digest.update(memoryview(flat.view(torch.uint8).numpy()))
    return digest.hexdigest()


def _combine_tensors(named: Iterable[tuple[str, str]]) -> str:
    digest = hashlib.sha256()
    for name, value in named:
        digest.update(f"{name}\0{value}\n".encode())
    return digest.hexdigest()
