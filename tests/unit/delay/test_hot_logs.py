"""A log whose partition refuses writes holds up only its own delayed messages: each is delivered once when it can."""

import threading
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.delay import dispatch
from hourwheel.delay.call_workers import in_parallel
from hourwheel.delay.dispatch import Dispatcher
from hourwheel.delay.schedule_rows import ScheduleRowCache
from hourwheel.errors import OutcomeUnknown, Throttled, Unavailable
from hourwheel.model.messages import NewMessage
from hourwheel.ports.storage import Key
from tests.support import AT_ONCE, Bench, CallByCall


class HotLog(CallByCall):
    """A store that raises an error for the writes to one log, as far as they are ``refused``."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.log = "hot~1/0"
        self.refused: frozenset[str] = frozenset()
        self.error: Unavailable = Throttled("too many writes to a partition")
        self.passes: Callable[[], bool] = lambda: False
        """Whether a write to the log is not refused now."""
        self.tries = 0
        for verb in ("add", "put"):
            setattr(self, verb, partial(self._write, verb, getattr(self, verb)))

    def _write(self, verb: str, call: Callable[..., Any], about: object, *args: Any, **named: Any) -> Any:
        name = about.partition if isinstance(about, Key) else about
        if name == self.log and verb in self.refused and not self.passes():
            self.tries += 1
            raise self.error
        return call(about, *args, **named)


@pytest.fixture
def store() -> HotLog:
    return HotLog()


@pytest.fixture
def bench(store: HotLog) -> Bench:
    bench = Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=0))
    bench.deployment.subjects.put("hot")
    return bench


def taken(bench: Bench, subject: str) -> list[str | None]:
    pulls = bench.pull(1_000, subject=subject)
    for pull in pulls:
        bench.settle(pull, subject=subject)
    return [message.body for pull in pulls for message in pull.messages]


@pytest.mark.parametrize("error", [Throttled("too many"), OutcomeUnknown("no answer")], ids=["throttled", "unanswered"])
@pytest.mark.parametrize("verb", ["add", "put"])
def test_other_subjects_are_served_in_time_and_the_hot_one_once_its_log_answers(
    bench: Bench, store: HotLog, verb: str, error: Unavailable
) -> None:
    store.error, store.refused = error, frozenset({verb})
    for number in range(4):
        for subject in ("hot", "orders"):
            bench.send_later(f"{number}a", f"{number}b", delay=20 + 5 * number, subject=subject)
    for number in range(4):
        bench.turn(21 if number == 0 else 5)
        assert taken(bench, "orders") == [f"{number}a", f"{number}b"]
    assert taken(bench, "hot") == []
    store.refused = frozenset()
    bench.turn(3)
    bench.turn(3)
    assert taken(bench, "hot") == [f"{number}{name}" for number in range(4) for name in "ab"]
    bench.turn(60)
    assert taken(bench, "hot") == []


@pytest.mark.parametrize("tick_ms", [0, 500])
@pytest.mark.parametrize("queues", [1, 3])
@pytest.mark.parametrize("verb", ["add", "put"])
@pytest.mark.parametrize("refusal", ["the second call", "300 ms"])
def test_the_messages_of_a_queue_keep_their_order(
    store: HotLog, monkeypatch: pytest.MonkeyPatch, tick_ms: int, queues: int, verb: str, refusal: str
) -> None:
    monkeypatch.setattr(dispatch, "STEP_PICKS", 20)
    monkeypatch.setattr("hourwheel.delay.outgoing_batches.BATCH_MESSAGES", 5)
    bench = Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=0, tick_ms=tick_ms))
    bench.deployment.subjects.put("hot", queues=queues)
    hand_over = Dispatcher.hand_over

    def slowly(self: Dispatcher, *args: Any) -> Any:
        bench.clock.ms += 60
        return hand_over(self, *args)

    monkeypatch.setattr(Dispatcher, "hand_over", slowly)
    calls: list[int] = []

    def passes() -> bool:
        calls.append(bench.clock.now_ms())
        return len(calls) != 2 if refusal == "the second call" else calls[-1] >= calls[0] + 300

    store.refused, store.passes = frozenset({verb}), passes
    for first in range(0, 300, 10):
        numbers = range(first, first + 10)
        due_ms = 20_000 + 2 * first  # some fall due while others wait
        bench.deployment.produce(
            "hot", [NewMessage(body=str(at), queue=at % queues, delay=f"{due_ms}ms") for at in numbers]
        )
    bench.turn(45)
    bodies = [int(body or "") for _ in range(3) for body in taken(bench, "hot")]
    assert store.tries >= 1
    assert sorted(bodies) == [*range(300)]
    for queue in range(queues):
        assert [body for body in bodies if body % queues == queue] == [*range(queue, 300, queues)]


def test_a_new_owner_finds_the_transfer_that_was_refused(bench: Bench, store: HotLog) -> None:
    store.refused = frozenset({"put"})
    bench.send_later("a", delay=20, subject="hot")
    bench.send_later("later", delay=40)
    bench.turn(21)
    for _ in range(3):
        bench.deployment = bench.another_process()
        bench.turn(20)
    assert taken(bench, "orders") == ["later"]
    store.refused = frozenset()
    bench.deployment = bench.another_process()
    bench.turn(20)
    assert taken(bench, "hot") == ["a"]
    bench.turn(60)
    assert taken(bench, "hot") == []


def test_a_message_that_waits_for_a_hot_log_can_be_cancelled(bench: Bench, store: HotLog) -> None:
    store.refused = frozenset({"add"})
    first, _ = [placed.scheduled_id or "" for placed in bench.send_later("a", "b", delay=20, subject="hot")]
    bench.turn(25)
    assert bench.deployment.delayed.get(first).state == "waiting"
    states: list[str] = []
    bench.turn(20, beside=lambda: states.append(bench.deployment.delayed.cancel(first).state))
    assert states[-1] == "cancelled"
    store.refused = frozenset()
    bench.turn(10)
    assert taken(bench, "hot") == ["b"]


def test_a_herd_for_a_hot_log_is_not_read_again_at_each_try(
    bench: Bench, store: HotLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "STEP_PICKS", 10)
    asked: list[int] = []
    rows = ScheduleRowCache.rows

    def counted(self: ScheduleRowCache, indexes: Any) -> Any:
        asked.append(sum(map(len, indexes.values())))
        return rows(self, indexes)

    monkeypatch.setattr(ScheduleRowCache, "rows", counted)
    store.refused = frozenset({"add"})
    bench.send_later(*map(str, range(200)), delay=20, subject="hot")
    bench.turn(21)
    asked.clear()
    bench.turn(10)
    assert 0 < sum(asked) <= 10 * 24
    assert 5 <= store.tries <= 40
    store.refused = frozenset()
    bench.turn(5)
    assert taken(bench, "hot") == [*map(str, range(200))]


def test_open_transfers_keep_the_dispatch_row_small(
    bench: Bench, store: HotLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourwheel.delay.held_batches._MOST_OPEN_HOME", 1)
    store.refused = frozenset({"put"})
    bench.send_later("a", delay=20, subject="hot")
    bench.send_later("b", delay=30)
    bench.turn(40)
    assert taken(bench, "orders") == [], "no step begins without room for its row"
    store.refused = frozenset()
    bench.turn(5)
    assert taken(bench, "orders") == ["b"]
    assert taken(bench, "hot") == ["a"]


def test_open_transfers_are_repeated_at_the_same_time_for_a_second(
    bench: Bench, store: HotLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refused put takes the time of its tries, while all other messages wait."""
    object.__setattr__(bench.deployment.context, "threads", 4)
    subjects = [f"s{number}" for number in range(12)]
    for subject in subjects:
        bench.send_later("a", delay=20, subject=subject)
    meet = threading.Barrier(4, timeout=10)
    rounds: list[list[str]] = []
    put, put_open = store.put, Dispatcher.put_open

    def slow(about: Any, *args: Any, **named: Any) -> Any:
        log = about.partition if isinstance(about, Key) else about
        if not (refuses and log.startswith("s") and log.endswith("/0")):
            return put(about, *args, **named)
        rounds[-1].append(log)
        if meet.wait() == 0:
            bench.clock.ms += 600
        raise Throttled("too many")

    def watched(self: Dispatcher) -> None:
        rounds.append([])
        before_ms = bench.clock.ms
        put_open(self)
        assert bench.clock.ms - before_ms <= 1_200
        rounds.append([])

    refuses = True
    monkeypatch.setattr(store, "put", slow)
    monkeypatch.setattr(Dispatcher, "put_open", watched)
    bench.turn(26)
    step, first, second = [tried for tried in rounds if tried][:3]
    assert len(step) == 12
    assert len(first) == 8
    assert {*first, *second[:4]} == {*step}, "the others come first the next time"
    refuses = False
    bench.turn(10)
    assert [taken(bench, subject) for subject in subjects] == [["a"]] * 12


