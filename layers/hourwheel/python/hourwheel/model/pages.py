"""Defines pages of messages: dead letters, and the messages of a queue."""

from msgspec import Struct

from hourwheel.model.messages import Message


class DeadPage(Struct):
    messages: list[Message]
    next: str | None


class DamagedRow(Struct):
    """A row of a queue that cannot be read: the ``offset`` of its first message (None: unknown), the number of its
    messages, and why."""

    offset: int | None
    messages: int
    reason: str


class PeekPage(Struct):
    """Messages of a queue, and the rows that cannot be read among them. ``next`` is the offset at which the next page
    begins (None: there is none), ``end`` the offset that the next message gets."""

    messages: list[Message]
    damaged: list[DamagedRow]
    next: int | None
    end: int
