"""A retry is kept as long as the message of which it is a copy, also after the retention of its subject is lowered."""

from typing import Any

import pytest

from hourwheel.model.groups import RetryPolicy
from hourwheel.model.pulls import Pull, RetryLater
from tests.support import Bench

HOUR, DAY = 3_600, 86_400


def failed(bench: Bench, how: str, pull: Pull) -> None:
    """Lets the message of the pull come again."""
    if how == "lease ended":
        bench.clock.pass_time(31)
        bench.deployment.sweeper.sweep()
        return
    settled: dict[str, dict[str, Any]] = {
        "retry": {"retry": [0]},
        "release": {"release": [0]},
        "retry later": {"retry": [RetryLater(index=0, delay="10m")]},
    }
    assert bench.settle(pull, **settled[how]) == "settled"


def passed(bench: Bench, seconds: int) -> None:
    """Lets time pass, with the sweeper and the wheels at work."""
    bench.turn(seconds)
    bench.deployment.sweeper.sweep()


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("again", ["retry", "release", "retry later", "lease ended"])
@pytest.mark.parametrize("how", ["retry", "release", "retry later", "lease ended"])
def test_a_retry_of_a_message_sent_before_is_kept_as_long_as_the_message(
    bench: Bench, how: str, again: str, *, ordered: bool
) -> None:
    bench.deployment.subjects.put("orders", retention_seconds=DAY)
    bench.deployment.groups.put(
        "orders", "billing", ordered=ordered, retry=RetryPolicy(first_seconds=0), max_attempts=9
    )
    bench.send("before", key="k")
    bench.deployment.subjects.put("orders", retention_seconds=HOUR)
    for each in (how, again):
        (pull,) = bench.pull()
        failed(bench, each, pull)
        passed(bench, 5 * HOUR)
    (pull,) = bench.pull()
    assert [message.body for message in pull.messages] == ["before"]
    failed(bench, how, pull)
    passed(bench, 2 * DAY)
    assert bench.pull() == [], "a retry does not outlive both"


def test_a_retry_is_kept_for_the_retention_of_now_where_that_is_longer(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", retention_seconds=HOUR)
    bench.deployment.groups.put("orders", "billing", retry=RetryPolicy(first_seconds=0))
    bench.send("before")
    bench.deployment.subjects.put("orders", retention_seconds=DAY)
    (pull,) = bench.pull()
    failed(bench, "retry", pull)
    passed(bench, 5 * HOUR)
    assert bench.bodies() == ["before"]
