"""Files and vector stores through the stock openai client, against a real server and worker."""

from __future__ import annotations

import io
import threading
import uuid
import zipfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from tests.rag_api.api_server import Server, ingested, put_in, wait_until


def new_store(client: openai.OpenAI, **more: Any) -> Any:
    return client.vector_stores.create(name=f"store-{uuid.uuid4().hex}", **more)


def found_in(client: openai.OpenAI, store_id: str, query: str, **more: Any) -> list[Any]:
    return list(client.vector_stores.search(store_id, query=query, **more))


def test_a_file_goes_up_is_listed_read_and_deleted(alice: openai.OpenAI) -> None:
    words = "第一行\r\nsecond line\n".encode()
    made = alice.files.create(file=("dir/notes 1.md", words), purpose="user_data")
    assert (made.filename, made.bytes, made.object) == ("dir/notes 1.md", len(words), "file")
    assert alice.files.retrieve(made.id).id == made.id
    assert alice.files.content(made.id).read() == words
    assert made.id in [each.id for each in alice.files.list()]
    assert alice.files.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        alice.files.retrieve(made.id)


def test_files_are_paged_without_gaps_or_repeats(alice: openai.OpenAI) -> None:
    made = {
        alice.files.create(file=(f"page-{i}.txt", f"page {i}".encode()), purpose="user_data").id
        for i in range(5)
    }
    listed = [each.id for each in alice.files.list(limit=2)]
    assert len(listed) == len(set(listed))
    assert made <= set(listed)


def test_a_store_is_created_listed_changed_and_deleted(alice: openai.OpenAI) -> None:
    store = new_store(alice, metadata={"team": "a"})
    assert store.metadata == {"team": "a"}
    assert store.file_counts.total == 0
    changed = alice.vector_stores.update(store.id, name=f"{store.name}-2", metadata={"team": "b"})
    assert (changed.name, changed.metadata) == (f"{store.name}-2", {"team": "b"})
    assert store.id in [each.id for each in alice.vector_stores.list(limit=1)]
    assert alice.vector_stores.delete(store.id).deleted
    with pytest.raises(openai.NotFoundError):
        alice.vector_stores.retrieve(store.id)


def test_an_attached_file_is_found_with_its_checked_span_and_attributes(
    alice: openai.OpenAI,
) -> None:
    store = new_store(alice)
    words = "# Pumps\n\nThe Zorbex pump moves ten litres a minute.\n"
    file = alice.files.create(file=("pump.md", words.encode()), purpose="user_data")
    alice.vector_stores.files.create(
        vector_store_id=store.id, file_id=file.id, attributes={"year": 2025.0, "kind": "pump"}
    )
    done = ingested(alice, store.id, file.id)
    assert done.status == "completed"
    assert done.attributes == {"year": 2025, "kind": "pump"}
    assert alice.vector_stores.retrieve(store.id).file_counts.completed == 1
    (hit,) = found_in(alice, store.id, "how many litres does the pump move?")
    assert (hit.file_id, hit.filename) == (file.id, "pump.md")
    text = alice.vector_stores.files.content(file.id, vector_store_id=store.id).data[0].text
    span = hit.graft
    assert text[span["start"] : span["end"]] == hit.content[0].text == span["text"]
    where = {"type": "eq", "key": "kind", "value": "valve"}
    assert not found_in(alice, store.id, "litres", filters=where)


def test_a_search_refuses_what_it_does_not_do(alice: openai.OpenAI) -> None:
    store = new_store(alice)
    with pytest.raises(openai.UnprocessableEntityError, match="rewrite_query"):
        alice.vector_stores.search(store.id, query="x", rewrite_query=True)
    with pytest.raises(openai.UnprocessableEntityError, match="unknown or unsupported"):
        alice.vector_stores.search(store.id, query="x", extra_body={"rerank_twice": True})


