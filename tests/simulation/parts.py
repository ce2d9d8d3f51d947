"""Judges the order of keys across the parts of queues: an ordered group begins a part when those before it are done."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from hourwheel.model.routes import Mapping
from tests.simulation.facts import LogName
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.orders import OrderedHistory, Place


def check_earlier_parts(history: "OrderedHistory", where: str, place: "Place") -> None:
    """Checks that no message of this one's key is left in an earlier part of its queue, or in a queue of before the
    number of queues changed. A seek takes a group back in all parts, which not every process knows at once."""
    key = history.key_of(place)
    for log, earlier in _others(history, _comes_before):
        left = [other for other in earlier.left() if earlier.key_of(other) == key]
        if left:
            raise Violation("14", f"{where} takes {place}, and {left} of its key is left in {log}")


def check_later_parts(history: "OrderedHistory", where: str, place: "Place") -> None:
    """Checks that no message of this one's key was taken from a part that comes after this one's: a row that is stored
    after the group went on would be served behind it."""
    key = history.key_of(place)
    for log, later in _others(history, lambda part, mine: _comes_before(mine, part)):
        if key in later.served:
            raise Violation("14", f"{where} takes {place}, and its key was served from {log}, which comes later")


def _others(
    history: "OrderedHistory", related: Callable[["_Part", "_Part"], bool]
) -> Iterator[tuple[str, "OrderedHistory"]]:
    """Yields the other parts that are ``related`` to the history's, and their histories."""
    audit, name = history.audit, LogName.parse(history.source)
    if name.queue is None or not audit.subjects[name.subject].routes or "seek" in audit.world.plan.moves:
        return
    subject = audit.subjects[name.subject]
    parts = [_Part(queue, *part) for queue in range(subject.queues) for part in subject.parts(queue)]
    mine = next((part for part in parts if part.log == history.source), None)
    for part in parts if mine is not None else ():
        assert mine is not None
        if related(part, mine):
            other = audit.pull_history(f"{history.member}@{part.log}")
            assert isinstance(other, type(history))
            yield part.log, other


class _Part(NamedTuple):
    queue: int
    mapping: Mapping
    log: str


def _comes_before(part: _Part, other: _Part) -> bool:
    mine, its = part.mapping, other.mapping
    return mine.era < its.era or (part.queue == other.queue and mine.epoch < its.epoch)
