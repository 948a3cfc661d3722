"""Shared fixtures: real small models loaded once a session, and the folder of real documents."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

if TYPE_CHECKING:
    from backbone import Embedder, LanguageModel, ModelCache

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of corpora beside the checkout (or $GRAFT_SHARED_DATA); skips if missing."""
    folder = Path(os.environ.get("GRAFT_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(
            f"the corpora folder {folder} is missing; set GRAFT_SHARED_DATA to run this test"
        )
    return folder


@pytest.fixture(scope="session")
def model_cache() -> ModelCache:
    """The folder of pulled models that the checkout's user has ($GRAFT_MODELS_DIR)."""
    from backbone import ModelCache

    default = Path.home() / ".cache" / "graft" / "models"
    return ModelCache(Path(os.environ.get("GRAFT_MODELS_DIR", default)))


@pytest.fixture(scope="session")
def fast_embedder(model_cache: ModelCache) -> Embedder:
    """WordLlama: static 256-d vectors, right for most tests; pulled when it is not there."""
    from backbone import Embedder

    return Embedder.load("wordllama", model_cache)


@pytest.fixture(scope="session")
def e5(model_cache: ModelCache) -> Embedder:
    """The default embedder, multilingual-e5-small; pulled when it is not there."""
    from backbone import Embedder

    return Embedder.load("e5-small", model_cache)


@pytest.fixture(scope="session")
def smollm2(model_cache: ModelCache) -> LanguageModel:
    """The default backbone, SmolLM2-135M-Instruct; pulled when it is not there."""
    from backbone import LanguageModel

    return LanguageModel.load("smollm2-135m", model_cache)
