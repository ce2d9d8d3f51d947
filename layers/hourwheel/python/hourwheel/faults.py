"""Faults of one row, log or group: reported, so that its neighbours go on. No report quotes a message."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hourwheel.context import Context
from hourwheel.errors import DataVersion, HourwheelError, StorageFull, Unavailable

_logger = logging.getLogger("hourwheel")


@dataclass
class Faults:
    """What went wrong and still does: it is told once, and again when it changes. Thread-safe."""

    _told: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def contained(self, context: Context, what: str) -> Iterator[None]:
        """Reports a fault of ``what`` and goes on. Faults of the whole store pass: there is nothing to go on with."""
        try:
            yield
            self._told.pop(what, None)
        except (Unavailable, StorageFull, DataVersion):
            raise
        except Exception as error:
            # The words of others may hold what a client sent.
            text = f"{type(error).__name__}: {error if isinstance(error, HourwheelError) else ''}"
            if self._told.get(what) != text:
                self._told[what] = text
                context.meter.record("Faults", 1)
                _logger.error("%s failed: %s", what, text)


def unreadable(context: Context, log: str, row: int, count: int, error: HourwheelError) -> None:
    """Reports messages that cannot be read and are left out. Their row stays in its log until it expires."""
    context.meter.record("UnreadableMessages", count)
    _logger.error("%d messages of row %d of %s cannot be read and were left out: %s", count, row, log, error)
