"""Plants bugs that show where many messages are due at one instant: the real code with one clause left out."""

from collections.abc import Iterator
from random import Random
from unittest.mock import patch

from hourwheel.delay.due_messages import DueMessages
from tests.simulation.bugs import Bug, registrar
from tests.simulation.delaybugs import waiting
from tests.simulation.herds import with_herd
from tests.simulation.plan import Plan

HERDS: list[Bug] = []
planted = registrar(HERDS)


def _herds(plan: Plan) -> Plan:
    return with_herd(waiting(calls=900, producers=3, wheels=3)(plan), Random(plan.seed))


@planted(sharpen=_herds)
def a_destination_has_its_turn_until_nothing_is_left() -> Iterator[None]:
    def slices(self: DueMessages, most: int) -> list[tuple[int, list[int]]]:
        found = real(self, most) if len(self._queues) < 2 else []
        if self._queues and not found:
            destination, queue = next(iter(self._queues.items()))
            found = [(destination, self._kept(queue.take(most)))]
            if not queue.count:
                del self._queues[destination]
        return found

    real = DueMessages.slices
    with patch.object(DueMessages, "slices", slices):
        yield
