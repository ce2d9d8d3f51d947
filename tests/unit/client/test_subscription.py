"""A worker pulls as many messages as it has room for, and ahead only as far as its pace goes."""

from __future__ import annotations

import pytest

from hourwheel.client import Api
from hourwheel.client.consuming.subscription import PACE_SECONDS, Pace, Subscription
from tests.unit.client.fake import FakeServer
from tests.unit.client.runs import prefetch_options
from tests.unit.client.test_consumer import fill


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


def test_a_subscription_that_was_refused_before_it_started_gives_back_what_it_pulled_ahead(server: FakeServer) -> None:
    fill(server, "paid")
    subscription = Subscription(prefetch_options(server), room=lambda: 10, limit=lambda: 10, on_ready=lambda: None)
    subscription.pull_ahead()
    subscription.close()
    with Api(server.url) as api:
        ((again,),) = [pull.messages for pull in api.pull("orders", "billing", "host-2").pulls]
    assert (again.body, again.attempt) == ("paid", 1)
