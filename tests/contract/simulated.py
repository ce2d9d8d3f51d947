"""Gives tests control of time and chance."""

from itertools import count

from hourwheel.system import SystemIds


class InstantClock:
    """A clock that a sleep moves forward at once."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self._now = now_ms / 1000
        self.pauses: list[float] = []

    def now_ms(self) -> int:
        return int(self._now * 1000)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._now += seconds


class SteadyIds(SystemIds):
    """Ids with numbered tokens and a constant jitter."""

    def __init__(self, jitter: float = 0.5) -> None:
        self._jitter = jitter
        self._tokens = count(1)

    def token(self) -> bytes:
        return next(self._tokens).to_bytes(16, "big")

    def jitter(self) -> float:
        return self._jitter
