"""A worker pulls what it has room for, and ahead only as far as its pace goes."""

from __future__ import annotations

import pytest

from hourwheel.client.subscription import PACE_SECONDS, Pace


def settle(pace: Pace, count: int, now: float) -> None:
    for _ in range(count):
        pace.add(now)


def test_a_new_worker_has_no_pace() -> None:
    assert Pace().recent(100.0) == 0


@pytest.mark.parametrize(("later", "recent"), [(0, 5), (PACE_SECONDS, 5), (2 * PACE_SECONDS, 0)])
def test_a_worker_is_as_fast_as_in_the_last_tenth_of_a_second(later: float, recent: int) -> None:
    pace = Pace()
    now = 100.05
    settle(pace, 5, now)
    assert pace.recent(now + later) == recent


def test_the_busier_of_two_tenths_counts() -> None:
    pace = Pace()
    settle(pace, 7, 100.05)
    settle(pace, 2, 100.15)
    assert pace.recent(100.15) == 7
    settle(pace, 9, 100.25)
    assert pace.recent(100.25) == 9
