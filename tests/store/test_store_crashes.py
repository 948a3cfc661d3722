"""SIGKILL at random moments, and at and inside chosen system calls: case D5, reliability §4.

`GRAFT_CRASH_ROUNDS` and `GRAFT_FAULT_POINTS` ask for more rounds and points than the few of
every run.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from index import Index
from tests.store.crashing import (
    START_S,
    child_command,
    child_environment,
    judge,
    run_and_kill,
    run_to_death,
)
from tests.store.making import commit, make_document, make_store

STRACE = shutil.which("strace")
ROUNDS = int(os.environ.get("GRAFT_CRASH_ROUNDS", "5"))
POINTS = int(os.environ.get("GRAFT_FAULT_POINTS", "2"))
"""How many of each kind's system calls are hit; a number above their count hits all."""

FAULTS = [
    ("fsync", "signal=KILL:when={}", "never"),
    ("fsync", "error=EIO:when={}", "never"),
    ("fdatasync", "signal=KILL:when={}", "never"),
    ("fdatasync", "error=EIO:when={}", "failed"),
    ("fdatasync", "error=EIO:when={}+", "failed"),
    ("pwrite64", "signal=KILL:when={}", "never"),
    ("pwrite64", "error=EIO:when={}", "failed"),
    ("pwrite64", "error=ENOSPC:when={}+", "never"),
    ("write", "signal=KILL:when={}", "never"),
    ("write", "error=ENOSPC:when={}", "never"),
    ("rename", "signal=KILL:when={}", "never"),
    ("rename", "error=EIO:when={}", "never"),
    ("unlink", "signal=KILL:when={}", "never"),
]
"""A system call, what happens at one of them ("+": from there on), and when the child gives up."""

CALLS = sorted({calls for calls, _, _ in FAULTS})
BROKEN = ("--row-first", "--steps", "2")
HARM = r"Finding\(kind='(vectors|memory)'"
START = {"d0": "first", "d1": "more"}


@pytest.mark.slow
def test_sigkill_at_random_moments_loses_nothing_acknowledged(tmp_path: Path):
    folder, rng, state = tmp_path / "data", random.Random(7), {}
    for number in range(ROUNDS):
        log = tmp_path / f"log{number}"
        run_and_kill(folder, log, number, rng.uniform(0, 0.12))
        state = judge(folder, log, state)


@pytest.mark.parametrize("moment", ["published", "committed"])
def test_a_store_killed_on_either_side_of_its_commit_point_is_whole(tmp_path: Path, moment: str):
    run_to_death(tmp_path / "data", tmp_path / "log", 7, "--die", moment)
    found = judge(tmp_path / "data", tmp_path / "log", {})
    assert bool(found) == (moment == "committed")


def test_the_crash_harness_catches_a_store_that_writes_rows_before_files(tmp_path: Path):
    run_to_death(tmp_path / "data", tmp_path / "log", 7, "--row-first", "--die", "committed")
    with pytest.raises(AssertionError, match=HARM):
        judge(tmp_path / "data", tmp_path / "log", {})


@pytest.mark.slow
@pytest.mark.parametrize(("calls", "fault", "moment"), FAULTS)
def test_a_fault_in_a_system_call_loses_nothing_and_shows_nothing_half_done(
    tmp_path: Path, template: Path, counts: dict[str, int], calls: str, fault: str, moment: str
):
    number = counts[calls]
    assert number > 4, f"a run of the child made only {number} calls of {calls}"
    for when in sorted(random.Random(1).sample(range(1, number + 1), min(POINTS, number))):
        run_with_fault(tmp_path, template, calls, fault.format(when), "--die", moment)
        try:
            judge(tmp_path / "data", tmp_path / "log", START)
        except BaseException as error:
            error.add_note(f"after {calls} {fault.format(when)} of {number}")
            raise


@pytest.mark.slow
def test_the_faults_catch_a_store_that_writes_rows_before_files(tmp_path: Path, template: Path):
    number = counted(tmp_path, template, ["fdatasync"], *BROKEN)["fdatasync"]
    assert any(caught(tmp_path, template, when) for when in range(number, 0, -1))


def caught(tmp_path: Path, template: Path, when: int) -> bool:
    """Kill a child of the broken protocol at an fdatasync; say whether the judge sees the harm."""
    run_with_fault(tmp_path, template, "fdatasync", f"signal=KILL:when={when}", *BROKEN)
    try:
        judge(tmp_path / "data", tmp_path / "log", START)
    except AssertionError as error:
        return re.search(HARM, str(error)) is not None
    return False


def run_with_fault(tmp_path: Path, template: Path, calls: str, fault: str, *options: str) -> None:
    """Run a child on a fresh copy of the template, and see that the fault was injected."""
    found = trace(
        tmp_path, template, ["-e", f"trace={calls}", "-e", f"inject={calls}:{fault}"], options
    )
    if "KILL" in fault:
        assert found.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL), found.stderr.decode()
    else:
        assert "(INJECTED)" in (tmp_path / "trace").read_text(), found.stderr.decode()


def counted(tmp_path: Path, template: Path, calls: Iterable[str], *options: str) -> dict[str, int]:
    """Count the system calls of a child that runs to its end."""
    found = trace(tmp_path, template, ["-e", f"trace={','.join(calls)}"], options)
    assert found.returncode == 0, found.stderr.decode()
    lines = (tmp_path / "trace").read_text()
    return {name: len(re.findall(rf"\b{name}\(", lines)) for name in calls}


def trace(
    tmp_path: Path, template: Path, wanted: list[str], options: Iterable[str]
) -> subprocess.CompletedProcess[bytes]:
    """Run a child of a few steps on a fresh copy of the template, under strace."""
    if STRACE is None:
        pytest.skip("strace is not installed; it is needed to inject faults into system calls")
    shutil.rmtree(tmp_path / "data", ignore_errors=True)
    (tmp_path / "log").unlink(missing_ok=True)
    shutil.copytree(template, tmp_path / "data")
    # Not with --seccomp-bpf: strace 6.1 then injects errors but silently no signals.
    command = [STRACE, "-f", "-o", str(tmp_path / "trace"), *wanted]
    command += child_command(tmp_path / "data", tmp_path / "log", 3, "--steps", "5", *options)
    found = subprocess.run(
        command, env=child_environment(), capture_output=True, timeout=START_S, check=False
    )
    if b"ptrace" in found.stderr.lower():
        pytest.skip(f"strace may not trace here: {found.stderr.decode()[:200]}")
    return found


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "data"
    with Index.open(folder) as index:
        documents = [make_document(name, text) for name, text in START.items()]
        commit(index, make_store(index), *documents)
    return folder


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory, template: Path) -> dict[str, int]:
    """How often a child of five steps makes each of the system calls."""
    return counted(tmp_path_factory.mktemp("counts"), template, CALLS)
