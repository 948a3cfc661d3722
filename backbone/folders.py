"""A model folder in, a refusal where loading it would unpickle or run something it brought.

Knows nothing of what is in the weights.
"""

from __future__ import annotations

import json
from pathlib import Path

from index.errors import ModelError

_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.pickle")


def refuse_code(folder: Path) -> None:
    """Check a folder before anything loads it.

    Raises ModelError where there are no safetensors weights, where some module has only pickled
    ones, or where `modules.json` names a class outside sentence-transformers.
    """
    if not any(folder.rglob("*.safetensors")):
        raise ModelError(
            f"expected a folder with safetensors weights, {str(folder)!r} has none "
            "(pickled weights are not read)"
        )
    for pattern in _PICKLES:
        for path in folder.rglob(pattern):
            if not any(path.parent.glob("*.safetensors")):
                raise ModelError(
                    f"{path} would have to be unpickled, which Graft never does; "
                    "convert it to safetensors"
                )
    listed = folder / "modules.json"
    if listed.is_file():
        for module in json.loads(listed.read_text("utf-8")):
            if not str(module.get("type", "")).startswith("sentence_transformers."):
                raise ModelError(
                    f"{listed} names the class {module.get('type')!r}; only classes of "
                    "sentence_transformers are loaded"
                )
