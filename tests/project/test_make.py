"""The make targets set up when stale, say what is missing, and fail when no test ran."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def make(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    return subprocess.run(
        ["make", *words],
        cwd=folder,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def fresh(root: Path, tmp_path: Path) -> Path:
    """A folder with the files that set-up reads, and no environment yet."""
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(root / name, tmp_path / name)
    return tmp_path


def with_environment(folder: Path, pytest_ini: str = "") -> None:
    """Give the folder this test's own interpreter as an environment that is up to date."""
    (folder / ".venv" / "bin").mkdir(parents=True)
    script = f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'
    (folder / ".venv" / "bin" / "python").write_text(script, encoding="utf-8")
    (folder / ".venv" / "bin" / "python").chmod(0o755)
    (folder / ".venv" / ".installed-from-lock").touch()
    (folder / "pytest.ini").write_text(f"[pytest]\n{pytest_ini}", encoding="utf-8")


@pytest.mark.parametrize("target", ["demo", "test", "serve", "check", "setup"])
def test_every_target_sets_up_from_the_lock_file_first(fresh: Path, target: str) -> None:
    result = make(fresh, "-n", target)
    assert "-m venv .venv" in result.stdout, result.stderr
    assert "-r requirements.lock" in result.stdout


def test_a_second_run_installs_nothing_and_a_newer_lock_file_installs_again(fresh: Path) -> None:
    with_environment(fresh)
    assert "requirements.lock" not in make(fresh, "-n", "demo").stdout
    stamp = (fresh / ".venv" / ".installed-from-lock").stat().st_mtime
    os.utime(fresh / "requirements.lock", (stamp + 10, stamp + 10))
    assert "-r requirements.lock" in make(fresh, "-n", "demo").stdout


def test_a_machine_without_python_3_11_is_told_what_to_do(fresh: Path) -> None:
    result = make(fresh, "demo", "PYTHON=")
    assert result.returncode != 0
    assert "Graft needs Python 3.11" in result.stderr
    assert "make demo PYTHON=/path/to/python3.11" in result.stderr


def test_an_environment_that_cannot_be_made_is_told_with_its_likely_reason(fresh: Path) -> None:
    result = make(fresh, "demo", "PYTHON=/bin/false")
    assert result.returncode != 0
    assert "is its venv module installed" in result.stderr
    assert not (fresh / ".venv" / ".installed-from-lock").exists()


def test_make_test_fails_when_it_ran_no_test(fresh: Path) -> None:
    with_environment(fresh)
    (fresh / "test_nothing.py").write_text("x = 1\n", encoding="utf-8")
    result = make(fresh, "test")
    assert "no tests ran" in result.stdout
    assert result.returncode != 0


def test_make_test_runs_the_slow_tests_too_and_ends_with_the_closing_line(fresh: Path) -> None:
    with_environment(fresh, "markers =\n    slow: minutes\n")
    (fresh / "test_two.py").write_text(
        "import pytest\n@pytest.mark.slow\ndef test_a(): pass\ndef test_b(): pass\n", "utf-8"
    )
    result = make(fresh, "test")
    assert result.returncode == 0, result.stdout
    assert "2 passed" in result.stdout.strip().splitlines()[-1]


def test_a_folder_with_spaces_and_quotes_reaches_the_demo_as_one_word(fresh: Path) -> None:
    with_environment(fresh)
    python = fresh / ".venv" / "bin" / "python"
    python.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n', encoding="utf-8")
    result = make(fresh, "demo", "DOCS=/tmp/my 'own' docs")
    assert result.stdout == "<-m><rag_api.demo><--docs></tmp/my 'own' docs>"


def test_bench_without_a_name_lists_the_names(root: Path) -> None:
    script = [sys.executable, "benchmarks/run.py", "--list"]
    result = subprocess.run(script, cwd=root, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "ingest, search" in result.stderr


def test_ci_runs_the_checks_and_then_the_tests_and_stops_at_a_failure(root: Path) -> None:
    lines = (root / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert "set -euo pipefail" in lines
    commands = [line for line in lines if "make" in line and not line.startswith("#")]
    assert commands == ["make check", "exec make test"]
    assert os.access(root / ".ci" / "run", os.X_OK)
