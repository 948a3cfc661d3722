"""The documentation is whole, its checks bite, and what it tells a reader to run does run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def make_project(folder: Path, readme: str, page: str = "# Page\n") -> Path:
    (folder / "docs").mkdir()
    (folder / "README.md").write_text(readme, encoding="utf-8")
    (folder / "docs" / "page.md").write_text(page, encoding="utf-8")
    return folder


def test_links_anchors_fences_and_figures_are_sound(doc_check: ModuleType, root: Path) -> None:
    assert len(doc_check.pages(root)) > 3
    found = doc_check.check(root)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("readme", "page", "finding"),
    [
        ("[a](docs/page.md) [b](docs/none.md)\n", "# Page\n", "not in the project"),
        ("[a](docs/page.md#nowhere)\n", "# Page\n", "no heading has it"),
        ("[a](docs/page.md) [b](../outside.md)\n", "# Page\n", "not in the project"),
        ("no link\n", "# Page\n", "no link from the README reaches it"),
        ("[a](docs/page.md)\n", "```\nmake demo\n```\n", "fence of ''"),
        ("[a](docs/page.md)\n", "```sh\nmake demo\n```\n", "fence of 'sh'"),
        ("[a](docs/page.md) is 1.27 times faster\n", "# Page\n", "typed by hand"),
    ],
)
def test_a_planted_fault_in_the_documentation_is_caught(
    doc_check: ModuleType, tmp_path: Path, readme: str, page: str, finding: str
) -> None:
    found = doc_check.check(make_project(tmp_path, readme, page))
    assert any(finding in line for line in found), found


def test_a_sound_page_yields_no_finding(doc_check: ModuleType, tmp_path: Path) -> None:
    readme = (
        "[a](docs/page.md#two-words) [out](https://example.org) `[code](none.md)`\n"
        "```text\n[not a link](none.md) 1.27\n```\n"
        "<!-- generated: figures -->\n1.27\n<!-- end -->\n"
    )
    assert (
        doc_check.check(make_project(tmp_path, readme, "# Two words\n[up](../README.md)\n")) == []
    )


def test_a_page_becomes_one_script_without_its_norun_fences(doc_check: ModuleType) -> None:
    page = (
        "```bash\nexport NAME=graft\n```\n```bash norun\nfalse\n```\n"
        "```python\nimport os\nprint(os.environ['NAME'])\n```\n```text\nnot code\n```\n"
    )
    script = doc_check.script_of(page)
    result = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    assert result.stdout == "graft\n"


def test_a_fence_that_fails_fails_its_page(doc_check: ModuleType) -> None:
    script = doc_check.script_of("```bash\nfalse\n```\n```bash\ntrue\n```\n")
    assert subprocess.run(["bash", "-c", script], check=False).returncode != 0


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_fence_of_a_page_runs(
    doc_check: ModuleType, root: Path, tmp_path: Path, page: Path
) -> None:
    """A page is one session: its bash and python fences run in order, in one data folder."""
    script = doc_check.script_of(page.read_text(encoding="utf-8"))
    if not script:
        return
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "GRAFT_DATA_DIR": str(tmp_path / "data"),
        "TMPDIR": str(tmp_path),
    }
    result = subprocess.run(
        ["bash", "-c", f"trap 'jobs -p | xargs -r kill; wait' EXIT\n{script}"],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, f"{script}\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}"


def test_the_runnable_pages_are_known_so_that_none_is_lost_by_a_typing_error(
    doc_check: ModuleType, root: Path
) -> None:
    run = [str(p.relative_to(root)) for p in PAGES if doc_check.script_of(p.read_text("utf-8"))]
    assert "docs/quick-start.md" in run


def test_the_readme_names_the_two_commands_first(root: Path) -> None:
    text = (root / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^make (\w+)$", text, re.MULTILINE)
    assert commands[:2] == ["demo", "test"]
