"""The worker's heart outlives errors, its stops cost a job nothing, and asked jobs are done."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from index.errors import Busy
from index.jobs import MAX_ATTEMPTS
from index.records import DEFAULT_TENANT, JobRecord
from rag_api import worker
from rag_api.settings import Settings, settings_from_plain
from rag_api.wiring import Graft
from rag_api.worker import Heart, Worker
from tests.rag_api.api_server import Local, wait_until


@contextmanager
def failing_beats(graft: Graft, count: int) -> Iterator[None]:
    """Let the first beats meet a writer that holds the lock for too long."""
    beat, left = graft.index.heartbeat, [count]

    def heartbeat(job_id: str, name: str, progress: Mapping[str, Any]) -> bool:
        left[0] -= 1
        if left[0] >= 0:
            raise Busy("another writer has held the lock for over 60 s")
        return beat(job_id, name, progress)

    graft.index.heartbeat = heartbeat  # type: ignore[method-assign]
    yield
    assert left[0] < count


def claimed(graft: Graft) -> JobRecord:
    store = graft.stores.create("s", tenant=DEFAULT_TENANT)
    graft.index.enqueue("ingest", tenant=DEFAULT_TENANT, store_id=store.id, payload={"items": []})
    job = graft.index.claim_job("w", lease_s=60)
    assert job is not None
    return job


def test_j3_a_cancel_is_seen_after_a_beat_that_failed(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "BEAT_S", 0.05)
    job = claimed(local.graft)
    with (
        failing_beats(local.graft, 3),
        Heart(local.graft, job, "w", threading.Event()) as heart,
    ):
        heart.progress("embed", 1, 2, "chunks")
        wait_until(lambda: local.graft.index.get_job(job.id).progress, timeout_s=10)
        assert not heart.cancelled()
        local.graft.index.cancel_job(job.id, tenant=DEFAULT_TENANT)
        wait_until(heart.lost, timeout_s=10)


def test_j1_a_job_without_a_beat_for_a_whole_lease_is_lost(
    plain_settings: dict[str, Any], settings: Settings
) -> None:
    short = {**plain_settings, "data_dir": str(settings.data_dir), "lease_s": 2}
    graft = Graft(settings_from_plain(short))
    job = claimed(graft)
    with failing_beats(graft, 1000), Heart(graft, job, "w", threading.Event()) as heart:
        assert not heart.lost()
        wait_until(heart.lost, timeout_s=10)
    graft.close()


def test_graceful_stops_spend_no_attempts_of_a_job(local: Local) -> None:
    store = local.graft.stores.create("s", tenant=DEFAULT_TENANT)
    made = local.graft.files.upload("a.md", b"Ten litres.", tenant=DEFAULT_TENANT).file
    path = f"/v1/vector_stores/{store.id}/files"
    local.request("POST", path, json={"file_id": made.id})
    stopped = threading.Event()
    stopped.set()
    for _ in range(2 * MAX_ATTEMPTS):
        assert Worker(local.graft, stopped).run_one()
        (job,) = local.graft.index.list_jobs(tenant=DEFAULT_TENANT)
        assert (job.state, job.attempts, job.error) == ("queued", 0, None)
    local.work()
    assert local.graft.index.get_job(job.id).state == "done"


def test_a_build_that_was_asked_for_is_not_the_one_that_skips_above_a_limit(
    local: Local,
) -> None:
    store = local.graft.stores.create("s", tenant=DEFAULT_TENANT)
    made = local.graft.files.upload("a.md", b"Ten litres.", tenant=DEFAULT_TENANT).file
    local.request("POST", f"/v1/vector_stores/{store.id}/files", json={"file_id": made.id})
    single = Worker(local.graft, threading.Event())
    assert single.run_one()
    (auto,) = local.graft.index.list_jobs(tenant=DEFAULT_TENANT, state="queued")
    assert auto.payload == {"auto": True}
    path = f"/v1/vector_stores/{store.id}/memory"
    asked = [local.request("POST", path).json()["id"] for _ in range(2)]
    assert asked[0] == asked[1] != auto.id
    assert local.graft.index.get_job(asked[0]).payload == {}
