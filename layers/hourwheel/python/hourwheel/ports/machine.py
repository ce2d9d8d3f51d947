"""Defines what the library needs of the machine: its clock, random names, and a meter for operators."""

from typing import Literal, Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Returns Unix time in milliseconds. The time decides when something is tried, never who wins."""
        ...

    def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    def token(self) -> bytes:
        """Returns 16 random bytes."""
        ...

    def unique(self, now_ms: int) -> str:
        """Returns a unique name (28 lower-case hex digits: 48 bits of time, 64 random) that sorts by time."""
        ...

    def jitter(self) -> float:
        """Returns a random number, uniform in [0, 1)."""
        ...


MeterUnit = Literal["Count", "Milliseconds", "Seconds", "Bytes", "Percent"]


class Meter(Protocol):
    """Records metrics for the operators of a deployment."""

    def record(self, name: str, value: float, *, unit: MeterUnit = "Count") -> None:
        """Adds ``value`` to a metric that counts, or records it as one more measured value. Never fails, and is cheap
        enough for every call."""
        ...
