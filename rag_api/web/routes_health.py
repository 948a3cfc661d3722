"""`/healthz` and `/readyz`."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Say that the process answers; touches nothing else."""
    return {"status": "ok"}


@router.get("/readyz", response_class=JSONResponse)
async def readyz(request: Request) -> JSONResponse:
    """Say whether every part is ready; 503 names those that are not."""
    is_ready, body = request.app.state.readiness.report()
    return JSONResponse(body, 200 if is_ready else 503)
