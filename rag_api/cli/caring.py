"""`graft models`, `doctor`, `config`: what this installation is made of, and whether it is well."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from index.errors import GraftError
from rag_api.cli.base import AsJson, app, graft_of, settings_of
from rag_api.cli.terminal import print_json, print_table, say
from rag_api.services.findings import finding_json
from rag_api.wiring import Graft

PACKAGES = (
    "index", "backbone", "decoding", "ingestion", "retriever", "knn_lm", "reward", "rag_api",
)  # fmt: skip
LIBRARIES = ("torch", "transformers", "sentence-transformers", "faiss-cpu", "fastapi")
models_app = typer.Typer(help="The models on this machine.", no_args_is_help=True)
app.add_typer(models_app, name="models")


@models_app.command("list")
def list_models(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the starter models and what has been pulled."""
    with graft_of(ctx) as graft:
        found = [model_json(info) for info in graft.models.list()]
    if as_json:
        print_json(found)
        return
    print_table(
        ("name", "role", "here", "MB", "licence"),
        [
            (m["name"], m["role"], "yes" if m["is_pulled"] else "no",
             round(m["num_bytes"] / 1e6), m["licence"])
            for m in found
        ],
    )  # fmt: skip


@models_app.command("pull")
def pull_models(
    ctx: typer.Context,
    names: Annotated[list[str], typer.Argument(help="Names or sources.", metavar="NAME")],
) -> None:
    """Fetch models and convert them once."""
    with graft_of(ctx, can_pull=True) as graft:
        for name in names:
            print(graft.models.pull(name, progress=graft.progress))


@models_app.command("info")
def model_info(
    ctx: typer.Context, name: Annotated[str, typer.Argument()], as_json: AsJson = False
) -> None:
    """Show what is known of a model."""
    with graft_of(ctx) as graft:
        shown = model_json(graft.models.info(name))
    if as_json:
        print_json(shown)
    else:
        print_table(("key", "value"), list(shown.items()))


def model_json(info: Any) -> dict[str, Any]:
    """Give a model's facts as JSON data."""
    return {
        "name": info.name,
        "source": info.source,
        "role": info.role,
        "licence": info.licence,
        "about": info.about,
        "is_pulled": info.is_pulled,
        "folder": str(info.folder) if info.folder else None,
        "num_bytes": info.num_bytes,
        "check": dict(info.check),
    }


@app.command()
def config(ctx: typer.Context) -> None:
    """Print the settings in force as JSON; secrets are masked."""
    print_json(settings_of(ctx).shown())


@app.command()
def doctor(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Look over packages, models, disk and every file of the data folder."""
    with graft_of(ctx) as graft:
        report: dict[str, Any] = {
            "packages": packages(),
            "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES},
            "models": models(graft),
            "disk": disk(graft),
            "findings": [finding_json(finding) for finding in graft.index.check()],
        }
    folders = {str(Path(origin).parent.parent) for origin in report["packages"].values()}
    if len(folders) > 1:
        report["findings"].append(
            {"kind": "packages", "message": f"the packages come from several folders: {folders}"}
        )
    if as_json:
        print_json(report)
    else:
        show(report)
    if report["findings"]:
        raise typer.Exit(1)


def packages() -> dict[str, str]:
    """Say which file each of our packages comes from."""
    specs = {name: importlib.util.find_spec(name) for name in PACKAGES}
    return {name: str(spec.origin) if spec else "missing" for name, spec in specs.items()}


def models(graft: Graft) -> dict[str, str]:
    """Say whether the models of the settings are here."""
    found = {}
    for source in (graft.settings.backbone, graft.settings.embedder_source):
        try:
            is_here = graft.models.info(source).is_pulled
        except GraftError as error:
            found[source] = error.message
        else:
            found[source] = "ok" if is_here else f"missing; run `graft models pull {source}`"
    return found


def disk(graft: Graft) -> dict[str, int]:
    """Say what the data folder holds, and what is free beside it."""
    free = shutil.disk_usage(graft.settings.data_dir).free
    return {**graft.index.disk_usage(), "free": free}


def show(report: dict[str, Any]) -> None:
    """Print the report for reading."""
    for part in ("packages", "libraries", "models", "disk"):
        print_table((part, ""), list(report[part].items()))
    for finding in report["findings"]:
        say(f"finding: {finding.get('message', finding)}")
    print(f"{len(report['findings'])} finding(s)")
