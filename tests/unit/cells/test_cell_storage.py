"""One place decides which errors of a storage put its cell out of reach; callers meet one error that names the cell."""

import logging
from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.cells.cell_storage import GuardedCells
from hourwheel.errors import (
    Broken,
    CellFull,
    CellUnavailable,
    Conflict,
    Corrupt,
    NotFound,
    OutcomeUnknown,
    StorageFull,
    Unavailable,
)
from hourwheel.ports.storage import CellStorage, Key, Table, atomically
from hourwheel.system import SystemIds
from tests.failing import FAILURES, FailingStore, FailingTransactions
from tests.support import HandClock, KnownCells

SAYS = {
    "away": (CellUnavailable, "the storage of cell fast does not answer"),
    "full": (CellFull, "the volume of cell fast is full"),
    "failing": (CellUnavailable, "the storage of cell fast fails"),
    "damaged": (CellUnavailable, "the storage of cell fast fails"),
    "forbidden": (CellUnavailable, "the storage of cell fast does not answer"),
}
ASLEEP = {"away", "failing", "forbidden"}
"""The failures after which a cell is left alone for a while."""


def guarded(store: Any, clock: HandClock | None = None) -> CellStorage:
    opened = {"fast": CellStorage(store, MemoryBlobs())}
    return GuardedCells(KnownCells(opened), MemoryStore(), clock or HandClock(), SystemIds()).storage("fast")


@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.parametrize("store", [FailingStore(), FailingTransactions()], ids=["a call", "a transaction"])
def test_an_error_of_the_storage_names_the_cell(store: FailingStore, how: str) -> None:
    storage = guarded(store)
    store.fail(how)
    kind, text = SAYS[how]
    with pytest.raises(CellUnavailable) as raised:
        atomically(storage.store, lambda store: store.add("fast:log", rows=1, numbers=1))
    assert (type(raised.value), str(raised.value)) == (kind, text)
    assert raised.value.is_logged == (how != "full")


@pytest.mark.parametrize("how", FAILURES)
def test_a_cell_that_does_not_answer_or_fails_is_left_alone_for_a_while(how: str) -> None:
    store, clock = FailingStore(), HandClock()
    storage = guarded(store, clock)
    store.fail(how)
    with pytest.raises(SAYS[how][0]):
        storage.store.add("fast:log", rows=1, numbers=1)
    store.recover()
    if how in ASLEEP:
        with pytest.raises(CellUnavailable, match=SAYS[how][1]):
            storage.store.counter("fast:log")
        clock.pass_time(5)
    assert storage.store.counter("fast:log").rows == 0


def test_a_full_cell_can_be_read(caplog: pytest.LogCaptureFixture) -> None:
    store, clock = FailingStore(), HandClock()
    storage = guarded(store, clock)
    store.fail("full")
    with caplog.at_level(logging.WARNING, logger="hourwheel"):
        for _ in range(10):
            with pytest.raises(CellFull):
                storage.store.add("fast:log", rows=1, numbers=1)
            assert storage.store.counter("fast:log").rows == 0
        clock.pass_time(5)
        with pytest.raises(CellFull):
            storage.store.add("fast:log", rows=1, numbers=1)
    assert len(caplog.records) == 2, "once each five seconds"


@pytest.mark.parametrize(
    "error",
    [
        Corrupt("a row"),
        StorageFull("the home cell"),
        Unavailable("a queue was moved"),
        OutcomeUnknown("the home cell"),
        Broken("x"),
        Conflict("route-changed", "x"),
    ],
    ids=repr,
)
def test_an_error_of_the_work_within_a_transaction_stays_as_it_is(error: Exception) -> None:
    storage = guarded(MemoryStore())

    def work(_: object) -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        atomically(storage.store, work)
    assert raised.value is error
    assert storage.store.counter("fast:log").rows == 0, "the cell is not taken to be out of reach"


def test_an_object_that_is_missing_or_damaged_does_not_put_the_cell_out_of_reach() -> None:
    storage = guarded(MemoryStore())
    storage.blobs.put("a/b", b"123")
    with pytest.raises(Corrupt, match="ends at 3"):
        storage.blobs.get("a/b", offset=0, length=5)
    with pytest.raises(NotFound):
        storage.blobs.get("a/c")
    assert storage.store.get(Key(Table.META, "a", "b")) is None
