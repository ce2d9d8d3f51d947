"""Pauses work on cells that did not answer a moment ago."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hourwheel.context import Context
from hourwheel.errors import Unavailable
from hourwheel.model.log_names import cell_of
from hourwheel.reach.outages import outage_of

_PAUSE_MS = 5_000  # to read the messages again costs more than the call that fails

_logger = logging.getLogger("hourwheel")


@dataclass
class Pauses:
    """Remembers when each cell that did not answer is tried again. ``waiting`` names the work that waits, for the log
    of the server. For one thread."""

    context: Context
    waiting: str
    _end_ms: dict[str, int] = field(default_factory=dict)

    def holds(self, log: str) -> bool:
        """Returns whether the log's cell did not answer a moment ago."""
        return bool(self._end_ms) and self._pauses(cell_of(log))

    def next_ms(self, log: str) -> int:
        """Returns when work for the log that cannot be done now is tried again."""
        # The pause of a cell may be over while its work waits for something else.
        return self.end_ms(log) if self.holds(log) else self.context.clock.now_ms() + _PAUSE_MS

    def end_ms(self, log: str) -> int:
        """Returns when the last pause of the log's cell ends; the end of one that begins now if there was none."""
        return self._end_ms.get(cell_of(log), self.context.clock.now_ms() + _PAUSE_MS)

    @contextmanager
    def tried(self, log: str) -> Iterator[None]:
        """Ends the block where it needs a cell that is out of reach, and pauses the cell of the log."""
        try:
            yield
        except Unavailable as error:
            self.failed(log, outage_of(error))

    def failed(self, log: str, error: Unavailable) -> None:
        """Pauses the log's cell. Logs the error once for each outage."""
        cell = cell_of(log)
        if cell not in self._end_ms:
            _logger.error("%s for cell %s wait until it can be reached: %s", self.waiting, cell, error)
        self._end_ms[cell] = self.context.clock.now_ms() + _PAUSE_MS

    def answered(self, log: str) -> None:
        """Ends the pause of the log's cell, which has answered."""
        if self._end_ms:
            self._end_ms.pop(cell_of(log), None)

    def _pauses(self, cell: str) -> bool:
        return self.context.clock.now_ms() < self._end_ms.get(cell, 0)
