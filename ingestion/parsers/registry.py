"""The bytes and the name of a file go in; the right parser is run, and its result is made whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ingestion.parsers.charsets import decode
from ingestion.parsers.detect import MEDIA_TYPES, detect, refine
from ingestion.parsers.extracted import Extracted, Refusal
from ingestion.parsers.plain import as_text, parse_notebook, parse_text

TEXT_KINDS = ("plain", "markdown", "rst", "code", "json", "jsonl")


def parse_bytes(data: bytes, name: str) -> Extracted:
    """Parse a file; raises Refusal. Never returns a text without a word."""
    kind = detect(data, name)
    if kind in ("plain", "xml"):
        kind = refine(kind, decode(data).text)
    extracted = _parser(kind)(data, kind)
    text = extracted.text
    if not text.isascii():
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if not text.strip():
        raise Refusal(
            f"no text extracted: the file ({MEDIA_TYPES[kind]}) holds no words", reason="no_text"
        )
    return replace(extracted, text=text)


def _parser(kind: str) -> Callable[[bytes, str], Extracted]:
    """Import only what a kind needs: a child that reads text stays small."""
    if kind in TEXT_KINDS:
        return parse_text
    if kind == "ipynb":
        return parse_notebook
    if kind in ("csv", "tsv"):
        from ingestion.parsers.tables import parse_csv

        return parse_csv
    if kind == "pdf":
        from ingestion.parsers.pdf import parse_pdf

        return parse_pdf
    if kind == "eml":
        from ingestion.parsers.mail import parse_mail

        return parse_mail
    from ingestion.parsers import office

    return {"html": office.parse_html, "xml": office.parse_xml}.get(kind, office.parse_office)


__all__ = ["Extracted", "as_text", "parse_bytes"]
