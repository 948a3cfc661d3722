"""`/v1/files`: upload (streamed to disk), list, read, delete."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from starlette.datastructures import UploadFile

from index import FileRecord
from index.errors import InvalidInput, NotFound
from rag_api.web import pages, views
from rag_api.web.dependencies import After, GraftPart, Limit, Order, Tenant, in_thread

router = APIRouter(prefix="/v1/files", tags=["files"])
UPLOAD_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "purpose": {"type": "string", "default": "user_data"},
                    },
                }
            }
        },
    }
}


@router.post("", openapi_extra=UPLOAD_BODY)
async def upload_file(request: Request, graft: GraftPart, tenant: Tenant) -> dict[str, Any]:
    """Upload a file. The bytes are durable when this answers.

    The same name with the same bytes is the same file: its id comes back, with
    `graft.duplicate_of`.
    """
    async with request.form(max_files=1, max_fields=4) as form:
        unknown = sorted(set(form) - {"file", "purpose"})
        if unknown:
            raise InvalidInput(f"unsupported field {unknown[0]!r}; leave it out", param=unknown[0])
        part, purpose = form.get("file"), form.get("purpose", "user_data")
        if not isinstance(part, UploadFile) or not isinstance(purpose, str):
            raise InvalidInput(
                "a multipart form with the file in field 'file' is needed", param="file"
            )
        made = await in_thread(
            graft.files.upload, part.filename or "", part.file, tenant=tenant, purpose=purpose
        )
    return views.file(made.file, is_new=made.is_new)


@router.get("")
def list_files(
    graft: GraftPart,
    tenant: Tenant,
    after: After = None,
    limit: Limit = 100,
    order: Order = "desc",
    purpose: Annotated[str | None, Query()] = None,
) -> dict[str, Any]:
    """List the files, newest first."""

    def listed(start: str | None) -> list[FileRecord]:
        return graft.files.list(
            tenant=tenant, after=start, limit=limit + 1, order=order, purpose=purpose
        )

    try:
        found = listed(after)
    except NotFound:
        if after is None or not pages.names_gone(after):
            raise
        found = listed(None)
    return pages.page([views.file(f) for f in found[:limit]], has_more=len(found) > limit)


@router.get("/{file_id}")
def get_file(file_id: str, graft: GraftPart, tenant: Tenant) -> dict[str, Any]:
    """Show one file."""
    return views.file(graft.files.get(file_id, tenant=tenant))


@router.get("/{file_id}/content", response_class=Response)
def get_file_content(file_id: str, graft: GraftPart, tenant: Tenant) -> Response:
    """Give a file's bytes, as an attachment."""
    return Response(
        graft.files.content(file_id, tenant=tenant),
        media_type="application/octet-stream",
        headers={"content-disposition": "attachment", "x-content-type-options": "nosniff"},
    )


@router.delete("/{file_id}")
def delete_file(file_id: str, graft: GraftPart, tenant: Tenant) -> dict[str, Any]:
    """Delete a file, and its document in every vector store."""
    return views.deleted(graft.files.delete(file_id, tenant=tenant).id, "file")
