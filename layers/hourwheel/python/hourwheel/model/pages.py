"""Defines pages of messages: dead letters, delayed messages, and the messages of a queue."""

from typing import Literal, TypeAlias

from msgspec import Struct

from hourwheel.model.fields import Precision
from hourwheel.model.messages import Message, ScheduledMessage


class DeadPage(Struct):
    messages: list[Message]
    next: str | None


DelayedState: TypeAlias = Literal["waiting", "cancelled", "moved", "dispatched"]


class DelayedMessage(Struct, kw_only=True, omit_defaults=True):
    """A delayed message in a list. ``state`` is None where it would take many reads to tell. A ``moved`` message is
    listed again at its new time. ``size`` counts as the limits do: body, key, tags and headers. ``shortened``: only the
    beginning of the body is shown. ``damaged`` says why the message cannot be read; then it has no id."""

    scheduled_id: str
    subject: str
    deliver_at: str
    state: DelayedState | None = None
    id: str | None = None
    produced_at: str | None = None
    key: str | None = None
    tags: list[str] | None = None
    size: int | None = None
    precision: Precision | None = None
    body: str | None = None
    body_base64: bytes | None = None
    shortened: bool = False
    damaged: str | None = None


class DelayedPage(Struct):
    messages: list[DelayedMessage]
    next: str | None


class ChosenPage(Struct):
    """The states of the delayed messages of a page that a filter chose. A call with ``next`` goes on."""

    messages: list[ScheduledMessage]
    next: str | None


class DamagedRow(Struct):
    """A row of a queue that cannot be read: the ``offset`` of its first message (None: unknown), the number of its
    messages, and why."""

    offset: int | None
    messages: int
    reason: str


class PeekPage(Struct):
    """Messages of a queue, and the rows that cannot be read among them. ``next`` is the offset at which the next page
    begins (None: there is none), ``end`` the offset that the next message gets (None: a cell out of reach
    has it)."""

    messages: list[Message]
    damaged: list[DamagedRow]
    next: int | None
    end: int | None
