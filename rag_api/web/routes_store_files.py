"""Files, batches and documents inside a vector store: attach, upload raw, list, read, delete."""

from __future__ import annotations

import tempfile
from typing import Annotated, Any, BinaryIO, cast

from fastapi import APIRouter, Query, Request, Response

from index.errors import InvalidInput, NotFound
from index.records import StoreRecord
from rag_api.services.jobs import Wanted
from rag_api.web import pages, views
from rag_api.web.dependencies import After, GraftPart, Limit, Order, Tenant, in_thread
from rag_api.web.routes_stores import chunk_sizes
from rag_api.web.schemas import BatchAttach, ChunkingStrategy, DocumentsDelete, FileAttach
from rag_api.wiring import Graft

router = APIRouter(prefix="/v1/vector_stores/{store_id}", tags=["vector store files"])
RAW_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post("/files")
def attach_file(
    store_id: str, body: FileAttach, graft: GraftPart, tenant: Tenant
) -> dict[str, Any]:
    """Put a file into the store; a job ingests it, `status` says how far it is."""
    store = graft.stores.get(store_id, tenant=tenant)
    refuse_other_sizes(graft, store, body.chunking_strategy)
    wanted = Wanted(body.file_id, body.attributes or {})
    return views.store_file(graft.jobs.attach(store, wanted, tenant=tenant))


@router.get("/files")
def list_store_files(
    store_id: str,
    graft: GraftPart,
    tenant: Tenant,
    after: After = None,
    limit: Limit = 20,
    order: Order = "desc",
    status: Annotated[str | None, Query(alias="filter")] = None,
) -> dict[str, Any]:
    """List the files of a store, newest first; `filter` takes a status."""
    store = graft.stores.get(store_id, tenant=tenant)
    items = [views.store_file(item) for item in graft.jobs.stored_files(store, tenant=tenant)]
    return pages.cut(
        items,
        after=after,
        limit=limit,
        order=order,
        keep=lambda item: status in (None, item["status"]),
    )


@router.get("/files/{file_id}")
def get_store_file(store_id: str, file_id: str, graft: GraftPart, tenant: Tenant) -> dict[str, Any]:
    """Show where one file of a store stands."""
    store = graft.stores.get(store_id, tenant=tenant)
    return views.store_file(graft.jobs.stored_file(store, file_id, tenant=tenant))


@router.get("/files/{file_id}/content")
def get_store_file_content(
    store_id: str, file_id: str, graft: GraftPart, tenant: Tenant
) -> dict[str, Any]:
    """Give the text that was extracted from a file of a store."""
    store = graft.stores.get(store_id, tenant=tenant)
    item = graft.jobs.stored_file(store, file_id, tenant=tenant)
    if item.document is None:
        raise NotFound(f"file {file_id!r} has no text in this store yet")
    text = graft.documents.text(store, item.document.name)
    data = [{"type": "text", "text": text}]
    return {"object": "vector_store.file_content.page", "data": data, "has_more": False}


@router.delete("/files/{file_id}")
def detach_file(store_id: str, file_id: str, graft: GraftPart, tenant: Tenant) -> dict[str, Any]:
    """Take a file out of a store; no search finds it from now on. The file itself stays."""
    store = graft.stores.get(store_id, tenant=tenant)
    graft.jobs.detach(store, file_id, tenant=tenant)
    return views.deleted(file_id, "vector_store.file")


@router.post("/file_batches")
def attach_batch(
    store_id: str, body: BatchAttach, graft: GraftPart, tenant: Tenant
) -> dict[str, Any]:
    """Put several files into the store; a bad one is an item with an error, the others are done."""
    store = graft.stores.get(store_id, tenant=tenant)
    refuse_other_sizes(graft, store, body.chunking_strategy)
    return views.batch(store, graft.jobs.attach_many(store, wanted_of(body), tenant=tenant))


@router.get("/file_batches/{batch_id}")
def get_batch(store_id: str, batch_id: str, graft: GraftPart, tenant: Tenant) -> dict[str, Any]:
    """Show how far a batch is."""
    store = graft.stores.get(store_id, tenant=tenant)
    job = graft.jobs.of_batch(store, batch_id, tenant=tenant)
    return views.batch_of_job(job, graft.jobs.stored_files(store, tenant=tenant))


