"""Paths on the command line in, files with the names that they will have as documents out.

A file inside a given folder is named by its path below that folder. A file given with a relative
path keeps that path; with an absolute one, its last part. Names that would collide get the path
below the deepest folder that all arguments share. Knows nothing of formats or stores.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from index.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Found:
    """A file to ingest; `is_named` says that it was given itself and not met in a folder."""

    path: Path
    name: str
    is_named: bool


def find(paths: Sequence[Path], *, root: Path | None = None) -> list[Found]:
    """List the files under the paths, folders walked in order, hidden entries left out.

    Raises InvalidInput for a path that does not exist, or a file outside `root`.
    """
    found: dict[Path, Found] = {}
    for path in paths:
        for item in _expand(path):
            found.setdefault(item.path, item)
    items = list(found.values())
    if root is not None:
        return [_below(item, root) for item in items]
    counts = Counter(item.name for item in items)
    if max(counts.values(), default=1) == 1:
        return items
    shared = Path(os.path.commonpath([path.resolve() for path in paths]))
    folder = shared if shared.is_dir() else shared.parent
    return [_below(item, folder) for item in items]


def _below(item: Found, root: Path) -> Found:
    try:
        name = item.path.relative_to(root.resolve()).as_posix()
    except ValueError:
        raise InvalidInput(
            f"{str(item.path)!r} is not below the root {str(root)!r}", param="root"
        ) from None
    return Found(item.path, name, item.is_named)


def _expand(path: Path) -> Iterator[Found]:
    if path.is_file():
        yield Found(path.resolve(), _given_name(path), True)
    elif path.is_dir():
        from ingestion import walk

        for source in walk(path).files:
            assert source.path is not None
            yield Found(source.path.resolve(), source.name, False)
    else:
        raise InvalidInput(f"{str(path)!r} is neither a file nor a folder", param="paths")


def _given_name(path: Path) -> str:
    parts = Path(os.path.normpath(path)).parts
    return path.name if path.is_absolute() or ".." in parts else Path(*parts).as_posix()
