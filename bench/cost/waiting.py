"""Defines the measured cases of consumers that wait at a wake-up queue: each returns the usage for a month."""

from collections.abc import Callable
from typing import Any

from bench.cost.cases import GROUP_PULL, MESSAGES, MONTH_SECONDS, POLL_SECONDS, Measured, spent, warm
from bench.cost.deployment import CountedDeployment
from bench.cost.prices import Usage, scaled

_MOST_PULLS = 20
_SWEEPS = 64  # twice as many as the sweeper lets an idle subject rest
IDLE_SECONDS = 1e6  # longer ago than anything that a case does


def dozing_consumer(deployment: CountedDeployment, rounds: int = 3) -> Measured:
    """Measures a month of a consumer of an idle group, which waits at the queue: it receives from the queue every 20 s,
    and pulls when the wait is over."""
    warm(deployment)
    wait_seconds = doze(deployment)
    spent(deployment)
    deployment.seconds.clear()
    for _ in range(rounds):
        deployment.meter.usage["sqs-request"] += wait_seconds / POLL_SECONDS
        deployment.clock.wait(wait_seconds)
        assert pull(deployment, idle_seconds=IDLE_SECONDS)["wakeup"]["wait_seconds"] == wait_seconds
    seconds = sum(deployment.seconds["pull"]) / rounds
    usage = scaled(spent(deployment), MONTH_SECONDS / wait_seconds / rounds)
    return Measured(usage, f"{rounds} waits", seconds={"pull": seconds})


def watched_group(fresh: Callable[[], CountedDeployment]) -> Measured:
    """Measures how much more a month of sweeps costs for a group that dozes, alone on its subject, than for one that
    does not doze: each sweep reads the counters of its logs."""
    dozing, other = fresh(), fresh()
    for deployment in (dozing, other):
        warm(deployment)
    doze(dozing)
    usage = _swept(dozing)
    usage.subtract(_swept(other))
    return Measured(scaled(usage, MONTH_SECONDS / 60 / _SWEEPS), f"{_SWEEPS} sweeps of each")


def _swept(deployment: CountedDeployment) -> Usage:
    """Returns the usage of an hour of sweeps, after two in which the sweeper comes to rest."""
    for _ in range(2 * _SWEEPS):
        deployment.tend()
        deployment.clock.wait(60)
    spent(deployment)
    for _ in range(_SWEEPS):
        deployment.tend()
        deployment.clock.wait(60)
    return spent(deployment)


def sparse_group(deployment: CountedDeployment, period_seconds: int, rounds: int = 3) -> Measured:
    """Measures a month in which one message comes every ``period_seconds``, from its request to the time when its
    consumer waits at the queue again."""
    warm(deployment)
    wait_seconds = doze(deployment)
    queues = deployment.queues
    spent(deployment)
    for _ in range(rounds):
        safety = int(period_seconds // wait_seconds)
        for _ in range(safety):
            deployment.clock.wait(wait_seconds)
            pull(deployment, idle_seconds=IDLE_SECONDS)
        deployment.clock.wait(period_seconds - safety * wait_seconds)
        # Also the request that returns the wake-up.
        deployment.meter.usage["sqs-request"] += period_seconds / POLL_SECONDS + 1
        wakeups = queues.wakeups
        deployment.call("POST", MESSAGES, {"messages": [{"body": "rare"}]})
        assert queues.wakeups == wakeups + 1
        answer = pull(deployment, idle_seconds=IDLE_SECONDS, wakeup="woken")
        (pulled,) = answer["pulls"]
        rest_seconds = answer["next_pull_seconds"]
        deployment.clock.wait(rest_seconds)
        doze(deployment, rest_seconds, settle=[{"receipt": pulled["receipt"]}])
    usage = scaled(spent(deployment), MONTH_SECONDS / period_seconds / rounds)
    return Measured(usage, f"{rounds} messages")


def doze(deployment: CountedDeployment, idle_seconds: float = 0.0, **first: Any) -> float:
    """Pulls as a consumer that had its last message ``idle_seconds`` ago, until it is told to wait at the queue.
    Returns the time for which it is to wait."""
    answer = pull(deployment, idle_seconds=idle_seconds, wait_seconds=POLL_SECONDS, **first)
    began = deployment.clock.elapsed_ms() / 1_000 - idle_seconds
    for _ in range(_MOST_PULLS):
        assert answer["pulls"] == []
        if "wakeup" in answer:
            return float(answer["wakeup"]["wait_seconds"])
        deployment.clock.wait(answer.get("next_pull_seconds", 0.0))
        idle_seconds = deployment.clock.elapsed_ms() / 1_000 - began
        answer = pull(deployment, idle_seconds=idle_seconds, wait_seconds=POLL_SECONDS)
    raise AssertionError("the group does not doze")


def pull(deployment: CountedDeployment, **how: Any) -> Any:
    return deployment.call("POST", GROUP_PULL, {"consumer": "c1", "wakeup": "able", **how})
