"""Plants bugs of the share of retries: the real code with one clause left out."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from hourwheel.pull_log.claiming.retry_share import NOT_SHARED, RetryShare
from hourwheel.pulling import claimer
from tests.simulation.bugs import Bug, registrar
from tests.simulation.faults import NONE
from tests.simulation.plan import Plan

SHARED: list[Bug] = []
planted = registrar(SHARED)


def _behind(plan: Plan) -> Plan:
    """Returns the plan with consumers that are behind: new messages wait, and leases end before they settle."""
    return replace(
        plan,
        faults=NONE,
        operators=0,
        moves=(),
        producers=2,
        consumers=6,
        sweepers=1,
        calls=9_000,
        groups=("a",),
        subjects=("s",),
        queues=1,
        lease_seconds=1,
        max_attempts=16,
        answer_bytes=300,
        retention_seconds=259_200,
        transactional=False,
        quiet_days=False,
        empty_rows=500,
    )


@planted(sharpen=_behind)
def retries_come_before_new_messages() -> Iterator[None]:
    with patch.object(claimer, "share_of", lambda *_, **__: NOT_SHARED):
        yield


@planted(sharpen=_behind)
def retries_wait_for_new_messages() -> Iterator[None]:
    with patch.object(claimer, "share_of", lambda *_, fills, **__: RetryShare(0, turn=False, fills=fills)):
        yield


@planted(sharpen=_behind)
def it_is_always_the_turn_of_suspects() -> Iterator[None]:
    def share_of(*drawn: Any, **how: Any) -> RetryShare:
        share = real(*drawn, **how)
        return share._replace(messages=max(1, share.messages or 0), turn=True)

    real = claimer.share_of
    with patch.object(claimer, "share_of", share_of):
        yield
