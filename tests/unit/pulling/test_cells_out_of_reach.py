"""Pulls of queues with parts in a cell that is out of reach get the messages of all other cells."""

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import OutcomeUnknown, Throttled
from hourwheel.model.messages import Message, NewMessage
from hourwheel.ordered import key_state_cache
from hourwheel.ports.storage import CellStorage, Key, Record, Refused, Store, Table
from tests.support import AT_ONCE, Bench, CallByCall
from tests.unit.delay.test_cells_out_of_reach import Outage

T = TypeVar("T")

LARGE = random.Random(1).randbytes(4_000).hex()
HOMES = pytest.mark.parametrize(
    "home", [MemoryStore, lambda: CallByCall(MemoryStore())], ids=["at once", "call by call"]
)


class LostObjects(MemoryBlobs):
    """Objects that cannot be read while they are ``down``."""

    down = False

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        if self.down:
            raise Throttled("the objects do not answer")
        return super().get(key, offset=offset, length=length)


class FailingPuts(CallByCall):
    """A store in which puts to the table, and the partition or sort, in ``down`` fail."""

    down: tuple[Table, str] | None = None

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        if self.down in ((key.table, key.partition), (key.table, key.sort)):
            raise Throttled("the table does not answer")
        return super().put(key, record, expect=expect)


class FailingTransactions(MemoryStore):
    """A store of which each transaction that adds a row to the pull log ``down`` fails, and stores nothing."""

    down: str | None = None

    def transact(self, work: Callable[[Store], T]) -> T:
        def run(store: Store) -> T:
            rows = _rows_of(store, self.down)
            result = work(store)
            if _rows_of(store, self.down) > rows:
                raise Throttled("the table does not answer")
            return result

        return super().transact(run)


class LostAnswers(MemoryStore):
    """A store that commits the transactions that add a row to the pull log ``lost``, and does not answer them."""

    lost: str | None = None

    def transact(self, work: Callable[[Store], T]) -> T:
        def run(store: Store) -> tuple[T, bool]:
            rows = _rows_of(store, self.lost)
            result = work(store)
            return result, _rows_of(store, self.lost) > rows

        result, added = super().transact(run)
        if added:
            raise OutcomeUnknown("the answer is lost")
        return result


def _rows_of(store: Store, pull_log: str | None) -> int:
    return 0 if pull_log is None else len(store.scan(Table.PULL, pull_log, limit=9))


def moved(home: Store, away: CellStorage, **how: Any) -> Bench:
    """Returns a subject of two queues, of which the first is in cell away."""
    settings = Settings(retry=AT_ONCE, registry_seconds=0, inline_bytes=1_024)
    bench = Bench(home, settings=settings, cells={"away": away})
    bench.deployment.cells.add("away")
    bench.deployment.subjects.put("orders", queues=2)
    bench.deployment.groups.put("orders", "billing", **how)
    bench.deployment.routes.move("orders", 0, "away")
    return bench


def send(bench: Bench, body: str, queue: int) -> None:
    bench.deployment.produce("orders", [NewMessage(body=body, queue=queue)])


@HOMES
@pytest.mark.parametrize("verb", ["put", "scan"])
def test_what_was_claimed_before_a_cell_failed_is_handed_out(home: Callable[[], Store], verb: str) -> None:
    away = Outage()
    settings = Settings(retry=AT_ONCE, registry_seconds=0)
    bench = Bench(home(), settings=settings, cells={"away": CellStorage(away, MemoryBlobs())})
    bench.deployment.cells.add("away")
    bench.send("one")
    bench.deployment.routes.move("orders", 0, "away")
    bench.send("two")
    away.down = frozenset({verb})
    assert [(message.body, message.attempt) for message in bench.take()] == [("one", 1)]
    away.down = frozenset()
    bench.clock.pass_time(6)
    assert bench.bodies() == ["two"]


@HOMES
@pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])
def test_objects_that_do_not_answer_hold_up_the_messages_in_them(home: Callable[[], Store], ordered: bool) -> None:
    objects = LostObjects()
    bench = moved(home(), CellStorage(CallByCall(MemoryStore()), objects), ordered=ordered)
    send(bench, LARGE, 0)
    send(bench, "at home", 1)
    objects.down = True
    assert bench.bodies() == ["at home"]
    assert bench.bodies() == [], "the cell alone has messages, and a pull waits for it"
    objects.down = False
    bench.clock.pass_time(31)
    assert LARGE in [message.body for message in bench.take_all()]


