"""Defines messages as producers send them, as the store keeps them, and as answers contain them.

Messages are msgspec structs: the library reads them from JSON, stores them as msgpack and answers them as JSON without
a conversion in between.
"""

from collections.abc import Sequence as SequenceOf
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct

from hourwheel.model.fields import (
    MAX_QUEUES,
    Delay,
    Headers,
    Name,
    Precision,
    Sequence,
    Text,
)

Key = Annotated[str, Meta(min_length=1, max_length=256)]


class PlainMessage(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A message of text that has at most a key and an id, as nearly all have. Reads like a ``NewMessage``, is stored
    like one, and takes less to decode."""

    body: str
    key: Key | None = None
    id: Text | None = None
    body_base64: ClassVar[None] = None
    tags: ClassVar[None] = None
    headers: ClassVar[None] = None
    delay: ClassVar[None] = None
    deliver_at: ClassVar[None] = None
    queue: ClassVar[None] = None
    precision: ClassVar[None] = None


class NewMessage(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A message as a producer sends it. It has exactly one of ``body`` and ``body_base64``, at most one of ``delay``
    and ``deliver_at`` (RFC 3339). A delayed message with the ``precision`` minute may come up to a minute late.
    ``queue`` names the queue; without it the key chooses."""

    body: str | None = None
    body_base64: bytes | None = None
    key: Key | None = None
    tags: Annotated[list[Text], Meta(max_length=10)] | None = None
    headers: Headers | None = None
    id: Text | None = None
    delay: Delay | None = None
    deliver_at: Annotated[str, Meta(max_length=64)] | None = None
    queue: Annotated[int, Meta(ge=0, lt=MAX_QUEUES)] | None = None
    precision: Precision | None = None


class AddressedMessage(NewMessage, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A message of a batch that spans subjects."""

    subject: Name


class Message(NewMessage, kw_only=True, omit_defaults=True, forbid_unknown_fields=False):
    """A message as it is stored and delivered.

    ``queue`` and ``offset`` say where the message was first accepted; ``attempt`` counts from 1. Rows of a queue's log
    leave the three out, as the row implies them; copies in retry and dead logs contain them. ``due_at`` is the time at
    which a delayed message was due. ``detail`` is what a consumer said of the last attempt that failed, or why it
    rejected the message. ``suspect``: a lease of it ended, as after a crash of its consumer; only copies in a
    retry log say so. The limits of ``NewMessage`` do not apply to stored messages.
    """

    key: str | None = None
    tags: list[str] | None = None
    headers: dict[str, str] | None = None
    id: str | None = None
    queue: int | None = None
    offset: int | None = None
    attempt: int = 0
    produced_at: str | None = None
    due_at: str | None = None
    died_at: str | None = None
    reason: str | None = None
    detail: str | None = None
    dead_id: str | None = None
    suspect: bool = False


class ProduceRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    messages: Annotated[list[NewMessage], Meta(min_length=1)]
    idempotency_key: Text | None = None
    sequence: Sequence | None = None
    create: bool = True


class ProduceManyRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    messages: Annotated[list[AddressedMessage], Meta(min_length=1)]
    idempotency_key: Text | None = None
    sequence: Sequence | None = None
    create: bool = True


class SendResult(Struct, omit_defaults=True):
    """The result of sending one message. A message that was sent at once has ``queue`` and ``offset``, its sequence in
    that queue. A delayed message has ``scheduled``, the time at which it is due, and ``scheduled_id``, by which clients
    look it up, cancel it and move it."""

    id: str
    queue: int | None = None
    offset: int | None = None
    scheduled: str | None = None
    scheduled_id: str | None = None


class ScheduledMessage(Struct, omit_defaults=True):
    """The state of a delayed message. A ``dispatched`` message was sent: ``queue`` and ``offset`` say where it is. A
    ``moved`` message has another time and a new ``scheduled_id``; the old id names the message as well."""

    scheduled_id: str
    state: Literal["waiting", "cancelled", "dispatched", "moved"]
    id: str
    subject: str
    deliver_at: str
    dispatched_at: str | None = None
    queue: int | None = None
    offset: int | None = None


class ProduceResult(Struct):
    results: list[SendResult]


def are_plain(messages: SequenceOf[NewMessage]) -> bool:
    """Returns whether the messages of a batch were decoded as plain ones: then no caller has to look for delays, tags,
    named queues or bodies of bytes."""
    # The first one tells: a batch is decoded as plain messages as a whole, or not at all.
    return bool(messages) and isinstance(messages[0], PlainMessage)


def message_bytes(message: NewMessage) -> int:
    """Returns the UTF-8 bytes of body, key, tags and headers, which the limits count."""
    size = len(message.body_base64 or b"") + len((message.body or "").encode())
    size += len((message.key or "").encode()) + sum(len(tag.encode()) for tag in message.tags or ())
    return size + sum(len(name.encode()) + len(text.encode()) for name, text in (message.headers or {}).items())


class CompactProduceResult(Struct):
    """The positions of the messages of a batch without delays. Each of the ``parts`` is a queue, the offset of its
    first message there, and the indexes of its messages in the batch (None: all of them). A message to which the sender
    gave no id has the id ``{prefix}-{index}``."""

    prefix: str
    parts: list[tuple[int, int, list[int] | None]]
