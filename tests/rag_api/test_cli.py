"""The command line: its JSON contracts, its spans, its exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rag_api.cli import sources
from tests.rag_api.api_server import environment
from tests.rag_api.command_line import InItsOwn, InProcess

TEXT = "# Limits\n\nThe Zorbex pump moves ten litres a minute. 它建于的里雅斯特。\n"
QUESTION = "How many litres does the Zorbex pump move?"


@pytest.fixture(scope="module")
def graft(
    tmp_path_factory: pytest.TempPathFactory, plain_settings: dict[str, Any]
) -> tuple[InProcess, Path]:
    """A store S with two documents of the same base name, their token memory built."""
    folder = tmp_path_factory.mktemp("cli")
    docs = folder / "docs"
    for name, words in (("a", TEXT), ("b", "# Tea\n\nTea is poured at four.\n")):
        (docs / name).mkdir(parents=True)
        (docs / name / "readme.md").write_text(words, encoding="utf-8")
    run = InProcess(environment(folder / "data", plain_settings))
    report = run.json("ingest", str(docs), "--store", "S")
    assert [(o["document"], o["status"]) for o in report["outcomes"]] == [
        ("a/readme.md", "added"),
        ("b/readme.md", "added"),
    ]
    assert report["memory"]["built"] is True
    return run, docs


@pytest.mark.slow
def test_the_json_contracts_hold_in_processes_of_their_own(graft: tuple[InProcess, Path]) -> None:
    run = InItsOwn(graft[0].variables)
    hits = run.json("search", QUESTION, "--store", "S")
    assert hits[0]["document"] == "a/readme.md"
    assert hits == graft[0].json("search", QUESTION, "--store", "S")
    text = run("text", "a/readme.md", "--store", "S").stdout.decode()
    assert text == TEXT
    arguments = ("ask", QUESTION, "--store", "S", "--mode", "both", "--max-tokens", "8")
    answer = run.json(*arguments)
    here = graft[0].json(*arguments)
    assert [answer[key] for key in ("answer", "citations")] == [
        here[key] for key in ("answer", "citations")
    ]
    assert len(answer["tokens"]) == len(here["tokens"]) > 0
    done = run("search", "x", "--store", "none", code=1)
    assert len(done.stderr.strip().splitlines()) == 1


def test_search_and_text_agree_on_every_span(graft: tuple[InProcess, Path]) -> None:
    run, _ = graft
    hits = run.json("search", QUESTION, "--store", "S")
    assert hits[0]["document"] == "a/readme.md"
    for hit in hits:
        assert {"document", "start", "end", "text", "scores"} <= set(hit)
        text = run("text", hit["document"], "--store", "S").stdout.decode()
        assert text[hit["start"] : hit["end"]] == hit["text"]


def test_text_prints_exactly_the_text_and_no_newline_of_its_own(
    graft: tuple[InProcess, Path],
) -> None:
    run, docs = graft
    (docs / "plain.txt").write_text("no newline at the end", encoding="utf-8")
    run("ingest", str(docs / "plain.txt"), "--store", "T", "--no-memory")
    assert run("text", "plain.txt", "--store", "T").stdout == b"no newline at the end"


@pytest.mark.parametrize("mode", ["both", "extractive"])
def test_ask_prints_its_contract_with_checked_quotes(
    graft: tuple[InProcess, Path], mode: str
) -> None:
    run, _ = graft
    answer = run.json("ask", QUESTION, "--store", "S", "--mode", mode, "--max-tokens", "8")
    assert {"answer", "mode", "citations", "tokens"} <= set(answer)
    assert answer["mode"] == mode
    assert mode != "extractive" or answer["citations"]
    for quote in answer["citations"]:
        text = run("text", quote["document"], "--store", "S").stdout.decode()
        assert text[quote["start"] : quote["end"]] == quote["quote"]
        assert quote["verified"] is True
    for token in answer["tokens"]:
        assert {"text", "sources"} <= set(token)
        for source in token["sources"]:
            assert {"document", "start", "end", "share"} == set(source)


def test_r1_a_second_ingestion_changes_nothing(graft: tuple[InProcess, Path]) -> None:
    run, docs = graft
    report = run.json("ingest", str(docs / "a"), str(docs / "b"), "--root", str(docs), "-s", "S")
    assert {outcome["status"] for outcome in report["outcomes"]} == {"unchanged"}
    assert [d["document"] for d in run.json("documents", "--store", "S")] == [
        "a/readme.md",
        "b/readme.md",
    ]


def test_errors_are_one_line_that_says_what_to_do(graft: tuple[InProcess, Path]) -> None:
    run, _ = graft
    for arguments, code, words in (
        (("search", "x", "--store", "none"), 1, b"none"),
        (("ask", "x", "--store", "S", "--mode", "magic"), 2, b"extractive"),
        (("ingest", "/no/such/path", "--store", "S"), 2, b"/no/such/path"),
        (("delete", "nothing.md", "--store", "S"), 1, b"graft documents"),
        (("models", "info", "no-such-model"), 1, b"no-such-model"),
    ):
        done = run(*arguments, code=code)
        assert words in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_d1_a_deleted_document_is_gone_for_every_command(graft: tuple[InProcess, Path]) -> None:
    run, docs = graft
    (docs / "gone.md").write_text("The quixotic heron nests in Bellwether Lane.", encoding="utf-8")
    run("ingest", str(docs / "gone.md"), "--store", "D", "--memory")
    assert run.json("search", "heron", "--store", "D")
    assert run("delete", "gone.md", "--store", "D").stdout == b"deleted 1\n"
    for mode in ("dense", "lexical", "hybrid"):
        assert run.json("search", "heron nests", "--store", "D", "--mode", mode) == []
    answer = run.json("ask", "heron?", "--store", "D", "--mode", "knn_lm", "--max-tokens", "4")
    assert not any(token["sources"] for token in answer["tokens"])
    run("text", "gone.md", "--store", "D", code=1)


def test_too_many_tokens_are_counted_timed_and_left_to_a_command(
    graft: tuple[InProcess, Path],
) -> None:
    run, docs = graft
    (docs / "many.md").write_text("Words and words again. " * 40, encoding="utf-8")
    limited = InProcess({**run.variables, "GRAFT_MEMORY__AUTO_LIMIT_TOKENS": "20"})
    done = limited("ingest", str(docs / "many.md"), "--store", "L")
    assert b"graft memory build --store L" in done.stderr
    assert b"tokens/s" in done.stderr
    assert run.json("memory", "status", "--store", "L")["pending"] == ["many.md"]
    assert run.json("memory", "build", "--store", "L")["documents"] == 1
    assert run.json("memory", "status", "--store", "L")["pending"] == []


def test_doctor_finds_nothing_wrong_and_v6_config_shows_no_secret(
    graft: tuple[InProcess, Path],
) -> None:
    run, _ = graft
    report = run.json("doctor")
    assert report["findings"] == []
    assert set(report["packages"]) >= {"index", "rag_api"}
    secret = InProcess({**run.variables, "GRAFT_API_KEYS": '{"sk-secret": "alice"}'})
    assert b"sk-secret" not in secret("config").stdout


def test_a_bad_file_is_reported_and_the_good_ones_are_done(graft: tuple[InProcess, Path]) -> None:
    run, docs = graft
    folder = docs.parent / "mixed"
    folder.mkdir()
    (folder / "good.md").write_text("Good words.", encoding="utf-8")
    (folder / "empty.md").write_text("", encoding="utf-8")
    done = run("ingest", str(folder), "--store", "M", "--no-memory", code=1)
    assert b"failed: empty.md" in done.stderr
    assert b"added 1" in done.stdout


def test_files_are_named_by_folder_or_as_given(tmp_path: Path) -> None:
    for name in ("x/readme.md", "y/readme.md", "y/.hidden"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    folders = [tmp_path / "x", tmp_path / "y"]
    assert [f.name for f in sources.find([tmp_path])] == ["x/readme.md", "y/readme.md"]
    assert [f.name for f in sources.find(folders)] == ["x/readme.md", "y/readme.md"]
    assert [f.name for f in sources.find([folders[0]])] == ["readme.md"]
    assert [f.name for f in sources.find([folders[0] / "readme.md"])] == ["readme.md"]
