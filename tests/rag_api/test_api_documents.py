"""Files and vector stores through the stock openai client, against a real server and worker."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from tests.rag_api.api_server import (
    Server,
    found_in,
    ingested,
    new_store,
    put_in,
)


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


def test_r6_files_one_by_one_and_in_a_batch_give_the_same_store(
    server: Server, alice: openai.OpenAI
) -> None:
    names = ("a/readme.md", "b/readme.md", "c.csv")
    words = {name: f"key,value\nwhat {name} says,{i}\n" * 30 for i, name in enumerate(names)}
    files = {
        name: alice.files.create(file=(name, words[name].encode()), purpose="user_data").id
        for name in names
    }
    one_by_one, at_once = new_store(alice), new_store(alice)
    for file in files.values():
        alice.vector_stores.files.create(vector_store_id=one_by_one.id, file_id=file)
        ingested(alice, one_by_one.id, file)
    alice.vector_stores.file_batches.create(at_once.id, file_ids=list(files.values()))
    for file in files.values():
        assert ingested(alice, at_once.id, file).status == "completed"

    def seen(store_id: str) -> tuple[Any, ...]:
        with server.http("key-of-alice") as http:
            documents = http.get(f"/v1/vector_stores/{store_id}/documents").json()["data"]
        found = found_in(alice, store_id, "what b/readme.md says", max_num_results=50)
        hits = {(h.filename, h.graft["start"], h.graft["end"], round(h.score, 6)) for h in found}
        times = ("created_at", "memories")  # token keys come in a job of their own
        return [{k: d[k] for k in d if k not in times} for d in documents], hits

    assert seen(one_by_one.id) == seen(at_once.id)
    assert len(seen(at_once.id)[0]) == 3
