"""Plants bugs of the limits and pauses of groups: the real code with one clause left out."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import msgspec

from hourwheel.model.groups import Group
from hourwheel.model.log_names import HOME, cell_of
from hourwheel.producing import produce
from hourwheel.pull_log.claiming.claims import ClaimRequest, ClaimResult
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import PullRow
from hourwheel.pulling import claimer, flow, pull
from hourwheel.pulling.flow import Allowance, FlowControl
from hourwheel.trace.groups import GroupReader
from tests.simulation.bugs import Bug, registrar
from tests.simulation.faults import Faults
from tests.simulation.plan import Plan

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


def _limits(plan: Plan) -> Plan:
    return replace(_pauses(plan), operators=0, moves=(), max_attempts=16, max_in_flight=2, queues=1)


@planted(sharpen=_limits)
def a_limit_forgets_retries() -> Iterator[None]:
    def allowance(self: FlowControl, logs: Sequence[PullLog], max_messages: int) -> Allowance:
        return real(self, [log for log in logs if log.queue is not None], max_messages)

    real = FlowControl.allowance
    with patch.object(FlowControl, "allowance", allowance), patch.object(claimer, "is_current", lambda *_: True):
        yield


def _rates(plan: Plan) -> Plan:
    return replace(_limits(plan), max_in_flight=0, messages_per_second=5)


@planted(sharpen=_rates)
def a_rate_counts_no_message_of_the_last_claim() -> Iterator[None]:
    def due_ms(group: Group, due: float, claims: Sequence[PullRow]) -> float:
        return real(group, due, claims[:-1])

    real = flow._due_ms
    with patch.object(flow, "_due_ms", due_ms):
        yield


def _closes(plan: Plan) -> Plan:
    return replace(_pauses(plan), moves=("close",), keyed=0.0)


@planted(sharpen=_closes)
def a_read_only_subject_takes_messages() -> Iterator[None]:
    with patch.object(produce, "_check_read_only", lambda *_: None):
        yield


@planted(sharpen=_limits)
def a_claim_is_made_without_the_one_before_it_being_counted() -> Iterator[None]:
    def claim(self: PullLog, request: ClaimRequest) -> ClaimResult:
        return real(self, request._replace(only_row=None))

    real = PullLog.claim
    with patch.object(PullLog, "claim", claim), patch.object(claimer, "is_current", lambda *_: True):
        yield


def _limits_beside_cells(plan: Plan) -> Plan:
    return replace(
        _limits(plan),
        transactional=True,
        trims=True,
        queues=3,
        cells=2,
        operators=2,
        moves=("move",),
        max_in_flight=3,
        consumers=4,
        lease_seconds=5,
        latency_ms=5,
        faults=Faults(),
    )


@planted(sharpen=_limits_beside_cells)
def a_limit_counts_no_leases_in_other_cells() -> Iterator[None]:
    def allowance(self: FlowControl, logs: Sequence[PullLog], max_messages: int) -> Allowance:
        at_home = [log for log in logs if cell_of(log.source.name) == HOME]
        counted = real(self, at_home, max_messages)
        elsewhere = {log.partition: log.tail().row_no for log in logs if log not in at_home}
        return counted._replace(rows={**counted.rows, **elsewhere})

    real = FlowControl.allowance
    with patch.object(FlowControl, "allowance", allowance):
        yield


@planted(sharpen=_limits_beside_cells)
def the_logs_of_a_cell_are_not_compared_before_a_claim() -> Iterator[None]:
    with patch.object(claimer, "is_current", lambda *_: True):
        yield


@planted(sharpen=lambda plan: replace(_limits_beside_cells(plan), max_in_flight=0, messages_per_second=5))
def a_rate_counts_no_claims_in_other_cells() -> Iterator[None]:
    def with_new_rows(state: Any, logs: Sequence[PullLog], now_ms: int) -> Any:
        at_home = [log for log in logs if cell_of(log.source.name) == HOME]
        due_ms = real(state, at_home, now_ms).due_ms
        return msgspec.structs.replace(real(state, logs, now_ms), due_ms=due_ms)

    real = flow._with_new_rows
    with patch.object(flow, "_with_new_rows", with_new_rows):
        yield
