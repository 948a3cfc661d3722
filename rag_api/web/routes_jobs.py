"""`/v1/jobs` and the token memory of a store."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from index import JobState
from rag_api.web import pages, views
from rag_api.web.dependencies import After, GraftPart, Limit, Order, Tenant

router = APIRouter(prefix="/v1", tags=["jobs"])


@router.get("/jobs")
def list_jobs(
    graft: GraftPart,
    tenant: Tenant,
    after: After = None,
    limit: Limit = 100,
    order: Order = "desc",
    vector_store_id: Annotated[str | None, Query()] = None,
    state: Annotated[JobState | None, Query()] = None,
) -> dict[str, Any]:
    """List the jobs, newest first."""
    found = graft.jobs.list(tenant=tenant, store_id=vector_store_id)
    items = [views.job(job) for job in sorted(found, key=lambda job: job.created)]
    return pages.cut(
        items,
        after=after,
        limit=limit,
        order=order,
        keep=lambda item: state in (None, item["state"]),
    )


@router.get("/jobs/{job_id}")
def get_job(job_id: str, graft: GraftPart, tenant: Tenant) -> dict[str, Any]:
    """Show one job with its progress."""
    return views.job(graft.jobs.get(job_id, tenant=tenant))


@router.post("/jobs/{job_id}/cancel")
def cancel_job(job_id: str, graft: GraftPart, tenant: Tenant) -> dict[str, Any]:
    """Ask a job to stop; what it committed stays."""
    return views.job(graft.jobs.cancel(job_id, tenant=tenant))


@router.get("/vector_stores/{store_id}/memory")
def get_memory(store_id: str, graft: GraftPart, tenant: Tenant) -> dict[str, Any]:
    """Say which documents of a store the token memory holds."""
    store = graft.stores.get(store_id, tenant=tenant)
    status = graft.memory.status(store)
    return {
        "object": "graft.memory",
        "vector_store_id": store.id,
        "backbone": views.model_id(graft.settings.backbone),
        "documents": status.num_documents,
        "ready": status.num_ready,
        "pending": list(status.pending),
    }


@router.post("/vector_stores/{store_id}/memory", status_code=202)
def build_memory(store_id: str, graft: GraftPart, tenant: Tenant) -> dict[str, Any]:
    """Build the token memory of a store's documents that lack it; a job does it."""
    store = graft.stores.get(store_id, tenant=tenant)
    return views.job(graft.jobs.build_memory(store, tenant=tenant))
