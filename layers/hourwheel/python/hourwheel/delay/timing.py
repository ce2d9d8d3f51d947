"""Orders the messages of a bucket by the tick in which they fall due. The timing wheel contains positions, no messages.

A hierarchical timing wheel of two levels (Varghese and Lauck, SOSP 1987) that stores no empty slots. Far messages lie
in coarse slots of a quarter of a second, with a byte each for the tick within the slot. The messages of a coarse slot
are spread over its ticks once the slot is reached: an hour of ticks of a millisecond would otherwise have a slot for
nearly every message.
"""

import heapq
from array import array
from collections.abc import Iterable
from itertools import chain, islice

_INDEX_BITS = 10
"""A batch contains at most 1,000 messages."""
_INDEX_MASK = (1 << _INDEX_BITS) - 1


def pack(row_no: int, index: int) -> int:
    """Returns a position as one number. Numbers of positions in one log have the order of the positions."""
    return row_no << _INDEX_BITS | index


def unpack(packed: int) -> tuple[int, int]:
    return packed >> _INDEX_BITS, packed & _INDEX_MASK


def unpack_all(positions: Iterable[int]) -> list[tuple[int, int]]:
    return [(packed >> _INDEX_BITS, packed & _INDEX_MASK) for packed in positions]


_COARSE_MS = 250
"""The length of a coarse slot. A tick of a millisecond within it fits into a byte."""


class TimingWheel:
    """Packed positions, ordered by the tick in which they fall due. For one thread.

    ``tick_ms`` 0 stands for ticks of a millisecond, the precision of due times."""

    def __init__(self, tick_ms: int) -> None:
        self._tick_ms = max(1, tick_ms)
        self._ticks = max(1, _COARSE_MS // self._tick_ms)
        """Ticks in a coarse slot."""
        self._coarse: dict[int, tuple[array[int], bytearray]] = {}
        self._coarse_order: list[int] = []
        self._fine: dict[int, list[int]] = {}
        self._fine_order: list[int] = []
        self._cancelled: set[int] = set()
        self.waiting = 0
        """Positions in the wheel, cancelled ones included."""

    def add(self, packed: int, due_ms: int) -> None:
        """Adds a position, which may be due already."""
        self.add_all((packed,), due_ms)

    def add_all(self, positions: Iterable[int], due_ms: int) -> None:
        """Adds positions that all fall due at one time."""
        # Rounded up to the next tick, so that no message is early.
        number, within = divmod(-(-due_ms // self._tick_ms), self._ticks)
        slot = self._coarse.get(number)
        if slot is None:
            # Nine bytes for each message: eight for its position, one for its tick.
            slot = self._coarse[number] = array("q"), bytearray()
            heapq.heappush(self._coarse_order, number)
        packed, ticks = slot
        packed.extend(positions)
        added = len(packed) - len(ticks)
        ticks.extend(bytes((within,)) * added)
        self.waiting += added

    def discard(self, packed: int) -> None:
        """Marks a position as cancelled: ``take`` leaves it out. The position may be added later."""
        self._cancelled.add(packed)

    def take(self, now_ms: int) -> list[int]:
        """Removes the positions that are due, and returns them: the earliest tick first, within a tick in the order in
        which they were added. Takes a tick once all its positions are due, so none is early."""
        now = now_ms // self._tick_ms
        while self._coarse_order and self._coarse_order[0] * self._ticks <= now:
            self._spread()
        taken: list[int] = []
        while self._fine_order and self._fine_order[0] <= now:
            taken.extend(self._fine.pop(heapq.heappop(self._fine_order)))
        self.waiting -= len(taken)
        if self._cancelled:
            # Only now, as a search for the position in its slot would cost more than keeping it until it is due.
            cancelled = self._cancelled.intersection(taken)
            if cancelled:
                taken = [packed for packed in taken if packed not in cancelled]
                self._cancelled -= cancelled
        return taken

    def next_ms(self) -> int | None:
        """Returns when the next positions are taken; None when the wheel is empty."""
        # A coarse slot that begins before the first tick may hold an earlier one.
        while self._coarse_order and (
            not self._fine_order or self._coarse_order[0] * self._ticks <= self._fine_order[0]
        ):
            self._spread()
        return self._fine_order[0] * self._tick_ms if self._fine_order else None

    def upcoming(self, most: int) -> list[int]:
        """Returns up to ``most`` of the positions that are taken next, cancelled ones included: those of the next
        quarter of a second that has any."""
        if self.next_ms() is None:
            return []
        positions = chain.from_iterable(self._fine[tick] for tick in sorted(self._fine_order))
        return list(islice(positions, most))

    def _spread(self) -> None:
        """Spreads the first coarse slot over its ticks. A position that is added to it later creates the coarse slot
        again."""
        number = heapq.heappop(self._coarse_order)
        positions, ticks = self._coarse.pop(number)
        first = number * self._ticks
        for packed, within in zip(positions, ticks, strict=True):
            slot = self._fine.get(first + within)
            if slot is None:
                slot = self._fine[first + within] = []
                heapq.heappush(self._fine_order, first + within)
            slot.append(packed)
