"""The counts that ship with the package are those of the code, and their prices those of the price list."""

import random
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bench.cost import bill, teams
from bench.cost.cases import immediate
from bench.cost.deployment import CountedDeployment, Front
from bench.cost.prices import prices
from hourwheel.aws.bill.counts import Usage, read_counts
from hourwheel.aws.bill.items import Workload, bill_items, read_usage, row_usage

ROOT = Path(__file__).parents[2]

_numbers = count()

NOT_EXACT = {"lambda-gb-second", "log-gb", "dynamodb-storage", "dynamodb-backup"}
"""Processor time differs between machines; the size of ids and metrics differs by some bytes."""


def fresh(engine: str, **how: Any) -> CountedDeployment:
    return CountedDeployment(engine, f"bill-{next(_numbers)}", **how)


def exact(usage: Usage) -> dict[str, float]:
    return {unit: amount for unit, amount in usage.items() if unit not in NOT_EXACT and amount}


@pytest.mark.parametrize("front", bill.FRONTS)
@pytest.mark.parametrize("batch", [1, 10, 100])
def test_a_recount_of_a_batch_gives_the_counts_of_the_package(engine: str, front: Front, batch: int) -> None:
    again = bill.counted_batch(fresh(engine, front=front), batch, rounds=6)
    shipped = read_counts().fronts[front].batches[batch]
    assert again.row_bytes == pytest.approx(shipped.row_bytes, rel=0.1)
    assert exact(again.send) == pytest.approx(exact(shipped.send))
    # A pull in a row of some seconds' distance may look once more or less often.
    assert exact(again.take) == pytest.approx(exact(shipped.take), rel=0.15)


def test_the_prices_of_the_package_are_those_of_the_list() -> None:
    shipped = read_counts().prices
    assert shipped == {unit: prices()[unit] for unit in shipped}
    assert read_counts().date


@pytest.mark.parametrize(("message_bytes", "in_object"), [(1_000, False), (6_000, True)])
def test_larger_messages_are_computed_as_they_are_counted(engine: str, message_bytes: int, in_object: bool) -> None:
    deployment = fresh(engine)
    deployment.call("POST", "/v1/subjects/orders/messages", {"messages": [{"body": "warm"}]})
    deployment.meter.clear()
    bodies = [random.Random(number).randbytes(message_bytes // 2).hex() for number in range(10)]
    deployment.call("POST", "/v1/subjects/orders/messages", {"messages": [{"body": text} for text in bodies]})
    usage = dict(deployment.meter.usage)
    row_bytes = bill.stored_bytes(deployment.meter.usage)
    computed = row_usage(row_bytes, read_counts().inline_bytes)
    assert ("s3-put" in computed) is in_object
    assert usage["dynamodb-write"] == computed["dynamodb-write"] + 1, "the counter's unit"
    assert usage.get("s3-put", 0) == computed.get("s3-put", 0)


def test_a_bill_of_a_busy_team_is_what_the_bench_measures(engine: str) -> None:
    """A busy process reads less than one that is called every few seconds, so the bill is a little higher. Pull rows of
    consumers in turn do not grow, as those of a consumer that is called every few seconds."""
    measured = immediate(fresh(engine), 10, 1, rounds=20, consumers=2).usage
    items = bill_items(read_counts(), Workload(messages_per_day=1_000_000, batch=10, consumers=0), "api")
    share = 1_000_000 / (1_000_000 * 365 / 12)
    writes = measured["dynamodb-write"] * prices()["dynamodb-write"]
    assert items["writes"] * share == pytest.approx(writes)
    assert items["requests"] * share == pytest.approx(measured["http-request"] * prices()["http-request"])
    assert items["reads"] * share >= measured["dynamodb-read"] * prices()["dynamodb-read"]


def test_a_read_is_half_a_unit_for_each_4_kb_or_a_request_for_an_object() -> None:
    assert read_usage(4_096, 12_288) == {"dynamodb-read": 0.5}
    assert read_usage(4_097, 12_288) == {"dynamodb-read": 1.0}
    assert read_usage(12_289, 12_288) == {"dynamodb-read": 0.5, "s3-get": 1.0}


def test_the_docs_have_the_table_of_teams_that_is_computed() -> None:
    assert "\n".join(teams.lines()) in (ROOT / "docs/costs.md").read_text()
