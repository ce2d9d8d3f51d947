"""Bounds the lines of the log about requests that meet a storage which is out of reach or full."""

from collections import Counter
from dataclasses import dataclass, field

_PAUSE_MS = 10_000  # an outage of an hour takes 360 lines, whatever the number of requests


@dataclass
class OutageLog:
    """Allows one line in ten seconds for each class of error. Thread-safe."""

    _until_ms: dict[str, int] = field(default_factory=dict)
    _left_out: Counter[str] = field(default_factory=Counter)

    def left_out(self, error: Exception, now_ms: int) -> int | None:
        """Returns how many errors like this one have no line since the last one that has; None if this one has none
        either."""
        kind = type(error).__name__
        # A clock that was set back ends the pause.
        if 0 < self._until_ms.get(kind, 0) - now_ms <= _PAUSE_MS:
            self._left_out[kind] += 1
            return None
        self._until_ms[kind] = now_ms + _PAUSE_MS
        return self._left_out.pop(kind, 0)
