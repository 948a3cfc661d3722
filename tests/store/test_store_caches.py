"""What is held in memory of a store goes with it, also where another process deletes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from index import Index, NotFound
from tests.store.making import BACKBONE, commit, make_document, make_store, remember


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
