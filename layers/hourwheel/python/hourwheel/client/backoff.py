"""How long to wait before a call is tried again."""

from hourwheel.ports import Ids

FIRST_SECONDS = 0.05
LONGEST_SECONDS = 5.0
_DOUBLINGS = 8  # enough to reach the longest pause; keeps the power small


def pause_seconds(attempt: int, ids: Ids, *, at_least_seconds: float = 0.0) -> float:
    """Full jitter: anywhere between nothing and a bound that doubles with each attempt (from 0), so that
    clients that failed together do not come back together. ``at_least_seconds`` is the server's wish."""
    bound: float = min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** min(attempt, _DOUBLINGS))
    return at_least_seconds + bound * ids.jitter()
