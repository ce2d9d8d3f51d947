"""``make cost``: prints the dollars for a million messages, beside SQS, SNS and EventBridge Scheduler at list price,
and for a month in which nothing happens. The last line is JSON."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.cost import cases, rivals, waiting
from bench.cost.cases import Measured
from bench.cost.deployment import CountedDeployment
from bench.cost.engine import ACCOUNT, dynalite
from bench.cost.lonely import lonely_precisely
from bench.cost.prices import MILLION, SERVICES, Usage, by_service, dollars
from bench.cost.urls import through_urls
from bench.measures import today

MANY = 70
ROUNDS = {1: 100, MANY: 3}
ARCHIVED_ROUNDS = {1: 2_000, 10: 1_000, 100: 300}
MINUTE = "the same with precision minute"
WAITS = "a consumer that waits at the wake-up queue of an idle group"
SLICE_SECONDS = {1: 10, 10: 30, 100: 60, 1_000: 120}


@dataclass(frozen=True)
class Line:
    """A case beside the price of other services for the same work."""

    name: str
    measured: Measured
    rival: str
    theirs: Usage

    @property
    def ratio(self) -> float:
        return dollars(self.measured.usage) / dollars(self.theirs)

    @property
    def metrics(self) -> dict[str, Any]:
        return {
            "run": self.measured.run,
            "dollars": round(dollars(self.measured.usage), 4),
            "by_service": {name: round(cost, 4) for name, cost in by_service(self.measured.usage).items()},
            "rival": self.rival,
            "rival_dollars": round(dollars(self.theirs), 4),
            "ratio": round(self.ratio, 3),
            "dynamodb_units": {" ".join(key): round(units, 2) for key, units in self.measured.units.items()},
            "billed_seconds": {name: round(seconds, 4) for name, seconds in self.measured.seconds.items()},
        }


class Bench:
    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._numbers = count()

    def fresh(self, **how: Any) -> CountedDeployment:
        return CountedDeployment(self._endpoint, f"cost-{next(self._numbers)}", **how)

    def immediate(self) -> Iterator[Line]:
        for groups in (1, MANY):
            for batch in (1, 10, 100, 1_000):
                pulled = self._sent_and_taken(batch, groups)
                yield self._line(f"batch {batch:,}", pulled, batch, groups)
                shared = self._sent_and_taken(batch, groups, consumers=2)
                yield self._line(f"batch {batch:,}, two consumers in turn", shared, batch, groups)
                own = self._sent_and_taken(batch, groups, own_settle=True)
                yield self._line(f"batch {batch:,}, settled by a call of its own", own, batch, groups)
                yield self._line(f"batch {batch:,}, pushed", cases.pushed(shared, batch, groups), batch, groups)
            small = cases.immediate(self.fresh(http_memory_mb=256), 100, groups, ROUNDS[groups])
            yield self._line("batch 100, functions of 256 MB", small, 100, groups)
            noise = cases.immediate(self.fresh(), 100, groups, ROUNDS[groups], noise=True)
            yield self._line("batch 100, half noise", noise, 100, groups)
            mixed = cases.immediate(self.fresh(), 1, groups, 3, taken=100)
            yield self._line("sent by 1, taken by 100", mixed, 1, groups, taken=100)
        for name, batch, measured in through_urls(self.fresh):
            yield self._line(name, measured, batch, 1)

    def _sent_and_taken(self, batch: int, groups: int, **how: Any) -> Measured:
        return cases.immediate(self.fresh(), batch, groups, ROUNDS[groups], **how)

    def _line(self, name: str, measured: Measured, batch: int, groups: int, taken: int | None = None) -> Line:
        if groups == 1:
            return Line(f"1 group, {name}", measured, "SQS", rivals.sqs(batch, taken=taken))
        return Line(f"{groups} groups, {name}", measured, "SNS + SQS", rivals.fan_out(batch, groups, taken=taken))

    def delayed(self) -> Iterator[Line]:
        for batch, seconds in SLICE_SECONDS.items():
            measured = cases.within_an_hour(self.fresh(), batch, seconds)
            yield Line(f"due within an hour, batch {batch:,}", measured, "Scheduler + SQS", rivals.scheduled(batch))
        noise = cases.within_an_hour(self.fresh(), 100, SLICE_SECONDS[100], noise=True)
        yield Line("due within an hour, batch 100, half noise", noise, "Scheduler + SQS", rivals.scheduled(100))
        scattered = cases.scattered_in_an_hour(self.fresh(), 100, 10_000, 30)
        rates = f"{scattered.per_second:,.0f}/s of {MILLION / 3_600:,.0f}/s"
        name = f"due within an hour, batch 100, times at random, not taken; {rates}"
        yield Line(name, scattered.measured, "Scheduler + SQS", rivals.scheduled_only())
        rival = "Scheduler + SQS", rivals.scheduled(1)
        yield Line("one by one over a year", lonely_precisely(self.fresh(precise=True), 100), *rival)
        minute = lonely_precisely(self.fresh(precise=True), 100, minute=True)
        yield Line(MINUTE, minute, *rival)
        coarse = cases.scattered_over_a_year(self.fresh(), 100)
        yield Line("the same without precise_timers", coarse, *rival)

    def archived(self) -> dict[str, Measured]:
        one = {
            f"1 group, batch {batch:,}": cases.archived(self._archiving(), batch, 1, rounds)
            for batch, rounds in ARCHIVED_ROUNDS.items()
        }
        return {**one, f"{MANY} groups, batch 100": cases.archived(self._archiving(), 100, MANY, 50)}

    def _archiving(self) -> CountedDeployment:
        return self.fresh(archive=True)

    def months(self) -> dict[str, tuple[Measured, Usage]]:
        nothing: Usage = rivals.nothing()
        return {
            "idle, no subject": (cases.idle(self.fresh(precise=True), 0, 0), nothing),
            "idle, 10 subjects of 3 groups": (cases.idle(self.fresh(precise=True), 10, 3), nothing),
            "the same with the pipeline, archived hourly": (
                cases.idle(self._archiving(), 10, 3, archive=True),
                nothing,
            ),
            "the daily job: 8 vCPUs for 5 minutes": (cases.daily_job(5, 8), nothing),
            "a consumer that polls an idle group, 20 s at a time": (
                cases.idle_poller(self.fresh()),
                rivals.idle_poller(),
            ),
            WAITS: (
                waiting.dozing_consumer(self.fresh()),
                rivals.idle_poller(),
            ),
            "the same with a message each hour": (waiting.sparse_group(self.fresh(), 3_600), rivals.idle_poller()),
            "the same with a message each minute": (waiting.sparse_group(self.fresh(), 60), rivals.idle_poller()),
            "the sweeper's part for a subject whose group waits so": (waiting.watched_group(self.fresh), nothing),
            "a consumer that polls a subject of 64 queues": (
                cases.idle_poller(self.fresh(), queues=64),
                rivals.idle_poller(),
            ),
        }


def table(title: str, lines: list[Line]) -> Table:
    services = [name for name in SERVICES if any(by_service(line.measured.usage).get(name) for line in lines)]
    found = Table(title=title, title_justify="left")
    found.add_column("", min_width=30)
    for name in [*services, "ours, $", "others, $", "ratio"]:
        found.add_column(name, justify="right")
    for line in lines:
        ours = by_service(line.measured.usage)
        cells = [f"{ours.get(name, 0):,.4f}" for name in services]
        total, theirs = dollars(line.measured.usage), dollars(line.theirs)
        found.add_row(line.name, *cells, f"{total:,.4f}", f"{line.rival} {theirs:,.4f}", f"{line.ratio:,.2f}")
    return found


def archive_table(archived: dict[str, Measured]) -> Table:
    found = Table(title="dollars for archiving a million messages", title_justify="left")
    found.add_column("")
    services = [name for name in SERVICES if any(by_service(ours.usage).get(name) for ours in archived.values())]
    for name in [*services, "ours, $"]:
        found.add_column(name, justify="right")
    for name, ours in archived.items():
        spent = by_service(ours.usage)
        cells = [f"{spent.get(service, 0):,.4f}" for service in services]
        found.add_row(name, *cells, f"{dollars(ours.usage):,.4f}")
    return found


def month_table(months: dict[str, tuple[Measured, Usage]]) -> Table:
    found = Table(title="dollars a month", title_justify="left")
    found.add_column("")
    services = [name for name in SERVICES if any(by_service(ours.usage).get(name) for ours, _ in months.values())]
    for name in [*services, "ours, $", "SQS, $"]:
        found.add_column(name, justify="right")
    for name, (ours, theirs) in months.items():
        spent = by_service(ours.usage)
        cells = [f"{spent.get(service, 0):,.4f}" for service in services]
        found.add_row(name, *cells, f"{dollars(ours.usage):,.4f}", f"{dollars(theirs):,.4f}")
    return found


@dataclass(frozen=True)
class Aim:
    name: str
    most: float
    found: float

    def __str__(self) -> str:
        return f"{'reached' if self.found <= self.most else 'MISSED '}  {self.name}: {self.found:.2f} of {self.most}"


def aims(lines: list[Line], months: dict[str, tuple[Measured, Usage]]) -> list[Aim]:
    ratio: Callable[[str], float] = {line.name: line.ratio for line in lines}.__getitem__
    million = {line.name: dollars(line.measured.usage) for line in lines}
    waiting_consumer, _ = months[WAITS]
    return [
        Aim("1 group, batch 100, ratio to SQS", 0.9, ratio("1 group, batch 100")),
        Aim("70 groups, batch 100, ratio to SNS + SQS", 0.5, ratio("70 groups, batch 100")),
        Aim("due within an hour, batch 100, ratio to Scheduler + SQS", 0.1, ratio("due within an hour, batch 100")),
        Aim("one by one with precision minute, dollars a million", 30, million[MINUTE]),
        Aim("a hundred consumers that wait at their queues, dollars a month", 8, 100 * dollars(waiting_consumer.usage)),
        *(
            Aim(f"{name}, dollars a month", 0.2, dollars(ours.usage))
            for name, (ours, _) in months.items()
            if name.startswith("idle")
        ),
    ]


def main() -> int:
    os.environ.update(ACCOUNT)
    console = Console(width=190)
    with dynalite() as endpoint:
        bench = Bench(endpoint)
        immediate, delayed = list(bench.immediate()), list(bench.delayed())
        archived, months = bench.archived(), bench.months()
    console.print(table("dollars for a million messages, sent and taken at once: flights of 327 bytes", immediate))
    console.print(table("the same, delayed; one group", delayed))
    console.print(archive_table(archived))
    console.print(month_table(months))
    found = aims([*immediate, *delayed], months)
    for aim in found:
        console.print(str(aim), highlight=False)
    metrics = {
        "date": today(),
        "million": {line.name: line.metrics for line in [*immediate, *delayed]},
        "archived": {
            name: {
                "run": ours.run,
                "dollars": round(dollars(ours.usage), 4),
                "by_service": {service: round(cost, 4) for service, cost in by_service(ours.usage).items()},
            }
            for name, ours in archived.items()
        },
        "month": {
            name: {
                "dollars": round(dollars(ours.usage), 4),
                "by_service": {service: round(cost, 4) for service, cost in by_service(ours.usage).items()},
                "dynamodb_units": {" ".join(key): round(units, 2) for key, units in ours.units.items()},
                "billed_seconds": ours.seconds,
                "sqs_dollars": round(dollars(theirs), 4),
            }
            for name, (ours, theirs) in months.items()
        },
        "aims": {aim.name: {"most": aim.most, "found": round(aim.found, 3)} for aim in found},
    }
    print(json.dumps(metrics))
    return 0


if __name__ == "__main__":
    sys.exit(main())
