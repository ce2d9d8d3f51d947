"""The parts of the SQLite store that no other store has: group commit, slices, callers that do not wait."""

import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hourwheel.adapters.sqlite import schema as sqlite_schema
from hourwheel.adapters.sqlite import writer as sqlite_writer
from hourwheel.adapters.sqlite.group_commit import Notify, Ticket
from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.adapters.sqlite.synced_mark import SyncedMark, last_transaction
from hourwheel.errors import HourwheelError, Sealed, Throttled
from hourwheel.ports.storage import Counter, Key, Record, Store, Table

TOKEN = b"t" * 16


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "queue.db")
    yield store
    store.close()


def key(sort: str) -> Key:
    return Key(Table.META, "p", sort)


def put(sort: str, store: Store) -> str:
    store.put(key(sort), Record(b"v", TOKEN), expect=None)
    return sort


def counted(done: threading.Semaphore) -> Notify:
    """Returns a callback that releases the semaphore once for each finished piece of work."""
    return lambda tickets: done.release(len(tickets))


class Group:
    """Runs pieces of work that certainly share a transaction: they queue up while the first one keeps it open."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.entered, self.go = threading.Event(), threading.Event()
        self.first = threading.Thread(target=lambda: store.transact(self._hold))

    def _hold(self, _: Store) -> None:
        self.entered.set()
        assert self.go.wait(20)

    def run(self, *works: object) -> list[object]:
        done = threading.Semaphore(0)
        self.first.start()
        assert self.entered.wait(20)
        tickets = [self.store.submit(work, notify=counted(done), invite=self.store.lead) for work in works]
        self.go.set()
        for _ in works:
            assert done.acquire(timeout=120)
        self.first.join()
        return [ticket.error or ticket.result for ticket in tickets]


def test_work_that_does_not_wait_hears_when_it_is_durable(store: SqliteStore) -> None:
    group = Group(store)
    assert group.run(lambda tx: put("a", tx), lambda tx: put("b", tx)) == ["a", "b"]
    assert store.get(key("b")) == Record(b"v", TOKEN)


def test_work_that_raises_undoes_its_own_writes_and_no_others(store: SqliteStore) -> None:
    store.seal("closed")

    def fail(tx: Store) -> None:
        put("b", tx)
        tx.add("closed", rows=1, numbers=1)

    first, second, third = Group(store).run(lambda tx: put("a", tx), fail, lambda tx: put("c", tx))
    assert (first, third) == ("a", "c")
    assert isinstance(second, Sealed)
    assert [sort for sort, _ in store.scan(Table.META, "p", limit=9)] == ["a", "c"]


def test_a_group_counts_each_add_once_though_one_of_it_failed(store: SqliteStore) -> None:
    store.seal("closed")
    works = [lambda tx: tx.add("open", rows=1, numbers=10)] * 5
    Group(store).run(*works, lambda tx: tx.add("closed", rows=1, numbers=1), *works)
    assert store.counter("open")[:2] == (10, 100)


def test_more_rows_than_a_slice_are_trimmed_and_collected(store: SqliteStore) -> None:
    def fill(tx: Store) -> None:
        for number in range(4_500):
            tx.put(key(f"{number:05d}"), Record(b"v", TOKEN, expires_ms=number), expect=None)

    store.transact(fill)
    store.trim(Table.META, "p", below="02100")
    assert store.scan(Table.META, "p", limit=1)[0][0] == "02100"
    store.collect(Table.META, 4_499)
    assert store.scan(Table.META, "p", limit=9) == []


def test_a_group_waits_for_a_locked_file_once_and_not_one_by_one(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    # A clock that advances by a second with each wait; ten waits are allowed.
    monkeypatch.setattr(store._writer._pause, "wait", waits.append)
    monkeypatch.setattr(sqlite_writer.time, "monotonic", lambda: float(len(waits)))
    neighbour = sqlite3.connect(tmp_path / "queue.db", isolation_level=None)
    neighbour.execute("BEGIN IMMEDIATE")
    done = threading.Semaphore(0)
    turns: list[None] = []
    tickets = [
        store.submit(lambda tx: put("a", tx), notify=counted(done), invite=lambda: turns.append(None))
        for _ in range(20)
    ]
    store.lead()
    for _ in tickets:
        assert done.acquire(timeout=120)
    neighbour.close()
    for ticket in tickets:
        with pytest.raises(Throttled):
            ticket.outcome()
    assert len(waits) <= 12


def test_what_could_not_be_rolled_back_is_not_answered_as_stored(store: SqliteStore) -> None:
    class Broken:
        """A connection whose disk is gone in the middle of a transaction."""

        def __init__(self, real: sqlite3.Connection) -> None:
            self._real = real
            self.in_transaction = True
            self.total_changes = real.total_changes

        def execute(self, statement: str, *values: object) -> object:
            if statement in {"COMMIT", "ROLLBACK"}:
                raise sqlite3.OperationalError("disk I/O error")
            return self._real.execute(statement, *values)

        def close(self) -> None:
            self._real.close()

    store._writer.connection = Broken(store._writer.connection)
    with pytest.raises(HourwheelError):
        store.transact(lambda tx: put("a", tx))
    assert store.get(key("a")) is None
    assert store.transact(lambda tx: put("b", tx)) == "b"


def test_owners_of_a_group_are_told_together(store: SqliteStore) -> None:
    told: list[list[Ticket]] = []
    over = threading.Event()

    def notify(tickets: list[Ticket]) -> None:
        told.append(tickets)
        over.set()

    tickets = [
        store.submit(lambda tx: put("a", tx), notify=notify, invite=lambda: None, owner=number) for number in range(9)
    ]
    store.lead()
    assert over.wait(20)
    assert told == [tickets]
    assert [ticket.owner for ticket in told[0]] == [*range(9)]


def test_work_that_joins_a_running_transaction_and_raises_is_answered(store: SqliteStore) -> None:
    done = threading.Semaphore(0)
    late: list[Ticket] = []

    def fail(tx: Store) -> None:
        put("b", tx)
        raise ValueError("no")

    def join() -> None:
        for work in (fail, lambda tx: put("c", tx)):
            late.append(store.submit(work, notify=counted(done), invite=store.lead))

    first = store.submit(lambda tx: put("a", tx), notify=counted(done), invite=lambda: None)
    store.lead(join)
    for _ in range(3):
        assert done.acquire(timeout=20), "work is not answered"
    assert [ticket.joined for ticket in (first, *late)] == [False, True, True]
    assert (first.outcome(), late[1].outcome()) == ("a", "c")
    with pytest.raises(ValueError, match="no"):
        late[0].outcome()
    assert [sort for sort, _ in store.scan(Table.META, "p", limit=9)] == ["a", "c"]
    assert store.transact(lambda tx: put("d", tx)) == "d", "the lead was handed on"


def test_a_transaction_whose_commit_fails_raises_no_mark(tmp_path: Path) -> None:
    """Otherwise the next start would report a transaction as lost that nobody was told of."""
    mark = SyncedMark(tmp_path / "synced")
    store = SqliteStore(tmp_path / "queue.db", mark=mark)
    store.transact(lambda tx: put("a", tx))
    before = mark.read()
    real = store._writer.connection
    store._writer.connection = FailedCommit(real)
    with pytest.raises(HourwheelError):
        store.transact(lambda tx: put("b", tx))
    assert mark.read() == before == last_transaction(tmp_path / "queue.db")
    store._writer.connection = real
    store.transact(lambda tx: put("c", tx))
    assert mark.read() == last_transaction(tmp_path / "queue.db") != before
    store.close()
    mark.close()


class FailedCommit:
    """A connection whose ``COMMIT`` fails, as with a disk that has an error."""

    def __init__(self, real: sqlite3.Connection) -> None:
        self._real = real

    @property
    def in_transaction(self) -> bool:
        return self._real.in_transaction

    @property
    def total_changes(self) -> int:
        return self._real.total_changes

    def execute(self, statement: str, *values: object) -> object:
        if statement == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return self._real.execute(statement, *values)


def test_a_counter_is_added_to_by_all_of_a_group_and_by_none_that_fails(store: SqliteStore) -> None:
    def add(tx: Store) -> Counter:
        tx.add("log", rows=1, numbers=10)
        assert tx.counter("log") == tx.counters(["log", "other"])["log"]
        return tx.add("log", rows=1, numbers=10)

    def fail(tx: Store) -> None:
        tx.add("log", rows=1, numbers=10)
        raise ValueError

    def seal(tx: Store) -> Counter:
        tx.add("log", rows=1, numbers=1)
        return tx.seal("log")

    outcomes = Group(store).run(add, fail, add)
    assert [outcomes[0], outcomes[2]] == [Counter(2, 20), Counter(4, 40)]
    assert isinstance(outcomes[1], ValueError)
    assert store.counter("log") == Counter(4, 40)
    assert store.transact(seal) == Counter(5, 41, sealed=True)
    with pytest.raises(Sealed):
        store.add("log", rows=1, numbers=1)


def test_the_store_goes_on_when_the_next_leaders_are_closed(store: SqliteStore) -> None:
    def gone(*_: object) -> None:
        raise RuntimeError("Event loop is closed")

    store.submit(lambda tx: put("a", tx), notify=gone, invite=gone)
    assert store.transact(lambda tx: put("b", tx)) == "b"
    silent = store.submit(lambda tx: put("c", tx), notify=lambda tickets: None, invite=lambda: None)
    store.uninvite()
    assert store.transact(lambda tx: put("d", tx)) == "d"
    assert silent.outcome() == "c"


def test_work_is_led_once_when_its_invitation_is_withdrawn_as_its_loop_closes(store: SqliteStore) -> None:
    done = threading.Semaphore(0)

    def withdrawn() -> None:
        store.uninvite()
        raise RuntimeError("Event loop is closed")

    ticket = store.submit(lambda tx: put("a", tx), notify=counted(done), invite=withdrawn)
    assert done.acquire(timeout=20)
    assert ticket.outcome() == "a"
    assert store.transact(lambda tx: put("b", tx)) == "b"


def test_a_database_whose_tables_have_no_rowids_is_read_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "queue.db"
    with monkeypatch.context() as earlier:
        with_rowids = re.compile(r"PRIMARY KEY \(partition, sort\)\)$")
        without = [with_rowids.sub(r"\g<0> WITHOUT ROWID", each) for each in sqlite_schema._SCHEMA]
        assert without != sqlite_schema._SCHEMA
        earlier.setattr(sqlite_schema, "_SCHEMA", without)
        SqliteStore(path).close()
    store = SqliteStore(path)
    rows = [Key(Table.CONSUME, "log", str(number)) for number in range(3)]
    for row in rows:
        assert store.put(row, Record(row.sort.encode() * 9_000, TOKEN), expect=None) is None
    assert store.put(rows[0], Record(b"other", TOKEN), expect=None) is not None
    assert [sort for sort, _ in store.scan(Table.CONSUME, "log", start="1", limit=5)] == ["1", "2"]
    store.trim(Table.CONSUME, "log", below="2")
    found = [(sort, record.value) for sort, record in store.scan(Table.CONSUME, "log", limit=5)]
    assert found == [("2", b"2" * 9_000)]
    store.close()


@pytest.mark.parametrize(("synchronous", "answer"), [("FULL", "Broken"), ("NORMAL", "stored")])
def test_a_message_is_answered_only_after_a_sync_unless_an_option_says_otherwise(
    tmp_path: Path, synchronous: str, answer: str
) -> None:
    """A process in which the kernel refuses each sync stores a message only with NORMAL."""
    asked = [sys.executable, "-m", "tests.unit.syncless", str(tmp_path / "data"), synchronous]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split() == [answer]
