"""The bytes of versions that were replaced or deleted are gone; files uploaded as such stay."""

from __future__ import annotations

from pathlib import Path

from rag_api.settings import Settings
from tests.rag_api.api_server import Local
from tests.rag_api.test_deletes_against_jobs import attach, new_store, upload

FIRST, SECOND = b"# P\n\nThe secret limit is 10.", b"# P\n\nThe limit is 20."


def blobs(settings: Settings) -> set[bytes]:
    return {path.read_bytes() for path in (Path(settings.data_dir) / "blobs").iterdir()}


def files(app: Local) -> list[str]:
    return [each["filename"] for each in app.request("GET", "/v1/files").json()["data"]]


def test_bytes_of_a_document_go_when_it_is_replaced_and_when_it_is_deleted(
    local: Local, settings: Settings
) -> None:
    path = f"/v1/vector_stores/{new_store(local)}/documents/p.md"
    for words in (FIRST, SECOND):
        assert local.request("PUT", path, content=words).status_code == 202
        local.work()
        assert blobs(settings) == {words}
        assert files(local) == ["p.md"]
    assert local.request("DELETE", path).json()["deleted"] is True
    assert (blobs(settings), files(local)) == (set(), [])


def test_an_uploaded_file_stays_when_its_document_is_replaced(
    local: Local, settings: Settings
) -> None:
    store = new_store(local)
    path = f"/v1/vector_stores/{store}/documents/p.md"
    local.request("PUT", path, content=FIRST)
    attach(local, store, upload(local, "p.md", FIRST.decode()))  # the same bytes, as a file now
    local.work()
    local.request("PUT", path, content=SECOND)
    local.work()
    assert blobs(settings) == {FIRST, SECOND}
    assert files(local) == ["p.md", "p.md"]


def test_what_a_crash_left_of_an_earlier_version_goes_with_the_document(
    local: Local, settings: Settings
) -> None:
    path = f"/v1/vector_stores/{new_store(local)}/documents/p.md"
    local.graft.files.of_document("p.md", FIRST, tenant="default")
    local.request("PUT", path, content=SECOND)
    local.work()
    assert blobs(settings) == {FIRST, SECOND}
    local.request("DELETE", path)
    assert (blobs(settings), files(local)) == (set(), [])
