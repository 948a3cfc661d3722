"""The application: settings in, a FastAPI application with its own worker process out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware import Middleware

from rag_api import processes
from rag_api.settings import Settings
from rag_api.supervisor import Supervisor
from rag_api.web import (
    problems,
    routes_chat,
    routes_files,
    routes_health,
    routes_jobs,
    routes_models,
    routes_store_files,
    routes_stores,
)
from rag_api.web.dependencies import in_thread
from rag_api.web.middleware import BodyLimit, KeyCheck, RequestId
from rag_api.web.readiness import Readiness
from rag_api.wiring import Graft

VERSION = "0.1.0"
DESCRIPTION = (
    "Graft answers questions about your documents with a frozen language model. The API is "
    "OpenAI's, with extras under `retrieval`, `knn`, `include` and `graft`."
)


def create_app(settings: Settings) -> FastAPI:
    """Build the application. Its start fails where a configured reranker cannot be loaded (S5)."""
    processes.prepare(settings)
    graft = Graft(settings)
    supervisor = Supervisor(settings) if settings.worker else None
    readiness = Readiness(graft, supervisor)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await in_thread(lambda: graft.index)
        await in_thread(lambda: graft.reranker)
        readiness.start()
        if supervisor is not None:
            supervisor.start()
        try:
            yield
        finally:
            if supervisor is not None:
                await in_thread(supervisor.stop)
            await in_thread(readiness.stop)
            await in_thread(graft.close)

    app = FastAPI(
        title="Graft",
        version=VERSION,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # the pages of FastAPI load scripts from elsewhere
        redoc_url=None,
        middleware=middleware(settings),
    )
    app.state.graft = graft
    app.state.readiness = readiness
    app.state.supervisor = supervisor
    problems.install(app)
    for routes in (
        routes_files,
        routes_stores,
        routes_store_files,
        routes_chat,
        routes_models,
        routes_jobs,
        routes_health,
    ):
        app.include_router(routes.router)
    return app


def middleware(settings: Settings) -> list[Middleware]:
    """Give the middleware, outermost first: the key is checked before the body is looked at."""
    limits = settings.limits
    return [
        Middleware(RequestId),
        Middleware(KeyCheck, digests=settings.key_digests()),
        Middleware(BodyLimit, body_bytes=limits.body_bytes, upload_bytes=limits.upload_bytes),
    ]
