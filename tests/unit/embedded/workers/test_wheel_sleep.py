"""A wheel that sleeps is woken by each announcement, and by a clock that is set."""

import threading
import time
from dataclasses import dataclass, field

import pytest

from hourwheel.embedded.workers import wheel_sleep as module
from hourwheel.embedded.workers.wheel_sleep import WheelSleep

SECONDS = 10
HOUR = 3_600


@dataclass
class SetClock:
    """A clock that runs, and that a test sets. Tells of each look at it by another thread."""

    ahead_ms: int = 0
    looks: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def now_ms(self) -> int:
        if threading.current_thread() is not threading.main_thread():
            self.looks.release()
        return time.monotonic_ns() // 1_000_000 + self.ahead_ms

    def sleep(self, seconds: float) -> None:
        raise AssertionError


class Sleep:
    """A sleep of a wheel in a thread of its own."""

    def __init__(self, asleep: WheelSleep, clock: SetClock, seconds: float = HOUR) -> None:
        self._asleep = asleep
        self._went_on: bool | None = None
        self._thread = threading.Thread(target=self._sleep, args=(seconds,), daemon=True)
        self._thread.start()
        for _ in range(2):  # it has computed the end of its sleep, and what is left of it
            assert clock.looks.acquire(timeout=SECONDS)

    def _sleep(self, seconds: float) -> None:
        self._went_on = self._asleep.sleep(seconds)

    def ended(self) -> bool:
        """Waits for the end of the sleep, and returns whether the wheel goes on."""
        self._thread.join(SECONDS)
        assert self._went_on is not None, "the wheel still sleeps"
        return self._went_on


def test_a_message_that_is_due_sooner_ends_a_sleep_when_it_is_due_and_not_before() -> None:
    clock = SetClock()
    asleep = WheelSleep(clock)
    sleep = Sleep(asleep, clock)
    due_ms = clock.now_ms() + 30
    asleep.announce(due_ms + HOUR * 1_000)
    asleep.announce(due_ms)
    assert sleep.ended()
    assert clock.now_ms() >= due_ms


def test_an_announcement_between_the_last_look_and_the_sleep_is_not_missed() -> None:
    asleep = WheelSleep(SetClock())
    asleep.announce(0)
    assert asleep.sleep(0)  # a step between two messages is no sleep, and forgets nothing
    assert asleep.sleep(HOUR)


def test_an_announcement_ends_one_sleep_only() -> None:
    clock = SetClock()
    asleep = WheelSleep(clock)
    asleep.announce(0)
    assert asleep.sleep(HOUR)
    before_ms = clock.now_ms()
    assert asleep.sleep(0.03)
    assert clock.now_ms() >= before_ms + 29


def test_a_clock_that_is_set_forward_ends_a_sleep_that_is_over_by_it() -> None:
    clock = SetClock()
    sleep = Sleep(WheelSleep(clock), clock)
    clock.ahead_ms = HOUR * 1_000
    assert sleep.ended()


def test_a_clock_that_is_set_back_makes_no_sleep_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SLICE_SECONDS", 0.01)
    clock = SetClock()
    sleep = Sleep(WheelSleep(clock), clock, 0.05)
    clock.ahead_ms = -HOUR * 1_000
    assert sleep.ended()


def test_an_end_wakes_a_wheel_that_sleeps_and_lets_it_sleep_no_more() -> None:
    clock = SetClock()
    asleep = WheelSleep(clock)
    sleep = Sleep(asleep, clock)
    asleep.end()
    assert not sleep.ended()
    assert not asleep.sleep(HOUR)
    assert not asleep.sleep(0)
