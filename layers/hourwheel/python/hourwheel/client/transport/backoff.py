"""Decides how long a client waits before it retries a call."""

from collections.abc import Sequence

from hourwheel.client.errors import AnswerError, ServerUnavailable
from hourwheel.ports.machine import Ids

FIRST_SECONDS = 0.05  # short, as most outages are: a connection that was lost is opened again
LONGEST_SECONDS = 5.0  # a server that is back gets the first retries within this time
THROTTLED_SECONDS = 20.0  # longer, because many consumers share few executions when the gateway throttles
LOG_EVERY_SECONDS = 30.0  # a consumer retries for as long as an outage lasts: a line for each try would fill its log
_DOUBLINGS = 9  # enough to reach the longest pause; more would only make the power large

# A server that answers an empty pull within 0.1 s, or more than 1 s early, does not wait: pulling again at once would
# be a busy loop.
_AT_ONCE_SECONDS = 0.1
_EARLY_SECONDS = 1.0
_SHORTEST_BOUND_SECONDS = 0.4  # of the random pause after a pull that may hardly wait: 5 pulls a second on average


def pause_seconds(
    attempt: int, ids: Ids, *, at_least_seconds: float = 0.0, longest_seconds: float = LONGEST_SECONDS
) -> float:
    """Returns the pause before a retry: ``at_least_seconds``, for which the server asked, and a random part of a bound
    that doubles with each attempt (full jitter), from ``FIRST_SECONDS`` at attempt 0 up to ``longest_seconds``.

    As the part is random, clients that failed together do not retry together.
    """
    bound: float = min(longest_seconds, FIRST_SECONDS * 2 ** min(attempt, _DOUBLINGS))
    return at_least_seconds + bound * ids.jitter()


class Outage:
    """Decides which failures of a server are logged: the first one, then one in 30 s, and the end of the outage.

    Threads may share it without a lock. Two that fail at the same moment may both log, which does no harm.
    """

    def __init__(self) -> None:
        self.error: AnswerError | None = None
        """The last error; None while the server answers."""
        self.failures = 0
        """The number of failures of the last outage."""
        self._began = 0.0
        self._logged = 0.0

    def failed(self, error: AnswerError, now: float) -> bool:
        """Records a failure. Returns whether to log it."""
        first = self.error is None
        self.error = error
        self.failures = 1 if first else self.failures + 1
        if first:
            self._began = now
        elif now < self._logged + LOG_EVERY_SECONDS:
            return False
        self._logged = now
        return True

    @property
    def repeated(self) -> str:
        """The number of failures as words that follow "failed", such as " 3 times"; "" for the first one."""
        return f" {self.failures} times" if self.failures > 1 else ""

    def ended(self, now: float) -> float | None:
        """Records an answer. Returns the seconds of the outage that ends with it; None if there was no outage."""
        if self.error is None:
            return None
        self.error = None
        return now - self._began


class PullBackoff:
    """Decides how long a consumer pauses between two pulls. Not thread-safe.

    There is no pause while pulls bring messages, or while the server holds a pull for as long as the pull may wait.
    """

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._failures = 0
        self._longest_seconds = LONGEST_SECONDS
        self._at_least_seconds = 0.0
        self._rest_seconds = 0.0

    def answered(self, pulls: Sequence[object], *, asked_seconds: float, took_seconds: float) -> None:
        """Records an answer. After an empty answer that came early, the next pull pauses: such a server limits how long
        a pull waits, and empty pulls would use up its executions.
        """
        left_seconds = asked_seconds - took_seconds
        self._at_least_seconds = self._rest_seconds = 0.0
        if pulls or (took_seconds >= _AT_ONCE_SECONDS and left_seconds <= _EARLY_SECONDS):
            self._failures = 0
            return
        self._failures += 1
        self._longest_seconds = max(_SHORTEST_BOUND_SECONDS, min(left_seconds, LONGEST_SECONDS))

    def rests(self, seconds: float) -> None:
        """Records that the server asked for the next pull after this time."""
        self._failures = 0
        self._rest_seconds = seconds

    def failed(self, error: AnswerError) -> None:
        """Records a failed pull. The next one pauses up to ``LONGEST_SECONDS``, or ``THROTTLED_SECONDS`` if the gateway
        throttled: then requests or executions have run out, and producers need both.
        """
        self._failures += 1
        throttled = error.status == 429 or (error.status == 503 and error.slug == "gateway-error")
        self._longest_seconds = THROTTLED_SECONDS if throttled else LONGEST_SECONDS
        server_seconds = error.retry_after_seconds if isinstance(error, ServerUnavailable) else 0.0
        self._at_least_seconds = min(server_seconds, THROTTLED_SECONDS)

    def seconds(self) -> float:
        """Returns the seconds to pause before the next pull."""
        if not self._failures:
            return self._rest_seconds
        return pause_seconds(
            self._failures,
            self._ids,
            at_least_seconds=self._at_least_seconds,
            longest_seconds=self._longest_seconds,
        )
