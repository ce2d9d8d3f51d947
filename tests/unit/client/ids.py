"""Provides ids without chance (no jitter, distinct keys), and a clock that stands still."""

import itertools


class StillIds:
    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def token(self) -> bytes:
        return next(self._numbers).to_bytes(16, "big")

    def unique(self, now_ms: int) -> str:
        return f"{now_ms:012x}{next(self._numbers):016x}"

    def jitter(self) -> float:
        return 0.0


class StillClock:
    """2026-11-20T09:00:00Z, as the fake server has it."""

    def now_ms(self) -> int:
        return 1_795_165_200_000

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here sleeps")
