"""What a file is comes from its bytes; the name chooses among the text kinds only (P2)."""

from __future__ import annotations

import io
import json
import random
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingestion.parsers.detect import detect
from ingestion.parsers.extracted import Extracted, Refusal
from ingestion.parsers.registry import parse_bytes
from ingestion.parsers.tables import sniff_delimiter


def a_zip(*names: str, mimetype: str = "") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        if mimetype:
            archive.writestr("mimetype", mimetype)
        for name in names:
            archive.writestr(name, "words")
    return buffer.getvalue()


def test_p2_a_zip_called_txt_is_refused_as_a_zip() -> None:
    with pytest.raises(Refusal, match="zip archive") as caught:
        parse_bytes(a_zip("a.txt"), "x.txt")
    assert caught.value.kind == "unsupported_format"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (a_zip("word/document.xml", "[Content_Types].xml"), "docx"),
        (a_zip("xl/workbook.xml", "[Content_Types].xml"), "xlsx"),
        (a_zip("ppt/presentation.xml", "[Content_Types].xml"), "pptx"),
        (a_zip("a", mimetype="application/epub+zip"), "epub"),
        (a_zip("a", mimetype="application/vnd.oasis.opendocument.text"), "odt"),
        (b"junk before\n%PDF-1.7", "pdf"),
        (b"{\\rtf1 hello}", "rtf"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "WordDocument".encode("utf-16-le"), "doc"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "Workbook".encode("utf-16-le"), "xls"),
    ],
)
@pytest.mark.parametrize("name", ["x.txt", "x", "x.md", "x.pdf"])
def test_bytes_beat_the_name(data: bytes, kind: str, name: str) -> None:
    assert detect(data, name) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.md", "markdown"), ("a.rst", "rst"), ("a.HTML", "html"), ("a.csv", "csv"), ("a", "plain"),
     ("a.py", "code"), ("a.jsonl", "jsonl"), ("Makefile", "code"), ("a.unknown", "plain")],
)  # fmt: skip
def test_the_name_chooses_among_text_kinds(name: str, kind: str) -> None:
    assert detect(b"words", name) == kind


@pytest.mark.parametrize(
    "data", [b"\x89PNG\r\n\x1a\n..", b"\xff\xd8\xff\xe0", b"\x1f\x8b\x08", b"\x7fELF", b"GGUF\x03",
             b"SQLite format 3\x00", b"....ftypmp42", random.Random(0).randbytes(1024)],
)  # fmt: skip
def test_p2_binary_files_are_unsupported_whatever_they_are_called(data: bytes) -> None:
    for name in ("x.txt", "x.md", "x.csv", "x.html", "x.json"):
        with pytest.raises(Refusal) as caught:
            parse_bytes(data, name)
        assert caught.value.kind == "unsupported_format"


@pytest.mark.parametrize("name", ["x.pdf", "x.docx", "x.xlsx", "x.epub"])
def test_text_under_a_binary_name_is_refused_as_broken(name: str) -> None:
    with pytest.raises(Refusal, match="misnamed"):
        parse_bytes(b"just words", name)


@pytest.mark.parametrize(("data", "reason"), [(b"", "empty"), (b" \n\t", "no_text")])
def test_files_without_words_are_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse_bytes(data, "x.txt")
    assert caught.value.reason == reason


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=300),
    st.sampled_from(["x.txt", "x.csv", "x.json", "x.ipynb", "x.eml", "x.html", "x.xml"]),
)
def test_any_bytes_under_any_text_name_end_in_words_or_a_refusal(data: bytes, name: str) -> None:
    try:
        found = parse_bytes(data, name)
    except Refusal:
        return
    assert found.text.strip()
    found.text.encode("utf-8")


def parsed(words: str, name: str) -> Extracted:
    return parse_bytes(words.encode(), name)


