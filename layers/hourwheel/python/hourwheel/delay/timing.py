"""The second wheel: which messages of a bucket fall due in which tick. It holds positions, no messages.

A hashed timing wheel (Varghese and Lauck, SOSP 1987) whose empty slots take no room: a bucket that holds a few messages
in an hour of half-second ticks has a few slots.
"""

import heapq
from array import array
from collections.abc import Iterable

_INDEX_BITS = 10
"""A batch holds 1,000 messages at most."""


def pack(row: int, index: int) -> int:
    """A position as one number; positions of one log keep their order."""
    return row << _INDEX_BITS | index


def unpack(place: int) -> tuple[int, int]:
    return place >> _INDEX_BITS, place & (1 << _INDEX_BITS) - 1


class TimingWheel:
    """Packed positions by the tick in which they fall due. For one thread."""

    def __init__(self, tick_ms: int) -> None:
        self._tick_ms = tick_ms
        self._slots: dict[int, array[int]] = {}
        self._order: list[int] = []
        self._struck: set[int] = set()
        self.waiting = 0
        """Positions in the wheel, cancelled ones included."""

    def add(self, place: int, due_ms: int) -> None:
        """A position may be added at any time, also when its tick is over."""
        self.add_all((place,), due_ms)

    def add_all(self, places: Iterable[int], due_ms: int) -> None:
        number = -(-due_ms // self._tick_ms)
        record = self._slots.get(number)
        if record is None:
            record = self._slots[number] = array("q")
            heapq.heappush(self._order, number)
        before = len(record)
        record.extend(places)
        self.waiting += len(record) - before

    def discard(self, place: int) -> None:
        """The position will not be taken."""
        self._struck.add(place)

    def take(self, now_ms: int) -> list[int]:
        """Takes out what is due: the earliest tick first, within a tick in the order of adding. Never early: a slot
        is taken once all of its positions are due."""
        taken: list[int] = []
        while self._order and self._order[0] * self._tick_ms <= now_ms:
            record = self._slots.pop(heapq.heappop(self._order))
            self.waiting -= len(record)
            taken.extend(record)
        if self._struck:
            cancelled = self._struck.intersection(taken)
            if cancelled:
                taken = [place for place in taken if place not in cancelled]
                self._struck -= cancelled
        return taken

    def next_ms(self) -> int | None:
        """When something is taken next; None when nothing waits."""
        return self._order[0] * self._tick_ms if self._order else None
