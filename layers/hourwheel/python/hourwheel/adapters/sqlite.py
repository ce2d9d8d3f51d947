"""The Store on SQLite: write-ahead log, one writer at a time, group commit.

    counters                     (name, rows, numbers, sealed)
    meta, consume, pull, keys    (partition, sort, value, token, expires_ms), keyed by partition and sort
    commits                      (number, at_ms) of the last transaction that changed anything

Callers queue up; who finds nobody writing leads: it runs all that is queued in one transaction and
syncs once for all. Other processes may use the same file at the same time.
"""

import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from hourwheel.adapters.limits import check_value
from hourwheel.adapters.sqlite_session import SqliteSession, collect_slice, trim_slice
from hourwheel.adapters.syncedmark import Synced, SyncedMark
from hourwheel.errors import Broken, Corrupt, DataVersion, StorageFull, Throttled
from hourwheel.ports import Counter, Key, Record, Refused, Store, Table

T = TypeVar("T")

FORMAT = 2
"""Version of the file, raised with each change of the tables. Another one is refused untouched."""

_APPLICATION_ID = 0x486F7572  # "Hour"
_BUSY_SECONDS = 10.0
_ASK_SECONDS = 0.001
_READERS = 8

_COUNT = (
    "UPDATE commits SET number = number + 1, at_ms = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
    " RETURNING number, at_ms"
)

_SCHEMA = [
    "CREATE TABLE commits (number INTEGER NOT NULL, at_ms INTEGER NOT NULL)",
    "INSERT INTO commits VALUES (0, 0)",
    "CREATE TABLE counters (name TEXT PRIMARY KEY, rows INTEGER NOT NULL, numbers INTEGER NOT NULL,"
    " sealed INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID",
    *(
        f"CREATE TABLE {table} (partition TEXT NOT NULL, sort TEXT NOT NULL, value BLOB NOT NULL,"
        " token BLOB NOT NULL, expires_ms INTEGER, PRIMARY KEY (partition, sort)) WITHOUT ROWID"
        for table in Table
    ),
    "CREATE INDEX keys_expires ON keys (expires_ms)",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT}",
]