def test_r1_the_same_file_three_times_is_one_version_and_says_so(
    server: Server, alice: openai.OpenAI
) -> None:
    store = new_store(alice)
    first = put_in(alice, store.id, "a.md", "The same words again and again.")
    again = [put_in(alice, store.id, "a.md", "The same words again and again.") for _ in range(2)]
    assert {each.id for each in again} == {first.id}
    with server.http("key-of-alice") as http:
        data = {"file": ("a.md", b"The same words again and again.")}
        reply = http.post("/v1/files", files=data).json()
        assert reply["graft"]["duplicate_of"] == first.id
        shown = http.get(f"/v1/vector_stores/{store.id}/documents").json()["data"]
    assert [(each["document"], each["chunks"]) for each in shown] == [("a.md", 1)]


def test_r2_two_identical_uploads_at_once_are_one_file_and_one_job(
    server: Server, alice: openai.OpenAI
) -> None:
    store = new_store(alice)
    words = b"Twice at the same moment. " * 200
    barrier = threading.Barrier(2)

    def upload(_: int) -> tuple[str, str]:
        with server.http("key-of-alice") as http:
            barrier.wait()
            made = http.post("/v1/files", files={"file": ("twin.md", words)}).json()["id"]
            body = {"file_id": made}
            reply = http.post(f"/v1/vector_stores/{store.id}/files", json=body).json()
            return made, reply["graft"]["job_id"]

    with ThreadPoolExecutor(2) as pool:
        (file_1, job_1), (file_2, job_2) = pool.map(upload, range(2))
    assert file_1 == file_2
    ingested(alice, store.id, file_1)
    with server.http("key-of-alice") as http:
        jobs = http.get("/v1/jobs", params={"vector_store_id": store.id}).json()["data"]
    kinds = [job["id"] for job in jobs if job["kind"] == "ingest"]
    assert {job_1, job_2} == set(kinds)
    assert len(alice.vector_stores.files.list(store.id).data) == 1


def test_r3_a_new_version_replaces_the_old_one_whole(alice: openai.OpenAI) -> None:
    store = new_store(alice)
    put_in(alice, store.id, "p.md", "The limit of the pump is 10 litres.")
    new = put_in(alice, store.id, "p.md", "The limit of the pump is 20 litres.")
    hits = found_in(alice, store.id, "limit of the pump", max_num_results=50)
    assert [hit.content[0].text for hit in hits] == ["The limit of the pump is 20 litres."]
    assert [hit.file_id for hit in hits] == [new.id]
    assert [each.id for each in alice.vector_stores.files.list(store.id)] == [new.id]


def test_r4_names_with_folders_stay_apart(alice: openai.OpenAI) -> None:
    store = new_store(alice)
    put_in(alice, store.id, "a/readme.md", "The first readme speaks of apples.")
    put_in(alice, store.id, "b/readme.md", "The second readme speaks of bridges.")
    hits = found_in(alice, store.id, "readme")
    assert {hit.filename for hit in hits} == {"a/readme.md", "b/readme.md"}


def test_r5_a_deleted_file_can_come_again(alice: openai.OpenAI) -> None:
    store = new_store(alice)
    first = put_in(alice, store.id, "again.md", "Gone and back again.")
    alice.files.delete(first.id)
    assert not found_in(alice, store.id, "gone and back")
    assert not alice.vector_stores.files.list(store.id).data
    put_in(alice, store.id, "again.md", "Gone and back again.")
    assert len(found_in(alice, store.id, "gone and back")) == 1


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


def test_d3_a_bulk_delete_with_a_repeated_name_changes_nothing(
    server: Server, alice: openai.OpenAI
) -> None:
    store = new_store(alice)
    for name in ("x.md", "y.md"):
        put_in(alice, store.id, name, f"The document {name} is here.")
    with server.http("key-of-alice") as http:
        path = f"/v1/vector_stores/{store.id}/documents/delete"
        refused = http.post(path, json={"documents": ["x.md", "y.md", "x.md"]})
        assert refused.status_code == 422
        assert refused.json()["error"]["param"] == "documents"
        assert len(http.get(f"/v1/vector_stores/{store.id}/documents").json()["data"]) == 2


