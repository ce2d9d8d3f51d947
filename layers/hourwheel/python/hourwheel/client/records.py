"""What goes over the wire, as types. Answers may gain fields: unknown ones are ignored.

What the server's own types say the same way is taken from ``hourwheel.model``. Messages are left out of garbage
collection (``gc=False``): they come by the thousand and hold no cycles.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from hourwheel import model
from hourwheel.model import NewMessage, QueueLag, Settled


class Message(Struct, frozen=True, omit_defaults=True, gc=False):
    """A message to send. Text travels as it is, bytes as base64.

    >>> Message("paid", key="customer-42", tags=["eu"], headers={"trace": "abc"})
    """

    body: str | bytes
    key: str | None = None
    tags: Sequence[str] | None = None
    headers: dict[str, str] | None = None
    id: str | None = None


class AddressedMessage(Message, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """A message of a batch that spans subjects."""

    subject: str


class Received(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A message as the server hands it out. ``attempt`` counts from 1."""

    id: str
    queue: int
    offset: int
    attempt: int
    produced_at: datetime
    text: str | None = msgspec.field(name="body", default=None)
    data: bytes | None = msgspec.field(name="body_base64", default=None)
    key: str | None = None
    tags: list[str] = []
    headers: dict[str, str] = {}

    @property
    def body(self) -> str | bytes:
        """As it was sent: text or bytes."""
        return self.text if self.text is not None else self.data or b""


class DeadLetter(Received, frozen=True, kw_only=True, gc=False):
    dead_id: str
    died_at: datetime
    reason: Literal["attempts", "rejected"]


class Pull(Struct, frozen=True, kw_only=True):
    """Messages leased together; they are settled by their index here. ``queue`` is ``"retry"`` for
    messages that are served again."""

    receipt: str
    queue: int | str
    lease_until: datetime
    messages: list[Received]


class Pulled(Struct, frozen=True, kw_only=True):
    """``settled`` answers the settlements that went with the pull, entry by entry."""

    pulls: list[Pull]
    settled: list[Settled] = []


class Subject(Struct, frozen=True, kw_only=True):
    subject: str
    queues: int
    retention_seconds: int
    created_at: datetime
    groups: list[str] = []


class SubjectPage(Struct, frozen=True, kw_only=True):
    subjects: list[Subject]
    next: str | None = None


class Group(Struct, frozen=True, kw_only=True):
    subject: str
    group: str
    start: Literal["earliest", "latest"]
    max_attempts: int
    created_at: datetime


class Position(Struct, frozen=True):
    queue: int
    offset: int


class Lag(Struct, frozen=True, kw_only=True):
    """``waiting`` may count too much after a writer died, never too little."""

    waiting: int
    in_flight: int
    retrying: int
    dead: int
    oldest_at: datetime | None = None
    queues: list[QueueLag] = []


class DeadPage(Struct, frozen=True, kw_only=True):
    messages: list[DeadLetter]
    next: str | None = None


class Health(Struct, frozen=True, kw_only=True):
    status: str
    version: str


class DeadSelection(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which dead letters to redrive or drop: all, these, or those that died in ``[since, until)``."""

    all: bool | UnsetType = UNSET
    ids: list[str] | UnsetType = UNSET
    since: str | UnsetType = msgspec.field(name="from", default=UNSET)
    until: str | UnsetType = msgspec.field(name="to", default=UNSET)

    @staticmethod
    def everything() -> "DeadSelection":
        return DeadSelection(all=True)

    @staticmethod
    def named(ids: Sequence[str]) -> "DeadSelection":
        return DeadSelection(ids=list(ids))

    @staticmethod
    def between(since: datetime | None, until: datetime | None) -> "DeadSelection":
        """Either bound may be None, not both."""
        return DeadSelection(
            since=UNSET if since is None else rfc3339(since), until=UNSET if until is None else rfc3339(until)
        )


class ProduceBody(Struct, omit_defaults=True):
    messages: Sequence[Message | NewMessage]
    idempotency_key: str | None = None


def rfc3339(moment: datetime) -> str:
    """An aware time in UTC with milliseconds, as the API writes it."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def on_the_wire(message: Message) -> Message | NewMessage:
    """Text messages are encoded as they are; only those with bytes need another form."""
    if isinstance(message.body, str):
        return message
    known = {name: getattr(message, name) for name in message.__struct_fields__ if name != "body"}
    if known["tags"] is not None:
        known["tags"] = list(known["tags"])
    form = model.AddressedMessage if isinstance(message, AddressedMessage) else NewMessage
    return form(body_base64=bytes(message.body), **known)
