"""Orders the messages of a bucket by the tick in which they fall due. The timing wheel contains positions, no messages.

A hierarchical timing wheel of two levels (Varghese and Lauck, SOSP 1987) that stores no empty slots. Far messages lie
in coarse slots of a quarter of a second, with a byte each for the tick within the slot. The messages of a coarse slot
are spread over its ticks once the slot is reached: an hour of ticks of a millisecond would otherwise have a slot for
nearly every message. Where many messages for one destination fall due in one tick, they lie in its slot at once, apart
from those for others.
"""

import heapq
from array import array
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import NamedTuple

_INDEX_BITS = 10
"""A batch contains at most 1,000 messages."""
_INDEX_MASK = (1 << _INDEX_BITS) - 1


def pack(row_no: int, index: int) -> int:
    """Returns a position as one number. Numbers of positions in one log have the order of the positions."""
    return row_no << _INDEX_BITS | index


def unpack(packed: int) -> tuple[int, int]:
    return packed >> _INDEX_BITS, packed & _INDEX_MASK


def row_of(packed: int) -> int:
    return packed >> _INDEX_BITS


def unpack_all(positions: Iterable[int]) -> list[tuple[int, int]]:
    return [(packed >> _INDEX_BITS, packed & _INDEX_MASK) for packed in positions]


_COARSE_MS = 250
"""The length of a coarse slot. A tick of a millisecond within it fits into a byte."""


_CROWD = 64
"""Once this many messages for one destination fall due in one tick, those that follow lie apart from all others: a herd
is taken without a look at each of its messages. A smaller number would make the memory of slots count."""

_COUNTED = 4_096  # pairs of tick and destination that are counted; a herd of many instants is found all the same


def without(positions: list[int], discarded: set[int]) -> list[int]:
    """Returns the positions that are not discarded, and removes the others from ``discarded``."""
    removed = discarded.intersection(positions) if discarded else ()
    if not removed:
        return positions
    discarded.difference_update(removed)
    return [packed for packed in positions if packed not in removed]


class DueGroup(NamedTuple):
    """Positions that fall due in one tick. ``destination``: their only one; None if there may be several."""

    positions: Sequence[int]
    destination: int | None = None


class TimingWheel:
    """Packed positions, ordered by the tick in which they fall due. For one thread.

    ``tick_ms`` 0 stands for ticks of a millisecond, the precision of due times. Destinations are numbers, by which the
    caller tells apart where the messages go. ``discarded`` are the positions to leave out; the caller adds to it, and
    looks there for those of herds."""

    def __init__(self, tick_ms: int, discarded: set[int]) -> None:
        self._tick_ms = max(1, tick_ms)
        self._ticks = max(1, _COARSE_MS // self._tick_ms)
        """Ticks in a coarse slot."""
        self._coarse: dict[int, tuple[array[int], bytearray]] = {}
        self._coarse_order: list[int] = []
        self._fine: dict[int, list[int]] = {}
        self._crowds: dict[int, dict[int, array[int]]] = {}
        """The positions of herds by tick and destination."""
        self._order: list[int] = []
        """The ticks of ``_fine`` and ``_crowds``."""
        self._counts: dict[tuple[int, int], int] = {}
        self._discarded = discarded
        self.waiting = 0
        """Positions in the wheel, discarded ones included."""

    def add(self, packed: int, due_ms: int, destination: int = 0) -> None:
        """Adds a position, which may be due already."""
        self.add_all((packed,), due_ms, destination)

    def add_all(self, positions: Sequence[int], due_ms: int, destination: int = 0) -> None:
        """Adds positions of one destination that all fall due at one time."""
        # Rounded up to the next tick, so that no message is early.
        tick = -(-due_ms // self._tick_ms)
        self.waiting += len(positions)
        if self._is_crowd(tick, destination, len(positions)):
            self._crowd(tick).setdefault(destination, array("q")).extend(positions)
            return
        number, within = divmod(tick, self._ticks)
        slot = self._coarse.get(number)
        if slot is None:
            # Nine bytes for each message: eight for its position, one for its tick.
            slot = self._coarse[number] = array("q"), bytearray()
            heapq.heappush(self._coarse_order, number)
        packed, ticks = slot
        packed.extend(positions)
        ticks.extend(bytes((within,)) * len(positions))

    def take(self, now_ms: int) -> list[DueGroup]:
        """Removes the positions that are due, and returns them: the earliest tick first, within a tick those of a
        destination in the order in which they were added. Takes a tick once all its positions are due, so none is
        early. Leaves discarded ones out; the positions of a herd may contain some, because a look at each of a million
        would take 0.1 s, and everything else waits meanwhile."""
        now = now_ms // self._tick_ms
        while self._coarse_order and self._coarse_order[0] * self._ticks <= now:
            self._spread()
        taken: list[DueGroup] = []
        while self._order and self._order[0] <= now:
            tick = heapq.heappop(self._order)
            if tick in self._fine:
                positions = self._fine.pop(tick)
                self.waiting -= len(positions)
                # Only now, as a search for the position in its slot would cost more than keeping it until it is due.
                taken.append(DueGroup(without(positions, self._discarded)))
            # Behind the first ones of the same herd, which came before it was known as one.
            for destination, crowd in self._crowds.pop(tick, {}).items():
                self.waiting -= len(crowd)
                taken.append(DueGroup(crowd, destination))
        return taken

    def next_ms(self) -> int | None:
        """Returns when the next positions are taken; None when the wheel is empty."""
        # A coarse slot that begins before the first tick may hold an earlier one.
        while self._coarse_order and (not self._order or self._coarse_order[0] * self._ticks <= self._order[0]):
            self._spread()
        return self._order[0] * self._tick_ms if self._order else None

    def upcoming(self, most: int) -> list[int]:
        """Returns up to ``most`` of the positions that are taken next, cancelled ones included: those of the next
        quarter of a second that has any."""
        if self.next_ms() is None:
            return []
        near = sorted(tick for tick in self._order if tick // self._ticks == self._order[0] // self._ticks)
        slots = ((self._fine.get(tick, ()), *self._crowds.get(tick, {}).values()) for tick in near)
        return list(islice(chain.from_iterable(chain.from_iterable(slots)), most))

    def _is_crowd(self, tick: int, destination: int, count: int) -> bool:
        """Counts positions that are added, and returns whether they are part of a herd."""
        if count >= _CROWD or destination in self._crowds.get(tick, ()):
            return True
        if len(self._counts) >= _COUNTED:
            self._counts.clear()
        counted = self._counts[tick, destination] = self._counts.get((tick, destination), 0) + count
        return counted >= _CROWD

    def _crowd(self, tick: int) -> "dict[int, array[int]]":
        slot = self._crowds.get(tick)
        if slot is None:
            slot = self._crowds[tick] = {}
            if tick not in self._fine:
                heapq.heappush(self._order, tick)
        return slot

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
                if first + within not in self._crowds:
                    heapq.heappush(self._order, first + within)
            slot.append(packed)