def test_d6_a_bulk_call_does_the_good_and_names_the_bad(
    server: Server, alice: openai.OpenAI
) -> None:
    store = new_store(alice)
    good = [
        alice.files.create(file=(f"good-{i}.md", f"Good {i}.".encode()), purpose="user_data").id
        for i in range(2)
    ]
    batch = alice.vector_stores.file_batches.create(
        store.id, file_ids=[good[0], "file_unknown", good[1]]
    )
    assert (batch.file_counts.total, batch.file_counts.failed) == (3, 1)
    done = wait_until(
        lambda: (
            (b := alice.vector_stores.file_batches.retrieve(batch.id, vector_store_id=store.id))
            and b.status == "completed"
            and b
        )
    )
    assert (done.file_counts.completed, done.file_counts.failed) == (2, 1)
    with server.http("key-of-alice") as http:
        path = f"/v1/vector_stores/{store.id}/documents/delete"
        names = ["good-0.md", "unknown.md", "good-1.md"]
        items = http.post(path, json={"documents": names}).json()["data"]
    assert [item["deleted"] for item in items] == [True, False, True]
    assert [item["error"] is None for item in items] == [True, False, True]


def test_d1_what_was_deleted_is_found_by_no_way_of_searching(
    server: Server, alice: openai.OpenAI
) -> None:
    store = new_store(alice)
    secret = "The quixotic heron nests in Bellwether Lane."
    file = put_in(alice, store.id, "secret.md", secret)
    put_in(alice, store.id, "other.md", "Nothing to see in this other text.")
    for mode in ("dense", "lexical", "hybrid"):
        options: Any = {"mode": mode}
        hits = found_in(alice, store.id, secret, ranking_options=options)
        assert secret in [hit.content[0].text for hit in hits]
    alice.vector_stores.files.delete(file.id, vector_store_id=store.id)
    for mode in ("dense", "lexical", "hybrid"):
        options = {"mode": mode}
        hits = found_in(alice, store.id, secret, ranking_options=options)
        assert "secret.md" not in [hit.filename for hit in hits]
    answer = ask(alice, store.id, secret, mode="extractive")
    assert "Bellwether" not in answer.choices[0].message.content
    with server.http("key-of-alice") as http:
        assert http.get(f"/v1/vector_stores/{store.id}/texts/secret.md").status_code == 404


def ask(client: openai.OpenAI, store_id: str, question: str, **retrieval: Any) -> Any:
    return client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": question}],
        max_tokens=8,
        extra_body={"retrieval": {"vector_store_ids": [store_id], **retrieval}},
    )


def test_d4_a_delete_answers_at_once_while_a_long_ingestion_runs(
    server: Server, alice: openai.OpenAI
) -> None:
    store = new_store(alice)
    put_in(alice, store.id, "small.md", "A small text that goes away.")
    long = "\n\n".join(f"Paragraph {i} tells of the number {i * i}." for i in range(60_000))
    file = alice.files.create(file=("long.md", long.encode()), purpose="user_data")
    alice.vector_stores.files.create(vector_store_id=store.id, file_id=file.id)

    def is_running() -> bool:
        with server.http("key-of-alice") as http:
            jobs = http.get("/v1/jobs", params={"vector_store_id": store.id, "state": "running"})
            return bool(jobs.json()["data"])

    wait_until(is_running)
    with server.http("key-of-alice") as http:
        done = http.delete(f"/v1/vector_stores/{store.id}/documents/small.md")
        assert done.status_code == 200
        assert done.elapsed.total_seconds() < 5
    still = alice.vector_stores.files.retrieve(file.id, vector_store_id=store.id)
    assert still.status == "in_progress"
    alice.vector_stores.delete(store.id)


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
