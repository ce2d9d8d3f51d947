"""Wheels in threads turn in the right order, and failed ones are retried."""

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from hourwheel.buckets.buckets import Bucket
from hourwheel.delay.wheel import WheelEnd
from hourwheel.embedded.workers import wheels as module
from hourwheel.embedded.workers.wheels import Wheels
from hourwheel.system import SystemClock

SECONDS = 10
HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def half_past(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the clock to half past an hour: at its end, the buckets of the test would have other names."""
    real = SystemClock.now_ms
    ahead_ms = HOUR_MS * 3 // 2 - SystemClock().now_ms() % HOUR_MS
    monkeypatch.setattr(SystemClock, "now_ms", lambda clock: real(clock) + ahead_ms)


class Turned:
    """A cell whose wheels do what a test sets, and record their turns."""

    def __init__(self, turn: Callable[[str, Callable[[float], bool]], WheelEnd]) -> None:
        self.started: list[str] = []
        self.reported: list[str] = []
        self._turn = turn
        self._changed = threading.Condition()

    def turn_wheel(self, bucket: str, owner: str, pause: Callable[[float], bool]) -> WheelEnd:
        with self._changed:
            self.started.append(bucket)
            self._changed.notify_all()
        return self._turn(bucket, pause)

    def until(self, reached: Callable[[list[str]], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: reached(self.started), SECONDS), self.started

    def report(self, error: Exception, what: str, **rest: Any) -> None:
        self.reported.append(what)


@pytest.fixture
def running() -> Iterator[Callable[..., Wheels]]:
    made: list[Wheels] = []

    def run(turned: Turned, at_once: int = 6) -> Wheels:
        wheels = Wheels(SystemClock(), at_once=at_once)
        made.append(wheels)
        wheels.start(turned, "owner", SimpleNamespace(report=turned.report))
        return wheels

    yield run
    for wheels in made:
        wheels.stop()


def turning(bucket: str, pause: Callable[[float], bool]) -> WheelEnd:
    """Turns a wheel until its stop."""
    while pause(0.01):
        pass
    return WheelEnd.STOPPED


def named(hours: int, shard: int = 0) -> str:
    return Bucket.at(SystemClock().now_ms() + hours * HOUR_MS, 60, shard)._replace(shard=shard).name


def test_what_is_over_leaves_room_for_what_is_not_and_is_never_kept_out(running: Callable[..., Wheels]) -> None:
    turned = Turned(turning)
    wheels = running(turned)
    overdue = [named(-hours) for hours in range(30, 10, -1)]
    for bucket in overdue:
        wheels.at(0, bucket)
    turned.until(lambda started: len(started) == 4)
    assert set(turned.started) <= set(overdue)
    for shard in range(2):
        wheels.at(0, named(0, shard))
    turned.until(lambda started: len(started) == 6)
    assert turned.started[4:] == [named(0), named(0, 1)]


def test_one_bucket_that_is_over_turns_beside_any_number_of_others(running: Callable[..., Wheels]) -> None:
    turned = Turned(turning)
    wheels = running(turned, 3)
    for shard in range(5):
        wheels.at(0, named(0, shard))
    turned.until(lambda started: len(started) == 3)
    wheels.at(0, named(-5))
    turned.until(lambda started: named(-5) in started)
    assert wheels.turning == 4


def test_a_timer_for_a_bucket_that_turns_starts_it_again_when_it_has_ended(running: Callable[..., Wheels]) -> None:
    gate = threading.Event()

    def once(bucket: str, pause: Callable[[float], bool]) -> WheelEnd:
        gate.wait(SECONDS)
        return WheelEnd.ASLEEP

    turned = Turned(once)
    wheels = running(turned)
    wheels.at(0, named(0))
    turned.until(lambda started: len(started) == 1)
    wheels.at(0, named(0))
    wheels.at(0, named(0))
    gate.set()
    turned.until(lambda started: len(started) == 2)


def test_a_timer_that_fires_while_its_bucket_turns_is_not_forgotten(running: Callable[..., Wheels]) -> None:
    gate = threading.Event()

    def once(bucket: str, pause: Callable[[float], bool]) -> WheelEnd:
        gate.wait(SECONDS)
        return WheelEnd.ASLEEP

    turned = Turned(once)
    wheels = running(turned)
    bucket, other = named(0), named(1)
    wheels.at(0, bucket)
    turned.until(lambda started: started == [bucket])
    wheels.at(0, bucket)
    wheels.at(0, other)
    turned.until(lambda started: other in started)  # so both timers have fired
    gate.set()
    turned.until(lambda started: started.count(bucket) == 2)


def test_a_wheel_that_fails_is_tried_again_ever_more_rarely_and_reported_once(
    running: Callable[..., Wheels], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RETRY_MS", 20)
    failures = iter(["first", "first", "first", "second"])

    def fails(bucket: str, pause: Callable[[float], bool]) -> WheelEnd:
        text = next(failures, None)
        if text is None:
            return WheelEnd.CLOSED
        raise RuntimeError(text)

    turned = Turned(fails)
    wheels = running(turned)
    wheels.at(0, named(0))
    turned.until(lambda started: len(started) == 5)
    assert len(turned.reported) == 2
