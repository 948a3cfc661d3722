"""The SQLite catalogue: connections, transactions, migrations, and errors by name.

Comes out: `read()` (one snapshot) and `transaction()` (one BEGIN IMMEDIATE transaction, committed
at the end of the `with`; the caller holds `locked()`). Knows nothing of what the tables mean.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError

from index.errors import Busy, ConfigError, Damaged, GraftError, StorageFailed
from index.files import storage_errors, sync_folder
from index.locks import WriterLock
from index.schema import HEAD

PAGE_BYTES = 2048  # small stores stay small: every table and index takes at least one page
BUSY_MS = 60_000


class Database:
    """One catalogue file, opened by any number of threads and processes."""

    def __init__(self, path: Path, lock: WriterLock) -> None:
        self.path = path
        self._lock = lock
        _check_sqlite()
        with lock.hold(), sqlite_errors(path), storage_errors(f"create {str(path)!r}"):
            _create_file(path)
        self._engine = _make_engine(path)
        self._writer = self._engine.execution_options(graft_begin="BEGIN IMMEDIATE")
        self._migrate()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Give a connection whose every statement sees one snapshot."""
        with sqlite_errors(self.path), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the writer lock: no other thread or process commits meanwhile."""
        with self._lock.hold():
            yield

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Run one write transaction inside `locked()`; an exception undoes all of it."""
        with (
            sqlite_errors(self.path),
            self._writer.connect() as connection,
            connection.begin(),
        ):
            yield connection

    def displace_failed_commit(self) -> None:
        """Commit a change of nothing in the place of one whose COMMIT failed; inside `locked()`.

        The pages of that one may lie whole in the write-ahead log, beyond what its index counts:
        no reader sees them, but a restart after a crash would apply them. The next commit is
        written over them.
        """
        with self.transaction() as connection:
            mark = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
            connection.exec_driver_sql(f"PRAGMA user_version = {1 - int(mark)}")

    def vacuum(self) -> None:
        """Give the space of deleted rows back to the file system."""
        with self._lock.hold(), sqlite_errors(self.path), self._raw() as connection:
            connection.execute("VACUUM")
            _fold_log(connection)

    def close(self) -> None:
        """Fold the write-ahead log into the file and close every connection."""
        with self._raw() as connection:
            _fold_log(connection)
        self._engine.dispose()

    @contextmanager
    def _raw(self) -> Iterator[sqlite3.Connection]:
        """Give a connection outside any transaction."""
        raw = self._engine.raw_connection()
        try:
            connection = raw.driver_connection
            assert isinstance(connection, sqlite3.Connection)
            yield connection
        finally:
            raw.close()

    def _migrate(self) -> None:
        if self._revision() == HEAD:
            return
        with self.locked(), self.transaction() as connection:
            run_migrations(connection)

    def _revision(self) -> str | None:
        with self.read() as connection:
            names = connection.execute(
                text("SELECT 1 FROM sqlite_schema WHERE name = 'alembic_version'")
            )
            if names.first() is None:
                return None
            found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        if found is not None and str(found) > HEAD:
            raise ConfigError(
                f"{str(self.path)!r} has the format {found!r}, this Graft knows up to {HEAD!r}; "
                "install the newer Graft that made it"
            )
        return found


def run_migrations(connection: Connection) -> None:
    """Bring the catalogue to HEAD inside the caller's transaction."""
    from alembic import command
    from alembic.config import Config

    folder = Path(__file__).with_name("migrations")
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    command.upgrade(config, HEAD)


def _fold_log(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA busy_timeout=1000")  # a reader elsewhere may hold it up: so be it
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.execute(f"PRAGMA busy_timeout={BUSY_MS}")


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours: Busy, StorageFailed, Damaged."""
    try:
        yield
    except DBAPIError as error:
        found = _translate(error.orig, path)
        if found is None:
            raise
        raise found from error
    except sqlite3.Error as error:
        found = _translate(error, path)
        if found is None:
            raise
        raise found from error


def _translate(error: BaseException | None, path: Path) -> GraftError | None:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return None
    primary, where = code & 0xFF, f"the catalogue {str(path)!r}"
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Busy(f"{where} is in use by another process ({error}); try again")
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Damaged(f"{where} is damaged ({error}); restore the data folder from a backup")
    if primary in (
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
    ):
        return StorageFailed(
            f"{where} could not be written or read ({error}); nothing was changed; free space or "
            "repair the disk, then try again"
        )
    return None


def _check_sqlite() -> None:
    if sqlite3.sqlite_version_info < (3, 38, 0):
        raise ConfigError(
            f"Graft needs SQLite 3.38 or newer with FTS5, this Python has {sqlite3.sqlite_version}"
        )


def _create_file(path: Path) -> None:
    if path.exists() and path.stat().st_size:
        return
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode=WAL")
    finally:
        connection.close()
    sync_folder(path.parent)


def _make_engine(path: Path) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"isolation_level": None, "check_same_thread": False},
        pool_size=16,
        max_overflow=-1,
        json_serializer=_dump_json,
    )

    @event.listens_for(engine, "connect")
    def set_pragmas(connection: sqlite3.Connection, _record: object) -> None:
        for pragma in (
            f"busy_timeout={BUSY_MS}",
            "synchronous=FULL",
            "secure_delete=ON",
            "temp_store=MEMORY",
            "cache_size=-8000",
            "wal_autocheckpoint=64",  # pages: an open small store is small too
            "journal_size_limit=4194304",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("graft_begin", "BEGIN"))

    return engine


def _dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
