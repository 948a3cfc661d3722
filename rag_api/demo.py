"""`make demo`: real documents in, a first quote as soon as possible, then three answers with proof.

In: a folder of documents, or by default Graft's own pages and the descriptions of a dozen installed
packages. Out: words on a terminal. Uses the same services as the command line and the server; knows
nothing of HTTP.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from index.errors import Cancelled, GraftError, InvalidInput
from index.records import DEFAULT_TENANT, DocumentRecord, StoreRecord
from rag_api import processes
from rag_api.demo_lines import legend, moved_line
from rag_api.services.questions import Decoding, Mode, Question, Quote, SearchWish
from rag_api.settings import load_settings
from rag_api.wiring import Graft

if TYPE_CHECKING:
    from ingestion import SourceFile

PAGES = Path(__file__).resolve().parents[1] / "docs"
PAGE_NAMES = ("concepts", "quick-start", "running", "retrieval", "token-memory")
PACKAGES = (
    "alembic", "anyio", "cloudpickle", "faiss-cpu", "fsspec", "h11", "idna",
    "langgraph-checkpoint", "mpmath", "SQLAlchemy", "sortedcontainers", "truststore",
)  # fmt: skip
QUESTIONS = (
    "What does a successful delete mean?",
    "What is the default port of graft serve?",
    "What is alembic?",
)
FIRST_WAVE_BYTES = 24_000
"""Documents that are made searchable before the rest, so that a first quote comes at once."""
KEYS_LIMIT_S = 240.0
"""How long the demo builds token keys for a folder of yours; the rest waits for `graft memory`."""


@dataclass
class Counter:
    """Adds up one stage of work over its batches: each batch counts up to its own total."""

    num_done: int = 0
    _last: tuple[int, int] = (0, 0)

    def update(self, done: int, total: int) -> None:
        """Hear that `done` of the `total` of the present batch is done."""
        last_done, last_total = self._last
        is_new_batch = done <= last_done or total != last_total
        self.num_done += done if is_new_batch else done - last_done
        self._last = (done, total)


class Bars:
    """Draws progress where the console is a terminal, and counts what was done wherever it runs."""

    def __init__(self, console: Console) -> None:
        self._counters: defaultdict[str, Counter] = defaultdict(Counter)
        self._tasks: dict[str, TaskID] = {}
        self._drawn = Progress(
            TextColumn("  {task.description:<16}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f} {task.fields[unit]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Bars:
        self._drawn.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._drawn.stop()

    def __call__(self, stage: str, done: int, total: int, unit: str) -> None:
        """Hear of progress: draw it, count it."""
        self._counters[stage].update(done, total)
        if stage not in self._tasks:
            self._tasks[stage] = self._drawn.add_task(stage, total=total, unit=unit)
        self._drawn.update(self._tasks[stage], completed=done, total=total)

    def num_done(self, stage: str) -> int:
        """Give how much of a stage's work was done, all batches together."""
        return self._counters[stage].num_done if stage in self._counters else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; 1 where it cannot go on, with the reason."""
    parser = argparse.ArgumentParser(prog="python -m rag_api.demo", description="Show Graft.")
    parser.add_argument("--docs", type=Path, help="a folder of documents, instead of the defaults")
    arguments = parser.parse_args(argv)
    console = Console(highlight=False, soft_wrap=True)
    try:
        folder = Path(os.environ.get("GRAFT_DATA_DIR") or ".demo")
        settings = load_settings(data_dir=folder, threads=len(os.sched_getaffinity(0)))
        processes.prepare(settings)
        graft = Graft(settings, can_pull=True)
        try:
            Demo(graft, console).run(arguments.docs)
        finally:
            graft.close()
    except GraftError as error:
        console.print(f"The demo stopped: {error.message}", style="red", markup=False)
        return 1
    return 0


class Demo:
    """One run of the demo; its clock starts when it is made."""

    def __init__(self, graft: Graft, console: Console) -> None:
        self._graft = graft
        self._console = console
        self._started = time.perf_counter()
        self._num_embedded = 0

    def run(self, docs: Path | None) -> None:
        """Ingest, quote, build the token keys, answer three questions, say what comes next."""
        data_dir = self._graft.settings.data_dir
        sources = folder_sources(docs) if docs else default_sources(data_dir)
        name = "demo" if docs is None else f"demo-{docs.resolve().name or 'docs'}"
        self._pull(self._graft.settings.embedder_source)
        store, _ = self._graft.stores.get_or_create(name, tenant=DEFAULT_TENANT)
        first, rest = waves(sources)
        self._ingest(store, first)
        questions = QUESTIONS if docs is None else self._own_questions(store)
        if questions:
            self._first_quote(store, questions[0])
        self._ingest(store, rest)
        self._forget_missing(store, {source.name for source in sources})
        self._say_what_was_read(store)
        self._pull(self._graft.settings.backbone)
        self._build_keys(store, limit_s=None if docs is None else KEYS_LIMIT_S)
        for number, question in enumerate(questions or self._own_questions(store), start=1):
            self._answer(store, question, is_first=number == 1)
        self._say_what_comes_next(store)

    # ---- in

    def _pull(self, source: str) -> None:
        if self._graft.models.info(source).is_pulled:
            self._say(f"Model {source}: here already.")
            return
        self._say(f"Model {source}: fetching and converting, once.")
        with Bars(self._console) as bars:
            self._graft.models.pull(source, progress=bars)

    def _ingest(self, store: StoreRecord, sources: Sequence[SourceFile]) -> None:
        if not sources:
            return
        with Bars(self._console) as bars:
            outcomes = self._graft.documents.ingest(store, sources, progress=bars)
        self._num_embedded += bars.num_done("embed")
        for outcome in outcomes:
            if outcome.status == "failed":
                self._say(f"  {outcome.name} was not read: {outcome.error}")

    def _forget_missing(self, store: StoreRecord, names: set[str]) -> None:
        """Delete what an earlier run read and what is no longer there."""
        held = {document.name for document in self._graft.index.list_documents(store.id)}
        if gone := sorted(held - names):
            self._graft.index.delete_documents(store.id, gone)

    def _say_what_was_read(self, store: StoreRecord) -> None:
        documents = self._graft.index.list_documents(store.id)
        passages = sum(document.num_chunks for document in documents)
        self._say(
            f"{len(documents)} documents, {passages} passages are searchable after "
            f"{self._seconds()}; {self._num_embedded} passages were embedded in this run"
            + ("." if self._num_embedded else ": nothing had changed.")
        )

    def _build_keys(self, store: StoreRecord, *, limit_s: float | None) -> None:
        until = None if limit_s is None else time.perf_counter() + limit_s
        self._say("Token memory: reading every document once with the frozen model.")
        try:
            with Bars(self._console) as bars:
                built = self._graft.memory.build(
                    store,
                    progress=bars,
                    cancelled=lambda: until is not None and time.perf_counter() > until,
                )
            self._say(f"{built.num_tokens:,} token keys were built, in {built.seconds:.0f} s.")
        except Cancelled:
            waiting = len(self._graft.memory.status(store).pending)
            self._say(
                f"{waiting} documents wait for their token keys; "
                f"`graft memory build --store {store.name}` goes on where this ended."
            )

    # ---- out

    def _first_quote(self, store: StoreRecord, question: str) -> None:
        answered = self._graft.answers.ask(ask(store, question, mode="extractive"))
        self._rule(f"First quote, after {self._seconds()}")
        self._say(f"Q  {question}")
        self._quotes(answered.citations)

    def _answer(self, store: StoreRecord, question: str, *, is_first: bool) -> None:
        answered = self._graft.answers.ask(ask(store, question, mode="both"))
        self._rule(f"First answer, after {self._seconds()}" if is_first else "")
        self._say(f"Q  {question}")
        self._say(f"A  {answered.answer.strip()}", style="bold")
        self._quotes(answered.citations)
        self._say("Tokens that the documents moved (share of the token's probability):")
        self._console.print(moved_line(answered, colours=self._console.is_terminal))
        self._console.print(legend(answered, colours=self._console.is_terminal))

    def _quotes(self, quotes: Sequence[Quote]) -> None:
        """Print each quoted span once, however many sentences of the answer rest on it."""
        for quote in {(q.document, q.start, q.end): q for q in quotes}.values():
            place = f"page {quote.page}" if quote.page else " > ".join(quote.headings) or "text"
            words = " ".join(quote.quote.split())
            self._say(f"  [{quote.number}] “{words}”")
            proof = "verified" if quote.verified else "NOT verified"
            self._say(
                f"      {quote.document}, {place}, span {quote.start}–{quote.end}, {proof}",
                style="green" if quote.verified else "red",
            )
        if not quotes:
            self._say("  (no sentence of the documents supports this answer)")

    def _own_questions(self, store: StoreRecord) -> tuple[str, ...]:
        """Ask about headings of the first, the middle and the last document."""
        documents = self._graft.index.list_documents(store.id)
        picks = sorted({0, len(documents) // 2, len(documents) - 1}) if documents else []
        return tuple(self._own_question(documents[i]) for i in picks)

    def _own_question(self, document: DocumentRecord) -> str:
        topic = topic_of(self._graft.index.text_of(document)) or Path(document.name).stem
        if re.search(r"[\u3040-\u30ff\u3400-\u9fff]", topic):
            return f"关于“{topic}”，文中说了什么？"
        return f"What is said about {topic!r}?"

    def _say_what_comes_next(self, store: StoreRecord) -> None:
        self._rule("Ask more")
        folder = self._graft.settings.data_dir
        near = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
        prefix = f"GRAFT_DATA_DIR={near}"
        self._say(f'  {prefix} .venv/bin/graft ask "your question" --store {store.name}')
        self._say(f"  {prefix} make serve        # then http://127.0.0.1:8642, OpenAI's API")
        self._say("  make demo DOCS=path/to/your/documents")

    # ---- words

    def _seconds(self) -> str:
        return f"{time.perf_counter() - self._started:.0f} s"

    def _say(self, line: str, style: str | None = None) -> None:
        self._console.print(Text(line, style=style or ""))

    def _rule(self, title: str) -> None:
        self._console.print(Text(f"\n── {title} ".ljust(72, "─") if title else "\n" + "─" * 71))


def ask(store: StoreRecord, question: str, *, mode: Mode) -> Question:
    """Make a question to one store, with an answer of one short paragraph and one passage.

    More than one passage distracts a model of 135 million parameters (docs/lab-log.md).
    """
    return Question(
        messages=({"role": "user", "content": question},),
        stores=(store.id,),
        mode=mode,
        search=SearchWish(k=1),
        decoding=Decoding(max_tokens=64, stop=("\n\n",)),
    )


def default_sources(data_dir: Path) -> list[SourceFile]:
    """Give Graft's pages and the descriptions of installed packages, kept under `data_dir`."""
    from ingestion import SourceFile

    pages = [PAGES / f"{name}.md" for name in PAGE_NAMES if (PAGES / f"{name}.md").is_file()]
    sources = [SourceFile(name=f"docs/{page.name}", path=page) for page in pages]
    folder = data_dir / "packages"
    folder.mkdir(parents=True, exist_ok=True)
    for name in PACKAGES:
        metadata = importlib.metadata.metadata(name)
        body = metadata.json.get("description", "")
        path = folder / f"{name}.md"
        path.write_text(f"# {name}\n\n{metadata['Summary']}\n\n{body}", encoding="utf-8")
        sources.append(SourceFile(name=f"packages/{name}.md", path=path))
    return sources


def folder_sources(docs: Path) -> list[SourceFile]:
    """Give the files under a folder (or one file), named by their path in it."""
    from ingestion import walk

    files = list(walk(docs).files)
    if not files:
        raise InvalidInput(f"the folder {str(docs)!r} holds no file")
    return files


def waves(sources: Sequence[SourceFile]) -> tuple[list[SourceFile], list[SourceFile]]:
    """Cut the sources into a first wave that is searchable soon, and the rest."""
    size = 0
    for number, source in enumerate(sources):
        size += source.path.stat().st_size if source.path else 0
        if number and size > FIRST_WAVE_BYTES:
            return list(sources[:number]), list(sources[number:])
    return list(sources), []


def topic_of(text: str) -> str | None:
    """Find a heading to ask about: the second of a Markdown text, else its first short line."""
    headings: list[str] = re.findall(r"^#{1,4}\s+(.{3,80}?)\s*#*$", text, re.MULTILINE)
    if headings:
        return headings[min(1, len(headings) - 1)]
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if 3 <= len(line) <= 80), None)


if __name__ == "__main__":
    sys.exit(main())
