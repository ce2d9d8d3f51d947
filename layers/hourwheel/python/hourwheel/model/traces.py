"""Defines the trace of a message: where the message is, and what each group did with it."""

from typing import Literal, TypeAlias

from msgspec import Struct

from hourwheel.model.messages import Message

TraceState: TypeAlias = Literal[
    "waiting",
    "in_flight",
    "retrying",
    "backing_off",
    "stopped",
    "acknowledged",
    "dead",
    "dropped",
    "filtered",
    "skipped",
    "before_start",
    "unreadable",
    "settled",
    "expired",
    "unknown",
]


class TraceEvent(Struct, omit_defaults=True):
    """An event of a message in a group: ``pulled``, ``acknowledged``, ``retried``, ``released``, ``lease_ended``,
    ``due`` (a retry whose delay is over), ``stopped`` and ``decided`` (of a key in an ordered group), ``dead``,
    ``redriven``. ``at`` is left out where the time is not stored. ``detail`` is what the consumer said of the failure
    of this attempt, or of an earlier one."""

    event: str
    at: str | None = None
    attempt: int | None = None
    consumer: str | None = None
    lease_until: str | None = None
    due_at: str | None = None
    reason: str | None = None
    dead_id: str | None = None
    detail: str | None = None


class GroupTrace(Struct, omit_defaults=True):
    """The history of a message in a group, or for one consumer of a broadcast group. ``complete``: no event can be
    missing."""

    group: str
    state: TraceState
    events: list[TraceEvent]
    complete: bool
    consumer: str | None = None


class MessageTrace(Struct, omit_defaults=True):
    """Where a message is. A ``scheduled`` or ``cancelled`` one is in no queue; of a damaged row only the place is
    known. ``more_groups``: the subject has groups that the trace leaves out."""

    subject: str
    id: str
    state: Literal["scheduled", "cancelled", "accepted"]
    queue: int | None = None
    offset: int | None = None
    accepted_at: str | None = None
    due_at: str | None = None
    dispatched_at: str | None = None
    scheduled_id: str | None = None
    message: Message | None = None
    damaged: str | None = None
    groups: list[GroupTrace] = []
    more_groups: bool = False


class TracePage(Struct):
    """The traces of the messages with one id. ``next``: the search has read as much as one call may, and goes on at
    this place."""

    messages: list[MessageTrace]
    next: str | None
