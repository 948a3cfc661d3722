"""Several threads and processes on one folder: cases V4, D4, D5, and reliability §4's zombie."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from index import Busy, Conflict, Index
from index.locks import WriterLock
from tests.store.crashing import ROOT, child_environment
from tests.store.making import (
    BACKBONE,
    FINGERPRINT,
    assert_serves,
    commit,
    make_document,
    make_store,
    remember,
    sentences,
    vector_of,
)


def in_threads(work: list) -> list[BaseException]:
    errors: list[BaseException] = []

    def guarded(act) -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 (handed to the test)
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(act,)) for act in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_v4_thirty_writers_of_400_rows_each_meet_no_locked_database(index: Index):
    store = make_store(index)
    rows = 400
    documents = [
        make_document(f"w{w:02d}", "".join(f"{w:02d}{i:06d}" for i in range(rows)), size=8)
        for w in range(30)
    ]
    errors = in_threads([lambda d=d: commit(index, store, d) for d in documents])
    assert errors == []
    assert [d.num_chunks for d in index.list_documents(store.id)] == [rows] * 30
    with index.view(store.id) as view:
        for document in documents[::7]:
            hit = view.dense(document.vectors[3], k=1)[0]
            assert view.passages([hit.chunk_id], {})[0].document == document.name


WRITER = """
import sys
from pathlib import Path
from index import Index
from tests.store.making import commit, make_document
with Index.open(Path(sys.argv[1])) as index:
    store = index.get_store("s", tenant="t")
    for i in range(int(sys.argv[3])):
        name = f"{sys.argv[2]}-{i}"
        commit(index, store, make_document(name, f"process {name} says hello " * 4))
