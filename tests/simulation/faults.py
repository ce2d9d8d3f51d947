"""Describes the faults of a run of the simulation."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Faults:
    """The faults of a run, as rates per store call."""

    crash: float = 0.0
    throttle: float = 0.0
    lose: float = 0.0
    late: float = 0.0
    pause: float = 0.0
    stale: float = 0.0
    forget: float = 0.0
    """Timers that never fire."""
    rerun: float = 0.0
    """Transactions whose work runs twice."""
    torn: float = 0.0
    """Scans that are answered in two parts, between which others write."""
    clock: float = 0.0
    """Clocks that are set, forwards or back."""
    expiry: float = 0.0
    """Rate per call at which TTL removes some expired items."""
    abort: float = 0.0
    """Rate per call within a transaction at which the process ends there."""
    damage: float = 0.0
    """Rate per call at which the bytes of a stored batch become wrong, under a correct checksum."""
    hot: float = 0.0
    """Share of the writes to the first queue of subject s that the store refuses, as its partition has too many."""


@dataclass(frozen=True)
class Outage:
    """A cell that is out of reach until a time: it is ``away``, and answers nothing; it is ``full``, and can be read;
    or it is ``failing``, and raises an error for half of its calls, some of which take effect."""

    until_ms: int
    kind: str


OUTAGES = ("away", "full", "failing")
NONE = Faults()
