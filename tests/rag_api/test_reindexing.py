"""A store is made anew while it is in use: nothing is lost, nothing comes back, nothing stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from index.errors import NotFound
from index.records import DEFAULT_TENANT, StoreRecord
from ingestion import Outcome, SourceFile
from rag_api.services.questions import SearchWish
from rag_api.wiring import Graft
from tests.rag_api.api_server import Local


def put(graft: Graft, store: StoreRecord, name: str, words: str, **attributes: int) -> Outcome:
    made = graft.files.of_document(name, words.encode(), tenant=store.tenant).file
    source = SourceFile(name, sha256=made.sha256, file_id=made.id, attributes=attributes)
    return graft.documents.ingest(store, [source])[0]


def filled(graft: Graft) -> StoreRecord:
    store = graft.stores.create("S", tenant=DEFAULT_TENANT)
    for name, words in (
        ("old.md", "Old words about apples."),
        ("gone.md", "The password is swordfish."),
        ("changed.md", "Ten litres a minute."),
    ):
        assert put(graft, store, name, words).status == "added"
    return graft.stores.get(store.id, tenant=DEFAULT_TENANT)


def once(action: Callable[[], object]) -> Callable[[str, int, int, str], None]:
    """A progress that acts at the first commit."""
    waiting = [action]

    def progress(stage: str, done: int, total: int, unit: str) -> None:
        if stage == "commit" and waiting:
            waiting.pop()()

    return progress


def test_d1_m1_what_changes_during_a_reindex_is_as_if_it_had_come_after(local: Local) -> None:
    graft = local.graft
    store = filled(graft)
    waiting = graft.index.enqueue(
        "ingest", tenant=DEFAULT_TENANT, store_id=store.id, payload={"items": []}
    )

    def meanwhile() -> None:
        put(graft, store, "new.md", "Brand new words.")
        put(graft, store, "changed.md", "Twenty litres a minute.")
        put(graft, store, "old.md", "Old words about apples.", year=7)
        graft.documents.delete(store, "gone.md")

    made = graft.documents.reindex(store, progress=once(meanwhile))
    assert (made.id, made.name, made.created) == (store.id, "S", store.created)
    assert made.generation > store.generation
    assert graft.stores.list(tenant=DEFAULT_TENANT) == [made]
    documents = {each.name: each for each in graft.documents.list(made)}
    assert sorted(documents) == ["changed.md", "new.md", "old.md"]
    assert graft.documents.text(made, "changed.md") == "Twenty litres a minute."
    assert documents["old.md"].attributes == {"year": 7}
    found = graft.searches.search(
        "swordfish password", ["S"], tenant=DEFAULT_TENANT, wish=SearchWish()
    )
    assert "gone.md" not in {passage.document for passage in found}
    assert "gone.md" not in {file.name for file in graft.files.list(tenant=DEFAULT_TENANT)}
    assert graft.index.get_job(waiting.id).state == "queued"
    assert graft.index.check() == []


def test_a_reindexed_store_keeps_the_token_memory_of_its_documents(local: Local) -> None:
    graft = local.graft
    store = filled(graft)
    graft.memory.build(store)
    before = graft.index.memory(store.id, graft.model.fingerprint)
    made = graft.documents.reindex(store)
    after = graft.index.memory(made.id, graft.model.fingerprint)
    assert after.pending == 0
    assert len(after.keys) == len(before.keys)
    assert graft.index.check() == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_reindex_that_ends_in_any_exception_leaves_nothing_behind(
    local: Local, error: type[BaseException]
) -> None:
    graft = local.graft
    store = filled(graft)

    def stop() -> None:
        raise error

    with pytest.raises(error):
        graft.documents.reindex(store, progress=once(stop))
    assert graft.stores.list(tenant=DEFAULT_TENANT) == [store]
    assert len(graft.documents.list(store)) == 3


def test_a_store_that_is_deleted_during_its_reindex_stays_deleted(local: Local) -> None:
    graft = local.graft
    store = filled(graft)
    with pytest.raises(NotFound):
        graft.documents.reindex(
            store, progress=once(lambda: graft.stores.delete(store.id, tenant=DEFAULT_TENANT))
        )
    assert graft.stores.list(tenant=DEFAULT_TENANT) == []
