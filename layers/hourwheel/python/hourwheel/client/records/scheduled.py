"""Defines delayed messages, as the API answers them."""

from datetime import datetime
from typing import Literal

from msgspec import Struct


class ScheduledMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A delayed message, due at ``deliver_at``. Its ``state`` is ``waiting``, ``cancelled``, or ``dispatched``: then it
    went to ``offset`` of ``queue`` at ``dispatched_at``. ``moved`` stands only in the answer of ``Api.reschedule``,
    with a new ``scheduled_id``; the old one finds the message as well.

    Example:
        >>> (result,) = api.produce("orders", [Message("remind", delay="90d")])
        >>> scheduled = api.get_scheduled(result.scheduled_id)
        >>> scheduled.subject, scheduled.state
        ('orders', 'waiting')
    """

    scheduled_id: str
    state: Literal["waiting", "cancelled", "dispatched", "moved"]
    id: str
    subject: str
    deliver_at: datetime
    dispatched_at: datetime | None = None
    queue: int | None = None
    offset: int | None = None


class PendingHour(Struct, frozen=True, kw_only=True):
    """The delayed messages that fall due in the hour that begins at ``hour``.

    Example:
        >>> result = api.produce("orders", [Message("remind", delay="2h")])
        >>> [hour.messages for hour in api.pending("orders").hours]
        [1]
    """

    hour: datetime
    messages: int


class PendingCounts(Struct, frozen=True, kw_only=True):
    """The numbers of delayed messages of a subject: of all hours asked for, and of each hour that has any.

    Example:
        >>> api.pending("orders", hours=24)
        PendingCounts(subject='orders', messages=0, hours=[])
    """

    subject: str
    messages: int
    hours: list[PendingHour]
