"""What must never happen: foreign data, unread refusals, silent faults, unready answers."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest

from index.errors import (
    Busy,
    Cancelled,
    ConfigError,
    Damaged,
    GraftError,
    StorageFailed,
    TooLarge,
    UnsupportedFormat,
)
from rag_api.services.questions import Answered, Piece
from rag_api.settings import settings_from_plain
from rag_api.web.schemas import ChatRequest
from rag_api.web.streams import EventStream
from tests.rag_api.api_server import Local, Server, put_in

BODY = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}


def routes_with(store: str, file: str, job: str) -> list[tuple[str, str, Any]]:
    base = f"/v1/vector_stores/{store}"
    chat = {**BODY, "retrieval": {"vector_store_ids": [store], "mode": "rag"}}
    return [
        ("GET", f"/v1/files/{file}", None),
        ("GET", f"/v1/files/{file}/content", None),
        ("DELETE", f"/v1/files/{file}", None),
        ("GET", base, None),
        ("POST", base, {"name": "new"}),
        ("DELETE", base, None),
        ("POST", f"{base}/search", {"query": "x"}),
        ("POST", f"{base}/files", {"file_id": file}),
        ("GET", f"{base}/files", None),
        ("GET", f"{base}/files/{file}", None),
        ("GET", f"{base}/files/{file}/content", None),
        ("DELETE", f"{base}/files/{file}", None),
        ("POST", f"{base}/file_batches", {"file_ids": [file]}),
        ("GET", f"{base}/file_batches/vsfb_{job}", None),
        ("PUT", f"{base}/documents/a.md", None),
        ("GET", f"{base}/documents", None),
        ("POST", f"{base}/documents/delete", {"documents": ["a.md"]}),
        ("GET", f"{base}/documents/a.md", None),
        ("DELETE", f"{base}/documents/a.md", None),
        ("GET", f"{base}/texts/a.md", None),
        ("GET", f"{base}/memory", None),
        ("POST", f"{base}/memory", None),
        ("GET", f"/v1/jobs/{job}", None),
        ("POST", f"/v1/jobs/{job}/cancel", None),
        ("POST", "/v1/chat/completions", chat),
    ]


def test_v2_foreign_ids_answer_byte_for_byte_like_unknown_ones(
    server: Server, alice: openai.OpenAI
) -> None:
    store = alice.vector_stores.create(name=uuid.uuid4().hex)
    file = put_in(alice, store.id, "a.md", "Only for Alice.")
    with server.http("key-of-alice") as http:
        params = {"vector_store_id": store.id}
        job = http.get("/v1/jobs", params=params).json()["data"][0]["id"]
    unknown = [each[:-6] + "000000" for each in (store.id, file.id, job)]
    with server.http("key-of-bob") as http:
        foreign = routes_with(store.id, file.id, job)
        for (method, path, body), (_, other, other_body) in zip(
            foreign, routes_with(*unknown), strict=True
        ):
            reply = http.request(method, path, json=body)
            expected = http.request(method, other, json=other_body)
            assert reply.status_code == expected.status_code == 404, path
            text = reply.text
            for theirs, none in zip((store.id, file.id, job), unknown, strict=True):
                text = text.replace(theirs, none)
            assert text == expected.text, path
        assert store.id not in http.get("/v1/vector_stores").text
        assert file.id not in http.get("/v1/files").text
    assert alice.vector_stores.retrieve(store.id).file_counts.completed == 1


def test_health_needs_no_key_and_everything_else_does(server: Server) -> None:
    with server.http() as http:
        assert http.get("/healthz").json() == {"status": "ok"}
        assert http.get("/readyz").status_code == 200
        assert http.get("/v1/models").status_code == 401


class Failing:
    """An answer whose engine breaks after five tokens."""

    num_passages = None

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.is_cancelled = False

    def __iter__(self) -> Iterator[Piece]:
        for number in range(5):
            yield Piece(f"t{number} ")
        raise self.error

    def cancel(self) -> None:
        self.is_cancelled = True

    def finish(self) -> Answered:
        raise self.error


@pytest.mark.parametrize(
    ("error", "code"), [(Busy("too much"), "busy"), (RuntimeError("secret"), "internal_error")]
)
def test_v1_a_fault_after_five_tokens_is_an_error_event_and_no_clean_end(
    error: Exception, code: str
) -> None:
    sent: list[Any] = []

    async def run() -> None:
        async def receive() -> Any:
            await asyncio.sleep(60)

        async def send(message: Any) -> None:
            sent.append(message)

        stream = EventStream(Failing(error), ChatRequest.model_validate({**BODY, "stream": True}))
        await stream({"type": "http"}, receive, send)

    asyncio.run(run())
    events = b"".join(m.get("body", b"") for m in sent).decode().strip().split("\n\n")
    assert sum("t4 " in event for event in events) == 1
    last = json.loads(events[-1].removeprefix("data: "))
    assert last["error"]["code"] == code
    assert "secret" not in events[-1]
    assert "[DONE]" not in events


def embedder_folder(folder: Path, dimension: int, seed: int) -> Path:
    """A static embedder of random vectors, saved as a model folder."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    from backbone import tiny_model

    tokenizer = tiny_model().tokenizer.backend_tokenizer
    torch.manual_seed(seed)
    module = StaticEmbedding(tokenizer, embedding_dim=dimension)
    SentenceTransformer(modules=[module], device="cpu").save(str(folder))
    return folder


