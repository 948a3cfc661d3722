"""Deletes in one process and after a restart (D1), and against an ingestion that is running."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from index.errors import NotFound
from ingestion import SourceFile
from rag_api.settings import Settings
from tests.rag_api.api_server import Local, wait_until

SECRET = "The quixotic heron nests in Bellwether Lane."
OTHER = "Tea is poured at four in the old kitchen of the mill."


def upload(app: Local, name: str, words: str) -> str:
    files = {"file": (name, words.encode())}
    return str(app.request("POST", "/v1/files", files=files).json()["id"])


def new_store(app: Local) -> str:
    return str(app.request("POST", "/v1/vector_stores", json={"name": "s"}).json()["id"])


def attach(app: Local, store: str, *files: str) -> str:
    """Put files into the store as one job; give the job's id."""
    path = f"/v1/vector_stores/{store}/file_batches"
    reply = app.request("POST", path, json={"file_ids": list(files)})
    return str(reply.json()["graft"]["job_id"])


def documents(app: Local, store: str) -> set[str]:
    listed = app.request("GET", f"/v1/vector_stores/{store}/documents?limit=100").json()["data"]
    return {each["document"] for each in listed}


def ask(app: Local, store: str, question: str, mode: str) -> Any:
    body = {"model": "tiny", "messages": [{"role": "user", "content": question}], "max_tokens": 4,
            "retrieval": {"vector_store_ids": [store], "mode": mode},
            "knn": {"lambda": 0.9, "k": 128}, "include": ["tokens", "passages"]}  # fmt: skip
    reply = app.request("POST", "/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def ways_that_find(app: Local, store: str, name: str, words: str) -> set[str]:
    """Give the ways of asking that still know of a document."""
    found: dict[str, set[str]] = {}
    for mode in ("dense", "lexical", "hybrid"):
        body = {"query": words, "max_num_results": 50, "ranking_options": {"mode": mode}}
        hits = app.request("POST", f"/v1/vector_stores/{store}/search", json=body).json()["data"]
        found[mode] = {hit["filename"] for hit in hits}
    answer = ask(app, store, words, "extractive")
    message = answer["choices"][0]["message"]
    found["extractive"] = {each["filename"] for each in message["annotations"]}
    assert (words in message["content"]) == (name in found["extractive"])
    shown = ask(app, store, words, "rag")["graft"]["passages"]
    found["rag"] = {passage["document"] for passage in shown}
    tokens = ask(app, store, words, "knn_lm")["graft"]["tokens"]
    found["token memory"] = {source["document"] for t in tokens for source in t["sources"]}
    is_there = app.request("GET", f"/v1/vector_stores/{store}/texts/{name}").status_code == 200
    found["text"] = {name} if is_there else set()
    return {way for way, names in found.items() if name in names}


ALL_WAYS = {"dense", "lexical", "hybrid", "extractive", "rag", "token memory", "text"}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/files/{file}",
        "/v1/vector_stores/{store}/files/{file}",
        "/v1/vector_stores/{store}/documents/secret.md",
    ],
)
def test_d1_nothing_finds_a_deleted_document_in_the_process_or_after_a_restart(
    local: Local, settings: Settings, path: str
) -> None:
    store = new_store(local)
    file = upload(local, "secret.md", SECRET)
    attach(local, store, file, upload(local, "other.md", OTHER))
    local.work()
    assert ways_that_find(local, store, "secret.md", SECRET) == ALL_WAYS
    reply = local.request("DELETE", path.format(store=store, file=file))
    assert reply.json()["deleted"] is True
    assert ways_that_find(local, store, "secret.md", SECRET) == set()
    assert ways_that_find(local, store, "other.md", OTHER) == ALL_WAYS
    local.graft.close()
    again = Local(settings)
    again.work()
    assert ways_that_find(again, store, "secret.md", SECRET) == set()
    assert ways_that_find(again, store, "other.md", OTHER) == ALL_WAYS
    assert again.graft.index.check() == []
    again.graft.close()


