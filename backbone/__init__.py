"""Graft's models: load, convert, fingerprint; language models, embedders, cross-encoders.

Importing this package sets passive waiting for OpenMP and nothing more; torch is loaded with the
first name that needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from backbone.threads import wait_passively

wait_passively()

if TYPE_CHECKING:
    from backbone.batches import Batch, pad
    from backbone.cache import ModelCache, ModelInfo
    from backbone.cross_encoders import CrossEncoderModel, load_cross_encoder
    from backbone.embedders import Embedder
    from backbone.language_models import Forward, LanguageModel
    from backbone.recipes import STARTER_MODELS
    from backbone.sources import ModelSource, resolve
    from backbone.tiny_models import tiny_model

_HOMES = {
    "Batch": "batches",
    "CrossEncoderModel": "cross_encoders",
    "Embedder": "embedders",
    "Forward": "language_models",
    "LanguageModel": "language_models",
    "ModelCache": "cache",
    "ModelInfo": "cache",
    "ModelSource": "sources",
    "STARTER_MODELS": "recipes",
    "load_cross_encoder": "cross_encoders",
    "pad": "batches",
    "resolve": "sources",
    "tiny_model": "tiny_models",
}

__all__ = [
    "STARTER_MODELS",
    "Batch",
    "CrossEncoderModel",
    "Embedder",
    "Forward",
    "LanguageModel",
    "ModelCache",
    "ModelInfo",
    "ModelSource",
    "load_cross_encoder",
    "pad",
    "resolve",
    "tiny_model",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"backbone.{_HOMES[name]}"), name)
