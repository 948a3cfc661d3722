"""What the terminal shows: progress bars and messages on stderr, tables and answers on stdout.

Bars appear only where stderr is a terminal. Knows nothing of stores or models.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from rag_api.services.questions import Answered, Piece

STRONG_SHARE = 0.5


def say(message: str) -> None:
    """Write a line to stderr."""
    print(message, file=sys.stderr, flush=True)


def print_json(data: object) -> None:
    """Write JSON to stdout."""
    sys.stdout.write(json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def print_text(text: str) -> None:
    """Write exactly these characters to stdout as UTF-8, nothing added."""
    sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
    sys.stdout.buffer.flush()


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a table to stdout; tab-separated where stdout is not a terminal."""
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(str(cell) for cell in row))
        return
    table = Table(*columns)
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    Console().print(table)


class TerminalProgress:
    """One bar a stage on stderr; silent where stderr is not a terminal. A context manager."""

    def __init__(self) -> None:
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> TerminalProgress:
        if sys.stderr.isatty():
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[unit]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=False,
            )
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, stage: str, done: int, total: int, unit: str) -> None:
        """Move the bar of a stage."""
        if self._bars is None:
            return
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, total=total, unit=unit)
        self._bars.update(self._tasks[stage], completed=done, total=total)


def print_answer(answered: Answered) -> None:
    """Write an answer with its numbered quotes, and the tokens that the documents moved."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(Text(answered.answer or "(no words)"))
    console.print(Text(f"\nmode: {answered.mode}", style="dim"))
    for quote in answered.citations:
        place = f"page {quote.page}" if quote.page else " > ".join(quote.headings)
        where = f"[{quote.number}] {quote.document}"
        where += f", {place}" if place else ""
        console.print(Text(f"{where} ({quote.start}-{quote.end})", style="bold"))
        console.print(Text("    " + " ".join(quote.quote.split())))
    if any(piece.sources for piece in answered.tokens):
        console.print(Text("\ntokens moved by the documents:", style="dim"))
        console.print(coloured(answered.tokens))
    for warning in answered.warnings:
        say(f"warning: {warning}")


def coloured(pieces: Sequence[Piece]) -> Text:
    """Colour tokens by the share of their probability that came from documents."""
    line = Text()
    for piece in pieces:
        share = sum(source.share for source in piece.sources)
        style = "bold green" if share >= STRONG_SHARE else "yellow" if share > 0.05 else ""
        line.append(piece.text, style=style)
    return line


def print_passages(passages: Sequence[Mapping[str, Any]]) -> None:
    """Write search results for reading."""
    console = Console(highlight=False, soft_wrap=True)
    for number, passage in enumerate(passages, start=1):
        scores = ", ".join(f"{name} {value:.3f}" for name, value in passage["scores"].items())
        place = f"{passage['document']} ({passage['start']}-{passage['end']})"
        console.print(Text(f"{number}. {place}  {scores}", style="bold"))
        console.print(Text("   " + " ".join(str(passage["text"]).split())))
