"""Defines messages and pulls, as the API takes and answers them."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from hourwheel.client.due import Delay, Moment, at_most_one, check_precision, checked_delay, checked_moment
from hourwheel.client.encoding import encoded_body
from hourwheel.model.fields import Precision
from hourwheel.model.messages import AddressedMessage as AddressedWireMessage
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import Settled, WakeupQueue


class Message(Struct, frozen=True, omit_defaults=True, gc=False):
    """A message to send. Its ``body`` is text or bytes, or an object that is sent as JSON: a pydantic model, a msgspec
    struct, a dataclass, a dictionary or a list. The message has at most 1 MiB in all.

    Messages with the same ``key`` (1 to 256 characters) share a queue and stay in order. A message has up to 10
    ``tags`` and 32 ``headers``. The server gives it an ``id`` if the caller gives none. It is delivered after ``delay``
    (seconds, text such as "90d", or a ``timedelta``) or at ``deliver_at`` (a ``datetime`` with a zone, or RFC 3339
    text). With the ``precision`` "minute" it may come up to a minute late, which costs less on AWS. ``queue`` (from 0)
    chooses the queue; without it, the key does.

    Raises:
        ValueError: both ``delay`` and ``deliver_at`` are given, or the given one is not valid, or ``precision`` is not
            "minute", or is given without a time.
        TypeError: the body is of another type, or contains a value that JSON has no form for.

    Example:
        >>> Message("paid", key="customer-42", tags=["eu"], headers={"trace": "abc"}).key
        'customer-42'
        >>> Message("remind", delay=timedelta(hours=2)).delay
        7200.0
        >>> Message({"order": 7}).body
        '{"order":7}'
    """

    body: str | bytes | Any
    key: str | None = None
    tags: Sequence[str] | None = None
    headers: dict[str, str] | None = None
    id: str | None = None
    delay: Delay | None = None
    deliver_at: Moment | None = None
    queue: int | None = None
    precision: Precision | None = None

    def __post_init__(self) -> None:
        kind = self.body.__class__
        if kind is not str and kind is not bytes:
            if isinstance(self.body, Message):
                raise TypeError(
                    "a body cannot be a Message: send takes its fields, and send_batch takes a list of them"
                )
            msgspec.structs.force_setattr(self, "body", encoded_body(self.body))
        if self.precision is not None:
            check_precision(self.precision, self.delay, self.deliver_at)
        if self.delay is None is self.deliver_at:
            return
        at_most_one(self.delay, self.deliver_at)
        if self.delay is not None:
            msgspec.structs.force_setattr(self, "delay", checked_delay(self.delay))
        if self.deliver_at is not None:
            msgspec.structs.force_setattr(self, "deliver_at", checked_moment(self.deliver_at))


class AddressedMessage(Message, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """A ``Message`` that names its subject, for ``Api.produce_many``.

    Raises:
        ValueError: both ``delay`` and ``deliver_at`` are given, or the given one is not valid, or ``precision`` is not
            "minute", or is given without a time.
        TypeError: the body is of another type, or contains a value that JSON has no form for.

    Example:
        >>> AddressedMessage("paid", subject="orders").subject
        'orders'
    """

    subject: str


class SendResult(Struct, frozen=True, omit_defaults=True, gc=False):
    """The result of sending one message: its id, and the ``queue`` and ``offset`` at which the server stored it.

    A delayed message has instead the time for which it is ``scheduled``, and a ``scheduled_id``, by which the methods
    of ``Api`` look it up, move it and cancel it.

    Example:
        >>> (result,) = api.produce("orders", [Message("remind", delay="90d")])
        >>> result.offset is None, result.scheduled_id is None
        (True, False)
    """

    id: str
    queue: int | None = None
    offset: int | None = None
    scheduled: datetime | None = None
    scheduled_id: str | None = None


class Kept(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A message that the server has stored. ``due_at`` is the time at which a delayed message was due; None for other
    messages."""

    id: str
    produced_at: datetime
    due_at: datetime | None = None
    text: str | None = msgspec.field(name="body", default=None)
    data: bytes | None = msgspec.field(name="body_base64", default=None)
    key: str | None = None
    tags: list[str] = []
    headers: dict[str, str] = {}

    @property
    def body(self) -> str | bytes:
        """The body as it was sent, text or bytes. A long text with many quotes or control characters may come as bytes,
        if no answer could hold it as text."""
        return self.text if self.text is not None else self.data or b""


