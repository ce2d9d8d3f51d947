"""Remembers the messages of a wheel that cannot be handed over because their cell is out of reach: other destinations
of the bucket go on.

A message that is not handed over yet goes back into the timing wheel, and is tried again some seconds later: a cancel
still finds it there. A transfer that a dispatch row names, but whose row could not be put, stays *open*. Each further
dispatch row names it again, so that the next owner of the bucket finds it in the last one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hourwheel.delay.timing import pack, unpack
from hourwheel.handover.handover import Transfer
from hourwheel.reach.pauses import Pauses
from hourwheel.reach.storages import at_home, storage_of

_MOST_OPEN_PICKS = 5_000
_MOST_OPEN = 100
"""With this many open transfers, or messages in them, no message goes to another cell: a dispatch row has room for
these, and for one step that opens as many."""


@dataclass
class HeldBatches:
    """Remembers what waits for cells that one wheel could not reach. For one thread."""

    pauses: Pauses
    open: list[Transfer] = field(default_factory=list)
    """The transfers whose rows are not put, in the order in which they were reserved."""
    _held: list[tuple[int, int]] = field(default_factory=list)
    _retried: dict[int, int] = field(default_factory=dict)
    """The messages that wait for their next try: of each row the set of their indexes, as bits."""

    def waits(self, log: str) -> bool:
        """Returns whether nothing goes to the log now: its cell did not answer a moment ago, an earlier transfer to the
        cell is open, or there are as many open transfers as may be."""
        if at_home(log):
            return False
        storage = storage_of(log)
        return (
            self.pauses.holds(log) or self._full() or any(storage_of(transfer.log) == storage for transfer in self.open)
        )

    def hold(self, log: str, picks: Iterable[tuple[int, int]]) -> None:
        """Keeps messages that are not handed over until their next try."""
        retry_ms = self.pauses.next_ms(log)
        self._held += [(retry_ms, pack(row_no, index)) for row_no, index in picks]

    def retry_times(self) -> list[int]:
        """Returns when the open transfers are tried again."""
        return [self.pauses.end_ms(transfer.log) for transfer in self.open[:1]]

    def take_held(self) -> list[tuple[int, int]]:
        """Returns the positions that were held since the last call, each with the time of its next try."""
        held, self._held = self._held, []
        for _, packed in held:
            row_no, index = unpack(packed)
            self._retried[row_no] = self._retried.get(row_no, 0) | 1 << index
        return held

    def divided(self, due: Sequence[int]) -> tuple[list[int], Sequence[int]]:
        """Divides positions that are due into those that have waited for a cell, and the others."""
        if not self._retried:
            return [], due
        retried, others = list[int](), list[int]()
        for packed in due:
            row_no, index = unpack(packed)
            (retried if self._retried.get(row_no, 0) >> index & 1 else others).append(packed)
        for packed in retried:
            row_no, index = unpack(packed)
            self._retried[row_no] &= ~(1 << index)
            if not self._retried[row_no]:
                del self._retried[row_no]
        return retried, others

    def _full(self) -> bool:
        return len(self.open) >= _MOST_OPEN or sum(len(transfer.picks) for transfer in self.open) >= _MOST_OPEN_PICKS
