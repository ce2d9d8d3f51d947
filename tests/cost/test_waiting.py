"""Checks the read units of consumers that wait at a wake-up queue."""

import pytest

from bench.cost import waiting
from bench.cost.cases import MESSAGES, warm
from bench.cost.deployment import CountedDeployment
from bench.cost.meter import READS

_RECORDS = 1.0  # the subject and the group, by one query
_COUNTERS = 2.0  # those of the queue and of the retry log, strongly consistent


def read(deployment: CountedDeployment) -> float:
    """Returns the read units since the last call of this function."""
    units = sum(count for (operation, _), count in deployment.meter.units.items() if operation in READS)
    deployment.meter.clear()
    return units


@pytest.fixture
def dozing(deployment: CountedDeployment) -> CountedDeployment:
    """A deployment with one group, whose consumer waits at its queue."""
    warm(deployment)
    waiting.doze(deployment)
    read(deployment)
    return deployment


def test_a_consumer_whose_wait_is_over_looks_once(dozing: CountedDeployment) -> None:
    dozing.clock.wait(120)
    assert "wakeup" in waiting.pull(dozing, idle_seconds=waiting.IDLE_SECONDS)
    assert read(dozing) == _RECORDS + _COUNTERS + 1, "and open leases"


def test_a_woken_consumer_looks_once_more_before_it_waits_again(dozing: CountedDeployment) -> None:
    dozing.clock.wait(120)
    dozing.call("POST", MESSAGES, {"messages": [{"body": "rare"}]})
    read(dozing)
    answer = waiting.pull(dozing, idle_seconds=waiting.IDLE_SECONDS, wakeup="woken")
    (pulled,) = answer["pulls"]
    assert read(dozing) <= _RECORDS + 1 + 1 + 1 + 0.5, "counters, pull rows, open leases, the message"
    dozing.clock.wait(answer["next_pull_seconds"])
    settles = [{"receipt": pulled["receipt"]}]
    assert "wakeup" in waiting.pull(dozing, idle_seconds=answer["next_pull_seconds"], settle=settles)
    assert read(dozing) == _RECORDS + _COUNTERS
