"""Sends settlements, and reads their results from a refusal of the whole request."""

from collections.abc import Callable, Sequence
from typing import Any

from hourwheel.client.api import DEFAULT_TIMEOUT_SECONDS
from hourwheel.client.errors import BadRequest, NotFound, ServerUnavailable
from hourwheel.client.transport.steps import Steps
from hourwheel.model.pulls import Settled, Settlement

UNKNOWN_RECEIPT = "receipt-invalid"
_UNAVAILABLE_RECEIPTS = "receipt-unavailable"
_DELETED = ("subject-unknown", "group-unknown")


def settle_timeout(lease_seconds: int) -> float:
    """Returns the time-out of a settlement in seconds: half of the lease, so that after a failure another try can
    extend the lease in time."""
    return min(DEFAULT_TIMEOUT_SECONDS, max(1.0, lease_seconds / 2))


def refused(error: NotFound | ServerUnavailable, settlements: Sequence[Settlement]) -> list[Settled]:
    """Returns the result of each settlement: ``unavailable`` if the server says that it can carry out none of them
    because their cells are out of reach. Returns ``stale`` if the subject or the group was deleted, and its leases with
    it. Raises any other error: then nothing is known about the settlements."""
    if error.slug == _UNAVAILABLE_RECEIPTS:
        return [Settled("unavailable") for _ in settlements]
    if error.slug in _DELETED:
        return [Settled("stale") for _ in settlements]
    raise error


def settle_each(
    settle: Callable[[Sequence[Settlement]], Any], settlements: Sequence[Settlement]
) -> Steps[list[Settled]]:
    """Sends settlements and returns their results.

    A receipt that the server does not know fails the whole request. In this case each settlement is sent alone, and the
    result of the unknown one is ``stale``.
    """
    try:
        results: list[Settled] = yield settle(settlements)
        return results
    except (NotFound, ServerUnavailable) as error:
        return refused(error, settlements)
    except BadRequest as error:
        if error.slug != UNKNOWN_RECEIPT:
            raise
    if len(settlements) == 1:
        return [Settled("stale")]
    results = []
    for settlement in settlements:
        results += yield from settle_each(settle, [settlement])
    return results
