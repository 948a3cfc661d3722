"""Deletes: what is gone stays gone, for every way of asking, also under running ingestions."""

from __future__ import annotations

from typing import Any

import openai

from tests.rag_api.api_server import (
    Server,
    found_in,
    new_store,
    put_in,
    wait_until,
)


def ask(client: openai.OpenAI, store_id: str, question: str, **retrieval: Any) -> Any:
    return client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": question}],
        max_tokens=8,
        extra_body={"retrieval": {"vector_store_ids": [store_id], **retrieval}},
    )


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


def test_d4_a_delete_answers_at_once_while_a_long_ingestion_runs(
    server: Server, alice: openai.OpenAI
) -> None:
    store = new_store(alice)
    put_in(alice, store.id, "small.md", "A small text that goes away.")
    long = "\n\n".join(f"Paragraph {i} tells of the number {i * i}." for i in range(30_000))
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
