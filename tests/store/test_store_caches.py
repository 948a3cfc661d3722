"""What is held in memory of a store goes with it, also where another process deletes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from index import Index, NotFound
from tests.store.making import (
    BACKBONE,
    commit,
    make_document,
    make_memory,
    make_store,
    remember,
)


def test_d1_stores_that_another_process_deleted_are_held_no_longer(data_dir: Path) -> None:
    with Index.open(data_dir) as one, Index.open(data_dir) as other:
        stores = [make_store(one, name) for name in ("a", "b", "c")]
        for store in stores:
            commit(one, store, make_document("x", f"Some words of {store.name}."))
            remember(one, store)
        for store in stores[:2]:
            with other.view(store.id):
                other.memory(store.id, BACKBONE)
        assert other._core._held() == {1, 2}
        one.delete_store(stores[0].id, tenant="t")
        with pytest.raises(NotFound):
            other.memory(stores[0].id, BACKBONE)
        assert other._core._held() == {2}
        one.delete_store(stores[1].id, tenant="t")
        with other.view(stores[2].id):
            assert other._core._held() == {3}


def test_keys_that_another_process_built_anew_take_the_place_of_the_old_ones(
    data_dir: Path,
) -> None:
    with Index.open(data_dir) as one, Index.open(data_dir) as other:
        store = make_store(one)
        commit(one, store, make_document("x", "Some words."), make_document("y", "Others."))
        remember(one, store)
        other.memory(store.id, BACKBONE)
        document = one.get_document(store.id, "x")
        again = make_memory("Not the same.")
        assert one.forget_memory(document, BACKBONE)
        shown = make_memory("Some words.")
        assert one.commit_memory(
            document, BACKBONE, type(shown)(shown.tokens, shown.starts, shown.ends, again.keys[:10])
        )
        for index in (one, other):
            view = index.memory(store.id, BACKBONE)
            place = [each.name for each in view.documents].index("x")
            assert np.array_equal(view.keys[view.document_of == place], again.keys[:10])
            assert view.pending == 0
