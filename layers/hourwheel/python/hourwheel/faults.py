"""Reports faults of one row, log or group, so that the work on its neighbours goes on. No report quotes a message."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from hourwheel.context import Context
from hourwheel.errors import Broken, DataVersion, GroupRemoved, HourwheelError, StorageFull, Unavailable
from hourwheel.model.log_names import cell_of
from hourwheel.reach.outages import is_outage, outage_of
from hourwheel.reach.storages import at_home

_logger = logging.getLogger("hourwheel")


Contained: TypeAlias = Callable[[str], AbstractContextManager[None]]
"""Returns the context manager that contains the faults of the work that it names."""

_MOST = 1_000  # lasting faults that are remembered, in some 200 KB


@dataclass
class Faults:
    """Remembers the last thousand faults that last, so that each is reported once, and again when it changes. What
    failed may be gone for good, and its fault would be kept for ever. Thread-safe."""

    _reported: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def contained(self, context: Context, what: str) -> Iterator[None]:
        """Reports an error within the block as a fault of ``what``, and swallows it. Errors of the whole store pass
        through: no neighbour could work either. A group that was deleted meanwhile is no fault."""
        try:
            yield
            self._forget(what)
        except GroupRemoved:
            self._forget(what)
        except (Unavailable, StorageFull, DataVersion) as error:
            if not is_outage(error):
                raise
            self._report(context, what, error)
        except Exception as error:
            self._report(context, what, error)

    @contextmanager
    def outages(self, context: Context, what: str) -> Iterator[None]:
        """Reports and swallows the error of a cell that is out of reach. Every other error passes through."""
        try:
            yield
        except Unavailable as error:
            self._report(context, what, outage_of(error))

    @contextmanager
    def abroad(self, context: Context, log: str, what: str) -> Iterator[None]:
        """Reports and swallows every error of work in the cell of the log: work in other cells goes on. Errors of the
        home cell pass through. ``what`` names the work, as in \"reading\"."""
        if at_home(log):
            yield
            return
        with suppress(Unavailable, Broken), self.contained(context, f"{what} cell {cell_of(log)}"):
            yield

    def _report(self, context: Context, what: str, error: Exception) -> None:
        # The messages of other libraries may quote what a client sent.
        text = f"{type(error).__name__}: {error if isinstance(error, HourwheelError) else ''}"
        if self._remember(what, text):
            if not is_outage(error):  # an outage is no bug, and most outages are short
                context.meter.record("Faults", 1)
            _logger.error("%s failed: %s", what, text)

    def _remember(self, what: str, text: str) -> bool:
        """Returns whether this fault is another one than the last of ``what``."""
        with self._lock:
            before = self._reported.pop(what, None)
            self._reported[what] = text  # at the end: the first one has been longest without a report
            if len(self._reported) > _MOST:
                self._reported.pop(next(iter(self._reported)), None)
            return before != text

    def _forget(self, what: str) -> None:
        if what in self._reported:  # most blocks end well, and wait for no lock
            with self._lock:
                self._reported.pop(what, None)


def unreadable(context: Context, log: str, row: int, count: int, error: HourwheelError) -> None:
    """Reports messages that cannot be read and are left out. Their row stays in its log until it expires."""
    context.meter.record("UnreadableMessages", count)
    _logger.error("%d messages of row %d of %s cannot be read and were left out: %s", count, row, log, error)
