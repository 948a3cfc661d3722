"""The job queue: leases, retries, cancelling, dead letters; stores and files by tenant."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from index import Blob, Conflict, Index, InvalidInput, NotFound, TooLarge
from index.jobs import MAX_ATTEMPTS
from tests.store.making import commit, make_document, make_store


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(data_dir: Path, clock: Clock) -> Iterator[Index]:
    with Index.open(data_dir, clock=clock) as index:
        yield index


def enqueue(index: Index, kind: str = "ingest", key: str | None = None, tenant: str = "t"):
    return index.enqueue(kind, tenant=tenant, store_id=None, payload={"n": 1}, dedupe_key=key)


def test_jobs_come_in_order_to_one_worker_each(queue: Index):
    jobs = [enqueue(queue), enqueue(queue, "memory"), enqueue(queue)]
    assert jobs[0].state == "queued"
    claimed = [queue.claim_job("w", lease_s=9, kinds=["ingest"]) for _ in range(3)]
    assert [job.id if job else None for job in claimed] == [jobs[0].id, jobs[2].id, None]
    rest = queue.claim_job("w", lease_s=9)
    assert rest is not None
    assert (rest.id, rest.state, rest.attempts) == (jobs[1].id, "running", 1)
    assert rest.payload == {"n": 1}


def test_j1_a_lost_lease_gives_the_job_to_the_next_worker(queue: Index, clock: Clock):
    job = enqueue(queue)
    assert queue.claim_job("one", lease_s=10)
    clock.now += 9
    assert queue.heartbeat(job.id, "one", {"done": 1})
    clock.now += 9
    assert queue.claim_job("two", lease_s=10) is None
    clock.now += 2
    taken = queue.claim_job("two", lease_s=10)
    assert taken is not None
    assert (taken.attempts, taken.worker, taken.progress) == (2, "two", {"done": 1})
    assert not queue.heartbeat(job.id, "one", {})
    assert not queue.finish_job(job.id, "one", result={})
    assert queue.finish_job(job.id, "two", result={"ok": True})
    assert queue.get_job(job.id).result == {"ok": True}


def test_a_job_that_kills_its_workers_ends_on_the_dead_letter_list(queue: Index, clock: Clock):
    job = enqueue(queue)
    following = enqueue(queue)
    for _ in range(MAX_ATTEMPTS):
        taken = queue.claim_job("w", lease_s=1)
        assert taken is not None
        assert taken.id == job.id
        clock.now += 2
    taken = queue.claim_job("w", lease_s=1)
    assert taken is not None
    assert taken.id == following.id
    (dead,) = queue.list_jobs(tenant="t", state="failed")
    assert (dead.id, dead.error_code) == (job.id, "worker_lost")


def test_a_failed_job_is_retried_later_or_never(queue: Index, clock: Clock):
    job = enqueue(queue)
    queue.claim_job("w", lease_s=9)
    assert queue.fail_job(job.id, "w", error="no luck", code="busy", retry_in_s=30)
    assert queue.claim_job("w", lease_s=9) is None
    clock.now += 30
    assert queue.claim_job("w", lease_s=9) is not None
    assert queue.fail_job(job.id, "w", error="broken", code="parse_error", retry_in_s=None)
    ended = queue.get_job(job.id)
    assert (ended.state, ended.error, ended.error_code) == ("failed", "broken", "parse_error")
    clock.now += 999
    assert queue.claim_job("w", lease_s=9) is None


def test_j3_a_cancelled_job_is_told_at_its_next_heartbeat(queue: Index):
    job = enqueue(queue)
    queue.claim_job("w", lease_s=9)
    with pytest.raises(NotFound):
        queue.cancel_job(job.id, tenant="other")
    assert queue.cancel_job(job.id, tenant="t").state == "cancelled"
    assert not queue.heartbeat(job.id, "w", {})
    store = make_store(queue)
    with pytest.raises(Conflict, match="cancelled"):
        queue.commit_documents(
            store.id,
            [make_document("a", "x")],
            embedder_fingerprint="embedder-1",
            during_job=job.id,
            worker="w",
        )
    assert queue.list_documents(store.id) == []


def test_a_dedupe_key_joins_live_jobs_of_one_tenant_and_kind_only(queue: Index):
    first = enqueue(queue, key="k")
    assert enqueue(queue, key="k").id == first.id
    others = {enqueue(queue, "memory", "k").id, enqueue(queue, key="k", tenant="u").id}
    assert first.id not in others
    queue.cancel_job(first.id, tenant="t")
    assert enqueue(queue, key="k").id != first.id


def test_stores_are_found_by_id_and_name_by_their_own_tenant_only(index: Index):
    store = make_store(index, "docs")
    assert store.id.startswith("vs_")
    assert index.get_store("docs", tenant="t") == index.get_store(store.id, tenant="t") == store
    with pytest.raises(Conflict, match="'docs'"):
        make_store(index, "docs")
    other = make_store(index, "docs", tenant="u")
    assert index.list_stores(tenant="t") == [store]
    for act in (
        lambda: index.get_store(other.id, tenant="t"),
        lambda: index.update_store(other.id, tenant="t", name="x"),
        lambda: index.delete_store(other.id, tenant="t"),
    ):
        with pytest.raises(NotFound, match=f"no vector store '{other.id}'"):
            act()
    renamed = index.update_store(store.id, tenant="t", name="new", metadata={"a": "b"})
    assert (renamed.name, renamed.metadata, renamed.id) == ("new", {"a": "b"}, store.id)
    make_store(index, "docs")
    with pytest.raises(Conflict):
        index.update_store(store.id, tenant="t", name="docs")


def test_a_store_named_like_an_id_does_not_shadow_it(index: Index):
    store = make_store(index, "docs")
    make_store(index, store.id)
    assert index.get_store(store.id, tenant="t").name == "docs"


def test_deleting_a_store_takes_all_it_held_and_cancels_its_jobs(index: Index, data_dir: Path):
    store, kept = make_store(index, "gone"), make_store(index, "kept")
    for each in (store, kept):
        commit(index, each, make_document("a", "shared"), make_document(each.name, each.name * 9))
    job = index.enqueue("memory", tenant="t", store_id=store.id, payload={})
    index.delete_store(store.id, tenant="t")
    assert index.get_job(job.id).state == "cancelled"
    assert index.text(kept.id, "a") == "shared"
    for act in (lambda: index.view(store.id).__enter__(), lambda: index.list_documents(store.id)):
        with pytest.raises(NotFound):
            act()
    assert len(list((data_dir / "segments").iterdir())) == 1


def test_files_are_listed_in_pages_in_both_orders(index: Index):
    blob = index.put_blob(b"x")
    records = [index.add_file(f"{i}", blob, tenant="t", purpose="p")[0] for i in range(5)]
    index.add_file("foreign", blob, tenant="u", purpose="p")
    assert index.list_files(tenant="t", order="asc") == records
    page = index.list_files(tenant="t", limit=2)
    assert page == records[::-1][:2]
    assert index.list_files(tenant="t", after=page[-1].id) == records[:3][::-1]
    assert index.list_files(tenant="t", purpose="q") == []
    for file_id in ("file-unknown", index.list_files(tenant="u")[0].id):
        for act in (index.get_file, index.delete_file):
            with pytest.raises(NotFound, match=f"no file '{file_id}'"):
                act(file_id, tenant="t")


def test_documents_are_listed_in_pages_by_name(index: Index):
    store = make_store(index)
    commit(index, store, *(make_document(n, n * 3) for n in "dbca"))
    assert [d.name for d in index.list_documents(store.id, limit=2)] == ["a", "b"]
    assert [d.name for d in index.list_documents(store.id, after="b")] == ["c", "d"]


def test_too_many_bytes_are_refused_and_leave_nothing(index: Index, data_dir: Path):
    with pytest.raises(TooLarge, match="at most 10 bytes"):
        index.put_blob(b"x" * 11, max_bytes=10)
    assert list((data_dir / "blobs").iterdir()) == []
    assert [p.name for p in next((data_dir / "tmp").iterdir()).iterdir()] == ["alive"]
    assert index.put_blob(b"x" * 10, max_bytes=10).num_bytes == 10


def test_naming_bytes_that_are_not_there_is_refused(index: Index):
    with pytest.raises(Conflict, match="upload them again"):
        index.add_file("a", Blob("0" * 64, 1, True), tenant="t", purpose="p")
    for name in ("../../etc/passwd", "0" * 63, "A" * 64):
        with pytest.raises(InvalidInput):
            index.blob_path(name)
    with pytest.raises(NotFound):
        index.read_blob("0" * 64)
