"""The pages show what the kept results say, and a figure that was changed by hand is noticed."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

REPORT = {
    "name": "ingest",
    "figures": {"ratio_to_bare_encode": 0.97, "bytes_ratio": 1.4, "reembedded_unchanged": 0},
    "machine": {"cpu": "a processor", "cores": 2, "python": "3.11.7"},
    "versions": {"torch": "2.13.0"},
    "seed": 7,
}


def project(folder: Path) -> Path:
    (folder / "docs").mkdir()
    (folder / "benchmarks" / "results").mkdir(parents=True)
    (folder / "benchmarks" / "results" / "ingest.json").write_text(json.dumps(REPORT))
    (folder / "README.md").write_text(
        "# A\n<!-- generated: figures -->\n<!-- end -->\nwords\n", encoding="utf-8"
    )
    return folder


def test_every_page_shows_the_kept_results(tables: ModuleType, root: Path) -> None:
    assert tables.stale(root) == [], "run make tables"


def test_a_block_is_filled_once_and_then_stays(tables: ModuleType, tmp_path: Path) -> None:
    root = project(tmp_path)
    assert tables.main(root, write=False) == 1
    assert tables.main(root, write=True) == 0
    text = (root / "README.md").read_text(encoding="utf-8")
    assert "| 0.97 |" in text
    assert text.endswith("<!-- end -->\nwords\n")
    assert tables.main(root, write=False) == 0


def test_a_figure_changed_by_hand_is_stale(tables: ModuleType, tmp_path: Path) -> None:
    root = project(tmp_path)
    tables.main(root, write=True)
    page = root / "README.md"
    page.write_text(page.read_text("utf-8").replace("0.97", "1.97"), encoding="utf-8")
    assert tables.stale(root) == [page]


def test_an_unknown_block_is_an_error(tables: ModuleType, tmp_path: Path) -> None:
    page = project(tmp_path) / "README.md"
    page.write_text("<!-- generated: dreams -->\n<!-- end -->\n", encoding="utf-8")
    with pytest.raises(KeyError, match="dreams"):
        tables.stale(tmp_path)


def test_a_cell_cannot_break_its_table(tables: ModuleType) -> None:
    drawn = tables.table(("a",), [("x | y\nz",)])
    assert drawn.splitlines()[-1] == "| x \\| y z |"
    assert len(drawn.splitlines()) == 3


@pytest.mark.parametrize("name", ["ingest", "search", "planted-facts", "retrieval-quality"])
def test_a_kept_report_says_where_and_with_what_it_was_made(root: Path, name: str) -> None:
    path = root / "benchmarks" / "results" / f"{name}.json"
    report = json.loads(path.read_text(encoding="utf-8"))
    assert set(report) == {"name", "figures", "settings", "machine", "versions", "seed"}
    assert report["name"] == name
    assert report["figures"]
    assert not {"node", "host", "hostname", "user"} & set(report["machine"])