def test_a_csv_becomes_a_table_with_escaped_pipes() -> None:
    found = parsed('a;b\n"1;2";x|y\n', "x.csv")
    assert found.text == "| a | b |\n| --- | --- |\n| 1;2 | x\\|y |"
    assert found.format == "markdown"


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_are_sniffed(delimiter: str) -> None:
    rows = [["name", "how many", "where"], ["a", "1", "x"], ["b", "2", "y"]]
    assert sniff_delimiter("\n".join(delimiter.join(row) for row in rows)) == delimiter


def test_ragged_rows_are_padded_with_a_warning() -> None:
    found = parsed("a,b,c\n1,2\n", "x.csv")
    assert found.text.endswith("| 1 | 2 |  |")
    assert "between 2 and 3" in found.warnings[0]


def test_broken_json_is_kept_with_a_warning() -> None:
    assert parsed('{"a": 1}', "x.json").warnings == ()
    found = parsed('{"a": ', "x.json")
    assert found.text == '{"a": '
    assert "not valid JSON" in found.warnings[0]


def test_a_notebook_is_words_code_and_outputs() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Head\n", "words"]},
        {"cell_type": "code", "source": "print(1)", "outputs": [{"text": ["1\n"]}]},
    ]
    found = parsed(json.dumps({"cells": cells, "metadata": {}}), "x.ipynb")
    assert found.text == "# Head\nwords\n\n```\nprint(1)\n```\n\n```\n1\n```"


def test_lone_surrogates_from_json_do_not_reach_the_text() -> None:
    cells = [{"cell_type": "markdown", "source": "bad \ud800 end"}]
    found = parsed(json.dumps({"cells": cells}), "x.ipynb")
    assert found.text == "bad \ufffd end"


def test_html_loses_metadata_scripts_and_embedded_pictures() -> None:
    page = (
        "<html><head><title>The &amp; title</title><meta name='author' content='nobody'>"
        "<style>p {color: red}</style></head><body><h1>Head</h1><p>Words.</p>"
        "<script>var hidden = 1</script><img alt='a logo' src='data:image/png;base64,AAAA'>"
        "<table><tr><th>k</th><th>v</th></tr><tr><td>1</td><td>2</td></tr></table></body></html>"
    )
    found = parsed(page, "x.html")
    assert found.title == "The & title"
    assert found.text.startswith("# Head")
    assert "| k | v |" in found.text
    for gone in ("nobody", "hidden", "base64", "color", "---\n\n"):
        assert gone not in found.text


def test_html_in_cp1252_is_decoded_before_it_is_parsed() -> None:
    page = "<html><head><meta charset='windows-1252'></head><body><p>über für €5</p></body></html>"
    assert parse_bytes(page.encode("cp1252"), "x.html").text.strip() == "über für €5"


def test_html_without_a_name_is_known_by_its_first_bytes() -> None:
    assert parsed("<!DOCTYPE html><html><body><p>Hi</p></body></html>", "page").text.strip() == "Hi"


def test_a_mail_keeps_headers_words_and_names_attachments() -> None:
    mail = (
        "From: a@example.org\nTo: b@example.org\nSubject: =?utf-8?q?Caf=C3=A9?=\n"
        "MIME-Version: 1.0\n"
        'Content-Type: multipart/mixed; boundary="b"\n\n--b\nContent-Type: text/plain; '
        "charset=utf-8\n\nThe words.\n--b\nContent-Type: application/pdf\n"
        'Content-Disposition: attachment; filename="x.pdf"\n\nAAAA\n--b--\n'
    )
    found = parsed(mail, "x.eml")
    assert found.title == "Café"
    assert "Subject: Café" in found.text
    assert "The words." in found.text
    assert "x.pdf" in found.warnings[0]


def test_a_pep_is_titled_by_its_preamble() -> None:
    found = parsed(
        "PEP: 9999\nTitle: Make it\n  work\nStatus: Draft\n\nAbstract\n========\n\nA.\n", "p.rst"
    )
    assert found.title == "PEP 9999: Make it work"