def test_a_large_batch_is_stored_once_however_often_its_put_is_refused(
    bench: Bench, store: HotLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[str] = []
    put = bench.blobs.put

    def counted(key: str, *args: Any, **named: Any) -> Any:
        stored.append(key)
        return put(key, *args, **named)

    monkeypatch.setattr(bench.blobs, "put", counted)
    body = Random(1).randbytes(20_000).hex()
    bench.send_later(body, delay=20, subject="hot")
    store.refused = frozenset({"put"})
    before = len(stored)
    bench.turn(30)
    assert len(stored) == before + 1
    store.refused = frozenset()
    bench.turn(5)
    assert taken(bench, "hot") == [body]


def test_calls_are_made_at_the_same_time_and_their_results_keep_the_order() -> None:
    meet = threading.Barrier(3, timeout=10)

    def call(number: int) -> int:
        if number < 3:
            meet.wait()
        return number

    assert in_parallel([partial(call, number) for number in range(8)], 3) == [*range(8)]
    assert in_parallel([partial(call, 5)], 3) == [5]


def test_the_error_of_a_call_is_raised_once_no_call_is_under_way() -> None:
    over: list[int] = []

    def call(number: int) -> int:
        if number == 1:
            raise Throttled("no")
        over.append(number)
        return number

    with pytest.raises(Throttled):
        in_parallel([partial(call, number) for number in range(100)], 4)
    assert [thread for thread in threading.enumerate() if thread.name == "call"] == []
    assert len(over) < 100


@pytest.mark.parametrize("verb", ["add", "put"])
def test_a_step_writes_to_several_logs_at_the_same_time(bench: Bench, store: HotLog, verb: str) -> None:
    object.__setattr__(bench.deployment.context, "threads", 3)
    for number in range(6):
        bench.send_later("a", delay=5, subject=f"s{number}")
    meet = threading.Barrier(3, timeout=10)
    write = getattr(store, verb)

    def met(about: Any, *args: Any, **named: Any) -> Any:
        name = about.partition if isinstance(about, Key) else about
        if name.startswith("s") and name.endswith("/0"):
            meet.wait()
        return write(about, *args, **named)

    setattr(store, verb, met)
    bench.turn(6)
    assert [taken(bench, f"s{number}") for number in range(6)] == [["a"]] * 6
