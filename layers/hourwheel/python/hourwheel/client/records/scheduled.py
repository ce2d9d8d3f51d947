"""Defines delayed messages, as the API answers them."""

from datetime import datetime
from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field

from hourwheel.client.due import utc_text
from hourwheel.model.fields import Precision


class ScheduledMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A delayed message, due at ``deliver_at``. Its ``state`` is ``waiting``, ``cancelled``, or ``dispatched``, that
    is, handed over at ``dispatched_at`` to ``queue``, where it has ``offset``. The answer of ``Api.reschedule`` has the
    state ``moved`` and a new ``scheduled_id``; the old one finds the message too.

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


class DelayedMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A delayed message in a list. ``state`` is ``waiting``, ``cancelled``, ``moved`` (the message is listed again at
    its new time), ``dispatched``, or None if the server would need many reads to find it out.

    ``size`` counts the bytes of body, key, tags and headers. The ``body`` is None unless the caller asked for bodies;
    it is ``shortened`` if it has only the first 1,000 characters or bytes. ``damaged`` says why the server cannot read
    the message, which then has no ``id``.

    Example:
        >>> result = api.produce("orders", [Message("remind", delay="90d", key="customer-42")])
        >>> (message,) = api.list_subject_delayed("orders", bodies=True).messages
        >>> message.state, message.key, message.body
        ('waiting', 'customer-42', 'remind')
    """

    scheduled_id: str
    subject: str
    deliver_at: datetime
    state: Literal["waiting", "cancelled", "moved", "dispatched"] | None = None
    id: str | None = None
    produced_at: datetime | None = None
    key: str | None = None
    tags: list[str] = []
    size: int | None = None
    precision: Precision | None = None
    text: str | None = field(name="body", default=None)
    data: bytes | None = field(name="body_base64", default=None)
    shortened: bool = False
    damaged: str | None = None

    @property
    def body(self) -> str | bytes | None:
        """The beginning of the body, text or bytes; None if the caller did not ask for bodies."""
        return self.text if self.text is not None else self.data


class DelayedPage(Struct, frozen=True, kw_only=True):
    """A page of delayed messages. ``next`` is the ``after`` of the next page; None after the last one. A page is
    empty only at the end of the list, or where the server has searched for 5 s and found none yet.

    Example:
        >>> api.list_delayed().next is None
        True
    """

    messages: list[DelayedMessage]
    next: str | None = None


class DelayedSelection(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Selects the delayed messages of a subject to cancel or move. ``everything`` and ``where`` make selections.

    Example:
        >>> api.cancel_chosen("orders", DelayedSelection.everything()).messages
        []
    """

    all: bool | UnsetType = UNSET
    key: str | UnsetType = UNSET
    tag: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    since: str | UnsetType = field(name="from", default=UNSET)
    until: str | UnsetType = field(name="to", default=UNSET)

    @staticmethod
    def everything() -> "DelayedSelection":
        """Selects all delayed messages of a subject.

        Raises nothing.

        Example:
            >>> DelayedSelection.everything().all
            True
        """
        return DelayedSelection(all=True)

    @staticmethod
    def where(
        *,
        key: str | None = None,
        tag: str | None = None,
        message_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> "DelayedSelection":
        """Selects the messages that have the ``key``, the ``tag`` and the ``message_id`` of their sender, and that are
        due at ``since`` or later, and before ``until``. None selects by the others alone; all may not be None: the
        server refuses that.

        Raises:
            ValueError: ``since`` or ``until`` is no datetime with a zone.

        Example:
            >>> DelayedSelection.where(message_id="order-7").id
            'order-7'
        """
        return DelayedSelection(
            key=UNSET if key is None else key,
            tag=UNSET if tag is None else tag,
            id=UNSET if message_id is None else message_id,
            since=UNSET if since is None else utc_text(since, "since"),
            until=UNSET if until is None else utc_text(until, "until"),
        )


class ChosenPage(Struct, frozen=True, kw_only=True):
    """The states of the delayed messages that a call has cancelled or moved. A call with ``next`` as its ``after`` goes
    on.

    Example:
        >>> api.cancel_chosen("orders", DelayedSelection.where(key="customer-42")).messages
        []
    """

    messages: list[ScheduledMessage]
    next: str | None = None


class PendingHour(Struct, frozen=True, kw_only=True):
    """The delayed messages that fall due in the hour that begins at ``hour``.

    Example:
        >>> result = api.produce("orders", [Message("remind", delay="2h")])
        >>> [hour.messages for hour in api.pending("orders").hours]
        [1]
    """

    hour: datetime
    messages: int


class PendingCounts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The numbers of delayed messages of a subject: ``messages`` of the counted hours together, and those of each hour
    that has any.

    A call that names no ``hours`` is told the ``total`` of all times, and when the next message is due (``next_at``;
    None: no message is delayed). ``complete`` is False while the server has not read all of them: there may then be
    more, and an earlier one; the next calls go on.

    Example:
        >>> result = api.produce("orders", [Message("remind", delay="90d")])
        >>> counts = api.pending("orders")
        >>> counts.messages, counts.total
        (0, 1)
    """

    subject: str
    messages: int
    hours: list[PendingHour]
    total: int | None = None
    next_at: datetime | None = None
    complete: bool = True
