"""Planted bugs of what keeps messages from a group: the real code with one clause left out."""

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

from hourwheel.queueing import pull
from hourwheel.trace.groups import GroupReader
from tests.simulation.bugs import Bug, registrar
from tests.simulation.plan import Faults, Plan

LIMITED: list[Bug] = []
planted = registrar(LIMITED)


def _pauses(plan: Plan) -> Plan:
    return replace(
        plan,
        faults=Faults(crash=0.01),
        skew_ms=0,
        registry_seconds=0.0,
        operators=1,
        moves=("pause",),
        groups=("a",),
        producers=2,
        consumers=3,
        calls=350,
        quiet_days=False,
    )


@planted(sharpen=_pauses)
def a_paused_group_claims() -> Iterator[None]:
    with patch.object(pull, "pause_of", lambda *_: None):
        yield


def _retries(plan: Plan) -> Plan:
    return replace(_pauses(plan), operators=0, moves=(), max_attempts=16)


@planted(sharpen=_retries)
def a_trace_misses_a_retry() -> Iterator[None]:
    with patch.object(GroupReader, "_served_again", lambda *_: None):
        yield
