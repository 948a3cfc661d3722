"""SIGKILL at random moments, and at and inside chosen system calls: case D5, reliability §4."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from index import Index
from tests.store.crashing import (
    child_command,
    child_environment,
    judge,
    run_and_kill,
)
from tests.store.making import commit, make_document, make_store

STRACE = shutil.which("strace")


def kill_rounds(tmp_path: Path, rounds: int, *options: str) -> None:
    folder, rng, state = tmp_path / "data", random.Random(7), {}
    for number in range(rounds):
        log = tmp_path / f"log{number}"
        run_and_kill(folder, log, number, rng.uniform(0, 0.12), *options)
        state = judge(folder, log, state)


@pytest.mark.slow
def test_sigkill_at_random_moments_loses_nothing_acknowledged(tmp_path: Path):
    kill_rounds(tmp_path, 8)


@pytest.mark.slow
def test_the_crash_harness_catches_a_store_that_writes_rows_before_files(tmp_path: Path):
    with pytest.raises(AssertionError, match=r"Finding\(kind='vectors'"):
        kill_rounds(tmp_path, 40, "--row-first")


def trace(tmp_path: Path, calls: str, fault: str | None) -> subprocess.CompletedProcess[bytes]:
    """Run a child of a few steps on a copy of a small store, under strace."""
    if STRACE is None:
        pytest.skip("strace is not installed; it is needed to inject faults into system calls")
    # Not with --seccomp-bpf: strace 6.1 then injects errors but silently no signals.
    command = [STRACE, "-f", "-o", str(tmp_path / "trace"), "-e", f"trace={calls}"]
    command += ["-e", f"inject={calls}:{fault}"] if fault else []
    command += child_command(tmp_path / "data", tmp_path / "log", 3, "--steps", "5")
    found = subprocess.run(
        command, env=child_environment(), capture_output=True, timeout=60, check=False
    )
    if b"ptrace" in found.stderr.lower():
        pytest.skip(f"strace may not trace here: {found.stderr.decode()[:200]}")
    return found


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "data"
    with Index.open(folder) as index:
        commit(index, make_store(index), make_document("d0", "first"), make_document("d1", "more"))
    return folder


FAULTS = [
    ("fsync", "signal=KILL"),
    ("fsync", "error=EIO"),
    ("fdatasync", "signal=KILL"),
    ("fdatasync", "error=EIO"),
    ("pwrite64", "signal=KILL"),
    ("pwrite64", "error=ENOSPC"),
    ("write", "error=ENOSPC"),
    ("rename", "signal=KILL"),
    ("rename", "error=EIO"),
    ("unlink", "signal=KILL"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("calls", "fault"), FAULTS)
def test_a_fault_in_a_system_call_loses_nothing_and_shows_nothing_half_done(
    tmp_path: Path, template: Path, calls: str, fault: str
):
    shutil.copytree(template, tmp_path / "data")
    assert trace(tmp_path, calls, None).returncode == 0
    number = len(re.findall(rf"\b{calls}\(", (tmp_path / "trace").read_text()))
    assert number > 4, f"a run of the child made only {number} calls of {calls}"
    for when in sorted(random.Random(1).sample(range(1, number + 1), min(POINTS, number))):
        shutil.rmtree(tmp_path / "data")
        (tmp_path / "log").unlink(missing_ok=True)
        shutil.copytree(template, tmp_path / "data")
        found = trace(tmp_path, calls, f"{fault}:when={when}")
        if "KILL" in fault:
            assert found.returncode != 0
        else:
            assert "(INJECTED)" in (tmp_path / "trace").read_text()
        judge(tmp_path / "data", tmp_path / "log", {"d0": "first", "d1": "more"})


POINTS = int(os.environ.get("GRAFT_FAULT_POINTS", "2"))
"""How many of each kind's system calls are hit; a number above their count hits all."""
