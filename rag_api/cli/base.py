"""The command line's frame: global options in, settings and parts of Graft for each command out.

Importing this loads neither torch nor any model.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from index.errors import ConfigError, GraftError, InvalidInput
from index.records import DEFAULT_TENANT
from rag_api import processes
from rag_api.cli.terminal import TerminalProgress, say
from rag_api.settings import Settings, load_settings
from rag_api.wiring import Graft

TENANT = DEFAULT_TENANT
app = typer.Typer(
    name="graft",
    help="Attach your documents to a frozen language model, and ask it with checked quotes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@dataclass(frozen=True, slots=True)
class Globals:
    """The options before the command."""

    data_dir: Path | None
    config: Path | None


DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="The data folder (or GRAFT_DATA_DIR).")
]
Config = Annotated[
    Path | None, typer.Option("--config", help="A settings file (default: graft.toml there).")
]
Store = Annotated[str, typer.Option("--store", "-s", help="The vector store's name or id.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


@app.callback()
def start(ctx: typer.Context, data_dir: DataDir = None, config: Config = None) -> None:
    """Attach your documents to a frozen language model, and ask it with checked quotes."""
    ctx.obj = Globals(data_dir, config)


def settings_of(ctx: typer.Context, **overrides: object) -> Settings:
    """Read the settings and prepare the process for torch."""
    options: Globals = ctx.obj
    settings = load_settings(options.config, data_dir=options.data_dir, **overrides)
    processes.prepare(settings)
    return settings


@contextmanager
def graft_of(ctx: typer.Context, *, can_pull: bool = False) -> Iterator[Graft]:
    """Open the parts for one command; asking and searching (`can_pull` false) use no network."""
    settings = settings_of(ctx)
    if not can_pull:
        processes.forbid_network()
    with TerminalProgress() as progress:
        graft = Graft(settings, can_pull=can_pull, progress=progress)
        try:
            yield graft
        finally:
            graft.close()


def run() -> int:
    """Run the command line; one line on stderr for what Graft refuses, never a traceback."""
    try:
        app()
    except GraftError as error:
        say(f"graft: {' '.join(error.message.split())}")
        return 2 if isinstance(error, InvalidInput | ConfigError) else 1
    except BrokenPipeError:  # the reader of a pipe went away: nothing is left to tell it
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        say("graft: interrupted; what is committed is kept")
        return 130
    return 0
