"""Judge a data folder after a crash against the log of what was acknowledged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from index import Index
from tests.store.making import BACKBONE, assert_serves, make_memory

ROOT = Path(__file__).resolve().parents[2]
CHILD = Path(__file__).with_name("crash_child.py")
START_S = 120
"""How long a child may take on a busy machine."""


def child_command(folder: Path, log: Path, seed: int, *options: str) -> list[str]:
    return [sys.executable, str(CHILD), str(folder), str(log), str(seed), *options]


def child_environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def run_and_kill(folder: Path, log: Path, seed: int, delay_s: float) -> None:
    """Start a child and SIGKILL it `delay_s` after its first operation began."""
    child = subprocess.Popen(
        child_command(folder, log, seed), env=child_environment(), stderr=subprocess.PIPE
    )
    try:
        deadline = time.monotonic() + START_S
        while not (log.exists() and log.stat().st_size) and child.poll() is None:
            assert time.monotonic() < deadline, f"no operation began within {START_S} s"
            time.sleep(0.002)
        time.sleep(delay_s)
    finally:
        child.send_signal(signal.SIGKILL)
        _, errors = child.communicate()
    assert child.returncode == -signal.SIGKILL, errors.decode()


def run_to_death(folder: Path, log: Path, seed: int, *options: str) -> None:
    """Let a child run until it kills itself at its `--die` moment."""
    child = subprocess.run(
        child_command(folder, log, seed, *options),
        env=child_environment(),
        capture_output=True,
        timeout=START_S,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr.decode()


def possible_states(log: Path, start: dict[str, str]) -> list[dict[str, str]]:
    """Give the states that the log allows: with and without the operation that was cut short."""
    state, pending = dict(start), None
    for line in log.read_text().splitlines() if log.exists() else []:
        word, _, rest = line.partition(" ")
        operation = json.loads(rest)
        if word == "done":
            state, pending = applied(state, operation), None
        elif word == "failed":
            pending = None
        else:
            pending = operation
    return [state] if pending is None else [state, applied(state, pending)]


def applied(state: dict[str, str], operation: dict) -> dict[str, str]:
    if "put" in operation:
        return state | operation["put"]
    return {name: text for name, text in state.items() if name not in operation["delete"]}


def judge(folder: Path, log: Path, start: dict[str, str]) -> dict[str, str]:
    """Reopen after a crash: all that was acknowledged is there, nothing is half there."""
    with Index.open(folder) as index:
        findings = index.check()
        assert findings == [], findings
        if not index.list_stores(tenant="t"):
            assert possible_states(log, start)[0] == {}
            return {}
        store = index.get_store("s", tenant="t")
        found = {d.name: index.text_of(d) for d in index.list_documents(store.id)}
        assert found in possible_states(log, start)
        assert_serves(index, store, found)
        memory = index.memory(store.id, BACKBONE)
        for number, document in enumerate(memory.documents):
            mine = memory.document_of == number
            expected = make_memory(found[document.name])
            np.testing.assert_array_equal(memory.keys[mine], expected.keys)
            np.testing.assert_array_equal(memory.values[mine], expected.tokens[1:])
    return found