class Received(Kept, frozen=True, kw_only=True, gc=False):
    """A message that the server hands out. ``attempt`` counts from 1. The ``detail`` of a retried message is the text
    that a consumer gave for the last failed attempt; None if it gave none.

    Example:
        >>> (pull,) = api.pull("orders", "billing", "host-1").pulls
        >>> message = pull.messages[0]
        >>> message.body, message.key, message.offset, message.attempt
        ('paid', 'customer-42', 0, 1)
    """

    queue: int
    offset: int
    attempt: int
    detail: str | None = None


class Pull(Struct, frozen=True, kw_only=True):
    """Messages that were leased together, until ``lease_until``. A ``Settlement`` names them by their index in
    ``messages``. ``queue`` is ``"retry"`` for retried messages. In an ``ordered`` pull, the messages with the same key
    must be handled one after the other, and those behind one that fails not at all. The one message of a ``suspect``
    pull was leased before, and that lease ended: hold no other message beside it.

    Example:
        >>> (pull,) = api.pull("orders", "billing", "host-1", lease_seconds=60).pulls
        >>> pull.queue, len(pull.messages), pull.lease_until > datetime.now(UTC)
        (0, 1, True)
    """

    receipt: str
    queue: int | str
    lease_until: datetime
    messages: list[Received]
    ordered: bool = False
    suspect: bool = False


class Pulled(Struct, frozen=True, kw_only=True):
    """The answer to a pull: none, one or several ``pulls``, and in ``settled`` the result of each settlement of the
    request, in order. ``limited_by`` names the limit that keeps messages from the group, whether or not any wait:
    ``paused``, ``subject_paused``, ``max_in_flight``, ``messages_per_second``, or None. On AWS the answer may tell an
    idle consumer to pull again after ``next_pull_seconds``, or to wait at the wake-up queue ``wakeup``.
    ``suspects_wait``: a pull with ``suspects`` would bring a message whose lease ended.

    Example:
        >>> pulled = api.pull("orders", "billing", "host-1")
        >>> len(pulled.pulls), pulled.settled
        (1, [])
    """

    pulls: list[Pull]
    settled: list[Settled] = []
    limited_by: str | None = None
    next_pull_seconds: float = 0
    wakeup: WakeupQueue | None = None
    suspects_wait: bool = False


def as_messages(batch: Iterable[Message | str | bytes | Any]) -> list[Message]:
    """Returns the messages of a batch, and makes messages of bodies. Raises ``TypeError`` for a single body: a text
    would be sent letter by letter."""
    if not isinstance(batch, list) and (
        isinstance(batch, str | bytes | bytearray | memoryview | dict) or not isinstance(batch, Iterable)
    ):
        name = type(batch).__name__
        raise TypeError(f"a batch is a list of messages or bodies, not {name}: put a single one into a list")
    return [message if isinstance(message, Message) else Message(message) for message in batch]


class ProduceBody(Struct, omit_defaults=True):
    messages: Sequence[Message | NewMessage]
    idempotency_key: str | None = None
    sequence: int | None = None
    create: bool = True


def on_the_wire(message: Message) -> Message | NewMessage:
    """Returns the message as the API takes it. A body of bytes becomes base64; text stays as it is."""
    if isinstance(message.body, str):
        return message
    fields = {name: getattr(message, name) for name in message.__struct_fields__ if name != "body"}
    if fields["tags"] is not None:
        fields["tags"] = list(fields["tags"])
    form = AddressedWireMessage if isinstance(message, AddressedMessage) else NewMessage
    return form(body_base64=message.body, **fields)
