"""`graft ingest` and `graft memory`: documents in, passages first, then token keys."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from index.errors import GraftError, UnsupportedFormat
from index.records import StoreRecord
from rag_api.cli import sources
from rag_api.cli.base import TENANT, AsJson, Store, app, graft_of
from rag_api.cli.terminal import print_json, print_table, say
from rag_api.services.memory import Built, Estimate
from rag_api.wiring import Graft
from rag_api.worker import outcome_json

if TYPE_CHECKING:
    from ingestion import SourceFile

memory_app = typer.Typer(help="The token memory of a store.", no_args_is_help=True)
app.add_typer(memory_app, name="memory")

Paths = Annotated[list[Path], typer.Argument(help="Files and folders.")]
Root = Annotated[
    Path | None, typer.Option("--root", help="Name documents by their path below this folder.")
]
WithMemory = Annotated[
    bool | None,
    typer.Option(
        "--memory/--no-memory",
        help="Build token keys whatever they cost, or not at all (default: up to a limit).",
    ),
]


@app.command()
def ingest(
    ctx: typer.Context,
    paths: Paths,
    store: Store,
    root: Root = None,
    memory: WithMemory = None,
    as_json: AsJson = False,
) -> None:
    """Put files and folders into a store (created if it is missing)."""
    with graft_of(ctx, can_pull=True) as graft:
        found = sources.find(paths, root=root)
        record, is_new = graft.stores.get_or_create(store, tenant=TENANT)
        if is_new:
            say(f"created store {record.name!r}")
        outcomes = _ingest(graft, record, found)
        report = _report(outcomes)
        built = _memory(graft, record, wanted=memory)
        if as_json:
            print_json({"store": record.name, "outcomes": outcomes, "memory": built})
        else:
            print(report)
    if any(outcome["status"] == "failed" for outcome in outcomes):
        raise typer.Exit(1)


def _ingest(graft: Graft, store: StoreRecord, found: list[sources.Found]) -> list[dict[str, Any]]:
    """Store the files' bytes, run them through the pipeline, give one outcome each."""
    from ingestion import SourceFile

    graft.check_embedder(store)
    outcomes: list[dict[str, Any]] = []
    ready: list[SourceFile] = []
    is_named = {item.name: item.is_named for item in found}
    for number, item in enumerate(found):
        graft.progress("read", number + 1, len(found), "files")
        try:
            with item.path.open("rb") as file:
                made = graft.files.of_document(item.name, file, tenant=TENANT).file
        except OSError as error:
            outcomes.append(_failed(item.name, "unreadable", error.strerror or str(error)))
        except GraftError as error:
            outcomes.append(_failed(item.name, error.code, error.message))
        else:
            ready.append(
                SourceFile(name=made.name, sha256=made.sha256, attributes={}, file_id=made.id)
            )
    for outcome in graft.documents.ingest(store, ready, progress=graft.progress):
        shown = outcome_json(outcome)
        if isinstance(outcome.error, UnsupportedFormat) and not is_named.get(outcome.name, True):
            shown["status"] = "skipped"  # met in a folder: said, and no reason to fail
        outcomes.append(shown)
    return outcomes


def _failed(name: str, code: str, error: str) -> dict[str, Any]:
    return {"document": name, "status": "failed", "error": error, "code": code, "warnings": []}


def _report(outcomes: list[dict[str, Any]]) -> str:
    """Say on stderr what went wrong with each document; give the line that counts them."""
    counts: dict[str, int] = {}
    for outcome in outcomes:
        counts[outcome["status"]] = counts.get(outcome["status"], 0) + 1
        if outcome["error"]:
            say(f"{outcome['status']}: {outcome['document']}: {outcome['error']}")
        elif outcome.get("duplicate_of"):
            say(f"unchanged: {outcome['document']} (duplicate of {outcome['duplicate_of']})")
        for warning in outcome["warnings"]:
            say(f"warning: {outcome['document']}: {warning}")
    names = ("added", "replaced", "unchanged", "skipped", "failed")
    return ", ".join(f"{name} {counts.get(name, 0)}" for name in names)


def _memory(graft: Graft, store: StoreRecord, *, wanted: bool | None) -> dict[str, Any]:
    """Build token keys where that is wanted or cheap; else say what it would cost and how."""
    if wanted is False:
        return {"built": False, "reason": "--no-memory"}
    estimate = graft.memory.estimate(store)
    if not estimate.num_tokens:
        return {"built": True, "tokens": 0}
    limit = graft.settings.memory.auto_limit_tokens
    if wanted is None and estimate.num_tokens > limit:
        say(_too_many(estimate, limit, store))
        return {"built": False, "pending_tokens": estimate.num_tokens, "reason": "over the limit"}
    built = graft.memory.build(store, progress=graft.progress)
    say(_built(built))
    return {"built": True, "tokens": built.num_tokens, "documents": built.num_documents}


def _too_many(estimate: Estimate, limit: int, store: StoreRecord) -> str:
    return (
        f"{estimate.num_tokens} tokens have no keys yet (limit {limit}); at "
        f"{estimate.tokens_per_s:.0f} tokens/s that takes about {_duration(estimate.seconds)}. "
        f"Passages are searchable now; build the keys with: graft memory build --store {store.name}"
    )


def _built(built: Built) -> str:
    return (
        f"token keys: {built.num_documents} document(s), {built.num_tokens} tokens "
        f"in {_duration(built.seconds)}"
    )


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@memory_app.command("build")
def build_memory(ctx: typer.Context, store: Store, as_json: AsJson = False) -> None:
    """Make the token keys of every document that lacks them; goes on where it was stopped."""
    with graft_of(ctx, can_pull=True) as graft:
        record = graft.stores.get(store, tenant=TENANT)
        built = graft.memory.build(record, progress=graft.progress)
        if as_json:
            print_json({"store": record.name, "documents": built.num_documents,
                        "tokens": built.num_tokens, "seconds": built.seconds})  # fmt: skip
        else:
            print(_built(built))


@memory_app.command("status")
def memory_status(ctx: typer.Context, store: Store, as_json: AsJson = False) -> None:
    """Say which documents have token keys for the present backbone."""
    with graft_of(ctx) as graft:
        status = graft.memory.status(graft.stores.get(store, tenant=TENANT))
        if as_json:
            print_json({"store": status.store, "backbone": status.backbone,
                        "documents": status.num_documents, "ready": status.num_ready,
                        "pending": list(status.pending)})  # fmt: skip
            return
        print_table(
            ("store", "backbone", "documents", "ready", "pending"),
            [(status.store, status.backbone, status.num_documents, status.num_ready,
              len(status.pending))],
        )  # fmt: skip
