"""Remembers the cells that a wheel could not reach, and what waits for them: other destinations of the bucket go on.

A message that is not handed over yet goes back into the timing wheel, and is tried again some seconds later: a cancel
still finds it there. A transfer that a dispatch row names, but whose row could not be put, stays *open*. Each further
dispatch row names it again, so that the next owner of the bucket finds it in the last one.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from hourwheel.context import Context
from hourwheel.delay.timing import pack, unpack
from hourwheel.errors import CellUnavailable
from hourwheel.handover.handover import Transfer
from hourwheel.model.log_names import HOME, cell_of

_RETRY_MS = 5_000
"""The pause between two tries to reach a cell: reading the messages again costs more than the call that fails."""

_MOST_OPEN_PICKS = 5_000
_MOST_OPEN = 100
"""With this many open transfers, or messages in them, no message goes to another cell: a dispatch row has room for
these, and for one step that opens as many."""

_logger = logging.getLogger("hourwheel")


@dataclass
class UnavailableCells:
    """Remembers the cells that one wheel could not reach. For one thread."""

    context: Context
    open: list[Transfer] = field(default_factory=list)
    """The transfers whose rows are not put, in the order in which they were reserved."""
    _held: list[tuple[int, int]] = field(default_factory=list)
    _retried: dict[int, int] = field(default_factory=dict)
    """The messages that wait for their next try: of each row the set of their indexes, as bits."""
    _retry_ms: dict[str, int] = field(default_factory=dict)

    def waits(self, log: str) -> bool:
        """Returns whether nothing goes to the log now: its cell did not answer a moment ago, an earlier transfer to the
        cell is open, or there are as many open transfers as may be."""
        cell = cell_of(log)
        if cell == HOME:
            return False
        return self._pauses(cell) or self._full() or any(cell_of(transfer.log) == cell for transfer in self.open)

    def pauses(self, log: str) -> bool:
        """Returns whether the log's cell did not answer a moment ago."""
        return bool(self._retry_ms) and self._pauses(cell_of(log))

    def hold(self, log: str, picks: Iterable[tuple[int, int]]) -> None:
        """Keeps messages that are not handed over until their next try."""
        cell = cell_of(log)
        # The pause of a cell may be over while it waits for the open transfers of another one.
        retry_ms = self._retry_ms[cell] if self._pauses(cell) else self.context.clock.now_ms() + _RETRY_MS
        self._held += [(retry_ms, pack(row_no, index)) for row_no, index in picks]

    def retry_times(self) -> list[int]:
        """Returns when the open transfers are tried again."""
        now_ms = self.context.clock.now_ms()
        return [self._retry_ms.get(cell_of(transfer.log), now_ms + _RETRY_MS) for transfer in self.open[:1]]

    def take_held(self) -> list[tuple[int, int]]:
        """Returns the positions that were held since the last call, each with the time of its next try."""
        held, self._held = self._held, []
        for _, packed in held:
            row_no, index = unpack(packed)
            self._retried[row_no] = self._retried.get(row_no, 0) | 1 << index
        return held

    def in_order(self, due: list[int]) -> list[int]:
        """Returns the positions that are taken from the wheel at one time, those first that have waited for a cell:
        they were due before the others."""
        if not self._retried:
            return due
        retried, others = list[int](), list[int]()
        for packed in due:
            row_no, index = unpack(packed)
            (retried if self._retried.get(row_no, 0) >> index & 1 else others).append(packed)
        for packed in retried:
            row_no, index = unpack(packed)
            self._retried[row_no] &= ~(1 << index)
            if not self._retried[row_no]:
                del self._retried[row_no]
        return retried + others

    def failed(self, log: str, error: CellUnavailable) -> None:
        """Notes that the log's cell did not answer. Logs it once for each outage."""
        cell = cell_of(log)
        if cell not in self._retry_ms:
            _logger.error("delayed messages for cell %s wait until it can be reached: %s", cell, error)
        self._retry_ms[cell] = self.context.clock.now_ms() + _RETRY_MS

    def reached(self, log: str) -> None:
        """Notes that the log's cell has answered."""
        if self._retry_ms:
            self._retry_ms.pop(cell_of(log), None)

    def _pauses(self, cell: str) -> bool:
        return self.context.clock.now_ms() < self._retry_ms.get(cell, 0)

    def _full(self) -> bool:
        return len(self.open) >= _MOST_OPEN or sum(len(transfer.picks) for transfer in self.open) >= _MOST_OPEN_PICKS
