"""What is asked of an ingestion, file by file, and what became of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from index.errors import GraftError, InvalidInput
from index.records import DocumentRecord

Status = Literal["added", "replaced", "unchanged", "failed"]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to ingest under a name: at a path, or a blob of the index (`sha256`).

    Without attributes, those that the document of this name has already stay.
    """

    name: str
    path: Path | None = None
    sha256: str | None = None
    attributes: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    file_id: str | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidInput("expected a document's name, came an empty one", param="name")
        if (self.path is None) == (self.sha256 is None):
            raise InvalidInput(
                f"{self.name!r}: expected either a path or the SHA-256 of a blob, "
                f"came {self.path!r} and {self.sha256!r}"
            )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one source.

    "unchanged": the same bytes were there under this name, and nothing was done. `duplicate_of`
    names a document with the same bytes: itself where unchanged, or an earlier one of this run.
    `replaced_file` is the file that the document was made of before, if it was another one.
    """

    name: str
    status: Status
    document: DocumentRecord | None = None
    error: GraftError | None = None
    duplicate_of: str | None = None
    replaced_file: str | None = None
