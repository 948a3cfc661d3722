"""Damage on disk: case V3. Each mutation gives Damaged or the right answer, never a wrong one."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from index import Damaged, GraftError, Index, StorageFailed, StoreRecord
from index.files import Folder
from tests.store.making import (
    BACKBONE,
    assert_serves,
    commit,
    make_document,
    make_store,
    remember,
    vector_of,
)

TEXTS = {f"{i}": f"document {i} has words of its own, number {i * 37} " * 6 for i in range(6)}


def filled(data_dir: Path) -> StoreRecord:
    """Make a store of several segments, largest first (so that none is merged)."""
    with Index.open(data_dir) as index:
        store = make_store(index)
        commit(index, store, *(make_document(n, TEXTS[n]) for n in "0123"))
        commit(index, store, make_document("4", TEXTS["4"]))
        commit(index, store, make_document("5", TEXTS["5"][:40]))
        remember(index, store)
        assert len(list((data_dir / "segments").glob("vectors-*"))) >= 2
        return index.get_store(store.id, tenant="t")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def zero_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[:4096] = bytes(min(4096, len(data)))
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def swap(path: Path) -> None:
    other = next(p for p in path.parent.glob(f"{path.name.split('-')[0]}-*") if p != path)
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)


MUTATIONS = [flip, zero_page, cut, grow, swap, Path.unlink]


@pytest.mark.parametrize("mutate", MUTATIONS)
@pytest.mark.parametrize("kind", ["vectors", "memory"])
def test_v3_a_damaged_segment_is_refused_by_name_and_by_remedy(
    data_dir: Path, kind: str, mutate: Callable[[Path], None]
):
    store = filled(data_dir)
    victim = max((data_dir / "segments").glob(f"{kind}-*"), key=lambda p: p.stat().st_size)
    with Index.open(data_dir) as running:
        assert_serves(
            running, store, {d.name: running.text_of(d) for d in running.list_documents(store.id)}
        )
        before = running.memory(store.id, BACKBONE)
        mutate(victim)
        assert_serves(
            running, store, {d.name: running.text_of(d) for d in running.list_documents(store.id)}
        )
        assert running.memory(store.id, BACKBONE) is before
        assert {f.kind for f in running.check()} >= {kind}
    with Index.open(data_dir) as index:
        with pytest.raises(Damaged) as caught:
            read(index, store, kind)
        assert f"{kind}-" in caught.value.message
        assert "ingest" in caught.value.message or "Index.repair()" in caught.value.message
        heal(index, store, kind)
        assert index.check() == []
        names = {d.name: index.text_of(d) for d in index.list_documents(store.id)}
        assert_serves(index, store, names)
        assert len(index.memory(store.id, BACKBONE).documents) + len(
            index.pending_memory(store.id, BACKBONE)
        ) == len(names)


def read(index: Index, store: StoreRecord, kind: str) -> None:
    if kind == "memory":
        index.memory(store.id, BACKBONE)
        return
    with index.view(store.id) as view:
        view.dense(vector_of("x"), k=1)


def heal(index: Index, store: StoreRecord, kind: str) -> None:
    """Do what the message said."""
    if kind == "memory":
        assert index.repair()
        assert index.pending_memory(store.id, BACKBONE)
        remember(index, store)
        return
    documents = {d.name: index.text_of(d) for d in index.list_documents(store.id)}
    index.delete_documents(store.id, list(documents))
    commit(index, store, *(make_document(n, t) for n, t in documents.items()))


@pytest.mark.parametrize("mutate", [flip, zero_page, cut, Path.unlink])
def test_a_damaged_blob_is_refused_and_healed_by_the_same_upload(
    index: Index, data_dir: Path, mutate: Callable[[Path], None]
):
    blob = index.put_blob(b"precious bytes" * 900)
    mutate(data_dir / "blobs" / blob.sha256)
    with pytest.raises(Damaged, match="upload the same bytes again"):
        index.read_blob(blob.sha256)
    assert [f.kind for f in index.check()] == ["blob"]
    assert index.put_blob(b"precious bytes" * 900).is_new is False
    assert index.read_blob(blob.sha256) == b"precious bytes" * 900


def test_a_damaged_text_is_refused_and_its_document_can_still_be_deleted(data_dir: Path):
    store = filled(data_dir)
    raw = sqlite3.connect(data_dir / "catalogue.sqlite3")
    raw.execute("UPDATE texts SET data = substr(data, 1, 20) WHERE pk = 2")
    raw.commit()
    raw.close()
    with Index.open(data_dir) as index:
        with pytest.raises(Damaged, match="ingest them again"):
            index.text(store.id, "1")
        assert {f.kind for f in index.check()} == {"text"}
        assert index.delete_documents(store.id, ["1"]) == ["1"]
        assert index.check() == []
        with index.view(store.id) as view:
            found = [
                p.document
                for p in view.passages(
                    [h.chunk_id for h in view.lexical("document words", k=99)], {}
                )
            ]
        assert set(found) == {"0", "2", "3", "4", "5"}


def test_a_lexical_index_that_lost_rows_is_noticed_and_built_again(data_dir: Path):
    store = filled(data_dir)
    raw = sqlite3.connect(data_dir / "catalogue.sqlite3")
    raw.execute("INSERT INTO lexical_1(lexical_1) VALUES ('delete-all')")
    raw.commit()
    raw.close()
    with Index.open(data_dir) as index:
        assert [f.kind for f in index.check()] == ["lexical"]
        assert [f.kind for f in index.repair()] == ["lexical"]
        assert index.check() == []
        with index.view(store.id) as view:
            assert view.lexical("document", k=3)


def test_a_damaged_catalogue_is_named_and_never_answered_from(data_dir: Path):
    filled(data_dir)
    (data_dir / "catalogue.sqlite3").write_bytes(b"not a database" * 500)
    with pytest.raises(Damaged, match="restore the data folder from a backup"):
        Index.open(data_dir)


@pytest.mark.parametrize("call", ["fsync", "replace", "write"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_refusing_disk_gives_a_named_error_and_changes_nothing(
    index: Index, data_dir: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
):
    store = make_store(index)
    commit(index, store, make_document("kept", "as it was"))
    before = sorted(path.name for path in (data_dir / "segments").iterdir())

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    for act in (
        lambda: commit(index, store, make_document("new", "words")),
        lambda: index.put_blob(b"some bytes"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, refuse)
            with pytest.raises(StorageFailed, match="nothing was changed") as caught:
                act()
        assert isinstance(caught.value, GraftError)
        assert sorted(path.name for path in (data_dir / "segments").iterdir()) == before
        assert_serves(index, store, {"kept": "as it was"})
        assert index.check() == []
    commit(index, store, make_document("new", "words"))
    assert_serves(index, store, {"kept": "as it was", "new": "words"})


def fill_up(index: Index, store: StoreRecord) -> None:
    rng = np.random.default_rng(0)
    for i in range(30):
        text = "".join(chr(c) for c in rng.integers(33, 20000, 20_000))
        commit(index, store, make_document(f"{i}", text, size=20_000))


def test_a_small_full_disk_is_survived(tmp_path: Path):
    """A file-size limit stands in for a full disk: SQLite itself meets it at COMMIT."""
    with Index.open(tmp_path / "data") as index:
        store = make_store(index)
        commit(index, store, make_document("kept", "as it was"))
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
            with pytest.raises(StorageFailed, match="nothing was changed") as caught:
                fill_up(index, store)
            assert "neither committed nor withdrawn" not in caught.value.message
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, old)
        assert index.check() == []
        assert index.text(store.id, "kept") == "as it was"
        commit(index, store, make_document("after", "room again"))
        assert index.check() == []
    with Index.open(tmp_path / "data") as index:
        assert index.check() == []
        assert index.text(store.id, "after") == "room again"


def test_files_that_no_row_names_are_collected_at_start(data_dir: Path):
    store = filled(data_dir)
    for name in ("segments/vectors-dead", "segments/memory-dead", f"blobs/{'0' * 64}"):
        (data_dir / name).write_bytes(b"left by a crash")
    (data_dir / "tmp" / "dead").mkdir()
    (data_dir / "tmp" / "dead" / "half").write_bytes(b"half")
    with Index.open(data_dir) as index:
        assert index.check() == []
        assert not (data_dir / "tmp" / "dead").exists()
        assert_serves(
            index, store, {d.name: index.text_of(d) for d in index.list_documents(store.id)}
        )


def test_collection_at_start_spares_what_living_processes_are_writing(data_dir: Path):
    with Index.open(data_dir) as writer:
        blob = writer.put_blob(b"put, not yet named")
        temporary = writer._core.folder.write_temporary([b"half an upload"])
        with Index.open(data_dir) as other:
            assert other.read_blob(blob.sha256) == b"put, not yet named"
        assert (writer._core.folder.tmp / temporary.name).exists()
        writer.add_file("a", blob, tenant="t", purpose="p")
    with Index.open(data_dir) as later:
        assert later.read_blob(blob.sha256) == b"put, not yet named"


def test_a_blob_that_nobody_named_goes_once_its_session_has_ended(data_dir: Path):
    with Index.open(data_dir) as first:
        first.put_blob(b"never named")
    with Index.open(data_dir) as second:
        assert second.disk_usage()["blobs"] == 0


def test_reading_never_follows_a_folder_that_is_not_a_data_folder(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageFailed, match="create the data folder"):
        Folder(tmp_path / "file" / "inside")


def test_compaction_gives_bytes_back_while_the_index_is_open(index: Index):
    store = make_store(index)
    rng = np.random.default_rng(0)
    for i in range(10):
        text = "".join(chr(c) for c in rng.integers(33, 20000, 20_000))
        commit(index, store, make_document(f"{i}", text, size=20_000))
    before = index.disk_usage()["catalogue"]
    index.delete_documents(store.id, [f"{i}" for i in range(1, 10)])
    index.compact()
    assert index.disk_usage()["catalogue"] < before / 4
    index.text(store.id, "0")
