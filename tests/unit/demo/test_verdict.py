"""The result of the demo as a whole is right, and so is its line of JSON."""

import dataclasses
from collections.abc import Mapping

import pytest

from demo import boarding, history, lake
from demo.__main__ import archived_faults, boarding_metrics, faults
from demo.flights import Flight
from demo.lateness import Outage
from demo.month import Report

FLIGHTS = [Flight("a", "UA", 0, cancelled=False, body="{}")]
GROUP = history.Account("audit", 1, 1, 0, 0, 0, 0, 1.0, ())
CALLS = boarding.account([boarding.Call("a", "UA", 1_000, cancelled=False)], {}, [])
REPORT = Report(
    account=dataclasses.replace(CALLS, wrong=()),
    spared=[1.0, 2.0],
    hit=[1_500.0],
    outage=Outage(killed_ms=0.0, ready_ms=1_300.0),
    resumed_seconds=0.1,
)


def test_nothing_wrong_is_no_fault() -> None:
    assert faults(FLIGHTS, [GROUP], REPORT) == {}


def test_whatever_is_wrong_is_a_fault_of_somebody() -> None:
    lost = dataclasses.replace(GROUP, accepted=0, wrong=("1 lost",))
    assert faults(FLIGHTS, [lost], dataclasses.replace(REPORT, account=CALLS)) == {
        "audit": ["1 lost"],
        "producer": ["accepted 0 of 1"],
        "boarding": ["1 never received"],
    }


ARCHIVED = lake.Account(
    archived=5,
    rows={"messages": 5, "pulls": 2, "dispatches": 1},
    counted={"messages queue": 3, "messages schedule": 2, "pulls": 2, "dispatches": 1},
    findings={},
    page="report.html",
)
TAKEN = dataclasses.replace(REPORT, account=dataclasses.replace(REPORT.account, calls=2, delivered=2))


def test_a_lake_that_agrees_with_the_books_is_no_fault() -> None:
    assert archived_faults(ARCHIVED, FLIGHTS, TAKEN) == {}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"findings": {"lost": 2}}, "2 findings: lost"),
        (
            {"counted": {**ARCHIVED.counted, "messages queue": 2}},
            "2 messages of queues in the lake, not 1 flights and 2 calls",
        ),
        (
            {"counted": {**ARCHIVED.counted, "messages queue": 4}},
            "4 messages of queues in the lake, not 1 flights and 2 calls",
        ),
        (
            {"counted": {**ARCHIVED.counted, "messages schedule": 1}},
            "1 messages of schedules in the lake, 2 calls were accepted",
        ),
        ({"rows": {"messages": 4}}, "4 messages in the lake, 5 were archived"),
    ],
)
def test_a_lake_that_disagrees_with_the_books_is_a_fault(changed: Mapping[str, Mapping[str, int]], said: str) -> None:
    assert archived_faults(dataclasses.replace(ARCHIVED, **changed), FLIGHTS, TAKEN) == {"pipeline": [said]}


def test_machines_get_the_counts_and_the_lateness_with_and_without_the_outage() -> None:
    assert boarding_metrics(REPORT) == {
        "boarding_calls": 1,
        "boarding_cancelled": 0,
        "boarding_too_late": 0,
        "boarding_delivered": 0,
        "boarding_redelivered": 0,
        "boarding_early": 0,
        "boarding_double": 0,
        "boarding_missing": 1,
        "boarding_delivered_though_cancelled": 0,
        "lateness_ms": {"p50": 2.0, "p99": 1_500.0, "max": 1_500.0},
        "lateness_ms_outside_outage": {"p50": 1.0, "p99": 2.0, "max": 2.0},
        "outage_seconds": 1.3,
    }
