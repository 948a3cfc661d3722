"""Token memory at the store: case T4, borders, replaced versions, refusals."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from index import FingerprintMismatch, Index, InvalidInput, MemoryArrays
from tests.store.making import (
    BACKBONE,
    commit,
    make_document,
    make_memory,
    make_store,
    remember,
)


@pytest.mark.parametrize("vocabulary", [49_152, 65_536, 65_537, 262_144])
def test_t4_values_of_every_vocabulary_round_trip(data_dir: Path, vocabulary: int):
    rng = np.random.default_rng(vocabulary)
    tokens = np.concatenate([[0, vocabulary - 1], rng.integers(0, vocabulary, 498)])
    keys = rng.normal(size=(499, 8)).astype(np.float16)
    arrays = MemoryArrays(tokens, np.arange(500), np.arange(1, 501), keys)
    with Index.open(data_dir) as index:
        store = make_store(index)
        commit(index, store, make_document("a", "x" * 500))
        assert index.commit_memory(index.get_document(store.id, "a"), BACKBONE, arrays)
    with Index.open(data_dir) as index:
        view = index.memory(store.id, BACKBONE)
        np.testing.assert_array_equal(view.values, tokens[1:])
        np.testing.assert_array_equal(view.starts, np.arange(1, 500))
        np.testing.assert_array_equal(view.ends, np.arange(2, 501))
        np.testing.assert_array_equal(view.keys, keys)
        assert view.values.dtype == np.int64


def test_entries_of_several_documents_stay_apart(index: Index):
    store, texts = make_store(index), {"a": "first words", "b": "x", "c": "", "d": "last"}
    commit(index, store, *(make_document(name, text) for name, text in texts.items()))
    assert len(index.pending_memory(store.id, BACKBONE)) == 4
    assert index.memory(store.id, BACKBONE).pending == 4
    remember(index, store)
    view = index.memory(store.id, BACKBONE)
    assert view.pending == 0
    assert view.generation == index.get_store(store.id, tenant="t").generation
    for number, document in enumerate(view.documents):
        mine, text = view.document_of == number, texts[document.name]
        assert [text[s:e] for s, e in zip(view.starts[mine], view.ends[mine], strict=True)] == list(
            text[1:]
        )
    assert index.get_document(store.id, "a").memories == (BACKBONE,)
    assert index.pending_memory(store.id, "another backbone")
    assert len(index.memory(store.id, "another backbone").values) == 0


def test_a_memory_of_a_version_that_was_replaced_or_deleted_is_not_kept(index: Index):
    store = make_store(index)
    commit(index, store, make_document("a", "one"), make_document("b", "two"))
    old = {d.name: d for d in index.list_documents(store.id)}
    commit(index, store, make_document("a", "new"))
    index.delete_documents(store.id, ["b"])
    for document in old.values():
        assert index.commit_memory(document, BACKBONE, make_memory("xyz")) is False
    assert index.disk_usage()["memory"] == 0
    assert len(index.memory(store.id, BACKBONE).values) == 0


def test_the_same_memory_twice_is_kept_once(index: Index):
    store = make_store(index)
    commit(index, store, make_document("a", "words"))
    document = index.get_document(store.id, "a")
    for _ in range(2):
        assert index.commit_memory(document, BACKBONE, make_memory("words"))
    assert len(index.memory(store.id, BACKBONE).values) == 4
    assert index.forget_memory(document, BACKBONE)
    assert not index.forget_memory(document, BACKBONE)
    assert len(index.memory(store.id, BACKBONE).values) == 0


def test_keys_of_another_width_under_one_fingerprint_are_refused(index: Index):
    store = make_store(index)
    commit(index, store, make_document("a", "words"), make_document("b", "more"))
    one, two = index.list_documents(store.id)
    index.commit_memory(one, BACKBONE, make_memory("words", dim=8))
    with pytest.raises(FingerprintMismatch, match="keys of 8"):
        index.commit_memory(two, BACKBONE, make_memory("more", dim=9))
    assert index.commit_memory(two, "other", make_memory("more", dim=9))


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens": np.array([1, 2, -1])},
        {"tokens": np.array([1, 2, 2**31])},
        {"tokens": np.array([1.0, 2.0, 3.0])},
        {"tokens": np.array([1, 2])},
        {"ends": np.array([1, 2, 4])},
        {"starts": np.array([0, 3, 2])},
        {"starts": np.array([-1, 1, 2])},
        {"keys": np.ones((3, 8), np.float16)},
        {"keys": np.ones((2, 8), np.float32)},
        {"keys": np.full((2, 8), np.inf, np.float16)},
    ],
)
def test_arrays_that_cannot_be_a_memory_are_refused(index: Index, changes: dict[str, np.ndarray]):
    store = make_store(index)
    commit(index, store, make_document("a", "abc"))
    arrays = dataclasses.replace(make_memory("abc"), **changes)
    with pytest.raises(InvalidInput):
        index.commit_memory(index.get_document(store.id, "a"), BACKBONE, arrays)
