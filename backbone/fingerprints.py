"""Weights, tokenizers and settings in, SHA-256 names out: what exactly made a vector or a key.

Two folders with the same numbers under the same tensor names have the same weights hash, however
the file was written. Knows nothing of models beyond their tensors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # torch takes seconds to import, and most of this file needs none
    from tokenizers import Tokenizer
    from torch import Tensor

TOKENIZER_FILES = ("vocab.*", "merges.txt", "*.model")
SETTINGS_FILES = (
    "config.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
)
VERSION_NOTES = frozenset({"transformers_version", "__version__", "_name_or_path"})


@dataclass(frozen=True, slots=True)
class Identity:
    """The hashes (SHA-256, hex) that together say which model this is."""

    weights: str
    tokenizer: str
    settings: str


def combine(**parts: str) -> str:
    """Hash named parts into one fingerprint (64 hex digits)."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def of_model_folder(folder: Path) -> Identity:
    """Hash a model folder: its tensors, its tokenizer's files, the settings that shape its output.

    Notes of library versions inside the settings do not count.
    """
    tokenizer = folder / "tokenizer.json"
    paths = [tokenizer] if tokenizer.is_file() else _files(folder, TOKENIZER_FILES)
    settings = {
        str(path.relative_to(folder)): _without_versions(json.loads(path.read_text("utf-8")))
        for path in _files(folder, SETTINGS_FILES)
    }
    return Identity(
        weights=of_weights(folder),
        tokenizer=combine(**{path.name: of_file(path) for path in paths}),
        settings=combine(settings=json.dumps(settings, sort_keys=True)),
    )


def of_model(state: Mapping[str, Tensor], tokenizer: Tokenizer, settings: object) -> Identity:
    """Hash a model in memory; its names are others than those of the same model in a folder."""
    values = json.dumps(_without_versions(settings), sort_keys=True, default=str)
    return Identity(
        weights=of_state(state),
        tokenizer=hashlib.sha256(tokenizer.to_str().encode()).hexdigest(),
        settings=combine(settings=values),
    )


def _files(folder: Path, names: Iterable[str]) -> list[Path]:
    return sorted(path for name in names for path in folder.rglob(name))


def _without_versions(settings: object) -> object:
    if not isinstance(settings, dict):
        return settings
    return {key: value for key, value in settings.items() if key not in VERSION_NOTES}


def of_state(state: Mapping[str, Tensor]) -> str:
    """Hash tensors by name, dtype, shape and bytes."""
    return _combine_tensors((name, _of_tensor(state[name])) for name in sorted(state))


def of_weights(folder: Path) -> str:
    """Hash all tensors of a folder's safetensors files, one in memory at a time."""
    from safetensors import safe_open

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
    import torch

    digest = hashlib.sha256(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _combine_tensors(named: Iterable[tuple[str, str]]) -> str:
    digest = hashlib.sha256()
    for name, value in named:
        digest.update(f"{name}\0{value}\n".encode())
    return digest.hexdigest()
