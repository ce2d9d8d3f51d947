"""``Transactional.transact`` and ``atomically`` keep their promises on every adapter."""

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.adapters.retrying import RetryingStore
from hourwheel.errors import Sealed
from hourwheel.ports.storage import (
    Counter,
    Key,
    Record,
    Refused,
    Store,
    Table,
    Transactional,
    atomically,
    transaction_of,
)

from .records import THREADS, at_once, filled, record, stored
from .simulated import InstantClock, SteadyIds


class Interruption(BaseException):
    """Derived from BaseException, like the interrupt by which a person stops the program."""


def test_the_result_of_the_work_is_returned(transactional_store: Transactional, partition: str) -> None:
    assert transactional_store.transact(lambda store: store.add(partition, rows=1, numbers=2)) == Counter(1, 2)


def test_the_work_sees_its_own_writes(transactional_store: Transactional, partition: str) -> None:
    def work(store: Store) -> None:
        store.add(partition, rows=1, numbers=1)
        assert store.counter(partition) == Counter(1, 1)
        written = filled(store, partition, "ab")
        assert store.scan(Table.CONSUME, partition, limit=10) == list(written.items())
        assert store.put(Key(Table.CONSUME, partition, "a"), record(), expect=None) == Refused(written["a"])

    transactional_store.transact(work)


def test_all_effects_are_there_afterwards(transactional_store: Store, partition: str) -> None:
    mine = record()

    def work(store: Store) -> None:
        row = store.add(partition, rows=1, numbers=1).rows
        store.put(Key(Table.CONSUME, partition, str(row)), mine, expect=None)

    atomically(transactional_store, work)
    assert transactional_store.counter(partition) == Counter(1, 1)
    assert transactional_store.scan(Table.CONSUME, partition, limit=10) == [("1", mine)]


def test_each_transaction_has_an_identity_of_its_own(transactional_store: Transactional) -> None:
    first, second = (transactional_store.transact(transaction_of) for _ in range(2))
    assert first is not second


@pytest.mark.parametrize("error", [RuntimeError, Interruption])
def test_no_effect_is_left_when_the_work_raises(
    transactional_store: Store, partition: str, error: type[BaseException]
) -> None:
    before = filled(transactional_store, partition, "abcd")
    transactional_store.add(partition, rows=4, numbers=4)
    raised = error("stop")

    def work(store: Store) -> None:
        store.add(partition, rows=1, numbers=1)
        store.seal(partition)
        store.add(f"{partition}-new", rows=1, numbers=1)
        stored(store, Key(Table.CONSUME, partition, "e"))
        store.put(Key(Table.CONSUME, partition, "b"), record(), expect=before["b"].token)
        store.delete(Key(Table.CONSUME, partition, "c"), expect=before["c"].token)
        store.trim(Table.CONSUME, partition, below="b")
        raise raised

    with pytest.raises(error) as passed:
        atomically(transactional_store, work)
    assert passed.value is raised
    assert transactional_store.scan(Table.CONSUME, partition, limit=10) == list(before.items())
    assert transactional_store.counter(partition) == Counter(4, 4)
    assert transactional_store.counter(f"{partition}-new") == Counter(0, 0)


def test_the_store_serves_on_after_the_work_raised(transactional_store: Store, partition: str) -> None:
    def work(store: Store) -> None:
        store.add(partition, rows=1, numbers=1)
        raise RuntimeError("stop")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="stop"):
            atomically(transactional_store, work)
    assert transactional_store.add(partition, rows=1, numbers=1) == Counter(1, 1)


def test_an_error_that_the_work_handles_takes_back_nothing(transactional_store: Store, partition: str) -> None:
    def work(store: Store) -> None:
        written = stored(store, Key(Table.CONSUME, partition, "a"))
        store.seal(partition)
        with pytest.raises(Sealed):
            store.add(partition, rows=1, numbers=1)
        assert store.delete(Key(Table.CONSUME, partition, "a"), expect=record().token) == Refused(written)

    atomically(transactional_store, work)
    assert len(transactional_store.scan(Table.CONSUME, partition, limit=10)) == 1
    assert transactional_store.counter(partition).sealed


def test_nobody_sees_a_part_of_the_effects(shared_transactional_store: Store, partition: str) -> None:
    asked = Event()

    def look() -> int:
        asked.set()
        return len(shared_transactional_store.scan(Table.CONSUME, partition, limit=10))

    def work(store: Store) -> Future[int]:
        filled(store, partition, "a")
        looking = pool.submit(look)
        asked.wait()
        filled(store, partition, "b")
        return looking

    with ThreadPoolExecutor(1) as pool:
        assert atomically(shared_transactional_store, work).result() in (0, 2)
    assert look() == 2


def test_no_other_writer_runs_meanwhile(shared_transactional_store: Store, partition: str) -> None:
    key = Key(Table.CONSUME, partition, "a")
    mine = record(b"mine")
    asked = Event()

    def write() -> Refused | None:
        asked.set()
        return shared_transactional_store.put(key, record(b"theirs"), expect=None)

    def work(store: Store) -> Future[Refused | None]:
        assert store.get(key) is None
        writing = pool.submit(write)
        asked.wait()
        assert store.put(key, mine, expect=None) is None
        return writing

    with ThreadPoolExecutor(1) as pool:
        assert atomically(shared_transactional_store, work).result() == Refused(mine)


def test_transactions_of_many_threads_are_one_after_the_other(
    shared_transactional_store: Store, partition: str
) -> None:
    def append(store: Store) -> Record | None:
        row = store.counter(partition).rows  # a read and an add: right only if no other process writes in between
        stored(store, Key(Table.CONSUME, partition, f"{row:04d}"))
        store.add(partition, rows=1, numbers=1)
        return None

    at_once(lambda _: [atomically(shared_transactional_store, append) for _ in range(6)])
    found = shared_transactional_store.scan(Table.CONSUME, partition, limit=100)
    assert [sort for sort, _ in found] == [f"{row:04d}" for row in range(6 * THREADS)]


def test_the_outer_store_is_not_for_use_inside(partition: str) -> None:
    outer = MemoryStore()
    with pytest.raises(RuntimeError, match="use the store"):
        outer.transact(lambda _: outer.counter(partition))


def test_atomically_works_call_by_call_where_there_are_no_transactions(store: Store, partition: str) -> None:
    one_by_one = RetryingStore(store, InstantClock(), SteadyIds())
    assert not hasattr(one_by_one, "transact")

    def work(inner: Store) -> int:
        filled(inner, partition, "ab")
        return inner.add(partition, rows=2, numbers=2).rows

    assert atomically(one_by_one, work) == 2
    assert store.counter(partition) == Counter(2, 2)
