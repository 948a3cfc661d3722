"""A folder's files are listed with stable names; what is left out is named with its reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from index.errors import InvalidInput, NotFound
from ingestion.sources import SourceFile
from ingestion.walking import Skipped, walk


def fill(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def test_r4_names_are_posix_paths_from_the_folder(tmp_path: Path) -> None:
    fill(tmp_path, "b/readme.md", "a/readme.md", "z.txt", "a/deep/er.txt")
    assert [f.name for f in walk(tmp_path).files] == [
        "a/deep/er.txt", "a/readme.md", "b/readme.md", "z.txt",
    ]  # fmt: skip


def test_hidden_and_ignored_things_are_skipped_and_named(tmp_path: Path) -> None:
    fill(tmp_path, ".git/config", ".hidden", "node_modules/x.js", "a~", "kept.txt", "d/.e")
    found = walk(tmp_path)
    assert [f.name for f in found.files] == ["kept.txt"]
    assert set(found.skipped) == {
        Skipped(".git", "hidden"),
        Skipped(".hidden", "hidden"),
        Skipped("node_modules", "ignored by 'node_modules'"),
        Skipped("a~", "ignored by '*~'"),
        Skipped("d/.e", "hidden"),
    }


def test_links_out_of_the_folder_and_special_files_are_skipped(tmp_path: Path) -> None:
    root = tmp_path / "root"
    fill(root, "a.txt")
    fill(tmp_path, "secret.txt")
    (root / "out.txt").symlink_to(tmp_path / "secret.txt")
    (root / "in.txt").symlink_to(root / "a.txt")
    (root / "loop").symlink_to(root)
    (root / "dangling").symlink_to(root / "none")
    os.mkfifo(root / "fifo")
    found = walk(root)
    assert [f.name for f in found.files] == ["a.txt", "in.txt"]
    reasons = {s.name: s.reason for s in found.skipped}
    assert reasons["out.txt"] == "a link out of the folder"
    assert reasons["loop"] == "a link to a folder"
    assert reasons["fifo"] == "not a regular file"
    assert "dangling" in reasons


def test_large_files_and_names_that_are_no_text_are_skipped(tmp_path: Path) -> None:
    fill(tmp_path, "large.txt")
    (tmp_path / os.fsdecode(b"bad\xff.txt")).write_text("x")
    found = walk(tmp_path, max_bytes=5)
    assert found.files == ()
    reasons = {s.name: s.reason for s in found.skipped}
    assert reasons["large.txt"] == "9 bytes, above the limit of 5"
    assert reasons["bad\\udcff.txt"] == "its name is not UTF-8"


def test_a_single_file_is_a_folder_of_one(tmp_path: Path) -> None:
    fill(tmp_path, "a.txt")
    assert [f.name for f in walk(tmp_path / "a.txt").files] == ["a.txt"]
    with pytest.raises(NotFound, match="none at"):
        walk(tmp_path / "none")


def test_a_source_is_a_path_or_a_blob(tmp_path: Path) -> None:
    for broken in ({}, {"path": tmp_path, "sha256": "00"}):
        with pytest.raises(InvalidInput, match="either a path or"):
            SourceFile("a", **broken)
    with pytest.raises(InvalidInput, match="name"):
        SourceFile("", path=tmp_path)
