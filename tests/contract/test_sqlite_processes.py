"""The promises of the store hold for two processes that write to one SQLite file at once."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.ports.storage import Counter, Key, Record, Refused, Table

from .records import record
from .services import SqliteProcess

CALLS = 150
MOST = 3_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def here(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path)
    yield store
    store.close()


@pytest.fixture
def there(sqlite_process: SqliteProcess, path: Path, here: SqliteStore) -> Iterator[SqliteProcess]:
    assert sqlite_process.call(path, "counter", "warm") == Counter(0, 0)
    yield sqlite_process
    sqlite_process.call(path, "close")


def both(theirs: Callable[[], list[Any]], mine: Callable[[], Any]) -> tuple[list[Any], list[Any]]:
    """Returns the answers of the other process to its calls, and the results of ``mine``, which runs until they are
    done.

    Runs for at most ``MOST`` calls: SQLite's lock is not fair, and a process that never pauses can keep it for seconds.
    """
    with ThreadPoolExecutor(1) as pool:
        running: Future[list[Any]] = pool.submit(theirs)
        answers = [mine()]
        while not running.done() and len(answers) < MOST:
            answers.append(mine())
        return running.result(), answers


def test_no_number_is_given_twice(here: SqliteStore, there: SqliteProcess, path: Path) -> None:
    one = {"rows": 1, "numbers": 3}
    theirs, mine = both(
        lambda: there.call_many(path, [("add", ("log",), one)] * CALLS), lambda: here.add("log", rows=1, numbers=3)
    )
    assert theirs == sorted(theirs)
    assert sorted(theirs + mine) == [Counter(row, 3 * row) for row in range(1, len(theirs + mine) + 1)]


def test_a_row_has_one_winner_and_the_loser_gets_its_record(
    here: SqliteStore, there: SqliteProcess, path: Path
) -> None:
    keys = [Key(Table.CONSUME, "log", f"{row:04d}") for row in range(CALLS)]
    of_theirs = [record(b"theirs") for _ in keys]
    of_mine = [record(b"mine") for _ in keys]
    # From the other end, so that the processes meet in the middle.
    rows = iter(zip(reversed(keys), reversed(of_mine), strict=True))

    def put_next() -> tuple[Key, Record, Refused | None] | None:
        following = next(rows, None)
        return following and (*following, here.put(*following, expect=None))

    theirs, mine = both(
        lambda: there.call_many(
            path, [("put", (key, new), {"expect": None}) for key, new in zip(keys, of_theirs, strict=True)]
        ),
        put_next,
    )
    refused_there = {key: refused for key, refused in zip(keys, theirs, strict=True) if refused}
    tried_here = {key: (new, refused) for key, new, refused in filter(None, mine)}
    for key, new in zip(keys, of_theirs, strict=True):
        current = here.get(key)
        if key in refused_there:
            assert refused_there[key] == Refused(tried_here[key][0])
            assert current == tried_here[key][0]
            assert tried_here[key][1] is None
        else:
            assert current == new
            assert key not in tried_here or tried_here[key][1] == Refused(new)


def test_a_transaction_here_is_one_step_there(here: SqliteStore, there: SqliteProcess, path: Path) -> None:
    def append(store: Any) -> None:
        row = store.counter("log").rows  # right only if the other process cannot write in between
        store.put(Key(Table.CONSUME, "log", f"{row:04d}"), record(), expect=None)
        assert store.add("log", rows=1, numbers=1).rows == row + 1

    theirs, mine = both(
        lambda: there.call_many(path, [("add", ("log",), {"rows": 1, "numbers": 1})] * CALLS),
        lambda: here.transact(append),
    )
    rows_of_theirs = {f"{total.rows - 1:04d}" for total in theirs}
    rows_of_mine = {sort for sort, _ in here.scan(Table.CONSUME, "log", limit=10_000)}
    assert len(rows_of_mine) == len(mine)
    assert not rows_of_theirs & rows_of_mine
    assert here.counter("log").rows == len(theirs) + len(mine)


def test_what_a_killed_process_was_told_is_stored(here: SqliteStore, path: Path) -> None:
    doomed = SqliteProcess()
    kept = record()
    key = Key(Table.CONSUME, "log", "0000")
    doomed.call(path, "add", "log", rows=1, numbers=1)
    doomed.call(path, "put", key, kept, expect=None)
    doomed.kill()
    assert here.get(key) == kept
    assert here.add("log", rows=1, numbers=1) == Counter(2, 2)
