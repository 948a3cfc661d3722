"""Durable files: bytes go in; a name, a length and a SHA-256 come out, or a named error.

A file appears under its name only when it is whole and on the disk: written to this process's
own temporary folder, fsynced, renamed, the folder fsynced. Knows nothing of rows or vectors.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from index.errors import Damaged, StorageFailed
from index.locks import LifeSign, WriterLock, is_alive

CHUNK_BYTES = 1 << 20


class Vanished(Exception):
    """A file that a snapshot names is gone: a later commit replaced it, so look again."""


@dataclass(frozen=True, slots=True)
class Written:
    """A file that is on the disk."""

    name: str
    num_bytes: int
    sha256: str


@contextmanager
def storage_errors(what: str) -> Iterator[None]:
    """Turn a refusal of the operating system into StorageFailed."""
    try:
        yield
    except OSError as error:
        raise StorageFailed(
            f"could not {what}: {error.strerror or error} (errno {error.errno}); nothing was "
            "changed; free space or repair the disk, then try again"
        ) from error


def sync_folder(folder: Path) -> None:
    """Make renames and new names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Folder:
    """The data folder: `segments/`, `blobs/`, `tmp/<one per open Index>/`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.segments = root / "segments"
        self.blobs = root / "blobs"
        self.fresh: list[Path] = []
        """Files published by the transaction that now holds the writer lock."""
        self.suspects: list[Path] = []
        """Files published by transactions whose COMMIT failed."""
        with storage_errors(f"create the data folder {str(root)!r}"):
            for folder in (root, self.segments, self.blobs, root / "tmp"):
                folder.mkdir(parents=True, exist_ok=True)
            self.lock = WriterLock(root / "writer.lock")
            self.session = secrets.token_hex(8)
            self.tmp = root / "tmp" / self.session
            # Under the lock: a collector must not see the folder before its sign of life.
            with self.lock.hold():
                self.tmp.mkdir()
                self._life = LifeSign(self.tmp)
            sync_folder(root)

    def close(self) -> None:
        """Remove this process's temporary files."""
        self._life.close()
        shutil.rmtree(self.tmp, ignore_errors=True)

    def is_living(self, session: str) -> bool:
        """Say whether a session (this one or another process's) is still open."""
        return session == self.session or is_alive(self.root / "tmp" / session)

    def write_temporary(self, parts: Iterable[bytes | memoryview]) -> Written:
        """Write parts to a new temporary file and fsync it. Raises StorageFailed."""
        path = self.tmp / secrets.token_hex(12)
        digest, num_bytes = hashlib.sha256(), 0
        try:
            with storage_errors(f"write {str(path)!r}"), open(path, "xb", buffering=0) as file:
                for part in parts:
                    digest.update(part)
                    num_bytes += len(part)
                    _write_all(file.fileno(), memoryview(part))
                os.fsync(file.fileno())
        except BaseException:
            # Never retried on this descriptor: after a failed fsync its pages may be lost.
            with suppress(OSError):
                path.unlink(missing_ok=True)
            raise
        return Written(path.name, num_bytes, digest.hexdigest())

    def publish(self, temporary: str, target: Path) -> None:
        """Rename a temporary file to its name, durably. Raises StorageFailed."""
        if not target.exists():
            self.fresh.append(target)
        with storage_errors(f"rename to {str(target)!r}"):
            os.replace(self.tmp / temporary, target)
            sync_folder(target.parent)

    def write_segment(self, kind: str, parts: Iterable[bytes | memoryview]) -> Written:
        """Write a segment under a fresh name in `segments/`. Raises StorageFailed."""
        written = self.write_temporary(parts)
        name = f"{kind}-{secrets.token_hex(12)}"
        self.publish(written.name, self.segments / name)
        return Written(name, written.num_bytes, written.sha256)

    def discard_temporary(self, temporary: str) -> None:
        """Remove a temporary file that is not wanted after all."""
        (self.tmp / temporary).unlink(missing_ok=True)

    def discard_suspects(self, named: Set[str]) -> None:
        """Unlink what failed commits have published and no row names after a later commit."""
        for path in self.suspects:
            if path.name not in named:
                with suppress(OSError):
                    path.unlink()
        self.suspects.clear()

    def discard_fresh(self) -> None:
        """Unlink what the present transaction has published, since it is given up."""
        for path in self.fresh:
            with suppress(OSError):
                path.unlink()
        self.fresh.clear()

    def remove(self, folder: Path, names: Iterable[str]) -> None:
        """Unlink files that no row names; what cannot be unlinked waits for the next start."""
        for name in names:
            with suppress(OSError):
                (folder / name).unlink()


def read_verified(path: Path, *, num_bytes: int, sha256: str, remedy: str) -> bytearray:
    """Read a whole file whose row states length and SHA-256.

    Raises Vanished where it does not exist, Damaged (with `remedy`) where the bytes differ.
    """
    data = bytearray(num_bytes)
    try:
        with open(path, "rb", buffering=0) as file:
            length = os.fstat(file.fileno()).st_size
            if length != num_bytes:
                raise Damaged(
                    f"{str(path)!r} has {length} bytes, its row says {num_bytes}; {remedy}"
                )
            filled = 0
            while count := file.readinto(memoryview(data)[filled:]):
                filled += count
    except FileNotFoundError as error:
        raise Vanished(str(path)) from error
    except OSError as error:
        raise Damaged(f"{str(path)!r} cannot be read: {error}; {remedy}") from error
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise Damaged(f"{str(path)!r} has SHA-256 {found}, its row says {sha256}; {remedy}")
    return data


def _write_all(descriptor: int, view: memoryview) -> None:
    data = view.cast("B") if view.nbytes else view
    while len(data):
        data = data[os.write(descriptor, data[: 64 * CHUNK_BYTES]) :]
