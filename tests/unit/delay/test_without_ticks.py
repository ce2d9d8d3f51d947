"""A wheel without ticks hands each message over at its millisecond, and sleeps until then."""

from dataclasses import dataclass, field, replace

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.buckets.lease import owner_record
from hourwheel.context import Settings
from hourwheel.delay.ownership import RENEW_MS
from hourwheel.delay.wheel import Wheel, WheelEnd
from hourwheel.delay.wheel_steps import COMPANY_MS, CROWD, LONGEST_COMPANY_MS, LOOK_MS, SETTLED_MS, next_turn_ms
from hourwheel.deployment.deployment import Deployment
from hourwheel.errors import Unavailable
from hourwheel.logs.log import GRACE_MS
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import RetryLater
from tests.support import AT_ONCE, NOON_MS, Bench, CallByCall, HandClock
from tests.unit.delay.test_wheel import bucket_of

BEGIN_MS = NOON_MS // 3_600_000 * 3_600_000 + 600_000


def without_ticks() -> Bench:
    bench = Bench(CallByCall(MemoryStore()), clock=HandClock(BEGIN_MS), settings=Settings(retry=AT_ONCE, tick_ms=0))
    bench.deployment.groups.put("orders", "billing")
    return bench


@dataclass
class News:
    """Implements ``WheelWakeups`` and the pauses of a wheel: an announced message ends a pause when it is due."""

    bench: Bench
    until_ms: int
    heard: list[tuple[str, int]] = field(default_factory=list)
    pauses_ms: list[int] = field(default_factory=list)
    soonest_ms: int | None = None
    meanwhile: dict[int, NewMessage] = field(default_factory=dict)
    """Messages that come while the wheel sleeps, by their time."""

    def announce(self, bucket: str, due_ms: int) -> None:
        self.heard.append((bucket, due_ms))
        self.soonest_ms = due_ms if self.soonest_ms is None else min(due_ms, self.soonest_ms)

    def pause(self, seconds: float) -> bool:
        clock = self.bench.clock
        if seconds:
            began_ms, end_ms = clock.ms, clock.ms + round(seconds * 1_000)
            for at_ms, message in list(self.meanwhile.items()):
                if at_ms <= self._end(end_ms):
                    clock.ms = at_ms
                    listening(self.bench, self).produce("orders", [message])
                    del self.meanwhile[at_ms]
            clock.ms = max(clock.ms, self._end(end_ms))
            self.soonest_ms = None
            self.pauses_ms.append(clock.ms - began_ms)
        return clock.ms < self.until_ms

    def _end(self, end_ms: int) -> int:
        return end_ms if self.soonest_ms is None else min(end_ms, self.soonest_ms)


def listening(bench: Bench, news: News) -> Deployment:
    deployment = bench.another_process()
    deployment.context = replace(deployment.context, wheel_wakeups=news)
    deployment.registry = replace(deployment.registry, context=deployment.context)
    deployment.sweeper = replace(deployment.sweeper, context=deployment.context, registry=deployment.registry)
    return deployment


def turned(bench: Bench, seconds: float, **meanwhile: NewMessage) -> News:
    """Turns the wheel of the bucket for this long; ``at_NUMBER``: messages that come that many ms after its start."""
    news = News(bench, bench.clock.ms + round(seconds * 1_000))
    news.meanwhile = {bench.clock.ms + int(name.removeprefix("at_")): message for name, message in meanwhile.items()}
    deployment = listening(bench, news)
    assert Wheel(deployment.context, deployment.registry, bucket_of(bench), "w").run(news.pause) is WheelEnd.STOPPED
    return news


def handed_over(bench: Bench) -> dict[str, int]:
    """Returns when each message was put into its queue, in milliseconds after the beginning."""
    log = bench.deployment.context.log("orders~1/0")
    rows = [row for _, row in log.stored(0) if row.count]
    bodies = [message.body for message in bench.take(1_000)]
    times = [row.at_ms - BEGIN_MS for row in rows for _ in range(row.count)]
    return {str(body): at_ms for body, at_ms in zip(bodies, times, strict=True)}


def test_each_message_is_handed_over_at_its_millisecond() -> None:
    bench = without_ticks()
    for delay in (3.001, 1.5, 3.0, 1.499):
        bench.send_later(str(delay), delay=delay)
    turned(bench, 4)
    assert handed_over(bench) == {"1.499": 1_499, "1.5": 1_500, "3.0": 3_000, "3.001": 3_001}


def test_an_earlier_message_that_is_stored_while_the_wheel_sleeps_is_not_late() -> None:
    bench = without_ticks()
    bench.send_later("far", delay=60)
    turned(bench, 10, at_2000=NewMessage(body="near", delay=0.007), at_5000=NewMessage(body="later", delay=4))
    assert handed_over(bench) == {"near": 2_007, "later": 9_000}


