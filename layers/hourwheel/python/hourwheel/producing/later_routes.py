"""Divides again the parts of a batch that no log has taken, once their subject has more queues.

A message that is accepted now must go to the queue of the later messages of its key. The parts of a subject are divided
together, so that each queue gets one row of them, in the order of the batch (docs/decisions/0074).
"""

from collections.abc import Sequence
from typing import ClassVar, TypeVar

import msgspec

from hourwheel.producing.routing import Batch, BatchPart

T = TypeVar("T")


class LaterRoute(msgspec.Struct, array_like=True, frozen=True):
    """Says that the parts of these numbers were divided again by the number of queues that their subject had then. The
    new parts took the place of the first of them."""

    NAMED_BY: ClassVar[int] = 1  # the parts that it divided

    parts: tuple[int, ...]
    queues: int

    def divided(self, batch: Batch, parts: Sequence[BatchPart], prefix: str) -> list[BatchPart]:
        """Returns the new parts, of which each queue gets one. ``prefix`` is the unique name of the batch."""
        return batch.rerouted([parts[number] for number in self.parts], prefix, self.queues)

    def replaced(self, items: Sequence[T], new: Sequence[T]) -> list[T]:
        """Returns the items of all parts with ``new`` in place of those of the divided parts."""
        first, *others = self.parts
        behind = [item for number, item in enumerate(items) if number > first and number not in others]
        return [*items[:first], *new, *behind]


def later_routes(parts: Sequence[BatchPart], left: Sequence[int]) -> list[LaterRoute]:
    """Returns how the parts ``left``, which no log has taken, are divided again: those of a subject together, once one
    of them was divided by another number of queues than the subject has now. The routes are carried out in order."""
    by_subject: dict[str, list[int]] = {}
    for number in left:
        if parts[number].bucket is None:
            by_subject.setdefault(parts[number].subject.name, []).append(number)
    # The last subject comes first: its new parts do not change the numbers of the parts before it.
    return [
        LaterRoute(tuple(numbers), parts[numbers[0]].subject.queues)
        for numbers in reversed(by_subject.values())
        if any(parts[number].outdated for number in numbers)
    ]