@router.put("/documents/{name:path}", status_code=202, openapi_extra=RAW_BODY)
async def put_document(
    store_id: str, name: str, request: Request, graft: GraftPart, tenant: Tenant
) -> dict[str, Any]:
    """Upload raw bytes as a document of this name; a job ingests them."""
    store = await in_thread(graft.stores.get, store_id, tenant=tenant)
    await in_thread(graft.check_embedder, store)
    with tempfile.TemporaryFile() as spool:
        async for block in request.stream():
            await in_thread(spool.write, block)
        await in_thread(spool.seek, 0)
        made = await in_thread(graft.files.of_document, name, cast(BinaryIO, spool), tenant=tenant)
    item = await in_thread(graft.jobs.attach, store, Wanted(made.file.id, {}), tenant=tenant)
    return views.store_file(item)


@router.get("/documents")
def list_documents(
    store_id: str, graft: GraftPart, tenant: Tenant, after: After = None, limit: Limit = 100
) -> dict[str, Any]:
    """List the documents of a store, by name."""
    store = graft.stores.get(store_id, tenant=tenant)
    found = graft.documents.list(store, after=after, limit=limit + 1)
    shown = [views.document(record) for record in found[:limit]]
    return pages.page(shown, has_more=len(found) > limit)


@router.post("/documents/delete")
def delete_documents(
    store_id: str, body: DocumentsDelete, graft: GraftPart, tenant: Tenant
) -> dict[str, Any]:
    """Delete documents by name: one result each; a repeated name refuses the whole call."""
    store = graft.stores.get(store_id, tenant=tenant)
    done = graft.documents.delete_many(store, body.documents)
    return {
        "object": "list",
        "data": [
            {
                "document": item.document,
                "deleted": item.deleted,
                "error": {"code": item.error.code, "message": item.error.message}
                if item.error
                else None,
            }
            for item in done
        ],
    }


@router.get("/documents/{name:path}")
def get_document(store_id: str, name: str, graft: GraftPart, tenant: Tenant) -> dict[str, Any]:
    """Show one document."""
    store = graft.stores.get(store_id, tenant=tenant)
    return views.document(graft.documents.get(store, name))


@router.delete("/documents/{name:path}")
def delete_document(store_id: str, name: str, graft: GraftPart, tenant: Tenant) -> dict[str, Any]:
    """Delete one document; no search finds it from now on."""
    store = graft.stores.get(store_id, tenant=tenant)
    graft.documents.delete(store, name)
    return views.deleted(name, "graft.document")


@router.get("/texts/{name:path}", response_class=Response)
def get_text(store_id: str, name: str, graft: GraftPart, tenant: Tenant) -> Response:
    """Give exactly the extracted text of a document; all offsets count its code points."""
    store = graft.stores.get(store_id, tenant=tenant)
    text = graft.documents.text(store, name)
    return Response(
        text.encode("utf-8", "surrogatepass"),
        media_type="text/plain; charset=utf-8",
        headers={"x-content-type-options": "nosniff"},
    )


def wanted_of(body: BatchAttach) -> list[Wanted]:
    """Read the files of a batch from either of its two forms."""
    if (body.file_ids is None) == (body.files is None):
        raise InvalidInput("send either 'file_ids' or 'files'", param="file_ids")
    if body.files is not None:
        return [Wanted(i.file_id, i.attributes or body.attributes or {}) for i in body.files]
    return [Wanted(file_id, body.attributes or {}) for file_id in body.file_ids or ()]


def refuse_other_sizes(graft: Graft, store: StoreRecord, strategy: ChunkingStrategy | None) -> None:
    """Refuse chunk sizes that are not the store's: a store is cut in one way."""
    sizes = chunk_sizes(graft, strategy)
    own = (store.chunking["size"], store.chunking["overlap"], store.chunking["splitter"])
    if sizes is not None and (sizes.size, sizes.overlap, sizes.splitter) != own:
        raise InvalidInput(
            f"this store cuts its texts with (size, overlap, splitter) = {own}; leave "
            "chunking_strategy out, or create another store",
            param="chunking_strategy",
        )
