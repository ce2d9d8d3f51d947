"""Reads the answers about the consumers of a group, and warns of leases that could not be ended."""

import logging
from collections.abc import Callable

from msgspec import Struct

from hourwheel.client.records.groups import ConsumerState, ConsumerStates, LeaveResult
from hourwheel.wire.words import shown

_log = logging.getLogger("hourwheel.client.consumers")


class ConsumersAnswer(Struct):
    consumers: list[ConsumerState]
    cells_out: list[str] = []


class LeaveAnswer(Struct):
    released: int
    cells_out: list[str] = []


def consumer_states(answer: ConsumersAnswer) -> ConsumerStates:
    return ConsumerStates(answer.consumers, answer.cells_out)


def leave_result(consumer: str, *, warns: bool) -> Callable[[LeaveAnswer], LeaveResult]:
    """Returns a reader of the answer to a leave. With ``warns`` it logs in which cells the consumer keeps its
    leases."""

    def read(answer: LeaveAnswer) -> LeaveResult:
        if warns and answer.cells_out:
            cells = ", ".join(answer.cells_out)
            _log.warning("leases of consumer %s in cells out of reach stay: %s", shown(consumer), shown(cells))
        return LeaveResult(answer.released, answer.cells_out)

    return read
