"""Mounted token memories: kept while nothing changes, bounded, and gone with their store."""

from __future__ import annotations

import pytest

from index.records import DEFAULT_TENANT, StoreRecord
from knn_lm import KnnShaper
from rag_api.services import memory
from rag_api.services.questions import KnnWish
from rag_api.wiring import Graft
from tests.rag_api.api_server import Local
from tests.rag_api.test_reindexing import put


def built(graft: Graft, name: str) -> StoreRecord:
    store = graft.stores.create(name, tenant=DEFAULT_TENANT)
    put(graft, store, f"{name}.md", f"Some words about {name}.")
    graft.memory.build(store)
    return store


def mounted(graft: Graft, *stores: StoreRecord) -> object:
    shaper, _ = graft.memory.shaper(stores, KnnWish(), None)
    assert isinstance(shaper, KnnShaper)
    return shaper.memory


def test_unchanged_selections_that_share_a_store_are_mounted_once_each(local: Local) -> None:
    graft = local.graft
    one, two = built(graft, "one"), built(graft, "two")
    first = [mounted(graft, one), mounted(graft, one, two)]
    assert [mounted(graft, one), mounted(graft, one, two)] == first
    put(graft, two, "more.md", "More words.")
    assert mounted(graft, one) is first[0]
    assert mounted(graft, one, two) is not first[1]


def test_a_changed_or_deleted_store_leaves_no_mount(local: Local) -> None:
    graft = local.graft
    one, two = built(graft, "one"), built(graft, "two")
    mounted(graft, one, two)
    mounted(graft, two)
    graft.documents.delete(two, "two.md")
    mounted(graft, two)
    assert list(graft.memory._mounted) == [(two.id,)]
    mounted(graft, one)
    graft.stores.delete(two.id, tenant=DEFAULT_TENANT)
    assert list(graft.memory._mounted) == [(one.id,)]


def test_mounts_above_the_bound_go_but_for_the_newest(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    graft = local.graft
    one, two = built(graft, "one"), built(graft, "two")
    monkeypatch.setattr(memory, "MOUNTED_BYTES", 1)
    for store in (one, two):
        mounted(graft, store)
        assert list(graft.memory._mounted) == [(store.id,)]
