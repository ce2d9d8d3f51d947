"""How long to wait before a call is tried again."""

from collections.abc import Sequence

from hourwheel.client.errors import AnswerError, ServerUnavailable
from hourwheel.ports import Ids

FIRST_SECONDS = 0.05
LONGEST_SECONDS = 5.0
THROTTLED_SECONDS = 20.0
_DOUBLINGS = 9  # enough to reach the longest pause; keeps the power small

# A server that answers an empty pull this early does not wait: asking again at once would be a busy loop.
_AT_ONCE_SECONDS = 0.1
_EARLY_SECONDS = 1.0
_SHORTEST_BOUND_SECONDS = 0.4


def pause_seconds(
    attempt: int, ids: Ids, *, at_least_seconds: float = 0.0, longest_seconds: float = LONGEST_SECONDS
) -> float:
    """Full jitter: anywhere between nothing and a bound that doubles with each attempt (from 0) up to
    ``longest_seconds``, so that clients that failed together do not come back together. ``at_least_seconds`` is the
    server's wish."""
    bound: float = min(longest_seconds, FIRST_SECONDS * 2 ** min(attempt, _DOUBLINGS))
    return at_least_seconds + bound * ids.jitter()


class PullBackoff:
    """Decides how long a consumer pauses between two pulls: not at all while pulls bring messages, or wait as long as
    they ask. Not thread-safe."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._failures = 0
        self._longest_seconds = LONGEST_SECONDS
        self._at_least_seconds = 0.0

    def answered(self, pulls: Sequence[object], *, asked_seconds: float, took_seconds: float) -> None:
        """Pauses after an empty answer that came before its time: the server caps the wait, and each pull that came
        back at once would hold one of its executions."""
        left_seconds = asked_seconds - took_seconds
        self._at_least_seconds = 0.0
        if pulls or (took_seconds >= _AT_ONCE_SECONDS and left_seconds <= _EARLY_SECONDS):
            self._failures = 0
            return
        self._failures += 1
        self._longest_seconds = max(_SHORTEST_BOUND_SECONDS, min(left_seconds, LONGEST_SECONDS))

    def failed(self, error: AnswerError) -> None:
        """Pauses up to ``THROTTLED_SECONDS`` where the gateway refused the pull, for lack of requests or executions:
        producers need both."""
        self._failures += 1
        throttled = error.status == 429 or (error.status == 503 and error.slug == "gateway-error")
        self._longest_seconds = THROTTLED_SECONDS if throttled else LONGEST_SECONDS
        wish = error.retry_after_seconds if isinstance(error, ServerUnavailable) else 0.0
        self._at_least_seconds = min(wish, THROTTLED_SECONDS)

    def seconds(self) -> float:
        """The pause before the next pull; 0 where there is none."""
        if not self._failures:
            return 0.0
        return pause_seconds(
            self._failures,
            self._ids,
            at_least_seconds=self._at_least_seconds,
            longest_seconds=self._longest_seconds,
        )
