"""Reads the results of settlements from a refusal of the whole request."""

from collections.abc import Sequence

from hourwheel.client.errors import NotFound, ServerUnavailable
from hourwheel.model.pulls import Settled, Settlement

UNKNOWN_RECEIPT = "receipt-invalid"
_UNAVAILABLE_RECEIPTS = "receipt-unavailable"
_DELETED = ("subject-unknown", "group-unknown")


def refused(error: NotFound | ServerUnavailable, settlements: Sequence[Settlement]) -> list[Settled]:
    """Returns the result of each settlement: ``unavailable`` if the server says that it can carry out none of them
    because their cells are out of reach, ``stale`` if the subject or the group was deleted, and its leases with it.
    Raises any other error: then nothing is known about the settlements."""
    if error.slug == _UNAVAILABLE_RECEIPTS:
        return [Settled("unavailable") for _ in settlements]
    if error.slug in _DELETED:
        return [Settled("stale") for _ in settlements]
    raise error
