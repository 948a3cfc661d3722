"""What the parts of an open index share: catalogue, folder, caches, clock; and pinned snapshots.

Knows nothing of what any part does with them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from sqlalchemy import Connection

from index.catalogue import named_blobs, named_segments, store_keys
from index.database import Database
from index.errors import Busy, Damaged, GraftError, NotFound, StorageFailed
from index.files import Folder, Vanished
from index.memory import MemoryCache
from index.segments import VectorCache
from index.texts import TextCache

T = TypeVar("T")
MAX_LOOKS = 20


@dataclass(slots=True)
class Garbage:
    """What no row names once a transaction is committed: files to unlink, caches to drop."""

    segments: list[str] = field(default_factory=list)
    blobs: list[str] = field(default_factory=list)
    texts: set[int] = field(default_factory=set)
    stores: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Core:
    """Shared by all parts of one open Index."""

    database: Database
    folder: Folder
    vectors: VectorCache
    memories: MemoryCache
    clock: Callable[[], float] = time.time
    texts: TextCache = field(default_factory=TextCache)

    @contextmanager
    def snapshot(self, load: Callable[[Connection], T | None]) -> Iterator[tuple[Connection, T]]:
        """Give a snapshot and what `load` made of it, both of one generation.

        `load` says None, or raises Vanished, when the snapshot was overtaken: then a newer one is
        taken. Raises Damaged where a file stays missing. Where another process has deleted stores
        (seen when one is not found, or one is opened anew), what is held of them is dropped.
        """
        known = self._held()
        seen: str | None = None
        for look in range(MAX_LOOKS):
            with self.database.read() as connection:
                try:
                    loaded = load(connection)
                except Vanished as error:
                    if seen == str(error):
                        raise Damaged(
                            f"the file {seen!r} is missing; restore it from a backup, or delete "
                            "and ingest again the documents that it belongs to"
                        ) from error
                    seen, loaded = str(error), None
                except NotFound:
                    self._forget_deleted(connection)
                    raise
                if self._held() - known:
                    self._forget_deleted(connection)
                if loaded is not None:
                    yield connection, loaded
                    return
            time.sleep(0.001 * look)
        raise Busy("the store changes faster than it can be read; try again")

    @contextmanager
    def write(self) -> Iterator[tuple[Connection, Garbage]]:
        """Run one write transaction; after its commit, still under the lock, collect its garbage.

        Under the lock, because a blob that was just deleted may be put again at once.
        """
        garbage, is_whole = Garbage(), False
        with self.database.locked():
            self.folder.fresh.clear()
            try:
                with self.database.transaction() as connection:
                    try:
                        yield connection, garbage
                    except BaseException:
                        # No COMMIT was tried, so no row will ever name these.
                        self.folder.discard_fresh()
                        raise
                    is_whole = True
            except BaseException:
                if is_whole:
                    self._settle()
                raise
            self._clean(garbage)

    def _settle(self) -> None:
        """After a COMMIT that failed: make sure that no restart finds it in the log after all.

        The files that it names wait until a later commit has taken its place there.
        """
        self.folder.suspects += self.folder.fresh
        try:
            self.database.displace_failed_commit()
        except GraftError as error:
            raise StorageFailed(
                f"a change could be neither committed nor withdrawn ({error}); the next change "
                "that succeeds withdraws it, a restart before that may show it; repair the disk"
            ) from error
        self._clean(Garbage())

    def _clean(self, garbage: Garbage) -> None:
        if self.folder.suspects:
            with self.database.read() as connection:
                named = named_segments(connection) | named_blobs(connection)
            self.folder.discard_suspects(named)
        self.folder.remove(self.folder.segments, garbage.segments)
        self.folder.remove(self.folder.blobs, garbage.blobs)
        self.texts.forget(garbage.texts)
        for store in garbage.stores:
            self.vectors.forget(store)
            self.memories.forget(store)

    def _held(self) -> set[int]:
        return self.vectors.held() | self.memories.held()

    def _forget_deleted(self, connection: Connection) -> None:
        """Drop what is held of stores that this snapshot knows to be deleted."""
        present, last = store_keys(connection)
        for pk in self._held():
            if pk <= last and pk not in present:
                self.vectors.forget(pk)
                self.memories.forget(pk)

    def now(self) -> int:
        """Give the time in whole Unix seconds."""
        return int(self.clock())


class Part:
    """A group of the index's public methods; `Index` is all of them."""

    def __init__(self, core: Core) -> None:
        self._core = core


def fresh_id(prefix: str) -> str:
    """Give a random id that nobody can guess: prefix and 24 hex digits."""
    return f"{prefix}{secrets.token_hex(12)}"