"""


def start_writer(data_dir: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", WRITER, str(data_dir), name, str(count)]
    return subprocess.Popen(command, env=child_environment(), stderr=subprocess.PIPE, cwd=ROOT)


@pytest.mark.slow
def test_readers_follow_what_other_processes_commit(index: Index, data_dir: Path):
    store = make_store(index)
    writers = [start_writer(data_dir, name, 15) for name in ("a", "b", "c")]
    seen = 0
    while any(writer.poll() is None for writer in writers):
        with index.view(store.id) as view:
            names = {d.name for d in view.documents()}
            hits = view.dense(vector_of("x"), k=10_000)
            found = {p.document for p in view.passages([h.chunk_id for h in hits], {})}
            assert found == names
            assert len(names) >= seen
            seen = len(names)
    for writer in writers:
        assert writer.communicate()[1] == b""
        assert writer.returncode == 0
    texts = {f"{p}-{i}": f"process {p}-{i} says hello " * 4 for p in "abc" for i in range(15)}
    assert {d.name for d in index.list_documents(store.id)} == texts.keys()
    assert all(index.text(store.id, name) == text for name, text in texts.items())


def test_a_view_shows_its_own_moment_while_others_commit_and_delete(index: Index):
    store = make_store(index)
    commit(index, store, make_document("old", "the old words"))
    with index.view(store.id) as before:
        commit(index, store, make_document("new", "the new words"))
        index.delete_documents(store.id, ["old"])
        with index.view(store.id) as after:
            assert [d.name for d in after.documents()] == ["new"]
            assert [
                p.text
                for p in after.passages([h.chunk_id for h in after.dense(vector_of("x"), k=9)], {})
            ] == ["the new words"]
        hits = before.dense(vector_of("x"), k=9)
        assert hits == before.dense(
            vector_of("x"), k=9, where={"type": "eq", "key": "document", "value": "old"}
        )
        assert [h.chunk_id for h in before.lexical("words", k=9)] == [h.chunk_id for h in hits]
        (passage,) = before.passages([h.chunk_id for h in hits], {})
        assert (passage.document, passage.text) == ("old", "the old words")
        assert before.text("old") == "the old words"


def test_searches_during_commits_and_deletes_always_see_one_generation(index: Index):
    store, done = make_store(index), threading.Event()

    def write() -> None:
        try:
            for i in range(60):
                commit(index, store, make_document(f"d{i % 7}", f"edition {i} " * 9))
                if i % 5 == 4:
                    index.delete_documents(store.id, [f"d{(i - 2) % 7}"])
        finally:
            done.set()

    def read() -> None:
        while not done.is_set():
            with index.view(store.id) as view:
                expected = sum(d.num_chunks for d in view.documents())
                hits = view.dense(vector_of("x"), k=1000)
                assert len(hits) == expected
                assert len(view.passages([h.chunk_id for h in hits], {})) == expected
                assert {h.chunk_id for h in view.lexical("edition", k=1000)} <= {
                    h.chunk_id for h in hits
                }

    assert in_threads([write, read, read]) == []


def test_d4_a_delete_is_answered_while_an_upload_is_still_streaming(index: Index):
    store = make_store(index)
    commit(index, store, make_document("a", "words"))
    go_on, began = threading.Event(), threading.Event()

    class Slow:
        sent = 0

        def read(self, _size: int) -> bytes:
            self.sent += 1
            began.set()
            if self.sent == 2:
                assert go_on.wait(30)
            return b"x" * 1000 if self.sent < 3 else b""

    thread = threading.Thread(target=lambda: index.put_blob(Slow()))
    thread.start()
    assert began.wait(30)
    assert index.delete_documents(store.id, ["a"]) == ["a"]
    assert thread.is_alive()
    go_on.set()
    thread.join()


def test_a_zombie_whose_lease_ran_out_cannot_commit(data_dir: Path):
    now = [1000.0]
    with Index.open(data_dir, clock=lambda: now[0]) as index:
        store = make_store(index)
        job = index.enqueue("ingest", tenant="t", store_id=store.id, payload={})
        assert index.claim_job("one", lease_s=10)
        now[0] += 11
        claimed = index.claim_job("two", lease_s=10)
        assert claimed is not None
        assert claimed.id == job.id
        documents = [make_document("a", "words")]
        with pytest.raises(Conflict, match="lease was lost"):
            index.commit_documents(
                store.id,
                documents,
                embedder_fingerprint=FINGERPRINT,
                finishes_job=job.id,
                worker="one",
            )
        assert index.list_documents(store.id) == []
        index.commit_documents(
            store.id, documents, embedder_fingerprint=FINGERPRINT, finishes_job=job.id, worker="two"
        )
        assert index.get_job(job.id).state == "done"
        assert index.heartbeat(job.id, "two", {}) is False


def test_the_writer_lock_says_busy_after_its_time(tmp_path: Path):
    path = tmp_path / "lock"
    with WriterLock(path).hold():
        for lock in (WriterLock(path, timeout_s=0.05),):
            with pytest.raises(Busy, match="another writer"), lock.hold():
                pass
    with WriterLock(path, timeout_s=0.05).hold():
        pass


def test_the_log_is_folded_into_the_catalogue_when_closed(data_dir: Path):
    with Index.open(data_dir) as index:
        store = make_store(index)
        commit(index, store, *(make_document(str(i), t) for i, t in enumerate(sentences(99))))
    left = {path.name for path in data_dir.iterdir() if path.is_file()}
    assert left == {"catalogue.sqlite3", "writer.lock"}


def test_memory_grows_and_shrinks_without_reading_any_segment_twice(
    index: Index, data_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    import index.memory as module

    store, read, original = make_store(index), [], module.read_arrays
    monkeypatch.setattr(
        module,
        "read_arrays",
        lambda folder, row: (read.append(row.segment), original(folder, row))[1],
    )
    kept = []
    for i in range(12):
        commit(index, store, make_document(f"d{i}", f"memory of {i} " * (i + 1)))
        remember(index, store)
        kept.append((index.memory(store.id, BACKBONE), i))
        if i % 4 == 3:
            index.delete_documents(store.id, [f"d{i - 2}"])
    index.memory(store.id, BACKBONE)
    assert len(read) == len(set(read)) == 12
    for view, last in kept:
        owner = [d.name for d in view.documents].index(f"d{last}")
        text = f"memory of {last} " * (last + 1)
        np.testing.assert_array_equal(
            view.values[view.document_of == owner], [ord(c) for c in text[1:]]
        )


DELETER = """
import os, signal, sys
from pathlib import Path
import index.commits
from index import Index
from index.files import Folder
def die(*_args, **_options):
    os.kill(os.getpid(), signal.SIGKILL)
opened = Index.open(Path(sys.argv[1]))
store = opened.get_store("s", tenant="t")
if sys.argv[2] == "before the commit":
    index.commits.bury = die
else:
    Folder.remove = die
opened.delete_documents(store.id, [f"d{i}" for i in range(20)])
"""


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_d5_a_delete_that_was_killed_in_the_middle_resumes_and_ends(data_dir: Path, moment: str):
    texts = {f"d{i}": words for i, words in enumerate(sentences(30))}
    with Index.open(data_dir) as index:
        store = make_store(index)
        commit(index, store, *(make_document(name, text) for name, text in texts.items()))
        remember(index, store)
    command = [sys.executable, "-c", DELETER, str(data_dir), moment]
    killed = subprocess.run(command, env=child_environment(), cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    left = {name: text for name, text in texts.items() if int(name[1:]) >= 20}
    with Index.open(data_dir) as index:
        assert index.check() == []
        assert_serves(index, store, texts if moment == "before the commit" else left)
        index.delete_documents(store.id, [f"d{i}" for i in range(20)])
        assert_serves(index, store, left)
        assert len(index.memory(store.id, BACKBONE).documents) == 10
        assert index.check() == []
