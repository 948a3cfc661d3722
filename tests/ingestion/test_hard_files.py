"""Every hard file is read, or refused with a named error, within memory; the page says so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from index.errors import InvalidInput, ParseError, UnsupportedFormat
from index.records import ParsedText
from ingestion import formats_table
from ingestion.chunking import ChunkSettings, split
from ingestion.formats_table import measure, render
from ingestion.parsing import ParseLimits, Parser
from ingestion.words import WordCounting

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def parser() -> Iterator[Parser]:
    with Parser(ParseLimits()) as parser:
        yield parser


@pytest.fixture(scope="module")
def hard(shared_data: Path) -> Path:
    return shared_data / "hard-files"


def test_every_hard_file_is_read_or_refused_and_the_page_is_that_run(hard: Path) -> None:
    rows = measure(hard)
    assert len(rows) > 150
    assert max(row.seconds for row in rows) < 30
    assert 0 < rows[-1].peak_bytes < 2 * 2**30
    page = (ROOT / "docs" / "formats.md").read_text("utf-8")
    peak = re.compile(r"took \d+ MiB")
    assert peak.sub("", page) == peak.sub("", render(rows)), (
        "run `python -m ingestion.formats_table FOLDER` to bring docs/formats.md up to date"
    )


REFUSED: dict[str, tuple[type[InvalidInput], str]] = {
    "markitdown/MEDRPT-2024-PAT-3847_medical_report_scan.pdf": (ParseError, "no_text"),
    "markitdown/random.bin": (UnsupportedFormat, ""),
    "unstructured/simple.zip": (UnsupportedFormat, ""),
    "unstructured/img/chi_sim_image.jpeg": (UnsupportedFormat, ""),
    "unstructured/empty.txt": (ParseError, "empty"),
    "unstructured/empty.xlsx": (ParseError, "no_text"),
    "unstructured/fake-text-all-whitespace.txt": (ParseError, "no_text"),
    "unstructured/password_protected.xlsx": (ParseError, "encrypted"),
    "unstructured/pdf/password.pdf": (ParseError, "encrypted"),
    "unstructured/pdf/loremipsum-flat.pdf": (ParseError, "no_text"),
    "pdfminer-samples/encryption/aes-256.pdf": (ParseError, "encrypted"),
    "pypdf-sample-files/019-grayscale-image/grayscale-image.pdf": (ParseError, "no_text"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_files_without_readable_words_are_refused_by_name(
    hard: Path, parser: Parser, name: str
) -> None:
    kind, reason = REFUSED[name]
    with pytest.raises(kind) as caught:
        parser.parse(hard / name, name)
    assert getattr(caught.value, "reason", "") == reason


SAID = {
    "docling/docx/word_tables.docx": "| Header 0.0 | Header 0.1 | Header 0.2 |",
    "docling/docx/unit_test_headers_numbered.docx": "Section 1",
    "docling/html/wiki_duck.html": "# Duck",
    "markitdown/test.pptx": "AutoGen",
    "markitdown/test.xlsx": "| Alpha | Beta | Gamma | Delta |",
    "markitdown/test.xls": "| Alpha | Beta | Gamma | Delta |",
    "markitdown/test.epub": "Test",
    "markitdown/test_outlook_msg.msg": "This is the body of the test email message",
    "markitdown/test_mskanji.csv": "| 名前 | 年齢 | 住所 |",
    "markitdown/test_notebook.ipynb": 'print("markitdown")',
    "pdfminer-samples/jo.pdf": "みんなのおのおののなかのすべてですから",
    "unstructured/fake.doc": "Lorem ipsum",
    "unstructured/fake.odt": "Lorem ipsum",
    "unstructured/fake-doc.rtf": "My First Heading",
    "unstructured/fake-html-cp1252.html": "Die schöne Frau hat einen Kaffee",
    "unstructured/factbook-utf-16.xml": "Washington, DC",
    "unstructured/stanley-cups-utf-16.csv": "| Team | Location | Stanley Cups |",
    "unstructured/semicolon-delimited.csv": "| Lorem, ipsum | dolor sit | amet |",
    "unstructured/eml/fake-email-utf-16.eml": "Roses are red",
    "unstructured/eml/fake-email-malformed-encoding.eml": "Violets are blue",
    "unstructured/eml/mime-multipart-digest.eml": "This is the third message in the digest.",
    "unstructured/umlauts-non-utf8.md": "ä",
    "unstructured/handbook-872p.docx": "Handbook for Chapter 13 Standing Trustees",
}


@pytest.mark.parametrize("name", SAID)
def test_the_words_of_hard_files_come_out(hard: Path, parser: Parser, name: str) -> None:
    parsed = parser.parse(hard / name, name).parsed
    assert SAID[name] in parsed.text
    assert "base64," not in parsed.text
    assert "\r" not in parsed.text


def test_every_readable_hard_file_is_cut_into_covering_chunks(hard: Path, parser: Parser) -> None:
    counting = WordCounting(200)
    for path in sorted(p for p in hard.rglob("*") if p.is_file()):
        try:
            parsed: ParsedText = parser.parse(path, path.name).parsed
        except InvalidInput:
            continue
        chunks = split(parsed, ChunkSettings(128, 16), counting)
        covered = {i for c in chunks for i in range(c.start, c.end)}
        lost = [i for i, c in enumerate(parsed.text) if i not in covered and not c.isspace()]
        assert not lost, path.name
        assert all(c.num_tokens <= 128 for c in chunks), path.name


def test_the_command_prints_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("words")
    (tmp_path / "b.txt").write_text("")
    assert formats_table.main([str(tmp_path), "-"]) == 0
    out = capsys.readouterr().out
    assert "| a.txt | 5 | 5 characters |  |" in out
    assert "ParseError: empty" in out
    assert formats_table.main([]) == 2


def test_the_child_reports_its_own_peak_and_not_its_parents(tmp_path: Path) -> None:
    ballast = bytearray(b"x") * (600 * 2**20)  # every page is written, so it is resident
    source = tmp_path / "a.txt"
    source.write_text("A line.")
    with Parser(ParseLimits()) as parser:
        parser.parse(source, "a.txt")
        assert 2**20 < parser.peak_bytes() < len(ballast) // 2
