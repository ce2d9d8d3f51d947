"""Draws dates: a few times at which most messages fall due, and lets the actors work around those times."""

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from hourwheel.times import parse_rfc3339, rfc3339
from tests.simulation.delays import Delays

_AROUND_MS = 2_500


@dataclass(frozen=True)
class RequestedDue:
    """The due time that a sender requests: after a delay, or at a fixed time."""

    after_ms: int | None = None
    at_ms: int | None = None
    minute: bool = False
    """It may come a minute late."""

    @property
    def fields(self) -> dict[str, Any]:
        """Returns the fields of a message that say when it is due, and how precisely."""
        return {**self.time, "precision": "minute"} if self.minute else dict(self.time)

    @property
    def time(self) -> dict[str, str]:
        if self.at_ms is not None:
            return {"deliver_at": rfc3339(self.at_ms)}
        return {"delay": f"{self.after_ms}ms"}

    @property
    def text(self) -> str:
        return next(iter(self.time.values()))

    def due_ms(self, now_ms: int) -> int:
        """Returns the due time of a message that is accepted now; a time in the past means now."""
        return self.at_ms if self.at_ms is not None else now_ms + (self.after_ms or 0)


class Dates:
    """The dates of one run, around which most messages fall due and most actors work."""

    def __init__(self, rng: Random, delays: Delays, now_ms: int) -> None:
        self._rng = rng
        # A wheel sleeps when no message is due soon.
        self._minute = delays.minute
        self._spread_ms = 1 if delays.herd else 3_000
        self._soon = 0.05 if delays.prompt else 0.25
        self._length_ms = delays.bucket_minutes * 60_000
        self._dates = [self._date(now_ms, delays.reach_ms) for _ in range(delays.dates)]
        self._marks = {now_ms // self._length_ms * self._length_ms + self._length_ms}

    def draw(self, now_ms: int) -> RequestedDue:
        """Draws the due time of a message that is sent now: soon, at one of the dates, or at the end of the bucket."""
        rng = self._rng
        roll = rng.random()
        if roll < self._soon:
            wait = RequestedDue(after_ms=rng.choice((1, 400, 3_000, 20_000)))
        elif roll < self._soon + 0.1:
            wait = RequestedDue(at_ms=self._end(now_ms) - rng.choice((1, 300, 1_500)))
        elif roll < self._soon + 0.15:
            wait = RequestedDue(at_ms=now_ms - 1_000)
        else:
            wait = RequestedDue(at_ms=rng.choice(self._dates) + rng.randrange(self._spread_ms))
        due_ms = wait.due_ms(now_ms)
        self._marks |= {due_ms, self._end(due_ms)}
        # Without such messages nothing is drawn: a plan of before takes the course that it took.
        return replace(wait, minute=True) if self._minute and rng.random() < self._minute else wait

    def wait_ms(self, now_ms: int) -> int:
        """Returns the milliseconds until a time shortly before or after the next date."""
        coming = min((mark for mark in self._marks if mark > now_ms), default=now_ms)
        return max(1, coming - now_ms + self._rng.randint(-_AROUND_MS, _AROUND_MS))

    def _date(self, now_ms: int, reach_ms: int) -> int:
        at_ms = now_ms + self._rng.randrange(reach_ms)
        # Often just around the end of a bucket.
        return self._end(at_ms) - 1_500 if self._rng.random() < 0.25 else at_ms

    def _end(self, at_ms: int) -> int:
        return at_ms // self._length_ms * self._length_ms + self._length_ms


def parsed(text: str) -> int:
    return parse_rfc3339(text, "")
