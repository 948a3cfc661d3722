"""Lock files: one writer at a time over all processes, and a sign of life for each open folder.

Goes in: a path. Comes out: a context that holds the lock. Knows nothing of what is protected.
"""

from __future__ import annotations

import fcntl
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from index.errors import Busy


def try_lock(descriptor: int) -> bool:
    """Take the exclusive lock on an open file now, or say False."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class WriterLock:
    """An exclusive lock over threads and processes, given back by the system if its holder dies."""

    def __init__(self, path: Path, *, timeout_s: float = 60.0) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._threads = threading.Lock()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock inside the `with`. Raises Busy when it cannot be had in time."""
        deadline = time.monotonic() + self._timeout_s
        if not self._threads.acquire(timeout=self._timeout_s):
            raise self._busy()
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                while not try_lock(descriptor):
                    if time.monotonic() > deadline:
                        raise self._busy()
                    time.sleep(random.uniform(0.001, 0.01))
                yield
            finally:
                os.close(descriptor)
        finally:
            self._threads.release()

    def _busy(self) -> Busy:
        return Busy(
            f"another writer has held {str(self._path)!r} for over {self._timeout_s:g} s; "
            "wait for it, or end the process that is stuck"
        )


class LifeSign:
    """A locked file that shows, as long as this process lives, that its folder is in use."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "alive"
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not try_lock(self._descriptor):
            raise AssertionError(f"a folder with a random name is locked: {folder}")

    def close(self) -> None:
        """Give the sign back."""
        os.close(self._descriptor)


def is_alive(folder: Path) -> bool:
    """Say whether the process that works in this folder still lives."""
    try:
        descriptor = os.open(folder / "alive", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)
