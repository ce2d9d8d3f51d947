"""``python -m bench.cost.bill``: counts the units that ``hourwheel cost`` multiplies, and writes ``counts.json`` of the
package.

Each count is of a process that is called every few seconds, as by a team with some messages a second: its caches have
expired, so that it reads more than a busy one. Takes about a minute.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bench.cost import cases, waiting
from bench.cost.cases import MESSAGES, MONTH_SECONDS, SUBJECT
from bench.cost.deployment import CountedDeployment, Front
from bench.cost.engine import ACCOUNT, dynalite
from bench.cost.lonely import lonely_precisely
from bench.cost.meter import MONTH_DAYS, SEGMENT_DAYS
from bench.cost.prices import MILLION, Usage, prices
from bench.measures import today
from hourwheel.aws.bill import counts as counts_module
from hourwheel.aws.bill.counts import BatchCounts, Counts, DelayCounts, FrontCounts, WaitingCounts
from hourwheel.aws.bill.items import read_usage, row_usage
from hourwheel.context import Settings

COUNTS = Path(counts_module.__file__).with_name("counts.json")
MESSAGE_BYTES = 327
"""The bytes of a message of the cases, which is a flight."""

BATCHES = (1, 10, 100, 1_000)
FRONTS: tuple[Front, ...] = ("api", "url")
SECONDS_BETWEEN = 10
"""Longer than any process caches a subject, a group or its leases: two seconds."""

_DIGITS = 9
_REST = 1e-15
"""Smaller amounts are rounding errors of differences."""

_PERIOD_SECONDS = 60
"""Messages this far apart wake their group each time."""

_ROUNDS = {1: 30, 10: 20, 100: 10, 1_000: 3}

Fresh = Callable[..., CountedDeployment]


def counted_batch(deployment: CountedDeployment, batch: int, rounds: int | None = None) -> BatchCounts:
    """Counts batches of this size, one every few seconds: each is sent, and taken by one group that settles the batch
    before."""
    texts = cases.Texts(batch)
    receipt: str | None = None
    sent: Usage = Counter()
    taken: Usage = Counter()
    sizes: list[float] = []
    rounds = rounds or _ROUNDS[batch]
    for turn in range(rounds + cases.WARM_ROUNDS):
        if turn == cases.WARM_ROUNDS:
            sent, taken, sizes = Counter(), Counter(), []
        deployment.clock.wait(SECONDS_BETWEEN)
        cases.spent(deployment)
        deployment.call("POST", MESSAGES, {"messages": [{"body": text} for text in texts.batch()]})
        usage = cases.spent(deployment)
        sizes.append(stored_bytes(usage))
        sent.update(usage)
        receipt = cases.take(deployment, "g00", batch, receipt)
        taken.update(cases.spent(deployment))
    row_bytes = sum(sizes) / rounds
    inline_bytes = Settings().inline_bytes
    return BatchCounts(
        row_bytes=row_bytes,
        send=_less(_scaled(sent, 1 / rounds), row_usage(row_bytes, inline_bytes)),
        take=_less(_scaled(taken, 1 / rounds), read_usage(row_bytes, inline_bytes)),
    )


def stored_bytes(usage: Usage) -> float:
    """Returns the size of the batch that was stored: of its object, or of its row if it has none."""
    if usage["s3-put"]:
        return usage["s3-storage"] * 1e9 * MONTH_DAYS / SEGMENT_DAYS
    days = counts_module.ROW_DAYS / MONTH_DAYS / 1e9
    return usage["dynamodb-storage"] / days - counts_module.ITEM_OVERHEAD_BYTES


def counted_delays(fresh: Fresh, send: Usage, take: Usage) -> DelayCounts:
    """Counts the usage that a delay adds to a message that is sent and taken alone."""
    settle = _settle_call(fresh())
    plain = _sum(send, take)
    alone = _scaled(lonely_precisely(fresh(precise=True), 20).usage, 1 / MILLION)
    hour = cases.wheel_hour()
    together = _scaled(_less(cases.within_an_hour(fresh(), 1, 10).usage, hour), 1 / MILLION)
    return DelayCounts(
        alone=_positive(_less(alone, _sum(plain, settle))),
        shared=_positive(_less(together, plain)),
        wheel_hour=dict(hour),
    )


def counted_waiting(fresh: Fresh, front: Front, send: Usage, take: Usage) -> WaitingCounts:
    """Counts consumers that wait. ``send`` and ``take`` are the usage of a message that is sent and taken alone."""
    resting = waiting.dozing_consumer(fresh(front=front)).usage
    sparse = waiting.sparse_group(fresh(front=front), _PERIOD_SECONDS).usage
    messages = MONTH_SECONDS / _PERIOD_SECONDS
    return WaitingCounts(
        resting=dict(_sum(resting, waiting.watched_group(partial(fresh, front=front)).usage)),
        waking=_positive(_less(_scaled(_less(sparse, resting), 1 / messages), _sum(send, take))),
        polling=dict(cases.idle_poller(fresh(front=front)).usage),
    )


def _settle_call(deployment: CountedDeployment) -> Usage:
    deployment.call("POST", MESSAGES, {"messages": [{"body": "x"}]})
    receipt = cases.take(deployment, "g00", 1, None)
    cases.spent(deployment)
    deployment.call("POST", f"{SUBJECT}/groups/g00/ack", {"settle": [{"receipt": receipt}]})
    return cases.spent(deployment)


def counted_front(fresh: Fresh, front: Front) -> FrontCounts:
    """Counts the requests of one front."""
    batches = {batch: counted_batch(fresh(front=front), batch) for batch in BATCHES}
    return FrontCounts(batches=batches, waiting=counted_waiting(fresh, front, *_alone(batches[1])))


def _alone(single: BatchCounts) -> tuple[Usage, Usage]:
    """Returns the usage of sending and of taking a message alone, its row included."""
    send = _sum(Counter(single.send), row_usage(single.row_bytes, Settings().inline_bytes))
    return send, _sum(Counter(single.take), read_usage(single.row_bytes, Settings().inline_bytes))


def counted(fresh: Fresh) -> Counts:
    """Counts everything. ``fresh`` returns a deployment on tables of its own."""
    fronts = {front: counted_front(fresh, front) for front in FRONTS}
    nothing, some = (cases.idle(fresh(precise=True), *size).usage for size in ((0, 0), (10, 3)))
    send, take = _alone(fronts["api"].batches[1])
    return Counts(
        date=today(),
        region="us-east-1",
        message_bytes=MESSAGE_BYTES,
        inline_bytes=Settings().inline_bytes,
        waiting="long polls of their wake-up queue",
        fronts=fronts,
        idle_deployment=dict(nothing),
        idle_group=_positive(_scaled(_less(some, nothing), 1 / 30)),
        delays=counted_delays(fresh, send, take),
        prices={},
    )


def priced(counts: Counts) -> Counts:
    """Returns the counts with the prices of the units that bills contain, all numbers rounded."""
    bare = msgspec.json.decode(msgspec.json.encode(counts), type=Counts)
    return msgspec.structs.replace(_rounded(bare), prices=prices())


def _rounded(counts: Counts) -> Counts:
    def shorter(value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.{_DIGITS}g}") if abs(value) > _REST else 0.0
        if isinstance(value, dict):
            return {key: shorter(item) for key, item in value.items()}
        return value

    return msgspec.convert(shorter(msgspec.to_builtins(counts)), Counts, strict=False)


def _sum(*usages: Mapping[str, float]) -> Usage:
    total: Usage = Counter()
    for usage in usages:
        total.update(usage)
    return total


def _scaled(usage: Mapping[str, float], factor: float) -> Usage:
    return Counter({unit: amount * factor for unit, amount in usage.items()})


def _less(usage: Mapping[str, float], other: Mapping[str, float]) -> Usage:
    return _sum(usage, _scaled(other, -1))


def _positive(usage: Usage) -> dict[str, float]:
    """Returns the usage without units below zero, which differences can have: a call of a busy process reads less than
    a lonely one."""
    return {unit: amount for unit, amount in usage.items() if amount > 0}


def main() -> int:
    os.environ.update(ACCOUNT)
    with dynalite() as endpoint:
        numbers = iter(range(1_000))

        def fresh(**how: Any) -> CountedDeployment:
            return CountedDeployment(endpoint, f"bill-{next(numbers)}", **how)

        found = priced(counted(fresh))
    COUNTS.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    print(COUNTS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
