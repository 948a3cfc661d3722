"""A folder of files goes in; a Markdown table of what became of each comes out.

`python -m ingestion.formats_table FOLDER [OUTPUT]` writes `docs/formats.md`: every file is parsed
in the limited child process, or refused with a named error. Knows nothing of stores.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from index.errors import InvalidInput, ParseError
from ingestion.parsing import ParseLimits, Parser

OUTPUT = Path("docs/formats.md")


@dataclass(frozen=True, slots=True)
class Row:
    """One file's result: `result` is a number of characters or the name of an error."""

    name: str
    num_bytes: int
    result: str
    notes: str
    seconds: float
    peak_bytes: int
    """The highest resident memory of any parser child so far."""


def measure(folder: Path, limits: ParseLimits | None = None) -> list[Row]:
    """Parse every file under a folder with one warm parser."""
    rows: list[Row] = []
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    with Parser(limits or ParseLimits()) as parser:
        for path in files:
            rows.append(_row(parser, path, path.relative_to(folder).as_posix()))
    return rows


def _row(parser: Parser, path: Path, name: str) -> Row:
    begun = time.monotonic()
    try:
        parsed = parser.parse(path, name).parsed
    except ParseError as error:
        result, notes = f"ParseError: {error.reason}", error.message
    except InvalidInput as error:
        result, notes = type(error).__name__, error.message
    else:
        result = f"{len(parsed.text):,} characters"
        parts = [f"{len(parsed.page_starts)} pages"] if parsed.page_starts else []
        parts += [f"coverage {parsed.coverage:.2f}"] if parsed.coverage < 1 else []
        notes = "; ".join([*parts, *parsed.warnings])
    return Row(
        name=name,
        num_bytes=path.stat().st_size,
        result=result,
        notes=notes.removeprefix(f"{name!r}: "),
        seconds=time.monotonic() - begun,
        peak_bytes=parser.peak_bytes(),
    )


INTRODUCTION = """# Formats

What Graft reads, and what it does with hard files. The bytes of a file decide what it is; its name
only chooses among the text kinds.

| kind | what comes out |
| --- | --- |
| plain text, source code, Markdown, reStructuredText | the text as it is, line ends normalised |
| HTML | Markdown of the body: headings, lists, tables, links; scripts and metadata are left out |
| PDF | the text of each page, with a page map; pages with pictures only are named (no OCR) |
| DOCX, DOC, ODT, RTF, PPTX, PPT, EPUB, MSG | Markdown with headings and tables |
| XLSX, XLS, CSV, TSV | Markdown tables: the header row travels with every chunk |
| JSON, JSON lines | the text as it is, cut at lines |
| XML | its words, with element names as headings |
| EML | headers, words, nested messages; attachments are named, not read |
| IPYNB | words as they are, code and outputs in fences |

Encodings: byte-order marks, UTF-8, UTF-16 and UTF-32 without marks, GB18030, Big5, Shift-JIS,
EUC-JP, EUC-KR and the usual single-byte ones are told apart by the letters that they would make;
a guess that is not sure says so in a warning.

Each file is parsed in a child process without network, with limits on memory, CPU time, wall time
and output, which is killed as a group. The errors: `UnsupportedFormat` (415), and `ParseError`
(422) with one of the reasons `empty`, `no_text`, `encrypted`, `broken`, `timeout`, `memory`,
`too_much_output`, `encoding`.

## A run over hard files

"""


def render(rows: Sequence[Row]) -> str:
    """Write the page."""
    read = sum(row.result.endswith("characters") for row in rows)
    peak = max((row.peak_bytes for row in rows), default=0)
    head = (
        f"{len(rows)} files from the test suites of open-source extractors: {read} read, "
        f"{len(rows) - read} refused with a named error, none unfinished; "
        f"the largest parser process took {-(-peak // 2**20)} MiB "
        "(`python -m ingestion.formats_table FOLDER`).\n\n"
        "| file | bytes | result | notes |\n| --- | --- | --- | --- |\n"
    )
    lines = [
        f"| {_cell(r.name)} | {r.num_bytes:,} | {_cell(r.result)} | {_cell(r.notes)} |"
        for r in rows
    ]
    return INTRODUCTION + head + "\n".join(lines) + "\n"


def _cell(words: str) -> str:
    return " ".join(words.split()).replace("|", "\\|").replace("<", "&lt;")


def main(arguments: Sequence[str]) -> int:
    """Run on the folder that is named; `-` as the output prints the page."""
    if not 1 <= len(arguments) <= 2 or not Path(arguments[0]).is_dir():
        print("usage: python -m ingestion.formats_table FOLDER [OUTPUT | -]", file=sys.stderr)
        return 2
    rows = measure(Path(arguments[0]))
    page = render(rows)
    if arguments[1:] == ["-"]:
        print(page)
    else:
        Path(arguments[1] if arguments[1:] else OUTPUT).write_text(page, encoding="utf-8")
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    slowest = max(rows, key=lambda row: row.seconds, default=None)
    if slowest is not None:
        print(
            f"{len(rows)} files, {sum(r.seconds for r in rows):.1f} s, slowest {slowest.name} "
            f"{slowest.seconds:.2f} s, this process {own // 2**20} MiB",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
