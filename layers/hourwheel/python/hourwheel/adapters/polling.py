"""Waiting where nobody can call: in Lambda the producer runs in another process."""

from hourwheel.ports import Clock

_FIRST_SECONDS = 0.1
_LONGEST_SECONDS = 1.0


class PollingWakeups:
    """``Wakeups`` that sleep and look again, from ten times a second to once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def announce(self, subject: str, group: str | None = None) -> None:
        pass

    def mark(self, subject: str) -> int:
        return 0

    def wait(self, subject: str, group: str, *, mark: int, tries: int, seconds: float) -> bool:
        # Above four tries the cap holds; the exponent stays small.
        self._clock.sleep(min(seconds, _LONGEST_SECONDS, _FIRST_SECONDS * 2 ** min(tries, 4)))
        return True
