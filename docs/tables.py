"""Write the generated parts of the pages from benchmarks/results, or check that they are current.

In: the JSON reports that full benchmark runs keep, and the demo's transcript. Out: the pages'
blocks between `<!-- generated: NAME -->` and `<!-- end -->`. No figure in them is typed by hand.
Knows nothing of how the figures were measured.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

BLOCK = re.compile(
    r"(<!-- generated: (?P<name>[a-z-]+) -->\n)(?P<body>.*?)(<!-- end -->)", re.DOTALL
)
MODES = ("none", "rag", "knn_lm", "both")


class Results:
    """The kept reports of one project."""

    def __init__(self, root: Path) -> None:
        self._folder = root / "benchmarks" / "results"

    def report(self, name: str) -> dict[str, Any] | None:
        """Give a benchmark's kept report, or None where no full run was kept."""
        path = self._folder / f"{name}.json"
        if not path.is_file():
            return None
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return report

    def text(self, name: str) -> str | None:
        """Give a kept text, or None."""
        path = self._folder / name
        return path.read_text(encoding="utf-8") if path.is_file() else None


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Draw a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    for row in rows:
        cells = (str(cell).replace("|", "\\|").replace("\n", " ") for cell in row)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def machine_line(report: Mapping[str, Any]) -> str:
    """Say where and with what a report was made."""
    machine, versions = report["machine"], report["versions"]
    return (
        f"\n{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, "
        f"torch {versions['torch']}, seed {report['seed']}.\n"
    )


def costs(results: Results) -> str:
    """Draw what ingestion and search cost beside the bare libraries."""
    rows: list[tuple[object, ...]] = []
    last = None
    if ingest := results.report("ingest"):
        figures, last = ingest["figures"], ingest
        rows += [
            ("speed of ingestion over a bare encode of the same chunks",
             figures["ratio_to_bare_encode"], "0.95 or more"),
            ("bytes on disk over raw vectors and text", figures["bytes_ratio"], "2 or less"),
            ("passages embedded again when nothing changed", figures["reembedded_unchanged"], "0"),
        ]  # fmt: skip
    if search := results.report("search"):
        figures, last = search["figures"], search
        rows += [
            ("time of a hybrid search over query embedding and raw FAISS",
             figures["ratio_to_raw_faiss"], "1.3 or less"),
            ("recall@5 of hybrid search above the better of dense and lexical",
             figures["hybrid_recall_at_5_minus_best_single"], "0 or more"),
        ]  # fmt: skip
    if last is None:
        return ""
    return table(("figure", "measured", "wanted"), rows) + machine_line(last)


def retrieval_quality(results: Results) -> str:
    """Draw recall for each language, embedder and way to search."""
    report = results.report("retrieval-quality")
    if report is None:
        return ""
    rows = [
        (row["language"], row["embedder"], row["mode"],
         f"{row['recall_at_1']:.3f}", f"{row['recall_at_5']:.3f}")
        for row in report["figures"]["table"]
    ]  # fmt: skip
    return table(("language", "embedder", "search", "R@1", "R@5"), rows) + machine_line(report)


def planted_facts(results: Results) -> str:
    """Draw what each mode answered to each question about invented facts."""
    report = results.report("planted-facts")
    if report is None:
        return ""
    figures = report["figures"]
    counts = [f"{figures[f'contains_{mode}']} of {figures['num_facts']}" for mode in MODES]
    text = table(["", *MODES], [["answers that hold the fact", *counts]])
    by_question: dict[str, list[dict[str, Any]]] = {}
    for reply in figures["replies"]:
        by_question.setdefault(reply["question"], []).append(reply)
    for question, replies in by_question.items():
        text += f"\n**{question}** (expected: {replies[0]['expected']})\n\n"
        rows = [
            (reply["mode"], "yes" if reply["contains"] else "no", _short(reply["answer"]),
             reply["num_quotes"], f"{reply['memory_share']:.0%}")
            for reply in replies
        ]  # fmt: skip
        text += table(("mode", "right", "answer", "checked quotes", "share of the memory"), rows)
    return text + machine_line(report)


def _short(answer: str, limit: int = 160) -> str:
    words = re.sub(r"[<>`*_\[\]]", "", " ".join(answer.split()))
    return words if len(words) <= limit else words[: limit - 1] + "…"


def transcript(results: Results) -> str:
    """Show a run of the demo as it was printed."""
    text = results.text("demo.txt")
    return "" if text is None else f"```text\n{text.strip()}\n```\n"


BLOCKS: Mapping[str, Callable[[Results], str]] = {
    "costs": costs,
    "figures": costs,
    "retrieval-quality": retrieval_quality,
    "planted-facts": planted_facts,
    "transcript": transcript,
}


def renew(text: str, results: Results) -> str:
    """Give a page with its blocks written anew; an unknown block's name is an error."""

    def fill(match: re.Match[str]) -> str:
        return f"{match[1]}{BLOCKS[match['name']](results)}{match[4]}"

    return BLOCK.sub(fill, text)


def stale(root: Path) -> list[Path]:
    """List the pages whose blocks are not what the kept results say."""
    results = Results(root)
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return [page for page in pages if renew(old := page.read_text("utf-8"), results) != old]


def main(root: Path, *, write: bool) -> int:
    """Write the stale pages anew, or name them and give 1."""
    found = stale(root)
    for page in found:
        if write:
            page.write_text(renew(page.read_text("utf-8"), Results(root)), encoding="utf-8")
        print(f"{page.relative_to(root)}: {'written' if write else 'stale; make tables'}")
    return 1 if found and not write else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[1], write="--write" in sys.argv))
