"""The durable store: a data folder goes in, everything that Graft keeps comes out.

`Index` only opens, closes and joins its parts; each part's file says what it does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from index.blobs import Blobs
from index.care import Care
from index.core import Core
from index.database import Database
from index.documents import Documents
from index.files import Folder
from index.garbage import collect
from index.jobs import Jobs
from index.memories import Memories
from index.memory import MemoryCache
from index.segments import VectorCache
from index.stores import Files, Stores
from index.swaps import Swaps
from index.views import Views


class Index(Stores, Swaps, Files, Blobs, Documents, Memories, Views, Jobs, Care):
    """The data folder: catalogue, blobs, segments. Safe for threads and for several processes."""

    @classmethod
    def open(cls, data_dir: Path, *, clock: Callable[[], float] = time.time) -> Index:
        """Open a data folder: create it if need be, migrate it, collect garbage.

        Raises StorageFailed, ConfigError (made by a newer Graft), Damaged, Busy.
        """
        folder = Folder(Path(data_dir))
        try:
            database = Database(folder.root / "catalogue.sqlite3", folder.lock)
            core = Core(database, folder, VectorCache(folder), MemoryCache(folder), clock)
            collect(core)
        except BaseException:
            folder.close()
            raise
        return cls(core)

    def close(self) -> None:
        """Fold the write-ahead log into the catalogue and give up temporary files."""
        self._core.database.close()
        self._core.folder.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
