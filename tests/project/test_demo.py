"""The demo draws shares truthfully, takes any folder, and needs no network the second time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.errors import InvalidInput, NotFound
from rag_api import demo
from rag_api.demo_lines import MARKED_SHARE, legend, moved_line
from rag_api.services.questions import Answered, Piece, TokenSource

NAMES = st.sampled_from(["a.md", "b.md", "c.md"])
SOURCES = st.builds(TokenSource, NAMES, st.just(0), st.just(1), st.floats(0, 0.3, allow_nan=False))
WORDS = st.text("abc ", min_size=0, max_size=5)
PIECES = st.builds(Piece, WORDS, st.none(), st.just(()), st.lists(SOURCES, max_size=3).map(tuple))


def answered(*pieces: Piece) -> Answered:
    return Answered(answer="".join(p.text for p in pieces), mode="both", tokens=pieces)


@given(st.lists(PIECES, max_size=12))
def test_the_coloured_line_is_the_answer_and_marks_add_nothing_else(pieces: list[Piece]) -> None:
    one = answered(*pieces)
    assert moved_line(one, colours=True).plain == f"  {one.answer}"
    plain = moved_line(one, colours=False).plain
    assert re.sub(r"‹[A-Z] \d+%›", "", plain) == f"  {one.answer}"


def test_spans_of_one_document_add_up_and_weak_ones_stay_unmarked() -> None:
    sources = (TokenSource("a.md", 0, 4, 0.06), TokenSource("a.md", 9, 12, 0.06))
    strong = Piece("salt", None, (), sources)
    weak = Piece(" is", None, (), (TokenSource("b.md", 0, 2, MARKED_SHARE / 2),))
    assert moved_line(answered(strong, weak), colours=False).plain == "  salt‹A 12%› is"
    assert legend(answered(strong, weak), colours=False).plain.strip() == "A a.md (up to 12%)"


def test_an_answer_that_no_document_moved_says_so() -> None:
    assert "no token owes" in legend(answered(Piece("yes")), colours=False).plain


def test_each_document_has_one_letter_the_strongest_first() -> None:
    first = Piece("x", None, (), (TokenSource("b.md", 0, 1, 0.2),))
    second = Piece("y", None, (), (TokenSource("a.md", 0, 1, 0.9),))
    assert moved_line(answered(first, second), colours=False).plain == "  x‹B 20%›y‹A 90%›"


def test_a_folder_is_read_whole_but_for_hidden_files(tmp_path: Path) -> None:
    for name in ("b.md", "deep/a.txt", ".git/config", "deep/.cache"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("words", encoding="utf-8")
    assert [source.name for source in demo.folder_sources(tmp_path)] == ["b.md", "deep/a.txt"]
    assert [source.name for source in demo.folder_sources(tmp_path / "b.md")] == ["b.md"]


def test_a_folder_that_is_missing_or_empty_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        demo.folder_sources(tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match="holds no file"):
        demo.folder_sources(tmp_path)


def test_the_default_documents_are_pages_and_a_dozen_packages_of_real_prose(
    tmp_path: Path,
) -> None:
    sources = demo.default_sources(tmp_path)
    packages = [source for source in sources if source.name.startswith("packages/")]
    assert len(packages) == 12
    assert sources[0].name == "docs/concepts.md"
    for source in packages:
        assert source.path is not None
        assert len(source.path.read_text(encoding="utf-8")) > 2000, source.name
    again = demo.default_sources(tmp_path)
    assert [source.name for source in again] == [source.name for source in sources]


def test_both_waves_together_are_all_documents_and_the_first_is_never_empty(
    tmp_path: Path,
) -> None:
    for number in range(6):
        (tmp_path / f"{number}.txt").write_text("x" * 9000, encoding="utf-8")
    (tmp_path / "0.txt").write_text("x" * 90_000, encoding="utf-8")
    sources = demo.folder_sources(tmp_path)
    first, rest = demo.waves(sources)
    assert first == sources[:1]
    assert first + rest == sources
    assert demo.waves(sources[1:3]) == (sources[1:3], [])


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("# Title\n\n## Second part ##\n", "Second part"),
        ("# 青岚市简介\n", "青岚市简介"),
        ("\n\nA first line\nmore", "A first line"),
        ("x", None),
    ],
)
def test_a_question_is_asked_about_a_heading_or_the_first_line(
    text: str, topic: str | None
) -> None:
    assert demo.topic_of(text) == topic


def test_work_in_batches_is_counted_once_whatever_the_sizes_of_the_batches() -> None:
    counter = demo.Counter()
    for done, total in ((8, 8), (8, 8), (16, 30), (30, 30), (31, 64), (64, 64), (5, 64)):
        counter.update(done, total)
    assert counter.num_done == 8 + 8 + 30 + 64 + 5


CUT = (
    "import runpy, socket, sys\n"
    "def refuse(*a, **k): raise OSError('the network is cut')\n"
    "socket.socket.connect = refuse; socket.getaddrinfo = refuse\n"
    "sys.argv = ['demo', '--docs', sys.argv[1]]\n"
    "runpy.run_module('rag_api.demo', run_name='__main__')\n"
)


@pytest.mark.slow
def test_the_second_run_needs_no_network_and_embeds_nothing_again(
    root: Path, tmp_path: Path
) -> None:
    docs = root / "benchmarks" / "planted"
    environment = {
        **os.environ,
        "GRAFT_DATA_DIR": str(tmp_path / "demo"),
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": "100",
    }
    for words, embedded in (
        (["-m", "rag_api.demo", "--docs", str(docs)], r"[1-9]\d* passages were embedded"),
        (["-c", CUT, str(docs)], r" 0 passages were embedded in this run: nothing had changed"),
    ):
        result = subprocess.run(
            [sys.executable, *words], cwd=root, env=environment, capture_output=True,
            text=True, timeout=600, check=False,
        )  # fmt: skip
        assert result.returncode == 0, result.stdout + result.stderr
        assert re.search(embedded, result.stdout), result.stdout
        assert "First quote, after" in result.stdout
        assert "First answer, after" in result.stdout
        assert result.stdout.count("\nA  ") == 3
        assert "NOT verified" not in result.stdout
        assert "\x1b[" not in result.stdout, "colours went into a pipe"
    assert "0 token keys were built" in result.stdout
