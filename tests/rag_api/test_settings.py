"""Settings: precedence, bounds, unknown keys with their path, masked secrets (V6)."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.errors import ConfigError
from rag_api.settings import Settings, load_settings, settings_from_plain

SECRET = "sk-very-secret-0123456789"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("GRAFT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GRAFT_DATA_DIR", str(tmp_path))


def write(folder: Path, text: str) -> None:
    (folder / "graft.toml").write_text(text, encoding="utf-8")


def test_overrides_beat_variables_beat_the_file_beat_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "port = 1\nbackbone = 'from-file'\nhost = 'h'\n[knn]\nlambda = 0.1\nk = 7\n")
    monkeypatch.setenv("GRAFT_PORT", "2")
    monkeypatch.setenv("GRAFT_KNN__LAMBDA", "0.2")
    settings = load_settings(host="override")
    assert (settings.host, settings.port, settings.backbone) == ("override", 2, "from-file")
    assert (settings.knn.lam, settings.knn.k) == (0.2, 7)
    assert settings.retrieval.k == 5


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("prot = 1", "prot"),
        ("[knn]\nlamda = 0.5", "knn.lamda"),
        ("[limits]\nupload_byte = 5", "limits.upload_byte"),
    ],
)
def test_v6_an_unknown_key_is_an_error_with_its_path(tmp_path: Path, text: str, path: str) -> None:
    write(tmp_path, text)
    with pytest.raises(ConfigError, match=f"{path}: unknown key.*graft.toml"):
        load_settings()


def test_v6_an_unknown_variable_is_an_error_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFT_PROT", "1")
    with pytest.raises(ConfigError, match="GRAFT_PROT"):
        load_settings()
    monkeypatch.delenv("GRAFT_PROT")
    monkeypatch.setenv("GRAFT_KNN__LAMDA", "1")
    with pytest.raises(ConfigError, match=r"knn\.LAMDA|knn\.lamda"):
        load_settings()


def test_v6_no_way_of_showing_settings_shows_a_key(tmp_path: Path) -> None:
    write(tmp_path, f'[api_keys]\n"{SECRET}" = "alice"\n')
    settings = load_settings()
    shown = [
        repr(settings),
        str(settings),
        json.dumps(settings.shown()),
        settings.model_dump_json(),
    ]
    shown += [json.dumps(settings.for_worker()), repr(settings.key_digests())]
    assert all(SECRET not in text for text in shown)
    assert "alice" in json.dumps(settings.shown())


def test_v6_an_error_about_a_key_does_not_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, f'[api_keys]\n"{SECRET}" = 5\n')
    with pytest.raises(ConfigError, match="api_keys") as caught:
        load_settings()
    assert SECRET not in str(caught.value)
    write(tmp_path, "")
    monkeypatch.setenv("GRAFT_API_KEYS", f'{{"{SECRET}": ')
    with pytest.raises(ConfigError) as caught:
        load_settings()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "port = 70000",
        "[knn]\nlambda = 1.5",
        "[chunking]\nsize = 64\noverlap = 64",
        "[generation]\nmax_tokens = 0",
        "profile = 'quick'",
        "port = ",
    ],
)
def test_a_value_out_of_bounds_is_refused(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    with pytest.raises(ConfigError):
        load_settings()


def test_a_settings_file_that_is_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_settings(tmp_path / "other.toml")


@given(
    port=st.integers(0, 65_535),
    lam=st.floats(0, 1),
    overlap=st.integers(0, 30),
    embedder=st.none() | st.text(min_size=1, max_size=20),
)
def test_what_a_worker_is_sent_gives_the_same_settings(
    port: int, lam: float, overlap: int, embedder: str | None
) -> None:
    plain: dict[str, Any] = {
        "port": port,
        "knn": {"lambda": lam},
        "chunking": {"size": 64, "overlap": overlap},
        "embedder": embedder,
    }
    settings = settings_from_plain(plain)
    assert settings_from_plain(json.loads(json.dumps(settings.for_worker()))) == settings


def test_the_defaults_are_those_that_the_packages_measured() -> None:
    from ingestion import ChunkSettings
    from knn_lm import KnnSettings
    from retriever import RetrievalSettings

    settings = Settings()
    for ours, theirs in (
        (settings.retrieval, RetrievalSettings()),
        (settings.chunking, ChunkSettings()),
        (settings.knn, KnnSettings()),
    ):
        shared = {f.name for f in fields(theirs)} & set(type(ours).model_fields)
        assert len(shared) >= 3
        assert {n: getattr(ours, n) for n in shared} == {n: getattr(theirs, n) for n in shared}


def test_keys_are_known_by_their_hash_and_may_be_given_as_one() -> None:
    given_plain = Settings.model_validate({"api_keys": {SECRET: "alice"}})
    (digest,) = given_plain.key_digests()
    given_hashed = Settings.model_validate({"api_keys": {f"sha256:{digest}": "alice"}})
    assert given_hashed.key_digests() == given_plain.key_digests() == {digest: "alice"}


def test_importing_the_command_line_loads_no_torch_and_reads_no_variable() -> None:
    code = (
        "import os, sys\n"
        "os.environ['GRAFT_NO_SUCH_SETTING'] = '1'\n"
        "import rag_api.cli, rag_api.web.app\n"
        "print(sorted({'torch', 'transformers', 'faiss'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "torch" not in done.stdout
    assert "transformers" not in done.stdout
