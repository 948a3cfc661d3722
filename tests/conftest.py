"""Shared fixtures: real small models loaded once a session, and the folder of real documents."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of corpora beside the checkout (or $GRAFT_SHARED_DATA); skips where it is missing."""
    folder = Path(os.environ.get("GRAFT_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"the corpora folder {folder} is missing; set GRAFT_SHARED_DATA to run this test")
    return folder
