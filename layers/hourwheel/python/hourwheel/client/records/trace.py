"""Defines the API's answers about the history of messages."""

from datetime import datetime

from msgspec import Struct

from hourwheel.client.records.peek import QueueMessage


class TraceEvent(Struct, frozen=True, kw_only=True):
    """An event of a message in a group: ``pulled``, ``acknowledged``, ``retried``, ``released``, ``lease_ended``,
    ``due`` (the delay of a retry is over), ``stopped`` or ``decided`` (of a key in an ordered group), ``dead`` or
    ``redriven``. ``at`` is None if the server does not store the time of the event. The ``detail`` of a retry is the
    text that a consumer gave for this failure; if it gave none, that for an earlier failure.

    Example:
        >>> pulled = api.pull("orders", "billing", "host-1")
        >>> (event,) = api.trace("orders", "0:0").messages[0].groups[0].events
        >>> event.event, event.consumer, event.attempt
        ('pulled', 'host-1', 1)
    """

    event: str
    at: datetime | None = None
    attempt: int | None = None
    consumer: str | None = None
    lease_until: datetime | None = None
    due_at: datetime | None = None
    reason: str | None = None
    dead_id: str | None = None
    detail: str | None = None


class GroupTrace(Struct, frozen=True, kw_only=True):
    """The history of a message in a group, and its ``state`` there: ``waiting``, ``in_flight``, ``retrying``,
    ``backing_off``, ``stopped``, ``acknowledged``, ``dead``, ``dropped``, ``filtered`` or ``skipped`` (by a seek),
    among others. If the trace is not ``complete``, events may be missing. In a broadcast group each ``consumer`` has a
    history.

    Example:
        >>> (group,) = api.trace("orders", "0:0").messages[0].groups
        >>> group.group, group.state, group.complete
        ('billing', 'waiting', True)
    """

    group: str
    state: str
    events: list[TraceEvent] = []
    complete: bool = True
    consumer: str | None = None


class MessageTrace(Struct, frozen=True, kw_only=True):
    """The position of a message, and its history in each group. Its ``state`` is ``accepted`` (it is in a queue),
    ``scheduled`` or ``cancelled``. A delayed message was handed over to its queue at ``dispatched_at``. ``damaged`` is
    the reason why the server cannot read the message. If there are ``more_groups``, the trace leaves some out.

    Example:
        >>> (trace,) = api.trace("orders", "0:0").messages
        >>> trace.state, trace.queue, trace.offset, trace.message.body
        ('accepted', 0, 0, 'paid')
    """

    subject: str
    id: str
    state: str
    queue: int | None = None
    offset: int | None = None
    accepted_at: datetime | None = None
    due_at: datetime | None = None
    dispatched_at: datetime | None = None
    scheduled_id: str | None = None
    message: QueueMessage | None = None
    damaged: str | None = None
    groups: list[GroupTrace] = []
    more_groups: bool = False


class TracePage(Struct, frozen=True, kw_only=True):
    """The traces of the messages with one id. ``next`` is the ``after`` with which the search continues; None when it
    has ended.

    Example:
        >>> api.trace("orders", "0:0").next is None
        True
    """

    messages: list[MessageTrace]
    next: str | None = None
