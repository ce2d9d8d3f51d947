"""Plants bugs that show only if TTL removes items while actors work, or processes pause for minutes."""

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

from hourwheel.pull_log import records
from hourwheel.pull_log.records import CLOSED, PullRow
from tests.simulation.bugs import Bug, registrar
from tests.simulation.faults import Faults
from tests.simulation.plan import Plan

SLOW: list[Bug] = []
planted = registrar(SLOW)


def with_ttl(plan: Plan) -> Plan:
    return replace(
        plan,
        transactional=False,
        trims=False,
        faults=Faults(expiry=0.1),
        retention_seconds=259_200,
        skew_ms=0,
        consumers=3,
        operators=0,
        moves=(),
        groups=("a",),
        calls=350,
        quiet_days=False,
    )


@planted(sharpen=with_ttl)
def a_settled_pull_row_expires_at_once() -> Iterator[None]:
    with patch.object(PullRow, "garbage_ms", property(lambda row: row.closed_ms if row.state == CLOSED else None)):
        yield


def with_pauses_of_minutes(plan: Plan) -> Plan:
    return replace(
        with_ttl(plan),
        faults=Faults(expiry=0.1, pause=0.04),
        long_pauses=True,
        longest_pause_ms=600_000,
        sweepers=2,
        producers=3,
        lease_seconds=1,
        calls=900,
    )


@planted(sharpen=with_pauses_of_minutes)
def settled_pull_rows_are_kept_for_less_than_a_writer_may_pause() -> Iterator[None]:
    with patch.object(records, "SETTLED_KEPT_MS", 200_000):
        yield
