"""`graft serve` and `graft worker`: the long-running processes."""

from __future__ import annotations

import logging
import signal
import threading
from typing import Annotated

import typer

from rag_api import processes
from rag_api.cli.base import app, graft_of, settings_of
from rag_api.cli.terminal import say

GRACE_S = 5


@app.command()
def serve(
    ctx: typer.Context,
    host: Annotated[str | None, typer.Option("--host")] = None,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65_535)] = None,
) -> None:
    """Serve the OpenAI-compatible API; starts its own worker."""
    import uvicorn

    from rag_api.web.app import create_app

    settings = settings_of(ctx, host=host, port=port)
    with graft_of(ctx, can_pull=True) as graft:  # what is missing is fetched now, not at a question
        graft.require_model(settings.embedder_source)
        graft.require_model(settings.backbone)
        _ = graft.reranker
    processes.forbid_network()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    say(
        f"graft: serving on http://{settings.host}:{settings.port}/v1 (data in {settings.data_dir})"
    )
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_level="warning",
        timeout_graceful_shutdown=GRACE_S,
    )


@app.command()
def worker(ctx: typer.Context) -> None:
    """Run a worker that ingests what the API was sent (the server starts one by itself)."""
    from rag_api.worker import run

    settings = settings_of(ctx)
    processes.forbid_network()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    say(f"graft: working on {settings.data_dir}; Ctrl-C stops")
    run(settings, stop)
