"""Implements the store on SQLite: write-ahead log, one writer at a time, group commit.

Other processes may use the same file at the same time. ``schema.py`` draws the tables, ``session.py`` has
the statements, ``writer.py`` the transactions, ``group_commit.py`` the queue of callers.
"""

import queue
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from hourwheel.adapters.sqlite.group_commit import GroupCommit, Notify, Ticket
from hourwheel.adapters.sqlite.schema import prepare
from hourwheel.adapters.sqlite.session import SqliteSession, SqliteWrites
from hourwheel.adapters.sqlite.synced_mark import SyncedMark
from hourwheel.adapters.sqlite.writer import SqliteWriter, Synchronous, connect, translated
from hourwheel.ports.storage import Counter, Key, Record, Store, Table

T = TypeVar("T")

_READERS = 8  # each is an open file; more threads than these wait for a connection


class SqliteStore(SqliteWrites):
    """``Store`` and ``Transactional`` on one database file. Thread-safe; several processes may use the file.
    ``synchronous="NORMAL"`` syncs at checkpoints only: a crash of the process loses nothing, a loss of power may lose
    the last writes. ``mark`` is raised by each transaction once it is committed."""

    def __init__(self, path: Path, *, synchronous: Synchronous = "FULL", mark: SyncedMark | None = None) -> None:
        self._readers: queue.LifoQueue[SqliteSession] = queue.LifoQueue()
        with ExitStack() as opening:
            try:
                connection = opening.enter_context(closing(connect(path)))
                prepare(connection, path, synchronous)
                self._writer = SqliteWriter(connection, path, synchronous, mark)
                for _ in range(_READERS):
                    self._readers.put(SqliteSession(opening.enter_context(closing(connect(path)))))
            except sqlite3.Error as error:
                raise translated(error) from error
            opening.pop_all()  # all connections are open: ``close`` closes them
        self._commits = GroupCommit(self._writer)

    @property
    def blocked_seconds(self) -> float:
        """Seconds since another process began to keep this one from writing; 0 if none does."""
        return self._writer.blocked_seconds

    def probe(self) -> None:
        """Writes and syncs, and changes nothing but the number of the last transaction. Raises a write's errors."""
        self.transact(lambda store: cast("SqliteSession", store).touch())

    def close(self) -> None:
        """Closes the file. No thread may be using the store."""
        self._commits.close()
        for _ in range(_READERS):
            self._readers.get().connection.close()
        self._writer.close()

    def transact(self, work: Callable[[Store], T]) -> T:
        result: T = self._commits.run(work)
        return result

    def submit(
        self, work: Callable[[Store], Any], *, notify: Notify, invite: Callable[[], object], owner: Any = None
    ) -> Ticket:
        """Queues the work of a caller that cannot wait: see ``GroupCommit.submit``."""
        return self._commits.submit(work, notify=notify, invite=invite, owner=owner)

    def lead(self, before_commit: Callable[[], object] | None = None) -> None:
        """Runs the queued work for a caller that was invited: see ``GroupCommit.lead``."""
        self._commits.lead(before_commit)

    def uninvite(self) -> None:
        """Withdraws invitations when the event loop of the invited callers has ended: see ``GroupCommit.uninvite``."""
        self._commits.uninvite()

    def counter(self, counter: str) -> Counter:
        with self._reading() as session:
            return session.counter(counter)

    def counters(self, counters: Sequence[str], *, consistent: bool = False) -> dict[str, Counter]:
        with self._reading() as session:
            return session.counters(counters)

    def get(self, key: Key, *, consistent: bool = True) -> Record | None:
        with self._reading() as session:
            return session.get(key, consistent=consistent)

    def get_many(
        self, table: Table, partition: str, sorts: Sequence[str], *, consistent: bool = True
    ) -> dict[str, Record]:
        with self._reading() as session:
            return session.get_many(table, partition, sorts, consistent=consistent)

    def get_keys(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Record]:
        with self._reading() as session:
            return session.get_keys(keys, consistent=consistent)

    def scan(
        self,
        table: Table,
        partition: str,
        *,
        start: str = "",
        limit: int,
        reverse: bool = False,
        consistent: bool = True,
    ) -> list[tuple[str, Record]]:
        with self._reading() as session:
            return session.scan(table, partition, start=start, limit=limit, reverse=reverse, consistent=consistent)

    @contextmanager
    def _reading(self) -> "Iterator[SqliteSession]":
        session = self._readers.get()
        try:
            yield session
        except sqlite3.Error as error:
            raise translated(error) from error
        finally:
            self._readers.put(session)
