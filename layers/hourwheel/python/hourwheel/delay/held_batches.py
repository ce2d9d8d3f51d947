"""Remembers the messages of a wheel that cannot be handed over because their cell is out of reach, or because the store
refuses writes to their log: other destinations of the bucket go on.

A message that is not handed over yet goes back into the timing wheel, and is tried again some seconds later: a cancel
still finds it there. A transfer that a dispatch row names, but whose row could not be put, stays *open*. Each further
dispatch row names it again, so that the next owner of the bucket finds it in the last one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hourwheel.delay.timing import pack, unpack
from hourwheel.handover.handover import Transfer
from hourwheel.reach.pauses import Pauses, paused_with
from hourwheel.reach.storages import at_home

_MOST_OPEN_PICKS = 5_000
_MOST_OPEN = 100
"""With this many open transfers, or messages in them, no message goes to another cell: a dispatch row has room for
these, and for one step that opens as many."""

_MOST_OPEN_HOME_PICKS = 8_000
_MOST_OPEN_HOME = 200
"""With this many, no step begins: with the longest names, and 9 bytes for each message, a dispatch row of 350 KB has
room for these and for one step."""


@dataclass
class HeldBatches:
    """Remembers what waits for cells that one wheel could not reach. For one thread."""

    pauses: Pauses
    open: list[Transfer] = field(default_factory=list)
    """The transfers whose rows are not put, in the order in which they were reserved."""
    _held: list[tuple[int, int]] = field(default_factory=list)
    _retried: dict[int, int] = field(default_factory=dict)
    """The messages that wait for their next try: of each row the set of their indexes, as bits."""

    @property
    def busy(self) -> frozenset[str]:
        """The cells, and the single logs of the home cell, to which an earlier transfer is open."""
        return frozenset(paused_with(transfer.log) for transfer in self.open)

    def waits(self, log: str, busy: frozenset[str]) -> bool:
        """Returns whether nothing goes to the log now. It did not answer a moment ago, or it is ``busy``. A log in
        another cell also waits while there are as many open transfers as may be."""
        if self.pauses.holds(log) or paused_with(log) in busy:
            return True
        return not at_home(log) and self._full()

    def hold(self, log: str, picks: Iterable[tuple[int, int]]) -> None:
        """Keeps messages that are not handed over until their next try."""
        retry_ms = self.pauses.next_ms(log)
        self._held += [(retry_ms, pack(row_no, index)) for row_no, index in picks]

    def retry_times(self) -> list[int]:
        """Returns when the next of the open transfers is tried again."""
        return [min(self.pauses.end_ms(transfer.log) for transfer in self.open)] if self.open else []

    @property
    def has_room(self) -> bool:
        """Whether a dispatch row has room for the open transfers and one step. If not, the store refuses calls on
        hundreds of logs, and all messages wait until some rows are put."""
        picks = sum(len(transfer.picks) for transfer in self.open)
        return len(self.open) < _MOST_OPEN_HOME and picks < _MOST_OPEN_HOME_PICKS

    def held(self) -> list[tuple[int, int]]:
        """Returns the positions that were held since the last call, each with the time of its next try."""
        held, self._held = self._held, []
        return held

    def note_retried(self, positions: Iterable[int]) -> None:
        """Notes that these positions go back into the wheel."""
        for packed in positions:
            row_no, index = unpack(packed)
            self._retried[row_no] = self._retried.get(row_no, 0) | 1 << index

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
