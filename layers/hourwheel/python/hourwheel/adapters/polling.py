"""Lets pulls wait by looking again: in Lambda the producer runs in another process, and cannot wake the pull."""

from hourwheel.ports.machine import Clock

_FIRST_SECONDS = 0.1  # a message that comes soon after the pull is delivered soon, at the cost of a few more looks
# Each look reads the counters of all queues of the subject: half a read unit for each queue and the retry log.
_LONGEST_SECONDS = 1.0


class PollingWakeups:
    """Implements ``Wakeups`` without wake-ups: a pull looks again after 0.1 s, then after a time that doubles up to
    1 s."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def announce(self, subject: str, group: str | None = None) -> None:
        pass

    def announcements(self, subject: str) -> int:
        return 0

    def wait(self, subject: str, group: str, *, since: int, tries: int, seconds: float) -> bool:
        # From the fourth try on the sleep is the longest one; more would only make the power large.
        self._clock.sleep(min(seconds, _LONGEST_SECONDS, _FIRST_SECONDS * 2 ** min(tries, 4)))
        return True
