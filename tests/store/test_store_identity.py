"""Identity, re-ingestion and deletes: cases R1 to R7, D1 to D3, D6, M1, M2, at the store."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from index import FingerprintMismatch, Index, InvalidInput, NewDocument, content_sha
from tests.store.making import (
    BACKBONE,
    FINGERPRINT,
    assert_serves,
    commit,
    found_texts,
    make_document,
    make_memory,
    make_store,
    remember,
    sentences,
    vector_of,
)


def count_chunks(index: Index, store_id: str) -> int:
    return sum(d.num_chunks for d in index.list_documents(store_id))


def test_r1_the_same_file_three_times_is_one_version_and_is_never_embedded_again(index: Index):
    store, text = make_store(index), "alpha beta gamma " * 9
    records = []
    for _ in range(3):
        blob = index.put_blob(text.encode())
        records.append(index.add_file("a.md", blob, tenant="t", purpose="assistants"))
        commit(index, store, make_document("a.md", text))
    assert [is_new for _, is_new in records] == [True, False, False]
    assert len({record.id for record, _ in records}) == 1
    assert len(index.list_documents(store.id)) == 1
    assert count_chunks(index, store.id) == len(make_document("a.md", text).chunks)
    assert index.get_store(store.id, tenant="t").generation == 1
    shas = [content_sha(c.embedded_text(text)) for c in make_document("a", text).chunks]
    cached = index.cached_vectors("t", FINGERPRINT, [*shas, content_sha("never seen")])
    assert cached.keys() == set(shas)
    for chunk, sha in zip(make_document("a", text).chunks, shas, strict=True):
        np.testing.assert_array_equal(cached[sha], vector_of(text[chunk.start : chunk.end]))
    assert index.cached_vectors("other", FINGERPRINT, shas) == {}
    assert index.cached_vectors("t", "another embedder", shas) == {}


def test_r2_two_identical_uploads_at_once_become_one_job(index: Index):
    store, found = make_store(index), []

    def upload() -> None:
        blob = index.put_blob(b"the same")
        index.add_file("x.txt", blob, tenant="t", purpose="assistants")
        key = f"ingest:{store.id}:x.txt:{blob.sha256}"
        job = index.enqueue("ingest", tenant="t", store_id=store.id, payload={}, dedupe_key=key)
        found.append(job.id)

    threads = [threading.Thread(target=upload) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert len(index.list_jobs(tenant="t")) == 1
    assert len(index.list_files(tenant="t")) == 1


def test_r3_a_new_version_replaces_every_chunk_of_the_old_one(index: Index):
    store = make_store(index)
    commit(index, store, make_document("p.md", "the limit is 10 " * 8))
    remember(index, store)
    commit(index, store, make_document("p.md", "the limit is 20 " * 3))
    assert index.text(store.id, "p.md") == "the limit is 20 " * 3
    assert not [words for words in found_texts(index, store, "the limit is 10") if "10" in words]
    assert found_texts(index, store, "20")
    assert index.memory(store.id, BACKBONE).pending == 1
    assert len(index.memory(store.id, BACKBONE).values) == 0
    assert_serves(index, store, {"p.md": "the limit is 20 " * 3})


def test_r4_equal_names_in_different_folders_are_different_documents(index: Index):
    store = make_store(index)
    texts = {"a/readme.md": "about apples", "b/readme.md": "about bananas"}
    commit(index, store, *(make_document(name, text) for name, text in texts.items()))
    assert_serves(index, store, texts)
    with index.view(store.id) as view:
        (hit,) = view.lexical("bananas", k=5)
        assert view.passages([hit.chunk_id], {})[0].document == "b/readme.md"


def test_r5_a_deleted_file_can_come_back_and_leaves_nothing_behind(index: Index, data_dir: Path):
    store, text = make_store(index), "here today"
    for _ in range(2):
        file, _ = index.add_file("f.txt", index.put_blob(text.encode()), tenant="t", purpose="p")
        commit(index, store, make_document("f.txt", text))
        remember(index, store)
        assert_serves(index, store, {"f.txt": text})
        index.delete_documents(store.id, ["f.txt"])
        index.delete_file(file.id, tenant="t")
        assert list((data_dir / "blobs").iterdir()) == []
        assert list((data_dir / "segments").iterdir()) == []
        assert index.check() == []


def test_a_blob_stays_while_a_document_or_another_file_is_made_of_it(index: Index):
    store, blob = make_store(index), index.put_blob(b"shared words")
    one, _ = index.add_file("one", blob, tenant="t", purpose="p")
    two, _ = index.add_file("two", blob, tenant="u", purpose="p")
    commit(index, store, make_document("d", "shared words"))
    for file, tenant in ((one, "t"), (two, "u")):
        index.delete_file(file.id, tenant=tenant)
        assert index.read_blob(blob.sha256) == b"shared words"
    index.delete_documents(store.id, ["d"])
    assert index.disk_usage()["blobs"] == 0


def test_r6_single_and_batch_commits_give_the_same_answers(index: Index):
    one, many = make_store(index, "one"), make_store(index, "many")
    texts = {f"{i}.txt": words for i, words in enumerate(sentences(50))}
    for name, text in texts.items():
        commit(index, one, make_document(name, text))
    commit(index, many, *(make_document(name, text) for name, text in texts.items()))
    assert_serves(index, one, texts)
    for query in ("item number 7", "painted 919", "nothing like it"):
        answers = []
        for store in (one, many):
            with index.view(store.id) as view:
                found = [view.dense(vector_of(query), k=10), view.lexical(query, k=10)]
                answers.append(
                    [
                        [(p.document, p.text, round(h.score, 6)) for p, h in zip(ps, hits)]  # noqa: B905
                        for hits in found
                        for ps in [view.passages([h.chunk_id for h in hits], {})]
                    ]
                )
        assert answers[0] == answers[1]


def test_r7_ten_refused_duplicates_grow_the_blob_folder_once(index: Index, data_dir: Path):
    blobs = [index.put_blob(b"same bytes") for _ in range(10)]
    assert [blob.is_new for blob in blobs] == [True] + [False] * 9
    assert len(list((data_dir / "blobs").iterdir())) == 1
    assert index.disk_usage()["blobs"] == len(b"same bytes")


def test_d1_a_deleted_document_is_found_by_no_path(data_dir: Path):
    secret = "the treasure lies under the old oak"
    with Index.open(data_dir) as index:
        store = make_store(index)
        commit(index, store, make_document("s.txt", secret), make_document("o.txt", "other words"))
        remember(index, store)
        assert secret in found_texts(index, store, secret)
        assert index.delete_documents(store.id, ["s.txt"]) == ["s.txt"]
        assert_gone(index, store.id)
    with Index.open(data_dir) as index:
        assert_gone(index, store.id)
        index.compact()
        assert index.check() == []
    for path in data_dir.rglob("*"):
        assert path.is_dir() or b"treasure" not in path.read_bytes()


def assert_gone(index: Index, store_id: str) -> None:
    secret = "the treasure lies under the old oak"
    with index.view(store_id) as view:
        hits = view.dense(vector_of(secret), k=100) + view.lexical("treasure oak", k=100)
        words = [p.text for p in view.passages([h.chunk_id for h in hits], {})]
        assert set(words) == {"other words"}
        assert view.lexical("treasure", k=5) == []
    memory = index.memory(store_id, BACKBONE)
    assert [d.name for d in memory.documents] == ["o.txt"]
    np.testing.assert_array_equal(memory.values, make_memory("other words").tokens[1:])
    sha = content_sha(secret)
    assert index.cached_vectors("t", FINGERPRINT, [sha]) == {}


def test_d2_ids_map_to_their_own_text_after_adds_and_deletes(index: Index):
    store, words = make_store(index), sentences(110)
    texts = {f"{i:03d}": words[i] for i in range(100)}
    commit(index, store, *(make_document(n, t) for n, t in texts.items()))
    gone = [f"{i:03d}" for i in range(100)][5:79:2]
    assert len(gone) == 37
    assert index.delete_documents(store.id, gone) == gone
    for name in gone:
        del texts[name]
    new = {f"{i:03d}": words[i] for i in range(100, 110)}
    commit(index, store, *(make_document(n, t) for n, t in new.items()))
    assert_serves(index, store, texts | new)


def test_chunk_ids_are_never_used_twice(index: Index):
    store, seen = make_store(index), set()
    for i in range(6):
        commit(index, store, make_document("d", f"version {i} " * 12))
        with index.view(store.id) as view:
            ids = {hit.chunk_id for hit in view.dense(vector_of("x"), k=100)}
        assert not ids & seen
        seen |= ids
        if i % 2:
            index.delete_documents(store.id, ["d"])


def test_d3_a_batch_with_a_repeated_name_is_refused_whole(index: Index):
    store = make_store(index)
    commit(index, store, make_document("a", "one"), make_document("b", "two"))
    with pytest.raises(InvalidInput, match="'a' more than once"):
        index.delete_documents(store.id, ["a", "b", "a"])
    with pytest.raises(InvalidInput, match="'c' more than once"):
        commit(index, store, make_document("c", "three"), make_document("c", "four"))
    assert_serves(index, store, {"a": "one", "b": "two"})


def test_d6_a_bulk_delete_does_what_it_can_and_says_what_it_did(index: Index):
    store = make_store(index)
    commit(index, store, *(make_document(n, n * 5) for n in "abc"))
    assert index.delete_documents(store.id, ["a", "missing", "c"]) == ["a", "c"]
    assert_serves(index, store, {"b": "bbbbb"})


@pytest.mark.parametrize("dimension", [16, 32])
def test_m1_m2_another_embedder_is_refused_by_fingerprint_and_the_old_answers(
    index: Index, dimension: int
):
    store = make_store(index)
    commit(index, store, make_document("a", "kept"))
    with pytest.raises(FingerprintMismatch, match="graft ingest"):
        index.commit_documents(
            store.id,
            [make_document("b", "refused", dimension=dimension)],
            embedder_fingerprint="embedder-2",
        )
    with pytest.raises(InvalidInput, match="expected vectors"):
        commit(index, store, make_document("b", "refused", dimension=32))
    assert_serves(index, store, {"a": "kept"})


def broken(**changes: object) -> NewDocument:
    good = make_document("a", "some words")
    fields = {name: getattr(good, name) for name in NewDocument.__slots__}
    return NewDocument(**{**fields, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"vectors": np.full((1, 16), np.nan, np.float32)},
        {"vectors": np.full((1, 16), np.inf, np.float32)},
        {"vectors": np.ones((2, 16), np.float32)},
        {"vectors": np.ones((1, 16), np.float64)},
        {"version": "v1"},
        {"name": ""},
        {"name": "a\0b"},
        {"name": "half \ud83d"},
        {"attributes": {"x": float("nan")}},
        {"attributes": {"x": 2**63}},
        {"attributes": {"x": [1]}},
        {"parsed": make_document("a", "short").parsed},
    ],
)
def test_what_cannot_be_stored_exactly_is_refused_and_changes_nothing(
    index: Index, changes: dict[str, object]
):
    store = make_store(index)
    with pytest.raises(InvalidInput):
        commit(index, store, make_document("good", "fine"), broken(**changes))
    assert index.list_documents(store.id) == []


def test_a_replacing_commit_may_move_a_version_to_another_name(index: Index):
    store = make_store(index)
    index.add_file("x", index.put_blob(b"first"), tenant="t", purpose="p")
    file = index.list_files(tenant="t")[0]
    commit(index, store, make_document("a", "first"), make_document("b", "second"))
    index.delete_file(file.id, tenant="t")
    commit(index, store, make_document("a", "second"), make_document("b", "first"))
    assert_serves(index, store, {"a": "second", "b": "first"})
    assert index.read_blob(file.sha256) == b"first"