def test_objects_of_the_home_cell_that_do_not_answer_leave_what_can_be_read() -> None:
    settings = Settings(retry=AT_ONCE, registry_seconds=0, inline_bytes=1_024)
    bench = Bench(settings=settings, blobs=(objects := LostObjects()))
    bench.deployment.subjects.put("orders", queues=2)
    send(bench, LARGE, 0)
    send(bench, "small", 1)
    objects.down = True
    assert bench.bodies() == ["small"]
    bench.clock.pass_time(31)
    objects.down = False
    assert sorted(str(message.body) for message in bench.take_all()) == sorted([LARGE, "small"])


def test_a_claim_is_handed_out_though_that_of_the_next_queue_fails() -> None:
    bench = Bench(store := FailingPuts(MemoryStore()), settings=Settings(retry=AT_ONCE, registry_seconds=0))
    bench.deployment.subjects.put("orders", queues=2)
    bench.deployment.groups.put("orders", "billing")
    for _ in range(8):  # a pull begins with a random queue
        send(bench, "a", 0)
        send(bench, "b", 1)
        store.down = (Table.PULL, "billing~1@orders~1/1")
        got: list[Message] = []
        for _ in range(20):
            with suppress(Throttled):
                got += bench.take()
        assert [(message.body, message.attempt) for message in got] == [("a", 1)]
        store.down = None
        assert [(message.body, message.attempt) for message in bench.take()] == [("b", 1)]


def test_claims_of_another_cell_are_handed_out_though_those_of_the_home_cell_fail() -> None:
    bench = moved(home := FailingTransactions(), CellStorage(MemoryStore(), MemoryBlobs()))
    for _ in range(8):  # a pull begins with a random queue
        send(bench, "away", 0)
        send(bench, "at home", 1)
        home.down = "billing~1@orders~1/1"
        got: list[Message] = []
        for _ in range(20):
            with suppress(Throttled):
                (pull,) = bench.pull()
                got += pull.messages
        assert [(message.body, message.attempt) for message in got] == [("away", 1)]
        home.down = None
        bench.settle(pull)
        assert [(message.body, message.attempt) for message in bench.take()] == [("at home", 1)]


def test_a_claim_is_handed_out_though_the_answer_about_that_of_the_next_part_is_lost() -> None:
    away = CellStorage(MemoryStore(), MemoryBlobs())
    settings = Settings(retry=AT_ONCE, registry_seconds=0)
    bench = Bench(store := LostAnswers(), settings=settings, cells={"away": away})
    bench.deployment.cells.add("away")
    bench.deployment.groups.put("orders", "billing")
    bench.send("one")
    for cell in ("away", "home"):
        bench.deployment.routes.move("orders", 0, cell)
    bench.send("two")
    bench.send("three")
    _, part = bench.deployment.registry.subject("orders").parts(0)[-1]
    store.lost = f"billing~1@{part}"
    (pull,) = bench.pull()
    assert [(message.body, message.attempt) for message in pull.messages] == [("one", 1)]
    store.lost = None
    bench.settle(pull)
    assert bench.bodies() == [], "the other messages are claimed, and nobody knows of it"
    bench.clock.pass_time(31)
    assert sorted((str(message.body), message.attempt) for message in bench.take_all()) == [("three", 1), ("two", 1)]


def test_an_ordered_claim_is_handed_out_though_its_snapshot_cannot_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_state_cache, "_SNAPSHOT_ROWS", 1)
    away = FailingPuts(MemoryStore())
    bench = moved(MemoryStore(), CellStorage(away, MemoryBlobs()), ordered=True)
    send(bench, "one", 0)
    away.down = (Table.META, "parked")
    assert [(message.body, message.attempt) for message in bench.take()] == [("one", 1)]


@HOMES
@pytest.mark.parametrize("verb", ["put", "scan", "counters"])
def test_an_ordered_group_waits_for_the_earlier_part_in_a_cell_that_does_not_answer(
    home: Callable[[], Store], verb: str
) -> None:
    away = Outage()
    bench = moved(home(), CellStorage(away, MemoryBlobs()), ordered=True)
    send(bench, "first", 0)
    bench.deployment.routes.move("orders", 0, "home")
    send(bench, "second", 0)
    away.down = frozenset({verb})
    assert bench.bodies() == []
    away.down = frozenset()
    bench.clock.pass_time(6)
    (pull,) = bench.pull()
    assert [message.body for message in pull.messages] == ["first"]
    bench.settle(pull)
    assert bench.bodies() == ["second"]
