"""Defines the measured cases: each returns the usage for a million messages, or for a month."""

import json
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

from bench.cost.clock import START_MS
from bench.cost.deployment import ACCESS_LOG_BYTES, MEMORY_MB, CountedDeployment, invocation, logged
from bench.cost.meter import ITEM_OVERHEAD_BYTES, TIMER_SECONDS
from bench.cost.prices import MILLION, Usage, scaled
from bench.measures import bodies
from demo.flights import january
from hourwheel.times import rfc3339
from infra.settings import WORKER_GB, WORKER_VCPUS

MONTH_SECONDS = 730 * 3_600
POLL_SECONDS = 20
WARM_ROUNDS = 2  # these fill the caches, and are not measured

SUBJECT = "/v1/subjects/orders"
MESSAGES = f"{SUBJECT}/messages"
GROUP_PULL = f"{SUBJECT}/groups/g00/pull"

_HOUR_MS = 3_600_000
_YEAR_HOURS = 8_760
_MONTHS_WAITED = 6
"""The average delay of messages that are due within a year."""


@dataclass(frozen=True)
class Measured:
    """A measured case. ``usage`` is for a million messages, or a month; ``run`` describes the size of the measured run.
    ``requests`` and ``units`` are the requests to DynamoDB and their units in one round, by (operation, table);
    ``seconds`` has the billed seconds of each call by function."""

    usage: Usage
    run: str
    requests: dict[tuple[str, str], float] = field(default_factory=dict)
    units: dict[tuple[str, str], float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def immediate(
    deployment: CountedDeployment,
    batch: int,
    groups: int,
    rounds: int,
    *,
    own_settle: bool = False,
    taken: int | None = None,
    noise: bool = False,
    consumers: int = 1,
) -> Measured:
    """Measures messages that are sent ``batch`` at a time. Each group pulls ``taken`` at a time (None: as they were
    sent) and settles them with the next pull, or by a call of its own. The ``consumers`` of a group take turns. All
    processes are warm, and one process of each function is fully busy. The bodies are flights, or ``noise``."""
    taken = taken or batch
    names = [f"g{number:02d}" for number in range(groups)]
    texts = Texts(batch, noise=noise)
    held: dict[str, str | None] = dict.fromkeys(names)
    turns = cycle([f"c{number}" for number in range(consumers)])
    sends = max(1, taken // batch)

    def one_round() -> None:
        for _ in range(sends):
            deployment.call("POST", MESSAGES, {"messages": [{"body": text} for text in texts.batch()]})
        consumer = next(turns)
        for name in names:
            receipt = take(deployment, name, taken, held[name], consumer)
            if own_settle:
                deployment.call("POST", f"{SUBJECT}/groups/{name}/ack", {"settle": [{"receipt": receipt}]})
            else:
                held[name] = receipt

    for _ in range(WARM_ROUNDS):
        one_round()
    deployment.meter.clear()
    deployment.seconds.clear()
    for _ in range(rounds):
        one_round()
    messages, meter = rounds * sends * batch, deployment.meter
    return Measured(
        scaled(meter.usage, MILLION / messages),
        f"{messages:,} messages",
        {key: count / rounds for key, count in meter.requests.items()},
        {key: count / rounds for key, count in meter.units.items()},
        {name: sum(every) / len(every) for name, every in deployment.seconds.items()},
    )


def pushed(pulled: Measured, batch: int, groups: int) -> Measured:
    """Models messages that the function push pulls, delivers and settles. The function makes the store calls of a pull
    and of a settlement (``pulled``: those of consumers that take turns), without a request to the API. The stream of
    the table starts it once for each batch, and each delivery is one further call."""
    calls = MILLION / batch * groups
    delivery: Usage = Counter({"lambda-gb-second": TIMER_SECONDS * MEMORY_MB["push"] / 1_024})
    saved = scaled(Counter({"http-request": 1, **logged(ACCESS_LOG_BYTES, 1)}), -calls)
    # One invocation serves all groups of a batch.
    spared = scaled(invocation("push", 0, MEMORY_MB["push"]), MILLION / batch - calls)
    return Measured(_sum(pulled.usage, saved, spared, scaled(delivery, calls)), "modelled on the row for its pull")


def within_an_hour(deployment: CountedDeployment, batch: int, slice_seconds: int, *, noise: bool = False) -> Measured:
    """Measures a million messages that are sent ``batch`` at a time, fall due evenly within one hour, and are pulled
    and settled by one group. The messages of a batch have one delay. Runs a slice of the hour at this rate, and counts
    the fixed costs of the wheel once for the hour."""
    start_ms = (START_MS // _HOUR_MS + 2) * _HOUR_MS
    batches = MILLION * slice_seconds // 3_600 // batch
    texts = Texts(batch, noise=noise)

    def send(at_ms: int) -> None:
        due = rfc3339(start_ms + at_ms)
        deployment.call("POST", MESSAGES, {"messages": [{"body": text, "deliver_at": due} for text in texts.batch()]})

    warm(deployment)
    send(0)  # the first message registers the bucket
    send(slice_seconds * 1_000 + 5_000)  # keeps the wheel turning to the end of the slice
    spent(deployment)
    for at in range(1, batches):
        send(at * slice_seconds * 1_000 // batches)
    sent = scaled(spent(deployment), MILLION / batch / (batches - 1))
    cuts: list[Usage] = []
    for at_ms in (start_ms - 80_000, start_ms - 20_000, start_ms, start_ms + slice_seconds * 1_000 + 1):
        deployment.clock.alarm(at_ms, lambda: cuts.append(spent(deployment)))
    ended = deployment.turn_wheels()
    assert ended[-1] == "closed", ended
    assert (late_ms := lateness_ms(deployment)) < 1_000, f"the wheel came {late_ms} ms late: it is too slow for this"
    loading, idle_minute, _, in_slice = cuts
    closing = spent(deployment)
    share = 3_600 / slice_seconds
    printed = closing["log-gb"] * share
    for name in ("lambda-request", "lambda-gb-second", "schedule-firing", "log-gb"):
        del closing[name]
    takes = min(batches, 50)
    receipt = None
    for _ in range(takes):
        receipt = take(deployment, "g00", batch, receipt)
    taken = scaled(spent(deployment), MILLION / batch / takes)
    usage = _sum(
        sent,
        scaled(_sum(loading, scaled(idle_minute, -1 / 6)), share),
        scaled(idle_minute, 1.5),
        scaled(in_slice, share),
        closing,
        Counter({"log-gb": printed}),
        wheel_hour(),
        taken,
    )
    return Measured(usage, f"{batches * batch:,} messages, {slice_seconds} s of the hour")


def wheel_hour() -> Usage:
    """Returns the usage of Lambda and Scheduler by a wheel that turns for an hour and the 90 s before it. These are
    runs of at most 15 minutes, each of which starts 45 s before the former one leaves."""
    seconds, runs = 3_600 + 90, 5
    run = invocation("wheel", (seconds + (runs - 1) * 45) / runs, MEMORY_MB["wheel"])
    return _sum(scaled(run, runs), Counter({"schedule-firing": 1}))


class Texts:
    """Returns bodies of which no two batches are equal: equal batches in one row would compress too well. The bodies
    are flights as JSON, 327 bytes each, or 200 bytes of which half are noise."""

    def __init__(self, batch: int, *, noise: bool = False) -> None:
        self._batch = batch
        self._pool = cycle(bodies(20_000) if noise else [flight.body for flight in january()])

    def batch(self) -> list[str]:
        return list(islice(self._pool, self._batch))


class _Enough(BaseException):
    """Raised to end a wheel from outside."""


@dataclass(frozen=True)
class Scattered:
    """The number of messages that one wheel hands over in a second when each message of a batch has its own time. The
    usage is that of a million such messages for sending and hand-over, without pulls."""

    per_second: float
    measured: Measured


def scattered_in_an_hour(deployment: CountedDeployment, batch: int, batches: int, watched_seconds: int) -> Scattered:
    """Sends this many batches, whose messages fall due at random times of one hour, and measures their wheel for a
    while."""
    start_ms = (START_MS // _HOUR_MS + 2) * _HOUR_MS
    chance = random.Random(batch)
    texts = Texts(batch)
    warm(deployment)
    spent(deployment)
    for _ in range(batches):
        messages = [
            {"body": text, "deliver_at": rfc3339(start_ms + int(chance.random() * _HOUR_MS))} for text in texts.batch()
        ]
        deployment.call("POST", MESSAGES, {"messages": messages})
    sent = scaled(spent(deployment), MILLION / (batch * batches))

    def enough() -> None:
        raise _Enough

    deployment.clock.alarm(start_ms, deployment.meter.clear)
    deployment.clock.alarm(start_ms + watched_seconds * 1_000, enough)
    with suppress(_Enough):
        deployment.turn_wheels()
    seconds = (deployment.clock.now_ms() - start_ms) / 1_000
    turned = spent(deployment)
    handed_over = deployment.call("GET", f"{SUBJECT}/groups/g00/lag")["waiting"]
    rate = handed_over / seconds
    due_rate = batch * batches / 3_600
    hours = max(1.0, due_rate / rate)
    usage = _sum(sent, scaled(turned, MILLION / handed_over), scaled(wheel_hour(), hours * MILLION / (batch * batches)))
    return Scattered(rate, Measured(usage, f"{batch * batches:,} messages, {watched_seconds} s of the hour"))


def scattered_over_a_year(deployment: CountedDeployment, count: int) -> Measured:
    """Measures messages that are sent one by one, fall due at random times of a year, each in an hour of its own, and
    are pulled and settled one by one."""
    chance = random.Random(count)
    (text,) = bodies(1)
    hours = sorted(chance.sample(range(2, _YEAR_HOURS), count))
    dues = [(START_MS // _HOUR_MS + hour) * _HOUR_MS + int(chance.random() * _HOUR_MS) for hour in hours]
    warm(deployment)
    spent(deployment)
    for due in dues:
        deployment.call("POST", MESSAGES, {"messages": [{"body": text, "deliver_at": rfc3339(due)}]})
    closed = 0
    while closed < count:
        if deployment.turn_wheel() == "closed":
            closed += 1
            receipt = take(deployment, "g00", 1, None)
            deployment.call("POST", f"{SUBJECT}/groups/g00/ack", {"settle": [{"receipt": receipt}]})
    requests = {key: number / count for key, number in deployment.meter.requests.items()}
    usage = scaled(spent(deployment), MILLION / count)
    waiting = (len(text) + 2 * ITEM_OVERHEAD_BYTES) * MILLION / 1e9 * _MONTHS_WAITED
    return Measured(
        _sum(usage, Counter({"dynamodb-storage": waiting, "dynamodb-backup": waiting})),
        f"{count} messages",
        requests,
        seconds={name: sum(every) / count for name, every in deployment.seconds.items()},
    )


def archived(deployment: CountedDeployment, batch: int, groups: int, rounds: int) -> Measured:
    """Measures the archiving of a million messages that were sent, pulled and settled ``batch`` at a time: their share
    of a run. The fixed costs of a run are counted in ``idle``."""
    names = [f"g{number:02d}" for number in range(groups)]
    texts = Texts(batch)
    held: dict[str, str | None] = dict.fromkeys(names)

    def send_and_take() -> None:
        deployment.call("POST", MESSAGES, {"messages": [{"body": text} for text in texts.batch()]})
        for name in names:
            held[name] = take(deployment, name, batch, held[name])

    send_and_take()
    deployment.invoke("archive", {})
    spent(deployment)
    deployment.invoke("archive", {})
    nothing = spent(deployment)
    for _ in range(rounds):
        send_and_take()
    spent(deployment)
    answer = deployment.invoke("archive", {})
    assert answer["complete"]
    messages = rounds * batch
    assert messages - batch <= answer["messages"] <= messages + batch
    usage = _sum(spent(deployment), scaled(nothing, -1))
    return Measured(scaled(usage, MILLION / messages), f"{messages:,} messages in one run")


def daily_job(minutes: float, vcpus: int) -> Measured:
    """Models a month of daily jobs that take this many minutes with this many vCPUs."""
    hours = MONTH_SECONDS / 86_400 * minutes / 60
    usage: Usage = Counter({"emr-vcpu-hour": hours * vcpus, "emr-gb-hour": hours * vcpus * WORKER_GB / WORKER_VCPUS})
    return Measured(usage, "modelled")


def idle(
    deployment: CountedDeployment,
    subjects: int,
    groups: int,
    *,
    warm: int = 40,
    sweeps: int = 60,
    archive: bool = False,
) -> Measured:
    """Measures a month of sweeps each minute and, if requested, archive runs each hour, without messages. Leaves out
    the first sweeps, in which the sweeper finds the subjects that may rest."""
    for subject in range(subjects):
        for group in range(groups):
            deployment.call("PUT", f"/v1/subjects/s{subject}/groups/g{group}", {})
    if archive:
        deployment.invoke("archive", {})
    for _ in range(warm):
        deployment.tend()
        deployment.clock.wait(60)
    spent(deployment)
    deployment.seconds.clear()
    for _ in range(sweeps):
        deployment.tend()
        deployment.clock.wait(60)
        deployment.meter.usage["schedule-firing"] += 1
    if archive:  # as many runs as hours
        for _ in range(sweeps // 60):
            deployment.invoke("archive", {})
            deployment.meter.usage["schedule-firing"] += 1
    requests = {key: count / sweeps for key, count in deployment.meter.requests.items()}
    units = {key: count / sweeps for key, count in deployment.meter.units.items()}
    usage = scaled(spent(deployment), MONTH_SECONDS / 60 / sweeps)
    seconds = sum(deployment.seconds["sweep"]) / sweeps
    return Measured(usage, f"{sweeps} sweeps", requests, units, {"sweep": seconds})


def idle_poller(deployment: CountedDeployment, polls: int = 3, queues: int = 1) -> Measured:
    """Measures a month of one consumer that waits 20 s at a time and gets no messages, on a subject whose queues were
    all used before."""
    deployment.call("PUT", SUBJECT, {"queues": queues})
    warm(deployment)
    used = {0}
    while len(used) < queues:
        keyed = [{"body": "warm", "key": f"{len(used)}-{number}"} for number in range(queues)]
        used |= {accepted["queue"] for accepted in deployment.call("POST", MESSAGES, {"messages": keyed})["results"]}
    receipts: list[dict[str, str]] = []
    for _ in range(POLL_SECONDS):  # pulls and settles all messages; the last pull gets none
        asked = {"consumer": "c1", "max_messages": 1_000, "settle": receipts}
        pulls = deployment.call("POST", f"{SUBJECT}/groups/g00/pull", asked)["pulls"]
        receipts = [{"receipt": pulled["receipt"]} for pulled in pulls]
        deployment.clock.wait(2)
    spent(deployment)
    deployment.seconds.clear()
    for _ in range(polls):
        asked = {"consumer": "c1", "wait_seconds": POLL_SECONDS}
        assert deployment.call("POST", f"{SUBJECT}/groups/g00/pull", asked)["pulls"] == []
    requests = {key: count / polls for key, count in deployment.meter.requests.items()}
    units = {key: count / polls for key, count in deployment.meter.units.items()}
    usage = scaled(spent(deployment), MONTH_SECONDS / POLL_SECONDS / polls)
    seconds = sum(deployment.seconds["pull"]) / polls
    return Measured(usage, f"{polls} polls", requests, units, {"pull": seconds})


def lateness_ms(deployment: CountedDeployment) -> float:
    """Returns the largest lateness that the functions reported."""
    reported = [json.loads(line).get("DispatchLateness", 0) for line in deployment.printed if '"_aws"' in line]
    return max((late for metric in reported for late in (metric if isinstance(metric, list) else [metric])), default=0)


def warm(deployment: CountedDeployment) -> None:
    """Creates subject and group, has each function cache them, and leaves no message waiting."""
    deployment.call("POST", MESSAGES, {"messages": [{"body": "warm"}]})
    receipt = take(deployment, "g00", 1, None)
    deployment.call("POST", f"{SUBJECT}/groups/g00/ack", {"settle": [{"receipt": receipt}]})


def take(deployment: CountedDeployment, group: str, limit: int, receipt: str | None, consumer: str = "c1") -> str:
    """Pulls exactly ``limit`` messages and settles the pull before. Returns the receipt."""
    asked: dict[str, Any] = {"consumer": consumer, "max_messages": limit}
    if receipt is not None:
        asked["settle"] = [{"receipt": receipt}]
    (pulled,) = deployment.call("POST", f"{SUBJECT}/groups/{group}/pull", asked)["pulls"]
    assert len(pulled["messages"]) == limit
    return str(pulled["receipt"])


def spent(deployment: CountedDeployment) -> Usage:
    """Returns the usage since the last call."""
    spent: Usage = Counter(deployment.meter.usage)
    deployment.meter.clear()
    return spent


def _sum(*usages: Usage) -> Usage:
    total: Usage = Counter()
    for usage in usages:
        total.update(usage)
    return total
