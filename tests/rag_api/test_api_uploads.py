"""Uploads: names that are no paths, limits before reading, files that cannot be ingested."""

from __future__ import annotations

import io
import uuid
import zipfile
from typing import Any

import httpx
import openai
import pytest

from tests.rag_api.api_server import (
    Server,
    new_store,
    put_in,
    wait_until,
)


def test_hostile_names_never_become_paths(server: Server, alice: openai.OpenAI) -> None:
    hostile = [
        "../../etc/passwd", "/etc/passwd", "..", ".", "a/../../b", "C:\\x", "a\\..\\b", "~",
        "$(id)", "`id`", "a;b", "con", "nul.txt", "%2e%2e%2f", "x" * 1000, "é\u202e.md", "-rf",
    ]  # fmt: skip
    outside = server.data_dir.parent
    before = set(outside.iterdir())
    for name in hostile:
        made = alice.files.create(file=(name, b"harmless"), purpose="user_data")
        assert alice.files.content(made.id).read() == b"harmless"
    assert set(outside.iterdir()) == before
    assert not list(server.data_dir.rglob("*passwd*"))
    with server.http("key-of-alice") as http:
        for name in ("a\x00b", "a\nb", "y" * 1025):
            files = {"file": (name, b"x")}
            assert http.post("/v1/files", files=files).status_code in (400, 422)


def test_an_upload_above_the_limit_is_refused_before_it_is_read(server: Server) -> None:
    with httpx.Client(base_url=server.url) as http:
        headers = {
            "authorization": "Bearer key-of-alice",
            "content-length": str(10**12),
            "content-type": "application/octet-stream",
        }
        request = http.build_request("POST", "/v1/files", headers=headers, content=iter([b"x"]))
        reply = http.send(request)
        assert reply.status_code == 413
        assert reply.json()["code"] == "too_large"
        assert reply.headers["x-should-retry"] == "false"


def test_r7_duplicates_do_not_let_the_blob_folder_grow(
    server: Server, alice: openai.OpenAI
) -> None:
    words = uuid.uuid4().bytes * 50_000
    alice.files.create(file=("blob.bin", words), purpose="user_data")

    def used() -> int:
        blobs = server.data_dir / "blobs"
        assert blobs.is_dir()
        return sum(path.stat().st_size for path in blobs.rglob("*") if path.is_file())

    before = used()
    for _ in range(10):
        alice.files.create(file=("blob.bin", words), purpose="user_data")
    assert used() == before


def test_j4_a_file_without_text_fails_with_the_reason(alice: openai.OpenAI) -> None:
    store = new_store(alice)
    done = put_in(alice, store.id, "empty.txt", b"   \n ")
    assert done.status == "failed"
    assert done.last_error.code == "invalid_file"
    assert done.last_error.message
    assert alice.vector_stores.retrieve(store.id).file_counts.failed == 1


def test_p2_a_text_file_that_holds_a_zip_fails_as_unsupported(alice: openai.OpenAI) -> None:
    store = new_store(alice)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("inside.txt", "words " * 50)
    done = put_in(alice, store.id, "x.txt", packed.getvalue())
    assert (done.status, done.last_error.code) == ("failed", "unsupported_file")


def test_p4_an_overlap_as_large_as_the_chunk_is_refused(alice: openai.OpenAI) -> None:
    static = {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 100}
    strategy: Any = {"type": "static", "static": static}
    with pytest.raises(openai.UnprocessableEntityError, match="overlap"):
        new_store(alice, chunking_strategy=strategy)


def test_raw_bytes_go_up_by_put_and_come_back_as_text(server: Server) -> None:
    with server.http("key-of-alice") as http:
        made = http.post("/v1/vector_stores", json={"name": uuid.uuid4().hex}).json()
        base = f"/v1/vector_stores/{made['id']}"
        name = "folder/raw page.md"
        reply = http.put(f"{base}/documents/{name}", content=b"Raw bytes.\nSecond.")
        assert reply.status_code == 202
        wait_until(lambda: http.get(f"{base}/documents/{name}").status_code == 200)
        text = http.get(f"{base}/texts/{name}")
        assert text.content.decode() == "Raw bytes.\nSecond."
        assert http.delete(f"{base}/documents/{name}").json()["deleted"]
        assert http.get(f"{base}/documents/{name}").status_code == 404
        assert reply.json()["id"] not in [f["id"] for f in http.get("/v1/files").json()["data"]]
