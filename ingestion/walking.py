"""A folder goes in; the files to ingest come out, and what was skipped with the reason.

A document's name is its POSIX path from the folder, so `a/readme.md` and `b/readme.md` are two
documents (R4). Links that lead out of the folder are never followed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from index.errors import NotFound
from ingestion.sources import SourceFile

IGNORED = ("__pycache__", "node_modules", "*.egg-info", "*.pyc", "*~", "Thumbs.db", "desktop.ini")


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file or folder that was left out, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Walk:
    """What a folder holds."""

    files: tuple[SourceFile, ...]
    skipped: tuple[Skipped, ...]


def walk(folder: Path, *, ignore: Sequence[str] = IGNORED, max_bytes: int | None = None) -> Walk:
    """List a folder's files in order of their names; a single file is a folder of one.

    `ignore` are patterns (`*`, `?`) for names of files and folders; hidden ones are always
    skipped. Raises NotFound where there is nothing at `folder`.
    """
    if folder.is_file():
        return Walk((SourceFile(folder.name, path=folder),), ())
    if not folder.is_dir():
        raise NotFound(f"expected a file or a folder, there is none at {str(folder)!r}")
    files: list[SourceFile] = []
    skipped: list[Skipped] = []
    for found in _visit(folder, folder.resolve(), "", ignore, max_bytes):
        if isinstance(found, Skipped):
            skipped.append(found)
        else:
            files.append(found)
    return Walk(tuple(files), tuple(skipped))


def _visit(
    folder: Path, root: Path, prefix: str, ignore: Sequence[str], max_bytes: int | None
) -> Iterator[SourceFile | Skipped]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        yield Skipped(prefix.rstrip("/"), f"unreadable: {error.strerror}")
        return
    for entry in entries:
        name = prefix + entry.name
        try:
            reason = _reason(entry, root, ignore, max_bytes)
        except OSError as error:
            reason = f"unreadable: {error.strerror}"
        if reason is not None:
            shown = name.encode("utf-8", "backslashreplace").decode()
            yield Skipped(shown, reason)
        elif entry.is_dir():
            yield from _visit(Path(entry.path), root, name + "/", ignore, max_bytes)
        else:
            yield SourceFile(name, path=Path(entry.path))


def _reason(
    entry: os.DirEntry[str], root: Path, ignore: Sequence[str], max_bytes: int | None
) -> str | None:
    """Say why an entry is left out; None for one that is taken."""
    if entry.name.startswith("."):
        return "hidden"
    if pattern := next((p for p in ignore if fnmatchcase(entry.name, p)), None):
        return f"ignored by {pattern!r}"
    if not entry.name.isascii():
        try:
            entry.name.encode("utf-8")
        except UnicodeEncodeError:
            return "its name is not UTF-8"
    if entry.is_symlink():
        if entry.is_dir():
            return "a link to a folder"
        if not Path(entry.path).resolve().is_relative_to(root):
            return "a link out of the folder"
    status = entry.stat()
    if stat.S_ISDIR(status.st_mode):
        return None
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    if max_bytes is not None and status.st_size > max_bytes:
        return f"{status.st_size} bytes, above the limit of {max_bytes}"
    return None
