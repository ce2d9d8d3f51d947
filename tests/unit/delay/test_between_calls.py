"""A wheel between any two of whose calls a cancel, a clock that is set back, or a late row comes."""

from collections.abc import Callable
from typing import Any

import pytest
from greenlet import getcurrent, greenlet

from hourwheel.adapters.memory import MemoryStore
from hourwheel.errors import Unavailable
from hourwheel.model.messages import NewMessage
from hourwheel.ports.storage import Counter
from tests.support import Bench, CallByCall, HandClock
from tests.unit.delay.test_changes import later
from tests.unit.delay.test_waiting import bodies
from tests.unit.delay.test_wheel import bucket_of, turned, wheel_of

VERBS = frozenset({"add", "seal", "counter", "counters", "get", "get_many", "get_keys", "put", "delete", "scan"})


class Between(CallByCall):
    """Calls ``before`` with the number of each call, but for calls that are made meanwhile."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.count, self.inside = 0, False
        self.before: Callable[[int], object] = lambda number: None

    def __getattribute__(self, name: str) -> Any:
        found: Any = super().__getattribute__(name)
        if name not in VERBS or self.inside:
            return found

        def call(*values: Any, **named: Any) -> Any:
            self.count += 1
            self.inside = True
            try:
                self.before(self.count)
            finally:
                self.inside = False
            return found(*values, **named)

        return call


class YieldingClock(HandClock):
    """A clock whose sleep lets the wheel go on."""

    def sleep(self, seconds: float) -> None:
        hub = getcurrent().parent
        assert hub is not None
        hub.switch()


def calls_of_a_tick() -> int:
    """Counts the calls of a wheel in the tick in which a message is due."""
    store = Between()
    bench, wheel, _ = about_to_hand_over(store)
    store.count = 0
    wheel.turn()
    assert bodies(bench) == ["a"]
    return store.count


def about_to_hand_over(store: Between) -> tuple[Bench, Any, str]:
    """Returns a wheel whose next tick renews its lease and hands the only message over."""
    bench = Bench(store)
    (one,) = later(bench, "a", delay="40s")
    wheel = wheel_of(bench, bucket_of(bench))
    assert wheel._ownership.take()
    wheel.open()
    bench.clock.pass_time(20)
    wheel.turn()
    bench.clock.pass_time(21)
    return bench, wheel, one


def cancelling(bench: Bench, one: str, answers: list[str]) -> Callable[[], object]:
    """Begins a cancel in another process. Each call of the returned function lets the cancel go on as far as it can
    without the wheel."""
    deployment = Bench(bench.store, bench.blobs, YieldingClock(bench.clock.ms), timers=bench.timers).deployment

    def ask() -> None:
        try:
            answers.append(deployment.delayed.cancel(one).state)
        except Unavailable:
            answers.append("unknown")

    asking = greenlet(ask)
    return lambda: None if asking.dead else asking.switch()


def test_a_cancel_that_comes_between_any_two_calls_of_a_wheel_is_answered_truly() -> None:
    seen = set()
    for at in range(1, calls_of_a_tick() + 2):
        store = Between()
        bench, wheel, one = about_to_hand_over(store)
        answers: list[str] = []
        go_on = cancelling(bench, one, answers)
        store.count = 0

        def before(number: int, at: int = at, go_on: Callable[[], object] = go_on) -> None:
            if number >= at:
                go_on()

        store.before = before
        for _ in range(3):
            wheel.turn()
            bench.clock.pass_time(13)
        store.before = lambda number: None
        while not answers:
            go_on()
            wheel.turn()
            bench.clock.pass_time(13)
        came = bodies(bench)
        assert answers in (["cancelled"], ["dispatched"]), at
        assert came == ([] if answers == ["cancelled"] else ["a"]), at
        seen.add(answers[0])
    assert seen == {"cancelled", "dispatched"}


def test_a_clock_that_is_set_back_between_any_two_calls_of_a_wheel_hides_nothing_from_a_cancel() -> None:
    for at in range(1, calls_of_a_tick() + 1):
        store = Between()
        bench, wheel, one = about_to_hand_over(store)
        store.count = 0

        def before(number: int, at: int = at, bench: Bench = bench) -> None:
            if number == at:
                bench.clock.pass_time(-3_600)

        store.before = before
        wheel.turn()
        store.before = lambda number: None
        came = bodies(bench)
        bench.clock.pass_time(3_610)
        wheel.turn()
        bench.clock.pass_time(1)
        came += bodies(bench)
        assert came == ["a"], at
        assert bench.deployment.delayed.cancel(one).state == "dispatched", at
        known = bench.deployment.delayed.get(one)
        assert (known.dispatched_at or "") >= known.deliver_at, at


class SealedLate(CallByCall):
    """Somebody whose clock is behind sends a message just before a schedule log is sealed."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.send: Callable[[], object] | None = None

    def seal(self, counter: str) -> Counter:
        send, self.send = self.send, None
        if send is not None:
            send()
        return super().seal(counter)


def test_a_message_that_is_stored_just_before_the_seal_is_handed_over() -> None:
    store = SealedLate()
    bench = Bench(store)
    bench.send_later("a", delay=5)
    bucket = bucket_of(bench)
    seconds = (bucket.end_ms - bench.clock.ms) / 1_000
    behind = Bench(store, bench.blobs, HandClock(bucket.end_ms - 5_000), timers=bench.timers)
    store.send = lambda: behind.deployment.produce("orders", [NewMessage(body="late", delay=4)])
    assert turned(wheel_of(bench, bucket), seconds, *[1] * 6, bench=bench).value in ("closed", "asleep")
    turned(wheel_of(bench, bucket), *[1] * 6, bench=bench)
    assert store.send is None
    assert sorted(map(str, bodies(bench))) == ["a", "late"]


@pytest.mark.parametrize("times", [1, 2])
def test_a_message_that_had_to_be_placed_again_says_where_it_stands(times: int) -> None:
    store = Between()
    bench, wheel, one = about_to_hand_over(store)
    bench.send("before it")
    log = bench.deployment.context.log("orders~1/0")
    filled: list[int] = []

    def before(number: int) -> None:
        """Fills the row that the wheel has reserved, as a reader does that waits no longer."""
        rows = log.totals().rows
        (row,) = (row for _, row in log.read(0, 1, consistent=True))
        if rows > 1 + len(filled) and len(filled) < times and log.get(rows - 1) is None:
            filled.append(rows - 1)
            log._fill(rows - 1, row)

    store.before = before
    wheel.turn()
    store.before = lambda number: None
    assert len(filled) == times
    known = bench.deployment.delayed.get(one)
    (message,) = [message for message in bench.take() if message.body == "a"]
    assert (known.state, known.queue, known.offset) == ("dispatched", message.queue, message.offset)