def running(app: Local, store: str, job_id: str, at: Any) -> list[Any]:
    """Run a job as a worker does, and call `at` when its vectors are made but not committed."""
    job = app.graft.index.claim_job("w", lease_s=60)
    assert job is not None
    assert job.id == job_id
    items = job.payload["items"]
    sources = [SourceFile(i["name"], sha256=i["sha256"], file_id=i["file_id"]) for i in items]
    calls = 0

    def progress(stage: str, done: int, total: int, unit: str) -> None:
        nonlocal calls
        if stage == "embed" and done == total:
            calls += 1
            at()

    record = app.graft.stores.get(store, tenant="default")
    made = app.graft.documents.ingest(
        record, sources, progress=progress, during_job=job.id, worker="w"
    )
    assert calls == 1
    return made


@pytest.mark.parametrize("path", ["/v1/files/{file}", "/v1/vector_stores/{store}/files/{file}"])
def test_a_file_that_is_deleted_just_before_its_commit_never_comes(local: Local, path: str) -> None:
    store = new_store(local)
    file, other = upload(local, "secret.md", SECRET), upload(local, "other.md", OTHER)
    job = attach(local, store, file, other)

    def delete() -> None:
        reply = local.request("DELETE", path.format(store=store, file=file))
        assert reply.status_code == 200

    made = running(local, store, job, delete)
    assert [outcome.status for outcome in made] == ["failed", "failed"]
    assert documents(local, store) == set()
    batch = f"/v1/vector_stores/{store}/file_batches/vsfb_{job}"
    assert local.request("GET", batch).json()["status"] == "in_progress"
    local.work()  # the other file goes on in a job of its own
    assert documents(local, store) == {"other.md"}
    shown = local.request("GET", batch).json()
    is_listed = path.startswith("/v1/vector_stores")  # a file that stays was cancelled there
    assert shown["file_counts"]["cancelled"] == is_listed
    assert shown["status"] == ("cancelled" if is_listed else "completed")
    assert shown["file_counts"]["completed"] == 1


def test_a_document_that_is_deleted_does_not_come_back_in_its_next_version(local: Local) -> None:
    store = new_store(local)
    attach(local, store, upload(local, "p.md", "The limit is 10."))
    local.work()
    job = attach(local, store, upload(local, "p.md", "The limit is 20."))

    def delete() -> None:
        reply = local.request("DELETE", f"/v1/vector_stores/{store}/documents/p.md")
        assert reply.status_code == 200

    running(local, store, job, delete)
    local.work()
    assert documents(local, store) == set()


def delete_by_name(app: Local, store: str, name: str, *, many: bool) -> bool:
    """Delete a document by one of two routes; say whether it was there."""
    path = f"/v1/vector_stores/{store}/documents"
    if not many:
        return app.request("DELETE", f"{path}/{name}").status_code == 200
    reply = app.request("POST", f"{path}/delete", json={"documents": [name]})
    return bool(reply.json()["data"][0]["deleted"])


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("is_running", [False, True])
def test_d4_a_document_is_deleted_while_its_first_version_is_on_its_way(
    local: Local, many: bool, is_running: bool
) -> None:
    store = new_store(local)
    path = f"/v1/vector_stores/{store}/documents/secret.md"
    put = local.request("PUT", path, content=SECRET.encode()).json()
    answers: list[bool] = []

    def delete() -> None:
        answers.append(delete_by_name(local, store, "secret.md", many=many))

    if is_running:
        running(local, store, put["graft"]["job_id"], delete)
    else:
        delete()
    local.work()
    assert answers == [True]
    assert documents(local, store) == set()
    assert local.request("GET", f"/v1/files/{put['id']}").status_code == 404
    assert not delete_by_name(local, store, "secret.md", many=many)