def test_a_wheel_that_has_nothing_to_do_sleeps_until_its_lease_is_due_for_renewal() -> None:
    bench = without_ticks()
    bench.send_later("far", delay=80)
    news = turned(bench, 60)
    assert news.pauses_ms == [SETTLED_MS, RENEW_MS - SETTLED_MS, *[RENEW_MS] * 4]


def test_a_row_that_is_given_out_and_not_stored_is_looked_for_until_it_may_be_filled() -> None:
    bench = without_ticks()
    bench.send_later("first", delay=0.5)
    news = News(bench, BEGIN_MS + 4_000)
    deployment = listening(bench, news)
    wheel = Wheel(deployment.context, deployment.registry, bucket_of(bench), "w")
    gone = False

    def pause(seconds: float) -> bool:
        nonlocal gone
        if seconds and bench.clock.ms >= BEGIN_MS + 500 and not gone:
            gone = True
            deployment.context.log(bucket_of(bench).log).reserve(1)  # its writer has died
            deployment.produce("orders", [NewMessage(body="behind", delay=0.4)])
        return news.pause(seconds)

    assert wheel.run(pause) is WheelEnd.STOPPED
    assert gone
    times = handed_over(bench)
    assert times["first"] == 500
    assert 500 + GRACE_MS <= times["behind"] <= 500 + GRACE_MS + LOOK_MS


def test_messages_cancels_moves_and_retries_are_announced_to_the_wheel() -> None:
    bench = without_ticks()
    news = News(bench, 0)
    deployment = listening(bench, news)
    bucket = bucket_of(bench).name
    (placed,) = deployment.produce("orders", [NewMessage(body="x", delay=5)])
    assert news.heard == [(bucket, BEGIN_MS + 5_000)]
    assert placed.scheduled_id is not None
    deployment.delayed.reschedule(placed.scheduled_id, delay=9)
    assert set(news.heard[1:]) == {(bucket, 0), (bucket, BEGIN_MS + 9_000)}
    del news.heard[:]
    bench.send("now")
    (pull,) = bench.pull()
    fresh = listening(bench, news)
    bench.deployment = fresh
    bench.settle(pull, retry=[RetryLater(index=0, delay="30s")])
    assert news.heard == [(bucket, BEGIN_MS + 30_000)]


def test_a_move_that_was_answered_too_late_wakes_the_wheel_once_the_sweeper_finishes_it() -> None:
    bench = without_ticks()
    (accepted, _) = bench.send_later("a", "b", delay=40)
    news = News(bench, BEGIN_MS + 30_000)
    deployment = listening(bench, news)
    steps = iter(("move", "finish"))

    def pause(seconds: float) -> bool:
        match next(steps, None) if seconds else None:
            case "move":
                with pytest.raises(Unavailable, match="send the request again"):
                    deployment.delayed.reschedule(accepted.scheduled_id or "", delay=3)
                assert bench.clock.ms == BEGIN_MS + 10_000  # the wheel has rested for longer than the caller waits
            case "finish":
                bench.clock.pass_time(1)
                deployment.sweeper.delayed.finish_changes(2_000)
        return news.pause(seconds)

    assert Wheel(deployment.context, deployment.registry, bucket_of(bench), "w").run(pause) is WheelEnd.STOPPED
    assert next(steps, None) is None
    assert handed_over(bench) == {"a": 11_000}


def test_a_busy_wheel_waits_a_little_for_company_and_one_that_is_not_busy_does_not() -> None:
    def after(taken: int, next_due_ms: int, taken_ms: int = 1_000) -> int:
        return next_turn_ms(
            now_ms=1_002, taken=taken, taken_ms=taken_ms, next_due_ms=next_due_ms, settled_ms=0, others=(9_000,)
        )

    assert after(1, 1_001) == 1_002
    assert after(CROWD - 1, 1_005) == 1_005
    assert after(CROWD, 1_005) == 1_000 + COMPANY_MS
    assert after(CROWD, 1_500) == 1_500
    assert after(CROWD, 1_005, taken_ms=902) == 1_002 + 100  # the last step took 100 ms
    assert after(CROWD, 1_005, taken_ms=0) == 1_002 + LONGEST_COMPANY_MS
    assert after(CROWD, 1_001, taken_ms=3_600_000) == 1_002 + COMPANY_MS  # the clock was set back


def test_the_owner_of_a_sleeping_wheel_keeps_its_lease() -> None:
    bench = without_ticks()
    bench.send_later("far", delay=80)
    news = turned(bench, 45)
    assert sum(news.pauses_ms) >= 45_000
    owner = owner_record(bench.deployment.context, bucket_of(bench)).load()
    assert owner is not None
    assert owner.value.left  # it was not replaced meanwhile
