"""Judges the order of keys across the parts of queues: an ordered group begins a part when those before it are done."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.simulation.facts import LogName
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.orders import OrderedHistory, Place


def check_earlier_parts(history: "OrderedHistory", where: str, place: "Place") -> None:
    """Checks that no message of this one's key is left in an earlier part of its queue, or in a queue of before the
    number of queues changed. A seek takes a group back in all parts, which not every process knows at once."""
    audit, key = history.audit, history.key_of(place)
    name = LogName.parse(history.source)
    if name.queue is None or not audit.subjects[name.subject].routes or "seek" in audit.world.plan.moves:
        return
    for log in _earlier(history, name):
        earlier = audit.pull_history(f"{history.member}@{log}")
        assert isinstance(earlier, type(history))
        left = [other for other in earlier.left() if earlier.key_of(other) == key]
        if left:
            raise Violation("14", f"{where} takes {place}, and {left} of its key is left in {log}")


def _earlier(history: "OrderedHistory", name: LogName) -> Iterator[str]:
    subject = history.audit.subjects[name.subject]
    parts = [(queue, mapping, log) for queue in range(subject.queues) for mapping, log in subject.parts(queue)]
    mine = next((mapping for _, mapping, log in parts if log == history.source), None)
    for queue, mapping, log in parts if mine is not None else ():
        assert mine is not None
        if mapping.era < mine.era or (queue == name.queue and mapping.epoch < mine.epoch):
            yield log
