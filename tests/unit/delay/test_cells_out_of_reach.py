"""A cell that does not answer, fails or is full holds up only the delayed messages for its own queues: each is
delivered once when the cell is back, whoever owns the bucket then."""

import logging
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.buckets.buckets import Bucket
from hourwheel.context import Settings
from hourwheel.delay import held_batches
from hourwheel.delay.dispatch import DUE, Dispatcher
from hourwheel.delay.ownership import Dispatched, put_dispatched
from hourwheel.delay.wheel import Wheel
from hourwheel.errors import HourwheelError
from hourwheel.handover.handover import Transfer
from hourwheel.ports.storage import CellStorage
from tests.failing import FAILURES
from tests.support import AT_ONCE, NOON_MS, Bench, CallByCall

HOUR_MS = 3_600_000
LARGE = "".join(chr(0x100 + at * at % 5_000) for at in range(2_000))


ALL = frozenset(
    {"add", "put", "get", "get_many", "get_keys", "scan", "counter", "counters", "seal", "begin", "delete", "trim"}
)


class Outage(CallByCall):
    """The store of a cell, of which the calls in ``down`` raise an error."""

    def __init__(self, error: HourwheelError = FAILURES["away"]) -> None:
        super().__init__(MemoryStore())
        self.error = error
        self.down: frozenset[str] = frozenset()
        for verb in ALL:
            setattr(self, verb, partial(self._call, verb, getattr(self, verb)))

    def _call(self, verb: str, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        if verb in self.down:
            raise self.error
        return call(*args, **named)


@pytest.fixture(params=FAILURES)
def away(request: pytest.FixtureRequest) -> Outage:
    return Outage(FAILURES[request.param])


@pytest.fixture(params=["call by call", "transactions"])
def bench(request: pytest.FixtureRequest, away: Outage) -> Bench:
    """Returns a bench with two subjects: the queue of ``away`` is in cell fast, that of ``orders`` in the home cell."""
    home = CallByCall(MemoryStore()) if request.param == "call by call" else MemoryStore()
    settings = Settings(retry=AT_ONCE, registry_seconds=0, inline_bytes=1_024)
    bench = Bench(home, settings=settings, cells={"fast": CellStorage(away, MemoryBlobs())})
    bench.clock.ms = NOON_MS // HOUR_MS * HOUR_MS + 600_000
    bench.deployment.cells.add("fast")
    bench.deployment.subjects.put("away")
    bench.deployment.routes.move("away", 0, "fast")
    return bench


def send(bench: Bench, *bodies: str, seconds: int) -> list[str]:
    """Sends delayed messages to both subjects, and returns the scheduled ids of those for the cell."""
    bench.send_later(*bodies, delay=seconds)
    return [placed.scheduled_id or "" for placed in bench.send_later(*bodies, delay=seconds, subject="away")]


def taken(bench: Bench, subject: str) -> list[str | None]:
    pulls = bench.pull(subject=subject)
    for pull in pulls:
        bench.settle(pull, subject=subject)
    return [message.body for pull in pulls for message in pull.messages]


def test_the_other_queues_are_served_in_time_and_the_cells_own_when_it_is_back(
    bench: Bench, away: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    away.down = ALL
    for number in range(5):
        send(bench, f"{number}a", f"{number}b", seconds=20 + 5 * number)
    with caplog.at_level(logging.ERROR, logger="hourwheel"):
        for number in range(5):
            bench.turn(21 if number == 0 else 5)
            assert taken(bench, "orders") == [f"{number}a", f"{number}b"]
        bench.turn(60)
    told = [record for record in caplog.records if "delayed messages for cell fast wait" in record.message]
    assert 0 < len(told) <= 6, "once for each owner of the bucket"
    away.down = frozenset()
    bench.turn(12)
    assert taken(bench, "away") == [f"{number}{name}" for number in range(5) for name in "ab"]
    bench.turn(60)
    assert taken(bench, "away") == []


@pytest.mark.parametrize("body", ["small", LARGE])
def test_rows_that_were_reserved_are_put_when_the_cell_is_back_by_whichever_owner(
    bench: Bench, away: Outage, body: str
) -> None:
    send(bench, body, seconds=20)
    send(bench, "later", seconds=40)
    away.down = frozenset({"put"})
    bench.turn(21)
    assert taken(bench, "orders") == [body]
    away.down = ALL
    for _ in range(3):  # each continues as another owner
        bench.deployment = bench.another_process()
        bench.turn(20)
    assert taken(bench, "orders") == ["later"]
    away.down = frozenset()
    bench.deployment = bench.another_process()
    bench.turn(15)
    assert taken(bench, "away") == [body, "later"]
    bench.turn(60)
    assert taken(bench, "away") == []


def test_a_reserved_row_that_a_reader_has_filled_meanwhile_is_replaced_once(bench: Bench, away: Outage) -> None:
    send(bench, "first", seconds=20)
    away.down = frozenset({"put"})
    bench.turn(21)
    away.down = frozenset()
    bench.deployment = bench.another_process()
    bench.send("direct", subject="away")
    bench.clock.pass_time(2)
    assert taken(bench, "away") == ["direct"]
    away.down = frozenset({"add"})  # the row is found filled, and no other can be reserved
    bench.turn(10)
    away.down = ALL
    for _ in range(2):
        bench.deployment = bench.another_process()
        send(bench, "meanwhile", seconds=1)
        bench.turn(20)
    assert taken(bench, "orders") == ["first", "meanwhile", "meanwhile"]
    away.down = frozenset()
    bench.deployment = bench.another_process()
    bench.turn(15)
    assert sorted(taken(bench, "away"), key=str) == ["first", "meanwhile", "meanwhile"]


def test_a_message_that_waits_for_its_cell_can_be_cancelled(bench: Bench, away: Outage) -> None:
    first, second = send(bench, "a", "b", seconds=20)
    away.down = ALL
    bench.turn(30)
    assert bench.deployment.delayed.get(first).state == "waiting"
    states: list[str] = []
    bench.turn(20, beside=lambda: states.append(bench.deployment.delayed.cancel(first).state))
    assert states == ["cancelled"]
    away.down = frozenset()
    bench.turn(15)
    assert taken(bench, "away") == ["b"]
    assert bench.deployment.delayed.get(second).state == "dispatched"


def test_a_bucket_is_not_closed_while_messages_wait_for_a_cell(bench: Bench, away: Outage) -> None:
    send(bench, "a", seconds=20)
    away.down = frozenset({"put"})
    bench.turn(21)
    away.down = ALL
    send(bench, "b", seconds=20)
    bench.turn(2 * HOUR_MS / 1_000)
    bench.deployment.sweeper.sweep()
    away.down = frozenset()
    bench.turn(60)
    assert taken(bench, "away") == ["a", "b"]


def test_messages_that_wait_for_another_cell_are_not_tried_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    full, failing = Outage(FAILURES["full"]), Outage(FAILURES["away"])
    cells = {"full": CellStorage(full, MemoryBlobs()), "failing": CellStorage(failing, MemoryBlobs())}
    settings = Settings(retry=AT_ONCE, registry_seconds=0, inline_bytes=1_024, tick_ms=500)
    bench = Bench(CallByCall(MemoryStore()), settings=settings, cells=cells)
    bench.clock.ms = NOON_MS // HOUR_MS * HOUR_MS + 600_000
    monkeypatch.setattr(held_batches, "_MOST_OPEN", 1)
    for name in cells:
        bench.deployment.cells.add(name)
        bench.deployment.subjects.put(name)
        bench.deployment.routes.move(name, 0, name)
        bench.send_later("m", delay=20, subject=name)
    tried: list[int] = []
    hand_over = Dispatcher._hand_over

    def counted(self: Dispatcher, batches: Any) -> Any:
        tried.append(bench.clock.now_ms())
        return hand_over(self, batches)

    monkeypatch.setattr(Dispatcher, "_hand_over", counted)
    full.down, failing.down = frozenset({"put"}), ALL
    bench.turn(60)
    assert len(tried) < 25, "each cell is tried every five seconds"


def test_a_new_owner_does_not_keep_transfers_once_for_each_row_that_names_them(bench: Bench, away: Outage) -> None:
    bench.send_later(*map(str, range(1_000)), delay=20, subject="away")
    ((_, bucket),) = bench.timers.ordered
    now_ms = bench.clock.now_ms()
    named = Transfer(
        kind=DUE,
        log=bench.deployment.registry.subject("away").log(0),
        row_no=0,
        first_seq=0,
        token=b"t" * 16,
        at_ms=now_ms,
        expires_ms=now_ms + HOUR_MS,
        picks=tuple((0, index) for index in range(1_000)),
    )
    for row_no in range(300):
        row = Dispatched(owner="before", at_ms=now_ms, transfers=(named,))
        put_dispatched(bench.deployment.context, bucket, row_no, row, b"%016d" % row_no)
    away.down = ALL
    wheel = Wheel(bench.deployment.context, bench.deployment.registry, Bucket.parse(bucket), "after")
    assert wheel._ownership.take()
    tracemalloc.start()
    wheel.open()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 6 << 20, "300,000 positions take 12 MB as numbers alone"
    assert wheel.waiting == 0, "each message is known to be handed over"


def test_a_message_that_waited_for_its_cell_comes_before_one_that_is_due_at_its_next_try(
    bench: Bench, away: Outage
) -> None:
    delays = [f"{20_000 + 100 * number}ms" for number in range(100)]
    for delay in delays:
        bench.send_later(delay, delay=delay, subject="away")
    away.down = ALL

    def answer_again() -> None:
        bench.clock.sleep(22)
        away.down = frozenset()

    bench.turn(60, beside=answer_again)
    assert taken(bench, "away") == delays
