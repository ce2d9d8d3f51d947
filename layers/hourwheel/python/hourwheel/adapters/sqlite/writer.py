"""Holds the only connection by which a process writes to its SQLite database."""

import sqlite3
import threading
import time
from pathlib import Path
from typing import Literal, TypeAlias

from hourwheel.adapters.sqlite.session import SqliteSession
from hourwheel.adapters.sqlite.synced_mark import Synced, SyncedMark
from hourwheel.errors import Broken, Corrupt, StorageFull, Throttled

BUSY_SECONDS = 10.0
"""While another process writes, callers wait this long before they get ``Throttled``."""

_CHECKPOINT_PAGES = 4_000
"""SQLite copies its log into the database after this many pages, within a commit. With its own 1,000 one in 125 single
messages waited for that. The log takes 16 MB."""

_ASK_SECONDS = 0.001  # often enough to get a turn beside a busy process

_COUNT = (
    "UPDATE commits SET number = number + 1, at_ms = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
    " RETURNING number, at_ms"
)

Synchronous: TypeAlias = Literal["FULL", "NORMAL"]


def translated(error: sqlite3.Error) -> Exception:
    """Returns the library's error for an error of SQLite."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Throttled("the database is locked by another process")
    if code == sqlite3.SQLITE_FULL:
        return StorageFull("no room is left for the database")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Corrupt(f"the database file is damaged or not a database: {error}")
    return Broken(f"the database failed: {error}")


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1_000)}")
    return connection


def sync_durably(connection: sqlite3.Connection, synchronous: Synchronous) -> None:
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("PRAGMA fullfsync = ON")  # where fsync alone does not reach the platter (macOS)


class SqliteWriter:
    """Transactions of one connection, for one thread at a time. Each transaction that changed anything raises ``mark``
    once it is committed."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, synchronous: Synchronous, mark: SyncedMark | None
    ) -> None:
        self._path = path
        self._synchronous = synchronous
        self._mark = mark
        self._counted = 0
        self._blocked_since: float | None = None
        self._pause = threading.Event()
        self._use(connection)

    @property
    def blocked_seconds(self) -> float:
        """Seconds since another process began to keep this one from writing; 0 if none does."""
        since = self._blocked_since
        return 0.0 if since is None else time.monotonic() - since

    def close(self) -> None:
        self.connection.close()

    def begin(self) -> None:
        """Takes the write lock, or raises SQLite's error after ``BUSY_SECONDS``. Tries often: SQLite's own waiting
        backs off, and would starve beside a busy process."""
        until = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self.try_begin()
                self._blocked_since = None
                return
            except sqlite3.OperationalError as error:
                self._blocked_since = self._blocked_since or time.monotonic()
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
            self._pause.wait(_ASK_SECONDS)

    def try_begin(self) -> None:
        """Takes the write lock, or raises SQLite's error if another process has the lock."""
        self.connection.execute("BEGIN IMMEDIATE")
        self.session.transaction = object()

    def commit(self) -> None:
        """Commits, and numbers the transaction if it changes anything."""
        self.session.write_counters()
        if self.connection.total_changes == self._counted:
            self.connection.execute("COMMIT")
            return
        number, at_ms = self.connection.execute(_COUNT).fetchone()
        self.connection.execute("COMMIT")
        self._counted = self.connection.total_changes
        if self._mark is not None:
            self._mark.raise_to(Synced(number, at_ms))

    def roll_back(self) -> None:
        """Undoes the changes of the transaction, if there is one."""
        self.session.forget_counters()
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        except sqlite3.Error:
            # The connection cannot be used any more. Closing it undoes the transaction.
            self.connection.close()
            self._use(connect(self._path))

    def _use(self, connection: sqlite3.Connection) -> None:
        sync_durably(connection, self._synchronous)
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        connection.execute("PRAGMA busy_timeout = 0")  # ``begin`` waits instead of SQLite
        self.connection = connection
        self.session = SqliteSession(connection)
        self._counted = connection.total_changes
