"""A real server process with two tenants, a tiny backbone on disk, and a client in this process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx
import openai
import pytest

from rag_api.settings import Settings, settings_from_plain
from tests.rag_api.command_line import clean_environment

KEYS = {"key-of-alice": "alice", "key-of-bob": "bob"}
START_S = 180.0


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def models_dir() -> Path:
    return Path(os.environ.get("GRAFT_MODELS_DIR", "~/.cache/graft/models")).expanduser()


@pytest.fixture(scope="session")
def tiny_backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random llama of one layer with a byte-level tokenizer, saved as a model folder."""
    from backbone import tiny_model

    folder = tmp_path_factory.mktemp("models") / "tiny"
    model = tiny_model(layers=1, context_length=8192)
    model.model.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def plain_settings(tiny_backbone: Path) -> dict[str, Any]:
    """Settings that tests complete with a data folder of their own."""
    return {
        "models_dir": str(models_dir()),
        "profile": "fast",
        "backbone": str(tiny_backbone),
        "threads": 1,
        "worker": False,
        "chunking": {"size": 64, "overlap": 8},
    }


@pytest.fixture
def settings(plain_settings: dict[str, Any], tmp_path: Path) -> Settings:
    return settings_from_plain({**plain_settings, "data_dir": str(tmp_path / "data")})


@dataclass(frozen=True)
class Server:
    """A running server process."""

    url: str
    pid: int
    data_dir: Path
    stderr: Path

    def client(self, key: str = "none", **more: Any) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, **more)

    def http(self, key: str | None = None) -> httpx.Client:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=120)


def environment(data_dir: Path, plain: dict[str, Any], **more: str) -> dict[str, str]:
    """The environment of a process of ours, with these settings."""
    ours = {
        "GRAFT_DATA_DIR": str(data_dir),
        "GRAFT_MODELS_DIR": plain["models_dir"],
        "GRAFT_PROFILE": plain["profile"],
        "GRAFT_BACKBONE": plain["backbone"],
        "GRAFT_THREADS": "1",
        "GRAFT_CHUNKING__SIZE": "64",
        "GRAFT_CHUNKING__OVERLAP": "8",
        "HF_HUB_OFFLINE": "1",
        **more,
    }
    return clean_environment(ours)


def start_server(data_dir: Path, plain: dict[str, Any], **more: str) -> Iterator[Server]:
    """Start `graft serve`, wait until it is ready, end it by its own process id."""
    port = free_port()
    data_dir.mkdir(parents=True, exist_ok=True)
    log = data_dir.parent / f"server-{port}.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "rag_api.cli", "serve", "--port", str(port)],
            env=environment(data_dir, plain, **more),
            stdout=stderr,
            stderr=stderr,
        )
    try:
        server = Server(f"http://127.0.0.1:{port}", process.pid, data_dir, log)
        wait_for_start(server, process)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_start(server: Server, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert process.poll() is None, server.stderr.read_text()
        try:
            report = httpx.get(f"{server.url}/readyz", timeout=5)
        except httpx.TransportError:
            time.sleep(0.2)
            continue
        parts = report.json()["parts"]
        if all(state not in ("starting", "loading", "not running") for state in parts.values()):
            return
        time.sleep(0.2)
    raise AssertionError(f"the server was not ready in {START_S} s: {server.stderr.read_text()}")


@pytest.fixture(scope="session")
def server(
    tmp_path_factory: pytest.TempPathFactory, plain_settings: dict[str, Any]
) -> Iterator[Server]:
    """One server for the whole session, with the keys of two tenants."""
    import json

    data_dir = tmp_path_factory.mktemp("server") / "data"
    yield from start_server(data_dir, plain_settings, GRAFT_API_KEYS=json.dumps(KEYS))


@pytest.fixture(scope="session")
def alice(server: Server) -> Iterator[openai.OpenAI]:
    with server.client("key-of-alice") as client:
        yield client


def wait_until(is_so: Callable[[], Any], *, timeout_s: float = 120.0) -> Any:
    """Poll until something true comes back; fail with the last value."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if value := is_so():
            return value
        time.sleep(0.1)
    raise AssertionError("it did not become true in time")


def ingested(client: openai.OpenAI, store_id: str, file_id: str) -> Any:
    """Wait until a file of a store is no longer in progress."""

    def look() -> Any:
        found = client.vector_stores.files.retrieve(file_id, vector_store_id=store_id)
        return found if found.status != "in_progress" else None

    return wait_until(look)


def put_in(client: openai.OpenAI, store_id: str, name: str, words: str | bytes) -> Any:
    """Upload a text, attach it, wait for it."""
    data = words if isinstance(words, bytes) else words.encode()
    uploaded = client.files.create(file=(name, data), purpose="user_data")
    client.vector_stores.files.create(vector_store_id=store_id, file_id=uploaded.id)
    return ingested(client, store_id, uploaded.id)


def new_store(client: openai.OpenAI, **more: Any) -> Any:
    """Create a store with a name of its own."""
    return client.vector_stores.create(name=f"store-{uuid.uuid4().hex}", **more)


def found_in(client: openai.OpenAI, store_id: str, query: str, **more: Any) -> list[Any]:
    """Search a store."""
    return list(client.vector_stores.search(store_id, query=query, **more))


class Local:
    """The application in this process, without a server or a worker; drives the same routes."""

    def __init__(self, settings: Settings) -> None:
        from rag_api.web.app import create_app

        self.app = create_app(settings)
        self.graft = self.app.state.graft

    def request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://graft") as client:
                return await client.request(method, path, **arguments)

        return anyio.run(call)

    def work(self) -> None:
        """Do all jobs that wait, as a worker does."""
        import threading

        from rag_api.worker import Worker

        worker = Worker(self.graft, threading.Event())
        while worker.run_one():
            continue


@pytest.fixture
def local(settings: Settings) -> Iterator[Local]:
    application = Local(settings)
    yield application
    application.graft.close()