def test_a_store_that_is_deleted_under_an_ingestion_is_gone(local: Local) -> None:
    store = new_store(local)
    job = attach(local, store, upload(local, "secret.md", SECRET))

    def delete() -> None:
        assert local.request("DELETE", f"/v1/vector_stores/{store}").status_code == 200

    with pytest.raises(NotFound):
        running(local, store, job, delete)
    assert local.request("GET", f"/v1/vector_stores/{store}").status_code == 404
    assert local.graft.index.check() == []


def test_a_file_that_another_store_waits_for_outlives_the_delete_of_a_document(
    local: Local,
) -> None:
    store = new_store(local)
    other = str(local.request("POST", "/v1/vector_stores", json={"name": "t"}).json()["id"])
    file = upload(local, "a.md", OTHER)
    attach(local, store, file)
    local.work()
    attach(local, other, file)
    local.request("DELETE", f"/v1/vector_stores/{store}/documents/a.md")
    local.work()
    assert documents(local, store) == set()
    assert documents(local, other) == {"a.md"}


def test_deletes_at_any_moment_of_a_running_ingestion_are_for_good(local: Local) -> None:
    store = new_store(local)
    words = [" ".join(f"Paragraph {j} of text {i}.\n\n" for j in range(60)) for i in range(30)]
    files = {f"{i}.md": upload(local, f"{i}.md", text) for i, text in enumerate(words)}
    attach(local, store, *files.values())
    worker = threading.Thread(target=local.work)
    worker.start()
    wait_until(lambda: local.graft.index.list_jobs(tenant="default", state="running"))
    gone = [f"{i}.md" for i in (0, 29, 5, 17, 8, 24)]
    for name in gone:
        reply = local.request("DELETE", f"/v1/files/{files[name]}")
        assert reply.status_code == 200
        assert name not in documents(local, store)
        time.sleep(0.05)
    worker.join(60)
    assert not worker.is_alive()
    states = {job.state for job in local.graft.index.list_jobs(tenant="default")}
    assert "cancelled" in states  # else the deletes met no running ingestion
    local.work()
    assert documents(local, store) == set(files) - set(gone)
    assert local.graft.index.check() == []


@pytest.mark.parametrize("is_bulk", [False, True])
def test_d4_a_delete_by_name_stops_a_first_ingestion_that_has_not_ended(
    local: Local, is_bulk: bool
) -> None:
    store = new_store(local)
    path = f"/v1/vector_stores/{store}/documents"
    assert local.request("PUT", f"{path}/secret.md", content=SECRET.encode()).status_code == 202
    if is_bulk:
        body = {"documents": ["secret.md", "never.md"]}
        done = local.request("POST", f"{path}/delete", json=body).json()["data"]
        assert [each["deleted"] for each in done] == [True, False]
    else:
        assert local.request("DELETE", f"{path}/secret.md").json()["deleted"] is True
    local.work()
    assert documents(local, store) == set()
    assert local.request("GET", "/v1/files").json()["data"] == []
    assert local.request("DELETE", f"{path}/secret.md").status_code == 404


@pytest.mark.parametrize("is_failed", [False, True])
def test_a_file_that_was_taken_out_is_listed_no_longer(local: Local, is_failed: bool) -> None:
    store = new_store(local)
    file = upload(local, "a.zzz", "\x00\x01") if is_failed else upload(local, "a.md", SECRET)
    attach(local, store, file)
    path = f"/v1/vector_stores/{store}/files"
    if is_failed:
        local.work()
        assert local.request("GET", f"{path}/{file}").json()["status"] == "failed"
    assert local.request("DELETE", f"{path}/{file}").json()["deleted"] is True
    assert local.request("GET", path).json()["data"] == []
    assert local.request("DELETE", f"{path}/{file}").status_code == 404
    assert local.request("GET", f"/v1/files/{file}").status_code == 200
    attach(local, store, file)
    assert [each["id"] for each in local.request("GET", path).json()["data"]] == [file]
