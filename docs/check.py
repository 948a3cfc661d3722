"""Read the project's Markdown and name what is broken: links, anchors, unrunnable fences, orphans.

In: the project's folder. Out: one line a finding, exit status 1 where there is any. A fence of
bash or python is run by the tests unless its info string says `norun`; this file finds them and
joins a page's fences to one script, and runs nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^(?P<ticks>`{3,}|~{3,})[ ]*(?P<info>[^`]*)$")
LINK = re.compile(r"(?<!\\)!?\[(?:[^\]\[]|\[[^\]]*\])*\]\((?P<target>[^()\s]+)(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6}\s+(?P<title>.+?)\s*#*$")
DECIMAL = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.])")
GENERATED = re.compile(r"<!-- generated: (?P<name>[a-z-]+) -->.*?<!-- end -->", re.DOTALL)
RUN_LANGUAGES = frozenset({"bash", "python"})
SHOWN_LANGUAGES = frozenset({"text", "json", "mermaid", "yaml", "toml", "console"})
VERSION_NUMBERS = frozenset({"3.11", "2.0"})


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced block: its language, the words after it, its body, its first line's number."""

    language: str
    words: tuple[str, ...]
    body: str
    line: int

    @property
    def is_run(self) -> bool:
        """Say whether the tests run it."""
        return self.language in RUN_LANGUAGES and "norun" not in self.words


def pages(root: Path) -> list[Path]:
    """List the Markdown files of the project's documentation."""
    top = [root / "README.md", root / "CHANGELOG.md"]
    return [path for path in top if path.is_file()] + sorted((root / "docs").rglob("*.md"))


def fences(text: str) -> list[Fence]:
    """Parse the fenced blocks of a page; an unclosed one runs to the end."""
    found = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        opening = FENCE.match(lines[number])
        number += 1
        if opening is None:
            continue
        first = number
        while number < len(lines) and lines[number].strip() != opening["ticks"]:
            number += 1
        language, *words = opening["info"].split() or [""]
        found.append(Fence(language, tuple(words), "\n".join(lines[first:number]), first))
        number += 1
    return found


def without_fences(text: str) -> str:
    """Blank out fenced blocks and code spans, keeping the line numbers."""
    kept = text.splitlines()
    for fence in fences(text):
        for number in range(fence.line - 1, fence.line + fence.body.count("\n") + 2):
            if number < len(kept):
                kept[number] = ""
    return re.sub(r"`[^`\n]*`", "", "\n".join(kept))


def script_of(text: str) -> str:
    """Join a page's runnable fences to one bash script; python ones become here-documents."""
    parts = ["set -euo pipefail"]
    for fence in fences(text):
        if fence.is_run and fence.language == "bash":
            parts.append(fence.body)
        elif fence.is_run:
            parts.append(f"python - <<'END_OF_PYTHON_FENCE'\n{fence.body}\nEND_OF_PYTHON_FENCE")
    return "\n".join(parts) + "\n" if len(parts) > 1 else ""


def anchors(text: str) -> set[str]:
    """Give the anchors that a page's headings make, by the rule of the usual renderers."""
    found: set[str] = set()
    for line in without_fences(text).splitlines():
        if heading := HEADING.match(line):
            kept = re.sub(r"[^\w\- ]", "", heading["title"].lower())
            slug, number = kept.replace(" ", "-"), 1
            while slug in found:
                slug, number = f"{kept.replace(' ', '-')}-{number}", number + 1
            found.add(slug)
    return found


def local_links(page: Path, text: str) -> Iterator[tuple[Path, str]]:
    """Give (file, anchor) of each link that stays inside the project."""
    for match in LINK.finditer(without_fences(text)):
        target = match["target"]
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = target.partition("#")
        yield (page.parent / path).resolve() if path else page.resolve(), anchor


def broken_links(root: Path) -> list[str]:
    """Find links to files or headings that do not exist, or that leave the project."""
    found = []
    for page in pages(root):
        for target, anchor in local_links(page, page.read_text(encoding="utf-8")):
            where = page.relative_to(root)
            if not target.exists() or not target.is_relative_to(root.resolve()):
                found.append(f"{where}: links to {target.name!r}, which is not in the project")
            elif anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
                found.append(f"{where}: links to #{anchor} of {target.name}, and no heading has it")
    return found


def orphans(root: Path) -> list[str]:
    """Find pages that no chain of links from the README reaches."""
    reached: set[Path] = set()
    queue = [(root / "README.md").resolve()]
    while queue:
        page = queue.pop()
        if page in reached or page.suffix != ".md" or not page.is_file():
            continue
        reached.add(page)
        queue += [target for target, _ in local_links(page, page.read_text(encoding="utf-8"))]
    lost = [page for page in pages(root) if page.resolve() not in reached]
    return [f"{page.relative_to(root)}: no link from the README reaches it" for page in lost]


def strange_fences(root: Path) -> list[str]:
    """Find fences without a language that this check knows: they would silently not be run."""
    found = []
    for page in pages(root):
        for fence in fences(page.read_text(encoding="utf-8")):
            if fence.language not in RUN_LANGUAGES | SHOWN_LANGUAGES:
                known = ", ".join(sorted(RUN_LANGUAGES | SHOWN_LANGUAGES))
                where = f"{page.relative_to(root)}:{fence.line}"
                found.append(f"{where}: fence of {fence.language!r}; expected one of {known}")
    return found


def loose_figures(root: Path) -> list[str]:
    """Find decimals in the README's own words: figures come generated from benchmarks/results."""
    text = (root / "README.md").read_text(encoding="utf-8")
    words = without_fences(GENERATED.sub("", text))
    loose = [match[0] for match in DECIMAL.finditer(words) if match[0] not in VERSION_NUMBERS]
    return [f"README.md: the figure {figure} is typed by hand" for figure in loose]


def check(root: Path) -> list[str]:
    """Give every finding about the documentation of the project in `root`."""
    return broken_links(root) + orphans(root) + strange_fences(root) + loose_figures(root)


def main(root: Path) -> int:
    """Print the findings; give 1 where there are any."""
    found = check(root)
    for finding in found:
        print(finding)
    print(f"docs: {len(pages(root))} pages, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]))
