"""CSV and TSV go in; a Markdown table comes out, so that its header travels with its rows."""

from __future__ import annotations

import csv
import io
from statistics import multimode

from ingestion.parsers.charsets import decode
from ingestion.parsers.extracted import Extracted

_DELIMITERS = (",", ";", "\t", "|")
csv.field_size_limit(16 * 2**20)


def sniff_delimiter(text: str, *, default: str = ",") -> str:
    """Find the delimiter that gives the most rows the same number of columns above one."""
    sample = text[:64_000]
    best, best_score = default, 0.0
    for delimiter in _DELIMITERS:
        widths = [len(row) for row in _rows(sample, delimiter)[:200] if row]
        if not widths or max(widths) < 2:
            continue
        width = max(multimode(widths))
        score = widths.count(width) / len(widths) * (1 if width > 1 else 0) + min(width, 20) / 100
        if score > best_score:
            best, best_score = delimiter, score
    return best


def _rows(text: str, delimiter: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))


def parse_csv(data: bytes, name: str) -> Extracted:
    """Extract a table of delimited values; rows of unequal length are padded, with a warning."""
    decoded = decode(data)
    warnings = [decoded.warning] if decoded.warning else []
    media_type = "text/tab-separated-values" if name.lower().endswith("tsv") else "text/csv"
    try:
        rows = _rows(decoded.text, sniff_delimiter(decoded.text))
    except csv.Error as error:
        warnings.append(f"not a table of delimited values ({error}): kept as text")
        return Extracted(decoded.text, "plain", media_type, warnings=tuple(warnings))
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        warnings.append(f"rows have between {min(widths)} and {max(widths)} cells; padded")
    return Extracted(markdown_table(rows), "markdown", media_type, warnings=tuple(warnings))


def markdown_table(rows: list[list[str]]) -> str:
    """Write rows as a Markdown table whose first row is the header.

    >>> print(markdown_table([["a", "b"], ["1"]]))
    | a | b |
    | --- | --- |
    | 1 |  |
    """
    if not rows:
        return ""
    width = max(len(row) for row in rows)
    lines = [_row(row, width) for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])


def _row(cells: list[str], width: int) -> str:
    clean = [" ".join(cell.split()).replace("|", "\\|") for cell in cells]
    return "| " + " | ".join(clean + [""] * (width - len(clean))) + " |"
