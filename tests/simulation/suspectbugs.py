"""Plants bugs of suspects: the real code with one clause left out."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import msgspec

from hourwheel.delay import dispatch, outgoing_batches
from hourwheel.handover import copies
from hourwheel.handover.handover import Transfer
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.messages import Message
from hourwheel.ordered import ordered_log
from hourwheel.pull_log.claiming import selection
from hourwheel.settling.settle import Settler
from tests.simulation.bugs import Bug, registrar
from tests.simulation.delaybugs import waiting
from tests.simulation.faults import Faults
from tests.simulation.orderbugs import in_order
from tests.simulation.plan import Plan

SUSPECTS: list[Bug] = []
planted = registrar(SUSPECTS)


def _crashes(plan: Plan) -> Plan:
    return replace(
        plan,
        faults=Faults(crash=0.02),
        operators=0,
        moves=(),
        producers=2,
        consumers=3,
        calls=400,
        max_attempts=3,
        quiet_days=False,
    )


_waits = waiting(faults=Faults(crash=0.02), consumers=3, calls=900, max_attempts=5, retry=RetryPolicy(first_seconds=1))


@planted(sharpen=_crashes)
def an_ended_lease_counts_for_the_neighbours() -> Iterator[None]:
    def settled_row(self: Settler, row: Any, parsed: Any, outcome: int) -> Any:
        return real(self, row, replace(parsed, ended=False), outcome)

    real = Settler._settled_row
    with patch.object(Settler, "_settled_row", settled_row):
        yield


@planted(sharpen=_crashes)
def a_suspect_is_never_counted() -> Iterator[None]:
    def changed(message: Message, transfer: Transfer, detail: str | None) -> Message:
        return msgspec.structs.replace(real(message, transfer, detail), suspect=False)

    real = copies._changed
    with patch.object(copies, "_changed", changed):
        yield


@planted(sharpen=_crashes)
def a_suspect_is_pulled_beside_others() -> Iterator[None]:
    with patch.object(selection, "suspects_of", lambda _: ()):
        yield


@planted(sharpen=_waits)
def a_suspect_that_waited_is_one_no_more() -> Iterator[None]:
    def decode_one(raw: Any) -> Message:
        return msgspec.structs.replace(real(raw), suspect=False)

    real = outgoing_batches.decode_one
    with patch.object(outgoing_batches, "decode_one", decode_one):
        yield


@planted(sharpen=_waits)
def a_wheel_does_not_say_which_messages_are_suspects() -> Iterator[None]:
    with patch.object(dispatch, "with_suspects", lambda row, _: row):
        yield


@planted(sharpen=lambda plan: in_order(_crashes(plan)))
def a_suspect_of_an_ordered_group_is_never_counted() -> Iterator[None]:
    def in_order(row: Any, parsed: Any, *rest: Any) -> Any:
        order = row.order and msgspec.structs.replace(row.order, suspect=False)
        return real(msgspec.structs.replace(row, order=order), parsed, *rest)

    real = ordered_log.settle_in_order
    with patch.object(ordered_log, "settle_in_order", in_order):
        yield
