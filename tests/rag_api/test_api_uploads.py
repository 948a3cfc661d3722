"""Uploads: names that are no paths, limits before reading, files that cannot be ingested."""

from __future__ import annotations

import ctypes
import io
import socket
import uuid
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pypdfium2
import pypdfium2.raw as pdfium
import pytest

from rag_api.settings import settings_from_plain
from tests.rag_api.api_server import Local, Server, found_in, new_store, put_in, wait_until


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
    store = new_store(alice)
    with server.http("key-of-alice") as http:
        for name in (b"a\x00b", b"a\nb", b"y" * 1025):
            head = b'--b\r\ncontent-disposition: form-data; name="file"; filename="%b"\r\n\r\n'
            body = head % name + b"x\r\n--b--\r\n"
            headers = {"content-type": "multipart/form-data; boundary=b"}
            assert http.post("/v1/files", content=body, headers=headers).status_code in (400, 422)
        for name in (b"a%00b", b"a%0Ab", b"y" * 1025):
            path = f"/v1/vector_stores/{store.id}/documents/{name.decode()}"
            reply = http.put(path, content=b"x")
            assert reply.status_code in (404, 422), name  # 404: a route takes no line break
        assert http.get(f"/v1/vector_stores/{store.id}/files").json()["data"] == []


def refusal(server: Server, head: str, first: bytes) -> bytes:
    """Send a request's head and only the first bytes of its body; give what comes back."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + first)
        reply = b""
        while block := connection.recv(65536):  # until the server closes: it reads no further
            reply += block
    return reply


UPLOADS = ("POST /v1/files", "PUT /v1/vector_stores/vs_x/documents/a.md")


@pytest.mark.parametrize("start", UPLOADS)
def test_p5_an_upload_above_the_limit_is_refused_before_it_is_read(
    server: Server, start: str
) -> None:
    reply = refusal(
        server,
        f"{start} HTTP/1.1\nhost: x\nauthorization: Bearer key-of-alice\n"
        "content-type: multipart/form-data; boundary=b\ncontent-length: 600000000",
        b"x" * 1000,
    )
    assert reply.startswith(b"HTTP/1.1 413")
    assert b'"code": "too_large"' in reply
    assert b"x-should-retry: false" in reply.lower()


@pytest.mark.parametrize("start", UPLOADS)
@pytest.mark.parametrize("key", ["", "authorization: Bearer wrong\n"])
def test_an_upload_without_a_key_is_refused_before_its_body_is_read(
    server: Server, start: str, key: str
) -> None:
    reply = refusal(
        server,
        f"{start} HTTP/1.1\nhost: x\n{key}"
        "content-type: multipart/form-data; boundary=b\ncontent-length: 100000000",
        b"x" * 1000,
    )
    assert reply.startswith(b"HTTP/1.1 401")
    assert b"invalid_api_key" in reply


@pytest.mark.parametrize("start", UPLOADS)
def test_p5_an_upload_of_unknown_length_is_cut_off_at_the_limit(
    tmp_path: Path, plain_settings: dict[str, Any], start: str
) -> None:
    limits = {"upload_bytes": 100_000}
    plain = {**plain_settings, "data_dir": str(tmp_path / "data"), "limits": limits}
    small = Local(settings_from_plain(plain))
    made = small.request("POST", "/v1/vector_stores", json={"name": "s"}).json()["id"]
    sent = 0

    async def blocks() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
        for _ in range(1000):
            sent += 10_000
            yield b"x" * 10_000

    method, path = start.replace("vs_x", made).split(" ")
    headers = {"content-type": "multipart/form-data; boundary=b"}
    reply = small.request(method, path, content=blocks(), headers=headers)
    assert (reply.status_code, reply.json()["code"]) == (413, "too_large")
    assert sent <= 200_000
    assert not list((tmp_path / "data" / "blobs").iterdir())
    small.graft.close()


def test_p5_a_large_upload_is_streamed_with_bounded_memory(
    server: Server, alice: openai.OpenAI
) -> None:
    block = uuid.uuid4().bytes * (1 << 12)
    num_bytes = 120 * (1 << 20)

    def body() -> Iterator[bytes]:
        yield b'--b\r\ncontent-disposition: form-data; name="file"; filename="big.bin"\r\n\r\n'
        for _ in range(num_bytes // len(block)):
            yield block
        yield b"\r\n--b--\r\n"

    def peak() -> int:
        status = Path(f"/proc/{server.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    Path(f"/proc/{server.pid}/clear_refs").write_text("5")  # the peak is measured from here
    before = peak()
    with server.http("key-of-alice") as http:
        headers = {"content-type": "multipart/form-data; boundary=b"}
        made = http.post("/v1/files", content=body(), headers=headers).json()
    assert made["bytes"] == num_bytes
    assert peak() - before < 32 * (1 << 20)
    alice.files.delete(made["id"])


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


def test_j5_a_half_readable_pdf_says_which_pages_are_missing(
    server: Server, alice: openai.OpenAI
) -> None:
    store = new_store(alice)
    done = put_in(alice, store.id, "half.pdf", half_pictures())
    assert done.status == "completed"
    assert done.graft["coverage"] == 0.5
    assert "pages 2, 4, 6, 8, 10 of 10" in done.graft["warnings"][0]
    hits = found_in(alice, store.id, "the words of a page", max_num_results=50)
    pages = {hit.graft["page"] for hit in hits}
    assert {1} < pages <= {1, 3, 5, 7, 9}
    with server.http("key-of-alice") as http:
        shown = http.get(f"/v1/vector_stores/{store.id}/documents/half.pdf").json()
    assert (shown["coverage"], shown["pages"]) == (0.5, 10)


def half_pictures() -> bytes:
    """Make a PDF of five pages of text and five pages of pictures, by turns."""
    document = pypdfium2.PdfDocument.new()
    font = pdfium.FPDFText_LoadStandardFont(document.raw, b"Helvetica")
    for number in range(1, 11):
        page = document.new_page(595, 842)
        if number % 2:
            thing = pdfium.FPDFPageObj_CreateTextObj(document.raw, font, 12.0)
            words = f"These are the words of page {number}, " + "with more of them " * 5
            data = words.encode("utf-16-le") + b"\0\0"
            buffer = ctypes.cast(ctypes.c_char_p(data), ctypes.POINTER(ctypes.c_ushort))
            pdfium.FPDFText_SetText(thing, buffer)
            pdfium.FPDFPageObj_Transform(thing, 1, 0, 0, 1, 50, 700)
            pdfium.FPDFPage_InsertObject(page.raw, thing)
        else:
            image = pypdfium2.PdfImage.new(document)
            image.set_bitmap(pypdfium2.PdfBitmap.new_native(8, 8, pdfium.FPDFBitmap_BGR))
            image.set_matrix(pypdfium2.PdfMatrix().scale(300, 300))
            page.insert_obj(image)
        page.gen_content()
    written = io.BytesIO()
    document.save(written)
    document.close()
    return written.getvalue()


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
