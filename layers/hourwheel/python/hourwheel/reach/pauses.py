"""Pauses work on cells that did not answer a moment ago, and on single logs whose store has refused calls."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hourwheel.context import Context
from hourwheel.errors import Unavailable
from hourwheel.model.log_names import cell_of
from hourwheel.reach.outages import outage_of
from hourwheel.reach.storages import at_home

_PAUSE_MS = 5_000  # to read the messages again costs more than the call that fails
_LOG_PAUSE_MS = 500  # with the tries of each pause, a log of which one write in twenty succeeds goes on

_logger = logging.getLogger("hourwheel")


@dataclass
class Pauses:
    """Remembers when each cell that did not answer is tried again. ``waiting`` names the work that waits, for the log
    of the server. For one thread."""

    context: Context
    waiting: str
    holds_logs: bool = False
    """Whether the work on one log of the home cell waits where the store has refused it, and the work on others goes
    on. If not, the error of the store ends the work."""
    _end_ms: dict[str, int] = field(default_factory=dict)

    def holds(self, log: str) -> bool:
        """Returns whether the log's cell, or the log itself in the home cell, did not answer a moment ago."""
        return bool(self._end_ms) and self.context.clock.now_ms() < self._end_ms.get(paused_with(log), 0)

    def next_ms(self, log: str) -> int:
        """Returns when work for the log that cannot be done now is tried again."""
        # The pause of a cell may be over while its work waits for something else.
        return self.end_ms(log) if self.holds(log) else self.context.clock.now_ms() + _length_ms(log)

    def end_ms(self, log: str) -> int:
        """Returns when the last pause of the log ends; the end of one that begins now if there was none."""
        return self._end_ms.get(paused_with(log), self.context.clock.now_ms() + _length_ms(log))

    @contextmanager
    def tried(self, log: str) -> Iterator[None]:
        """Ends the block where it needs a cell that is out of reach, and pauses the cell of the log."""
        try:
            yield
        except Unavailable as error:
            self.failed(log, outage_of(error))

    def refused(self, log: str, error: Unavailable) -> None:
        """Pauses the log, to which a call did not succeed. Raises the error if it is not that of another cell, and
        single logs of the home cell are not held."""
        if not (self.holds_logs and at_home(log)):
            error = outage_of(error)
        self.failed(log, error)

    def failed(self, log: str, error: Unavailable) -> None:
        """Pauses the log's cell, or the log itself in the home cell. Logs the error once for each outage."""
        key = paused_with(log)
        if key not in self._end_ms:
            where = f"log {log}" if at_home(log) else f"cell {cell_of(log)}"
            _logger.error("%s for %s wait until it can be reached: %s", self.waiting, where, error)
        self._end_ms[key] = self.context.clock.now_ms() + _length_ms(log)

    def answered(self, log: str) -> None:
        """Ends the pause of the log's cell, or of the log itself in the home cell, which has answered."""
        if self._end_ms:
            self._end_ms.pop(paused_with(log), None)


def paused_with(log: str) -> str:
    """Returns the name of what is paused together: a cell, or a single log of the home cell."""
    return log if at_home(log) else cell_of(log)


def _length_ms(log: str) -> int:
    return _LOG_PAUSE_MS if at_home(log) else _PAUSE_MS
