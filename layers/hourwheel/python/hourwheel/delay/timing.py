"""The timing wheel: orders the messages of a bucket by the tick in which they fall due. Contains positions, no
messages.

A hashed timing wheel (Varghese and Lauck, SOSP 1987) that stores no empty slots: a bucket with a few messages in an
hour of half-second ticks has a few slots.
"""

import heapq
from array import array
from collections.abc import Iterable

_INDEX_BITS = 10
"""A batch contains at most 1,000 messages."""


def pack(row_no: int, index: int) -> int:
    """Returns a position as one number. Numbers of positions in one log have the order of the positions."""
    return row_no << _INDEX_BITS | index


def unpack(packed: int) -> tuple[int, int]:
    return packed >> _INDEX_BITS, packed & (1 << _INDEX_BITS) - 1


class TimingWheel:
    """Packed positions, ordered by the tick in which they fall due. For one thread."""

    def __init__(self, tick_ms: int) -> None:
        self._tick_ms = tick_ms
        self._slots: dict[int, array[int]] = {}
        self._order: list[int] = []
        self._cancelled: set[int] = set()
        self.waiting = 0
        """Positions in the wheel, cancelled ones included."""

    def add(self, packed: int, due_ms: int) -> None:
        """Adds a position, which may be due already."""
        self.add_all((packed,), due_ms)

    def add_all(self, positions: Iterable[int], due_ms: int) -> None:
        number = -(-due_ms // self._tick_ms)
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = array("q")
            heapq.heappush(self._order, number)
        before = len(slot)
        slot.extend(positions)
        self.waiting += len(slot) - before

    def discard(self, packed: int) -> None:
        """Marks a position as cancelled: ``take`` leaves it out. The position may be added later."""
        self._cancelled.add(packed)

    def take(self, now_ms: int) -> list[int]:
        """Removes the positions that are due, and returns them: the earliest tick first, within a tick in the order in
        which they were added. Takes a slot once all its positions are due, so none is early."""
        taken: list[int] = []
        while self._order and self._order[0] * self._tick_ms <= now_ms:
            slot = self._slots.pop(heapq.heappop(self._order))
            self.waiting -= len(slot)
            taken.extend(slot)
        if self._cancelled:
            cancelled = self._cancelled.intersection(taken)
            if cancelled:
                taken = [packed for packed in taken if packed not in cancelled]
                self._cancelled -= cancelled
        return taken

    def next_ms(self) -> int | None:
        """Returns when the next positions are taken; None when the wheel is empty."""
        return self._order[0] * self._tick_ms if self._order else None
