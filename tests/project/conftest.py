"""What the tests of the project itself share: its root, and its scripts loaded as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load_script(path: Path) -> ModuleType:
    """Import a script that belongs to no package, under a name that shadows nothing."""
    name = f"graft_script_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def gates() -> ModuleType:
    return load_script(ROOT / ".ci" / "gates.py")


@pytest.fixture(scope="session")
def doc_check() -> ModuleType:
    return load_script(ROOT / "docs" / "check.py")


@pytest.fixture(scope="session")
def tables() -> ModuleType:
    return load_script(ROOT / "docs" / "tables.py")
