"""Bounds the lines of the log about requests that meet a storage which is out of reach or full."""

import re
from collections import Counter
from dataclasses import dataclass, field

from hourwheel.reach.outages import is_outage

_PAUSE_MS = 10_000  # an outage of an hour takes 360 lines in each process, whatever the number of requests
_KINDS = 1_000  # more than a deployment has cells: further ones share the line of their class
_CELL = re.compile(r"\bcell (?P<name>[\w.-]+)")


@dataclass
class OutageLog:
    """Allows this process one line in ten seconds for each class of error, and for each cell that is out of reach.
    Thread-safe."""

    _until_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    _left_out: Counter[tuple[str, str]] = field(default_factory=Counter)

    def left_out(self, error: Exception, now_ms: int) -> int | None:
        """Returns how many errors like this one have no line since the last one that has; None if this one has none
        either."""
        kind = self._kind(error)
        # A clock that was set back ends the pause.
        if 0 < self._until_ms.get(kind, 0) - now_ms <= _PAUSE_MS:
            self._left_out[kind] += 1
            return None
        self._until_ms[kind] = now_ms + _PAUSE_MS
        return self._left_out.pop(kind, 0)

    def _kind(self, error: Exception) -> tuple[str, str]:
        """Returns the class of the error, and the cell that it names, without which a busy cell would hide another."""
        name = type(error).__name__
        match = _CELL.search(str(error)) if is_outage(error) else None
        kind = (name, match["name"] if match else "")
        return kind if kind in self._until_ms or len(self._until_ms) < _KINDS else (name, "")
