"""Measures messages that are alone in their hour, where their wheels are started by precise timers, or by coarse ones
if they may come a minute late."""

import random
from collections import Counter
from typing import Any

from bench.cost.cases import MESSAGES, SUBJECT, Measured, lateness_ms, spent, take
from bench.cost.clock import START_MS
from bench.cost.deployment import INIT_SECONDS, CountedDeployment
from bench.cost.meter import ITEM_OVERHEAD_BYTES
from bench.cost.prices import MILLION, Usage, scaled
from bench.measures import bodies
from hourwheel.buckets.starts import COARSE_MS
from hourwheel.times import rfc3339

_HOUR_MS = 3_600_000
_YEAR_HOURS = 8_760
_MONTHS_WAITED = 6
_SCHEDULER_SECONDS = COARSE_MS / 1_000


def lonely_precisely(deployment: CountedDeployment, count: int, *, minute: bool = False) -> Measured:
    """Measures the messages of ``cases.scattered_over_a_year`` on a deployment with precise timers. Each start is a new
    process. The sweeper closes the buckets; its cost without a bucket to close is not counted. With ``minute`` each
    message may come a minute late, and Scheduler starts its wheel at a random second of that minute. Raises
    ``AssertionError`` if a message was more than a second late, or later than the minute."""
    chance = random.Random(count)
    precision = {"precision": "minute"} if minute else {}
    (text,) = bodies(1)
    hours = sorted(chance.sample(range(2, _YEAR_HOURS), count))
    # Not in the first minutes of an hour, in which this driver sweeps the hour before.
    dues = [(START_MS // _HOUR_MS + hour) * _HOUR_MS + int(chance.uniform(0.2, 1) * _HOUR_MS) for hour in hours]
    deployment.call("POST", MESSAGES, {"messages": [{"body": "warm"}]})
    _taken(deployment)
    spent(deployment)
    for due_ms in dues:
        deployment.call("POST", MESSAGES, {"messages": [{"body": text, "deliver_at": rfc3339(due_ms), **precision}]})
    usage: Usage = spent(deployment)
    for due_ms in dues:
        late_seconds = chance.uniform(0, _SCHEDULER_SECONDS) if minute else 0
        usage += _delivered(deployment, due_ms, late_seconds)
    late_ms = lateness_ms(deployment)
    assert late_ms <= (0 if minute else 1_000), f"a message came {late_ms} ms late"
    waiting = (len(text) + 2 * ITEM_OVERHEAD_BYTES) * MILLION / 1e9 * _MONTHS_WAITED
    kept: Usage = Counter({"dynamodb-storage": waiting, "dynamodb-backup": waiting})
    return Measured(scaled(usage, MILLION / count) + kept, f"{count} messages, at most {late_ms:.0f} ms late")


def _taken(deployment: CountedDeployment) -> None:
    receipt = take(deployment, "g00", 1, None)
    deployment.call("POST", f"{SUBJECT}/groups/g00/ack", {"settle": [{"receipt": receipt}]})


def _delivered(deployment: CountedDeployment, due_ms: int, late_seconds: float) -> Usage:
    """Runs the starts of one message, takes and settles it, and lets the sweeper close its bucket. The wheel of one
    that is due in the last second of its hour closes the bucket itself."""
    while _start(deployment, late_seconds) not in ("asleep", "closed"):
        pass
    _taken(deployment)
    usage = spent(deployment)
    deployment.clock.go_to((due_ms // _HOUR_MS + 1) * _HOUR_MS + 60_000)
    sweeps, ordered = [], list(deployment.timers.ordered)
    for _ in range(3):
        deployment.tend()
        sweeps.append(spent(deployment))
        deployment.clock.wait(60)
    # The first one closes the bucket.
    usage += sweeps[0]
    usage.subtract(sweeps[2])
    assert deployment.timers.ordered == ordered, "the sweeper has started a wheel"
    return usage


def _start(deployment: CountedDeployment, late_seconds: float) -> str:
    """Runs the earliest start in a new process; returns how it ended. A coarse start comes this much late."""
    assert deployment.precise is not None
    starts: list[tuple[int, dict[str, Any]]] = [
        *deployment.precise.ordered,
        *((when_ms, {"bucket": bucket}) for when_ms, bucket in deployment.timers.ordered),
    ]
    when_ms, event = start = min(starts, key=lambda started: started[0])
    if start in deployment.precise.ordered:
        deployment.precise.ordered.remove(start)
    else:
        deployment.timers.ordered.remove((when_ms, event["bucket"]))
        when_ms += round(late_seconds * 1_000)
    deployment.clock.go_to(when_ms)
    deployment.clock.wait(INIT_SECONDS)
    return str(deployment.invoke("wheel", event).get("ended"))
