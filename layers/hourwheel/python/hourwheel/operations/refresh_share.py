"""Bounds the share of the time that the overview takes to read its numbers again."""

from dataclasses import dataclass

_SHARE = 150
"""Of this many milliseconds the refresh of the table takes one: with the answers of an open page, a hundredth of a core
in all."""

_MOST_SAVED_MS = 300
"""After a pause one call may refresh for this long. After a longer refresh, later calls refresh less."""


@dataclass
class RefreshShare:
    """Bounds the share of the time that repeated work takes. Work that is allowed may take longer than the time that is
    left; later work then waits."""

    left_ms: float = _MOST_SAVED_MS
    seen_ms: int = 0

    def allows(self, now_ms: int) -> bool:
        """Adds the time that was earned since the last call, and returns whether work may begin now."""
        passed_ms = max(0, now_ms - self.seen_ms)  # a clock that was set back earns nothing
        self.left_ms = min(_MOST_SAVED_MS, self.left_ms + passed_ms / _SHARE)
        self.seen_ms = now_ms
        return self.left_ms > 0

    def spend(self, ms: int) -> None:
        self.left_ms -= ms
