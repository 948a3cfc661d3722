"""The gates on the source pass on this tree, and each one bites on a planted violation."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

VIOLATIONS = {
    "import pickle": "import pickle\n",
    "from pickle": "from pickle import loads\n",
    "import joblib inside a function": "def f() -> None:\n    import joblib.numpy_pickle\n",
    "torch.load": "import torch\nweights = torch.load('w.pt', weights_only=True)\n",
    "from torch import load": "from torch import load\n",
    "trust_remote_code": "model = load('x', trust_remote_code=True)\n",
    "trust_remote_code by a name": "model = load('x', trust_remote_code=trust)\n",
    "allow_pickle": "import numpy as np\nkeys = np.load('k.npy', allow_pickle=True)\n",
    "eval": "value = eval('1 + 1')\n",
    "exec": "exec('import os')\n",
    "builtins.eval": "import builtins\nvalue = builtins.eval('1')\n",
    "a shell": "import subprocess\nsubprocess.run('ls', shell=True)\n",
    "yaml.load": "import yaml\nyaml.load(text)\n",
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_v3_unsafe_loading_is_caught_where_it_is_planted(gates: ModuleType, name: str) -> None:
    assert gates.unsafe(VIOLATIONS[name], "planted.py"), f"{name} passed the gate"


def test_v3_safe_neighbours_of_unsafe_calls_are_let_through(gates: ModuleType) -> None:
    source = (
        "model.eval()\nload('x', trust_remote_code=False)\nload_file('w.safetensors')\n"
        "np.load('k.npy', allow_pickle=False)\njson.loads(text)\nyaml.safe_load(text)\n"
    )
    assert gates.unsafe(source, "fine.py") == []


def test_v3_no_package_unpickles_evaluates_or_trusts_remote_code(
    gates: ModuleType, root: Path
) -> None:
    files = gates.python_files(root, gates.packages(root))
    assert len(files) > len(gates.packages(root)), "the gate read too few files to mean anything"
    found = [f for p in files for f in gates.unsafe(p.read_text(encoding="utf-8"), p.name)]
    assert not found, "\n".join(map(str, found))


def test_files_and_functions_stay_small_enough_to_read(gates: ModuleType, root: Path) -> None:
    folders = [*gates.packages(root), "benchmarks", "docs", ".ci"]
    found = [
        finding
        for path in gates.python_files(root, folders)
        for finding in gates.too_large(path.read_text(encoding="utf-8"), str(path))
    ]
    assert not found, "\n".join(map(str, found))


def test_a_long_file_and_a_long_function_are_caught(gates: ModuleType) -> None:
    body = "    x = 1\n" * 50
    assert gates.too_large(f"def f():\n{body}", "long.py")
    assert not gates.too_large(f"def f():\n{body[10:]}", "short.py")
    assert gates.too_large("x = 1\n" * 401, "long.py")


def test_no_file_names_a_registry_host_or_a_path_of_one_machine(
    gates: ModuleType, root: Path
) -> None:
    texts = list(gates.tracked_texts(root))
    assert len(texts) > 10, "the gate read too few files to mean anything"
    found = [f for name, text in texts for f in gates.named_places(text, name)]
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize("text", ["https://py" + "pi.org/simple", "open('/ro" + "ot/.cache')"])
def test_a_planted_host_and_a_planted_path_are_caught(gates: ModuleType, text: str) -> None:
    assert gates.named_places(text, "planted.md")


def test_the_gate_script_fails_on_a_tree_with_a_planted_violation(
    gates: ModuleType, tmp_path: Path
) -> None:
    import subprocess

    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.hatch.build.targets.wheel]\npackages = ["index"]\n', encoding="utf-8"
    )
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "sound.py").write_text("import json\n", encoding="utf-8")
    assert gates.main(tmp_path) == 0
    (tmp_path / "index" / "planted.py").write_text("import pickle\n", encoding="utf-8")
    assert gates.main(tmp_path) == 1
