"""Text files go in (prose, Markdown, code, JSON, notebooks), their text comes out."""

from __future__ import annotations

import json
import re

from ingestion.parsers.charsets import Decoded, decode
from ingestion.parsers.detect import MEDIA_TYPES
from ingestion.parsers.extracted import Extracted

_FORMATS = {
    "plain": "plain",
    "markdown": "markdown",
    "rst": "rst",
    "code": "code",
    "json": "records",
    "jsonl": "records",
}


def parse_text(data: bytes, kind: str) -> Extracted:
    """Keep a text file as it is; its first heading is its title."""
    return as_text(decode(data), kind)


def as_text(decoded: Decoded, kind: str) -> Extracted:
    """Keep a decoded text as it is; broken JSON is kept too, with a warning."""
    warnings = [decoded.warning] if decoded.warning else []
    if kind == "json" and (problem := _json_problem(decoded.text)):
        warnings.append(f"not valid JSON ({problem}): kept as text")
    return Extracted(
        decoded.text,
        _FORMATS[kind],
        MEDIA_TYPES[kind],
        warnings=tuple(warnings),
        title=_rst_title(decoded.text) if kind == "rst" else None,
    )


def _json_problem(text: str) -> str | None:
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        return str(error)[:120]
    return None


def _rst_title(text: str) -> str | None:
    """Read the title of a PEP's preamble; other titles are headings already."""
    head = text[:2000]
    number = re.search(r"\A\s*PEP: (\d+)$", head, re.M)
    title = re.search(r"^Title: (.+(?:\n[ \t]+.+)*)$", head, re.M)
    return (
        f"PEP {number.group(1)}: {' '.join(title.group(1).split())}" if number and title else None
    )


def parse_notebook(data: bytes, _name: str) -> Extracted:
    """Extract a Jupyter notebook: words as they are, code in fences, text outputs after it."""
    decoded = decode(data)
    try:
        notebook = json.loads(decoded.text)
        cells = notebook["cells"]
        language = str(notebook.get("metadata", {}).get("language_info", {}).get("name", ""))
        parts = [part for cell in cells for part in _cell(cell, language)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        plain = as_text(decoded, "json")
        return Extracted(
            plain.text,
            plain.format,
            MEDIA_TYPES["ipynb"],
            warnings=(*plain.warnings, "not a notebook of format 4: kept as text"),
        )
    text = "\n\n".join(part for part in parts if part.strip())
    return Extracted(text, "markdown", MEDIA_TYPES["ipynb"])


def _cell(cell: dict[str, object], language: str) -> list[str]:
    source = _joined(cell.get("source", "")).rstrip()
    if cell.get("cell_type") != "code":
        return [source]
    parts = [f"```{language}\n{source}\n```"] if source else []
    outputs = cell.get("outputs", [])
    for output in outputs if isinstance(outputs, list) else []:
        data = output.get("data", {})
        shown = _joined(output.get("text", "") or data.get("text/plain", "")).rstrip()
        if shown:
            parts.append(f"```\n{shown}\n```")
    return parts


def _joined(value: object) -> str:
    return "".join(map(str, value)) if isinstance(value, list) else str(value)
