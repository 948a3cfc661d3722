"""The packages are where they should be, nothing shadows them, and a wheel holds them whole."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

PACKAGES = (
    "index", "backbone", "decoding", "ingestion", "retriever", "knn_lm", "reward", "rag_api",
)  # fmt: skip


def test_the_packages_are_the_eight_of_the_design(gates: ModuleType, root: Path) -> None:
    assert sorted(gates.packages(root)) == sorted(PACKAGES)


def test_all_packages_share_one_parent_folder_which_is_this_project(root: Path) -> None:
    """Bare names such as `index` exist elsewhere: an installed stranger would win in silence."""
    parents = set()
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        parents.add(Path(spec.origin).resolve().parents[1])
    assert parents == {root}


def test_no_folder_under_tests_is_a_package_or_is_called_like_one(root: Path) -> None:
    assert not list((root / "tests").rglob("__init__.py"))
    taken = set(PACKAGES) & {path.name for path in (root / "tests").rglob("*") if path.is_dir()}
    assert not taken, f"an import in {sorted(taken)} would find the tests"


def test_no_two_test_files_share_a_name(root: Path) -> None:
    names = [path.name for path in (root / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def test_no_module_is_called_like_one_of_the_standard_library(
    root: Path, gates: ModuleType
) -> None:
    files = gates.python_files(root, list(PACKAGES))
    assert not [str(path) for path in files if path.stem in sys.stdlib_module_names]


def test_the_project_can_never_be_uploaded_by_accident(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "Private :: Do Not Upload" in project["classifiers"]
    assert project["license"] == "Apache-2.0"
    assert "Apache License" in (root / "LICENSE").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_wheel_holds_every_tracked_file_of_every_package(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index",
               "--no-build-isolation", "--wheel-dir", str(tmp_path), str(root)]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    listing = subprocess.run(
        ["git", "ls-files", "-z", *PACKAGES], cwd=root, check=True, capture_output=True, text=True
    )
    tracked = {name for name in listing.stdout.split("\0") if name and (root / name).is_file()}
    assert len(tracked) >= len(PACKAGES)
    assert not tracked - held, "the image would lack these files"
