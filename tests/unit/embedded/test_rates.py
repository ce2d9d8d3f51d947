"""A group may pull as often as its rate allows, and no more often."""

import pytest

from hourwheel.embedded.rates import _KEYS, Rate
from tests.support import NOON_MS, HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock(NOON_MS)


def taken(rate: Rate, key: object, tries: int) -> int:
    return sum(rate.wait_seconds(key) == 0 for _ in range(tries))


def test_a_second_is_taken_at_once_and_then_as_much_as_comes_in(clock: HandClock) -> None:
    rate = Rate(10, clock)
    assert taken(rate, "a", 100) == 10
    assert rate.wait_seconds("a") == pytest.approx(0.1)
    clock.pass_time(0.35)
    assert taken(rate, "a", 100) == 3
    clock.pass_time(3_600)
    assert taken(rate, "a", 100) == 10


def test_each_key_has_its_own(clock: HandClock) -> None:
    rate = Rate(2, clock)
    assert taken(rate, "a", 9) == taken(rate, "b", 9) == 2


def test_less_than_one_a_second(clock: HandClock) -> None:
    rate = Rate(0.01, clock)
    assert taken(rate, "a", 5) == 1
    assert rate.wait_seconds("a") == pytest.approx(100)
    clock.pass_time(100)
    assert taken(rate, "a", 5) == 1


def test_without_a_limit_nothing_is_remembered(clock: HandClock) -> None:
    rate = Rate(0, clock)
    assert taken(rate, "a", 1_000) == 1_000
    assert not rate._due_ms


def test_a_clock_that_is_set_back_shuts_nobody_out(clock: HandClock) -> None:
    rate = Rate(10, clock)
    taken(rate, "a", 10)
    clock.ms -= 3_600_000
    assert taken(rate, "a", 100) == 10


def test_keys_that_are_idle_are_forgotten(clock: HandClock) -> None:
    rate = Rate(10, clock)
    for number in range(_KEYS):
        rate.wait_seconds(number)
    clock.pass_time(2)
    rate.wait_seconds("a")
    assert len(rate._due_ms) == 1


def test_of_too_many_keys_the_one_that_was_counted_longest_ago_is_forgotten(clock: HandClock) -> None:
    rate = Rate(1, clock)
    for number in range(_KEYS):
        assert taken(rate, number, 2) == 1
    assert rate.wait_seconds("one more") == 0
    assert len(rate._due_ms) == _KEYS
    assert taken(rate, _KEYS - 1, 1) == 0
    assert taken(rate, 0, 1) == 1
