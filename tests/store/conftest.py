"""Fixtures of the store's tests: a fresh data folder, open and closed again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.store.making", "tests.store.crashing")

from index import Index  # noqa: E402


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def index(data_dir: Path) -> Iterator[Index]:
    with Index.open(data_dir) as opened:
        yield opened
        assert opened.check() == []
