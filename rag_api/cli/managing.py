"""`graft stores`, `documents`, `delete`, `reindex`, `jobs`: what is there, and out with it."""

from __future__ import annotations

from typing import Annotated

import typer

from rag_api.cli.base import TENANT, AsJson, Store, app, graft_of
from rag_api.cli.terminal import print_json, print_table, say
from rag_api.web import views


@app.command()
def stores(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the vector stores."""
    with graft_of(ctx) as graft:
        found = [
            {
                "id": store.id,
                "name": store.name,
                "documents": len(graft.documents.list(store)),
                "embedder": store.embedder,
                "dimension": store.dimension,
                "generation": store.generation,
            }
            for store in graft.stores.list(tenant=TENANT)
        ]
    if as_json:
        print_json(found)
    else:
        print_table(
            ("name", "documents", "embedder", "id"),
            [(s["name"], s["documents"], s["embedder"], s["id"]) for s in found],
        )


@app.command()
def documents(ctx: typer.Context, store: Store, as_json: AsJson = False) -> None:
    """List the documents of a store."""
    with graft_of(ctx) as graft:
        found = graft.documents.list(graft.stores.get(store, tenant=TENANT))
    if as_json:
        print_json([views.document(record) for record in found])
        return
    print_table(
        ("document", "characters", "chunks", "coverage", "token memory"),
        [
            (d.name, d.num_chars, d.num_chunks, f"{d.coverage:.2f}", "yes" if d.memories else "no")
            for d in found
        ],
    )


@app.command()
def delete(
    ctx: typer.Context,
    store: Store,
    names: Annotated[
        list[str] | None, typer.Argument(help="Documents.", metavar="DOCUMENT")
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole-store", help="Delete the store with all its documents.")
    ] = False,
) -> None:
    """Delete documents of a store; no search finds them from then on."""
    if whole == bool(names):
        raise typer.BadParameter("name documents, or give --whole-store")
    with graft_of(ctx) as graft:
        if whole:
            print(f"deleted store {graft.stores.delete(store, tenant=TENANT).name!r}")
            return
        done = graft.documents.delete_many(graft.stores.get(store, tenant=TENANT), names or [])
    for item in done:
        if item.error is not None:
            say(f"graft: {item.error.message}; see `graft documents --store {store}`")
    print(f"deleted {sum(item.deleted for item in done)}")
    if any(item.error is not None for item in done):
        raise typer.Exit(1)


@app.command()
def reindex(ctx: typer.Context, store: Store) -> None:
    """Embed a store again with the embedder of the settings; it answers until that is done."""
    with graft_of(ctx, can_pull=True) as graft:
        record = graft.stores.get(store, tenant=TENANT)
        made = graft.documents.reindex(record, progress=graft.progress)
    print(f"store {made.name!r} now uses {made.embedder!r} (id {made.id})")


@app.command()
def jobs(
    ctx: typer.Context,
    as_json: AsJson = False,
    cancel: Annotated[str | None, typer.Option("--cancel", help="The id of a job to stop.")] = None,
) -> None:
    """List the jobs of the worker, or cancel one."""
    with graft_of(ctx) as graft:
        if cancel is not None:
            graft.jobs.cancel(cancel, tenant=TENANT)
        found = graft.jobs.list(tenant=TENANT)
    if as_json:
        print_json([views.job(job) for job in found])
        return
    print_table(
        ("id", "kind", "state", "error"),
        [(job.id, job.kind, job.state, job.error or "") for job in found],
    )
