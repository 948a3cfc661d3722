"""The package's surface, and what importing it does not do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import backbone
from backbone import threads

ROOT = Path(__file__).resolve().parents[2]


def test_every_public_name_is_there() -> None:
    assert sorted(backbone.__all__, key=str.lower) == sorted(backbone._HOMES, key=str.lower)
    for name in backbone.__all__:
        assert getattr(backbone, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        backbone.no_such_name  # noqa: B018


def test_importing_the_package_sets_passive_waiting_and_loads_no_torch() -> None:
    script = (
        "import os, sys, json\n"
        "for name in list(os.environ):\n"
        "    if name.startswith('OMP'): del os.environ[name]\n"
        "import backbone\n"
        "print(json.dumps([os.environ.get('OMP_WAIT_POLICY'), 'torch' in sys.modules]))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert json.loads(answer.stdout) == ["PASSIVE", False]


def test_a_users_own_waiting_policy_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    threads.wait_passively()
    import os

    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    assert os.environ["GOMP_SPINCOUNT"] == "0"


def test_threads_are_pinned_to_one_unless_asked() -> None:
    import torch

    assert threads.pin(2) == 2
    assert torch.get_num_threads() == 2
    assert threads.pin() == 1
    assert torch.get_num_threads() == 1