def translated(error: sqlite3.Error) -> Exception:
    """The library's error for SQLite's."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Throttled("the database is locked by another process")
    if code == sqlite3.SQLITE_FULL:
        return StorageFull("no room is left for the database")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Corrupt(f"the database file is damaged or not a database: {error}")
    return Broken(f"the database failed: {error}")


@dataclass
class Ticket:
    """A piece of work in the queue. ``signal`` is held until it is done, or its owner is to lead. An owner that does
    not wait is told instead: ``notify`` when it is done, ``invite`` when it is to call ``lead``."""

    work: Callable[[Store], Any]
    notify: Callable[[], object] | None = None
    invite: Callable[[], object] | None = None
    signal: threading.Lock = field(default_factory=threading.Lock)
    done: bool = False
    result: Any = None
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.signal.acquire()

    def outcome(self) -> Any:
        """The result, once it is done; raises the error it ended with."""
        assert self.done
        if self.error is not None:
            raise self.error
        return self.result


class SqliteStore:
    """Thread-safe, and safe to use from several processes. ``synchronous="NORMAL"`` syncs at checkpoints only:
    a crash of the process loses nothing, a loss of power may lose the last writes. ``mark`` is told of each transaction
    once it is committed."""

    def __init__(
        self, path: Path, *, synchronous: Literal["FULL", "NORMAL"] = "FULL", mark: SyncedMark | None = None
    ) -> None:
        self._path = path
        self._synchronous = synchronous
        self._mark = mark
        self._counted = 0
        self._blocked_since: float | None = None
        self._mutex = threading.Lock()
        self._waiting: list[Ticket] = []
        self._leading = False
        self._closed = False
        self._committer: threading.Thread | None = None
        self._turn = threading.Semaphore(0)
        self._inviting = True
        self._invited = False
        self._handed: tuple[list[Ticket], bool] = ([], False)
        self._pause = threading.Event()
        self._readers: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue()
        opened: list[sqlite3.Connection] = []
        try:
            opened.append(self._connect())
            self._writer = opened[0]
            self._prepare()
            self._make_writer(self._writer)
            opened += [self._connect() for _ in range(_READERS)]
        except Exception as error:
            for connection in opened:
                connection.close()
            if isinstance(error, sqlite3.Error):
                raise translated(error) from error
            raise
        for connection in opened[1:]:
            self._readers.put(connection)
        self._session = SqliteSession(self._writer)
        self._counted = self._writer.total_changes

    @property
    def blocked_seconds(self) -> float:
        """For how long another process has kept this one from writing; 0 if it does not."""
        since = self._blocked_since
        return 0.0 if since is None else time.monotonic() - since

    def probe(self) -> None:
        """Writes, syncs, and changes nothing but the number of the last transaction. Raises as any write does."""
        self.transact(lambda store: cast("SqliteSession", store).touch())

    def close(self) -> None:
        """Closes the file; nobody may be using the store."""
        self._closed = True
        if self._committer is not None:
            self._turn.release()
            self._committer.join()
        for _ in range(_READERS):
            self._readers.get().close()
        self._writer.close()

    def transact(self, work: Callable[[Store], T]) -> T:
        ticket = Ticket(work)
        with self._mutex:
            self._waiting.append(ticket)
            lead = not self._leading
            self._leading = True
        if not lead:
            ticket.signal.acquire()
        if not ticket.done:
            self._lead()
        result: T = ticket.outcome()
        return result

    def submit(
        self, work: Callable[[Store], Any], *, notify: Callable[[], object], invite: Callable[[], object]
    ) -> Ticket:
        """``transact`` for those who cannot wait. Both are called from any thread, ``invite`` perhaps at once."""
        ticket = Ticket(work, notify, invite)
        with self._mutex:
            if self._committer is None:
                committer = threading.Thread(target=self._commit_for_others, name="commit", daemon=True)
                committer.start()
                self._committer = committer
            self._waiting.append(ticket)
            lead = not self._leading
            self._leading = True
        if lead:
            self._invite(ticket)
        return ticket

    def lead(self) -> None:
        """For whoever was invited: runs what is queued, in the caller's thread, and has it committed in another. Only
        the sync takes long, and it needs no interpreter."""
        with self._mutex:
            if not self._invited:
                return
            self._invited = False
        group, ready = self._take(), False
        try:
            # What threads bring may take long.
            if all(ticket.notify for ticket in group):
                self._writer.execute("BEGIN IMMEDIATE")
                for ticket in group:
                    ticket.result = ticket.work(self._session)
                ready = True
        except Exception:
            # Another process is writing, or a piece of work raised: the other thread has the time to sort it out.
            self._roll_back()
        finally:
            self._handed = (group, ready)
            self._turn.release()

    def uninvite(self) -> None:
        """Those who were invited to lead are gone, with their loop: from now on the store's own thread leads."""
        with self._mutex:
            self._inviting = False
            invited, self._invited = self._invited, False
        if invited:
            self._lead_elsewhere()

    def add(self, counter: str, *, rows: int, numbers: int) -> Counter:
        return self.transact(lambda store: store.add(counter, rows=rows, numbers=numbers))

    def seal(self, counter: str) -> Counter:
        return self.transact(lambda store: store.seal(counter))

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        check_value(record)
        return self.transact(lambda store: store.put(key, record, expect=expect))

    def delete(self, key: Key, *, expect: bytes) -> Refused | None:
        return self.transact(lambda store: store.delete(key, expect=expect))

    def trim(self, table: Table, partition: str, *, below: str) -> None:
        # Slice by slice, so that other writers get their turn.
        while self.transact(trim_slice(table, partition, below)):
            pass

    def collect(self, table: Table, now_ms: int) -> None:
        while self.transact(collect_slice(table, now_ms)):
            pass

    def counter(self, counter: str) -> Counter:
        with self._reading() as session:
            return session.counter(counter)

    def counters(self, counters: Sequence[str]) -> dict[str, Counter]:
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

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        connection.execute(f"PRAGMA busy_timeout = {int(_BUSY_SECONDS * 1_000)}")
        return connection

    def _prepare(self) -> None:
        (version,) = self._writer.execute("PRAGMA user_version").fetchone()
        (application,) = self._writer.execute("PRAGMA application_id").fetchone()
        if version != FORMAT and application == _APPLICATION_ID:
            raise DataVersion(expected=FORMAT, found=version)
        if application not in (0, _APPLICATION_ID) or (application == 0 and self._tables()):
            raise Corrupt(f"{self._path} is a database of another program")
        self._writer.execute("PRAGMA journal_mode = WAL")
        self._make_writer(self._writer)
        self._writer.execute(f"PRAGMA busy_timeout = {int(_BUSY_SECONDS * 1_000)}")
        self._writer.execute("BEGIN IMMEDIATE")
        if not self._tables():
            for statement in _SCHEMA:
                self._writer.execute(statement)
        self._writer.execute("COMMIT")

    def _make_writer(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute("PRAGMA fullfsync = ON")  # where fsync alone does not reach the platter (macOS)
        connection.execute("PRAGMA busy_timeout = 0")  # see _begin

    def _tables(self) -> int:
        (count,) = self._writer.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return int(count)

    @contextmanager
    def _reading(self) -> "Iterator[SqliteSession]":
        connection = self._readers.get()
        try:
            yield SqliteSession(connection)
        except sqlite3.Error as error:
            raise translated(error) from error
        finally:
            self._readers.put(connection)

    def _lead(self) -> None:
        """Runs and commits what is queued, then hands the lead on."""
        group = self._take()
        try:
            self._commit(group)
        finally:
            self._hand_on(group)

    def _take(self) -> list[Ticket]:
        with self._mutex:
            group, self._waiting = self._waiting, []
        return group

    def _hand_on(self, group: list[Ticket]) -> None:
        """Tells the group that it is done, and the first who came meanwhile to lead."""
        with self._mutex:
            following = self._waiting[0] if self._waiting else None
            self._leading = following is not None
        for ticket in group:
            ticket.done = True
            # A loop that has ended cannot be told, and has nobody left to tell.
            with suppress(RuntimeError):
                (ticket.notify or ticket.signal.release)()
        if following is not None and following.invite is None:
            following.signal.release()
        elif following is not None:
            self._invite(following)

    def _invite(self, ticket: Ticket) -> None:
        assert ticket.invite is not None
        with self._mutex:
            self._invited = self._inviting
        try:
            if self._inviting:
                ticket.invite()
                return
        except RuntimeError:
            with self._mutex:
                self._invited = False
        self._lead_elsewhere()

    def _lead_elsewhere(self) -> None:
        self._handed = (self._take(), False)
        self._turn.release()

    def _commit_for_others(self) -> None:
        """Commits for those who do not wait."""
        while True:
            self._turn.acquire()
            if self._closed:
                return
            group, ready = self._handed
            try:
                self._commit(group, ready=ready)
            finally:
                self._hand_on(group)

    def _commit(self, group: list[Ticket], *, ready: bool = False) -> None:
        """Runs the group in one transaction (``ready``: it was run) and commits it. If a piece of work raises, each
        runs again on its own: that is rare, and a savepoint around each would cost all of them two statements."""
        for ticket in group:
            ticket.error = Broken("the transaction was not committed")
        try:
            if not ready:
                self._begin()
        except sqlite3.Error as error:
            # Locked for too long: waiting again for each of them would help nobody.
            _fail(group, error)
            return
        try:
            if not ready:
                for ticket in group:
                    ticket.result = ticket.work(self._session)
            self._commit_counted()
        except BaseException as error:
            self._roll_back()
            _fail(group, error)
            if not isinstance(error, Exception):
                raise
            for ticket in group if len(group) > 1 else ():
                self._commit([ticket])
        else:
            for ticket in group:
                ticket.error = None

    def _commit_counted(self) -> None:
        """Commits, and numbers the transaction if it changes anything."""
        if self._writer.total_changes == self._counted:
            self._writer.execute("COMMIT")
            return
        number, at_ms = self._writer.execute(_COUNT).fetchone()
        self._writer.execute("COMMIT")
        self._counted = self._writer.total_changes
        if self._mark is not None:
            self._mark.raise_to(Synced(number, at_ms))

    def _roll_back(self) -> None:
        try:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
        except sqlite3.Error:
            # The connection is in no state to go on with. Closing it undoes what it had begun.
            self._writer.close()
            self._writer = self._connect()
            self._make_writer(self._writer)
            self._session = SqliteSession(self._writer)
            self._counted = self._writer.total_changes

    def _begin(self) -> None:
        """Takes the write lock. SQLite's own waiting backs off, and starves beside a busy process: ask often."""
        until = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                self._blocked_since = None
                return
            except sqlite3.OperationalError as error:
                self._blocked_since = self._blocked_since or time.monotonic()
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
            self._pause.wait(_ASK_SECONDS)


def _fail(group: list[Ticket], error: BaseException) -> None:
    for ticket in group:
        ticket.error = translated(error) if isinstance(error, sqlite3.Error) else error
