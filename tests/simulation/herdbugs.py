"""Plants bugs that show where many messages are due at one instant: the real code with one clause left out."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from unittest.mock import patch

from hourwheel.context import Context
from hourwheel.delay.due_messages import DueMessages, QueueName
from hourwheel.delay.ownership import Ownership
from hourwheel.delay.timing import without
from hourwheel.errors import Unavailable
from hourwheel.handover.handover import Transfer
from hourwheel.reach.outages import outage_of
from hourwheel.reach.pauses import Pauses
from tests.simulation.bugs import Bug, registrar
from tests.simulation.delaybugs import waiting
from tests.simulation.faults import Faults
from tests.simulation.herds import with_herd
from tests.simulation.plan import Plan

HERDS: list[Bug] = []
planted = registrar(HERDS)


def _herds(plan: Plan) -> Plan:
    return with_herd(waiting(calls=900, producers=3, wheels=3)(plan), Random(plan.seed))


def _hot_queues(plan: Plan) -> Plan:
    return replace(waiting(transactional=False, calls=900, wheels=3)(plan), faults=Faults(hot=0.97))


@planted(sharpen=_hot_queues)
def a_queue_with_too_many_writes_ends_the_wheel() -> Iterator[None]:
    def refused(self: Pauses, log: str, error: Unavailable) -> None:
        self.failed(log, outage_of(error))

    with patch.object(Pauses, "refused", refused):
        yield


def _hot_queues_and_short_turns(plan: Plan) -> Plan:
    plan = waiting(calls=900, wheels=3, leaves_seconds=5, share=1.0, batches=8, reach_ms=20_000, cancellers=0)(plan)
    return replace(plan, transactional=False, trims=True, budget_seconds=0.0, faults=Faults(hot=0.8, crash=0.02))


@planted(sharpen=_hot_queues_and_short_turns)
def a_transfer_that_was_refused_is_not_named_again() -> Iterator[None]:
    def append(self: Ownership, context: Context, transfers: tuple[Transfer, ...]) -> None:
        real(self, context, tuple(each for each in transfers if each.token not in named))
        named.update(each.token for each in transfers)

    named: set[bytes] = set()
    real = Ownership.append
    with patch.object(Ownership, "append", append):
        yield


@planted(sharpen=_herds)
def a_destination_has_its_turn_until_nothing_is_left() -> Iterator[None]:
    def slices(self: DueMessages, most: int, now_ms: int) -> list[tuple[QueueName, list[int]]]:
        found = real(self, most, now_ms) if len(self._queues) < 2 else []
        if self._queues and not found:
            destination, queue = next(iter(self._queues.items()))
            positions = without(queue.take(most), self._discarded)
            found = [(destination, positions)] if positions else []
            if not queue.count:
                del self._queues[destination]
        return found

    real = DueMessages.slices
    with patch.object(DueMessages, "slices", slices):
        yield


@planted(sharpen=_herds)
def a_slice_of_a_herd_has_no_bound() -> Iterator[None]:
    def slices(self: DueMessages, most: int, now_ms: int) -> list[tuple[QueueName, list[int]]]:
        return real(self, max(most, self.waiting), now_ms)

    real = DueMessages.slices
    with patch.object(DueMessages, "slices", slices):
        yield


@planted(sharpen=_herds)
def a_message_of_a_herd_is_cancelled_only_until_it_is_due() -> Iterator[None]:
    def add(self: DueMessages, destination: QueueName, positions: Sequence[int], *, first: bool = False) -> None:
        self._discarded.difference_update(positions)
        real(self, destination, positions, first=first)

    real = DueMessages.add
    with patch.object(DueMessages, "add", add):
        yield
