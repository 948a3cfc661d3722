"""The layers of the design hold, and import-linter is known to catch a planted violation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the packages in `folder`, and on those only."""
    command = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [str(command), "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def copied(root: Path, tmp_path: Path, gates: object) -> Path:
    ignore = shutil.ignore_patterns("__pycache__")
    for name in gates.packages(root):  # type: ignore[attr-defined]
        shutil.copytree(root / name, tmp_path / name, ignore=ignore)
    shutil.copy(root / "pyproject.toml", tmp_path)
    return tmp_path


def test_imports_point_down_only(copied: Path) -> None:
    result = lint(copied)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("place", "line", "contract"),
    [
        ("index/planted.py", "import rag_api\n", "Imports point down only"),
        ("backbone/planted.py", "from decoding import engine\n", "Imports point down only"),
        (
            "retriever/planted.py",
            "def f() -> None:\n    import knn_lm\n",
            "Imports point down only",
        ),
        ("index/planted.py", "import torch\n", "index knows neither torch nor the web"),
    ],
)
def test_a_planted_import_upwards_or_sideways_is_caught(
    copied: Path, place: str, line: str, contract: str
) -> None:
    (copied / place).write_text(line, encoding="utf-8")
    result = lint(copied)
    assert result.returncode == 1, result.stdout + result.stderr
    broken = [text for text in result.stdout.splitlines() if contract in text and "BROKEN" in text]
    assert broken, result.stdout
    assert "planted" in result.stdout
