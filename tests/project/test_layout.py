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


def origins(first_on_path: Path, root: Path) -> dict[str, Path]:
    """Say where each package comes from when a folder stands before the project on the path."""
    script = (
        "import importlib.util, sys; sys.path[:0] = sys.argv[1:3]\n"
        "for name in sys.argv[3:]: print(name, importlib.util.find_spec(name).origin)"
    )
    command = [sys.executable, "-c", script, str(first_on_path), str(root), *PACKAGES]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root.parent)
    return {name: Path(origin) for name, origin in map(str.split, result.stdout.splitlines())}


def test_no_folder_under_tests_shadows_a_package(root: Path) -> None:
    assert not list((root / "tests").rglob("__init__.py"))
    assert not (root / "tests" / "index").exists()
    found = origins(root / "tests", root)
    assert {path.parents[1] for path in found.values()} == {root}


def test_a_package_planted_under_tests_would_be_seen_to_shadow(root: Path, tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "__init__.py").touch()
    assert origins(tmp_path, root)["index"].parents[1] == tmp_path


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