@pytest.mark.parametrize("dimension", [32, 16])
def test_m1_m2_another_embedder_is_refused_and_the_store_goes_on_answering(
    tmp_path: Path, plain_settings: dict[str, Any], dimension: int
) -> None:
    plain = {**plain_settings, "data_dir": str(tmp_path / "data")}
    first = embedder_folder(tmp_path / "first", 32, seed=1)
    other = embedder_folder(tmp_path / "other", dimension, seed=2)
    old = Local(settings_from_plain({**plain, "embedder": str(first)}))
    store = old.request("POST", "/v1/vector_stores", json={"name": "s"}).json()["id"]
    files = {"file": ("a.md", b"Ten litres a minute.")}
    file = old.request("POST", "/v1/files", files=files).json()["id"]
    old.request("POST", f"/v1/vector_stores/{store}/files", json={"file_id": file})
    old.work()
    search = f"/v1/vector_stores/{store}/search"
    before = old.request("POST", search, json={"query": "litres"}).json()["data"]
    assert before
    old.graft.close()
    new = Local(settings_from_plain({**plain, "embedder": str(other)}))
    path = f"/v1/vector_stores/{store}/files"
    refused = new.request("POST", path, json={"file_id": file})
    assert refused.status_code == 409
    assert refused.headers["x-should-retry"] == "false"
    assert "graft reindex --store s" in refused.json()["detail"]
    assert refused.json()["code"] == refused.json()["error"]["code"] == "fingerprint_mismatch"
    assert new.request("POST", search, json={"query": "litres"}).json()["data"] == before
    made = new.graft.documents.reindex(new.graft.stores.get("s", tenant="default"))
    assert (made.name, made.dimension) == ("s", dimension)
    assert new.graft.searches.search("litres", ["s"], tenant="default", wish=_wish())
    new.graft.close()


def _wish() -> Any:
    from rag_api.services.questions import SearchWish

    return SearchWish()


@pytest.mark.parametrize("name", ["cross-encoder:no-such-model", "magic", "cross-encoder:"])
def test_s5_a_configured_reranker_that_is_missing_fails_the_start(
    tmp_path: Path, plain_settings: dict[str, Any], name: str
) -> None:
    plain = {**plain_settings, "data_dir": str(tmp_path / "data"), "reranker": name}
    application = Local(settings_from_plain(plain))

    async def start() -> None:
        async with application.app.router.lifespan_context(application.app):
            raise AssertionError("it started")

    with pytest.raises(ConfigError, match=name):
        asyncio.run(start())
    application.graft.close()


def test_v3_a_flipped_byte_makes_the_server_unready_and_its_log_says_where(
    local: Local, caplog: pytest.LogCaptureFixture
) -> None:
    """What anybody may read names no document and no path; the log and `graft doctor` do."""
    from rag_api.web.readiness import Readiness

    store = local.request("POST", "/v1/vector_stores", json={"name": "s"}).json()["id"]
    files = {"file": ("a.md", b"Ten litres a minute.")}
    file = local.request("POST", "/v1/files", files=files).json()["id"]
    local.request("POST", f"/v1/vector_stores/{store}/files", json={"file_id": file})
    local.work()
    local.graft.close()
    data_dir = local.graft.settings.data_dir
    segments = [path for path in (data_dir / "segments").rglob("*") if path.is_file()]
    for path in segments:
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        path.write_bytes(damaged)
    assert segments
    readiness = Readiness(local.graft, None)
    local.app.state.readiness = readiness
    with caplog.at_level("ERROR", logger="graft.web"):
        readiness.start()
        readiness.stop()
    report = local.request("GET", "/readyz")
    assert report.status_code == 503
    found = f"damaged: {len(segments)} finding(s); run `graft doctor`"
    assert report.json()["parts"]["data"] == found
    assert "a.md" not in report.text
    assert str(data_dir) not in report.text
    assert "a.md" in caplog.text
    assert segments[0].name in caplog.text
    reply = local.request("POST", f"/v1/vector_stores/{store}/search", json={"query": "litres"})
    assert reply.status_code == 503
    assert reply.json()["code"] == "damaged"


