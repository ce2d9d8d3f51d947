"""Contains the faults of a sweep, so that no subject and no log ends it, and notes what the sweep leaves undone."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from hourwheel.context import Context
from hourwheel.errors import Corrupt, Unavailable
from hourwheel.faults import Faults

_REFUSALS = 3
"""A call that the store refuses is repeated for 5 s: after three of them the sweep leaves the subject."""


@dataclass
class SweepFaults:
    """Contains the faults of one sweep. ``left`` names the work that the store refused, with the reason: the next sweep
    does it. For one thread."""

    context: Context
    faults: Faults
    left: dict[str, str] = field(default_factory=dict)
    _refusals: int = 0

    def alone(self) -> "SweepFaults":
        """Returns an object for the work on one subject, in a thread of its own."""
        return replace(self, _refusals=0)

    @contextmanager
    def whole(self, what: str) -> Iterator[None]:
        """Reports and swallows every fault of the block, which works on one subject or does one task. Errors of the
        whole volume or data directory pass through."""
        self._refusals = 0
        with self._noted(what, most=0):
            yield
        self._refusals = 0

    @contextmanager
    def part(self, what: str) -> Iterator[None]:
        """Contains the faults of a part of a block, so that the other parts go on. Raises ``Unavailable`` once the
        store has refused several parts of the block."""
        with self._noted(what, most=_REFUSALS):
            yield

    def report(self, what: str, error: Exception) -> None:
        """Reports what cannot be decoded, and is set aside: a log line, and one more of ``Faults``."""
        with self.faults.contained(self.context, what):
            raise Corrupt(str(error)) from error

    @contextmanager
    def _noted(self, what: str, *, most: int) -> Iterator[None]:
        try:
            with self.faults.contained(self.context, what):
                yield
        except Unavailable as error:
            self.left[what] = f"{type(error).__name__}: {error}"
            self._refusals += 1
            if 0 < most <= self._refusals:
                raise