def test_v3_damage_that_a_request_meets_is_reported_and_its_repair_too(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rag_api.web import readiness as module

    monkeypatch.setattr(module, "RETRY_S", 0.2)
    store = local.request("POST", "/v1/vector_stores", json={"name": "s"}).json()["id"]
    files = {"file": ("a.md", b"Ten litres a minute.")}
    file = local.request("POST", "/v1/files", files=files).json()["id"]
    local.request("POST", f"/v1/vector_stores/{store}/files", json={"file_id": file})
    local.work()
    readiness = module.Readiness(local.graft, None)
    local.app.state.readiness = readiness
    readiness.start()

    def data_is(wanted: str) -> bool:
        until = time.monotonic() + 20
        while time.monotonic() < until:
            if readiness.report()[1]["parts"]["data"].startswith(wanted):
                return True
            time.sleep(0.05)
        return False

    try:
        assert data_is("ok")
        local.graft.close()  # what is in memory would go on answering
        [path] = (local.graft.settings.data_dir / "segments").glob("vectors-*")
        whole = path.read_bytes()
        path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
        found = local.request("POST", f"/v1/vector_stores/{store}/search", json={"query": "litres"})
        assert found.status_code == 503
        assert data_is("damaged")
        path.write_bytes(whole)
        assert data_is("ok")
    finally:
        readiness.stop()


def test_readiness_names_no_path_of_a_model_that_is_missing(
    tmp_path: Path, plain_settings: dict[str, Any]
) -> None:
    from rag_api.web.readiness import Readiness

    gone = tmp_path / "secret-folder" / "model"
    plain = {**plain_settings, "data_dir": str(tmp_path / "data"), "backbone": str(gone)}
    local = Local(settings_from_plain(plain))
    readiness = Readiness(local.graft, None)
    readiness.start()
    readiness.stop()
    is_ready, body = readiness.report()
    local.graft.close()
    assert not is_ready
    assert body["parts"]["data"] == body["parts"]["embedder"] == "ok"
    assert body["parts"]["backbone"].startswith("not ready")
    assert "secret-folder" not in str(body)


def test_m6_the_server_and_its_worker_open_no_outside_socket(
    server: Server, alice: openai.OpenAI
) -> None:
    alice.chat.completions.create(model="tiny", messages=BODY["messages"], max_tokens=1)
    parent = psutil.Process(server.pid)
    for process in [parent, *parent.children(recursive=True)]:
        for connection in process.net_connections(kind="inet"):
            addresses = [connection.laddr.ip, *([connection.raddr.ip] if connection.raddr else [])]
            assert set(addresses) <= {"127.0.0.1", "::1"}


def test_m4_health_answers_quickly_while_a_large_document_is_ingested(
    server: Server, alice: openai.OpenAI
) -> None:
    import time

    store = alice.vector_stores.create(name=uuid.uuid4().hex)
    words = "".join(f"Line {i} of the long report says {i * 7}.\n\n" for i in range(40_000))
    file = alice.files.create(file=("long.txt", words.encode()), purpose="user_data")
    alice.vector_stores.files.create(vector_store_id=store.id, file_id=file.id)
    times = []
    with server.http() as http:
        for _ in range(100):
            started = time.perf_counter()
            assert http.get("/healthz").status_code == 200
            times.append(time.perf_counter() - started)
            time.sleep(0.02)
    state = alice.vector_stores.files.retrieve(file.id, vector_store_id=store.id).status
    alice.vector_stores.delete(store.id)
    assert state == "in_progress"  # else the figures say nothing
    times.sort()
    print(f"healthz p50 {times[50] * 1e3:.1f} ms, p99 {times[98] * 1e3:.1f} ms", file=sys.stderr)
    assert times[98] < 0.1


def test_every_error_of_graft_has_its_row_in_the_table() -> None:
    from index import errors
    from rag_api.web.problems import TABLE

    defined = {
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, GraftError) and each is not GraftError
    }
    assert defined == set(TABLE)


@pytest.mark.parametrize(
    ("error", "status"),
    [(StorageFailed("full"), 507), (TooLarge("much"), 413), (Damaged("byte"), 503),
     (UnsupportedFormat("zip"), 415), (Cancelled("gone"), 499), (Busy("later"), 503)],
)  # fmt: skip
def test_an_error_has_the_status_of_its_row(error: GraftError, status: int) -> None:
    from rag_api.web.problems import problem_of

    body = problem_of(error)
    assert body["status"] == status
    assert body["code"] == body["error"]["code"] == error.code


def test_a_full_disk_is_a_507_and_nothing_is_kept(local: Local) -> None:
    local.request("GET", "/v1/files")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:  # a file-size limit stands in for a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, limits[1]))
        reply = local.request("POST", "/v1/files", files={"file": ("a.bin", b"x" * 800_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, old)
    assert (reply.status_code, reply.json()["code"]) == (507, "storage_failed")
    assert reply.headers["x-should-retry"] == "false"
    assert local.request("GET", "/v1/files").json()["data"] == []
    reply = local.request("POST", "/v1/files", files={"file": ("a.bin", b"x" * 800_000)})
    assert reply.status_code == 200
