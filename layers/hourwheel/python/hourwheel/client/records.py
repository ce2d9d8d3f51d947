"""What goes over the wire, as types. Answers may gain fields: unknown ones are ignored.

What the server's own types say the same way is taken from ``hourwheel.model``. Messages are left out of garbage
collection (``gc=False``): they come by the thousand and hold no cycles.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from hourwheel import model
from hourwheel.client.waits import Delay, Moment, at_most_one, checked_delay, checked_moment
from hourwheel.model import NewMessage, QueueLag, Settled


class Message(Struct, frozen=True, omit_defaults=True, gc=False):
    """A message to send. Text travels as it is, bytes as base64. With ``delay`` or ``deliver_at`` it is delivered
    later; both, or one that makes no sense, raise ``ValueError``.

    >>> Message("paid", key="customer-42", tags=["eu"], headers={"trace": "abc"})
    >>> Message("remind", delay="90d")
    """

    body: str | bytes
    key: str | None = None
    tags: Sequence[str] | None = None
    headers: dict[str, str] | None = None
    id: str | None = None
    delay: Delay | None = None
    deliver_at: Moment | None = None

    def __post_init__(self) -> None:
        if self.delay is None is self.deliver_at:
            return
        at_most_one(self.delay, self.deliver_at)
        if self.delay is not None:
            msgspec.structs.force_setattr(self, "delay", checked_delay(self.delay))
        if self.deliver_at is not None:
            msgspec.structs.force_setattr(self, "deliver_at", checked_moment(self.deliver_at))


class AddressedMessage(Message, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """A message of a batch that spans subjects."""

    subject: str


class Placed(Struct, frozen=True, omit_defaults=True, gc=False):
    """Where an accepted message is. Or, of a delayed one, when it is due and the id under which it can be looked up,
    moved and cancelled until then."""

    id: str
    queue: int | None = None
    offset: int | None = None
    scheduled: datetime | None = None
    scheduled_id: str | None = None


class Kept(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A message as the server keeps it. ``due_at``: when it was due, if it was delayed."""

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
        """As it was sent: text or bytes. A text of nearly nothing but control characters, too large for an answer as
        text, comes as its bytes."""
        return self.text if self.text is not None else self.data or b""


class Received(Kept, frozen=True, kw_only=True, gc=False):
    """A message as the server hands it out. ``attempt`` counts from 1."""

    queue: int
    offset: int
    attempt: int


class DeadLetter(Received, frozen=True, kw_only=True, gc=False):
    dead_id: str
    died_at: datetime
    reason: Literal["attempts", "rejected"]


class Orphan(Kept, frozen=True, kw_only=True, gc=False):
    """A message that waited for its time when its subject was deleted."""

    dead_id: str
    died_at: datetime


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
    clamp_delays: bool = False
    groups: list[str] = []
    """The first of them by name; ``more_groups``: there are more, which ``Api.list_groups`` tells."""
    more_groups: bool = False


class SubjectPage(Struct, frozen=True, kw_only=True):
    subjects: list[Subject]
    next: str | None = None


class RetryPolicy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long a message waits before it is tried again: ``first_seconds``, and each time ``factor`` times longer, up
    to ``cap_seconds``. Or ``delays_seconds``, of which the last one is repeated. What is left out has the default.

    >>> RetryPolicy(first_seconds=1, factor=3, cap_seconds=600)
    >>> RetryPolicy(delays_seconds=(1, 10, 60))
    """

    first_seconds: float | None = None
    factor: float | None = None
    cap_seconds: float | None = None
    delays_seconds: tuple[float, ...] = ()


class PushTarget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the messages of a group are delivered, instead of being pulled: ``arn`` of a function (``lambda``), queue
    (``sqs``) or event bus (``eventbridge``); ``url`` (``https``); ``name`` of a function of the embedded server
    (``python``). ``notify`` only tells the event bus ``arn`` that there are messages. ``batch`` is the most that are
    delivered together, ``concurrency`` how many batches at a time, ``timeout_seconds`` how long the target has for one.
    A higher ``secret_version`` means another signing secret (``https``). What is left out has the default.

    >>> PushTarget(kind="https", url="https://example.com/orders", batch=50)
    >>> PushTarget(kind="lambda", arn="arn:aws:lambda:eu-west-1:111122223333:function:bill")
    """

    kind: Literal["lambda", "sqs", "eventbridge", "https", "notify", "python"]
    arn: str | None = None
    url: str | None = None
    name: str | None = None
    batch: int | None = None
    concurrency: int | None = None
    timeout_seconds: int | None = None
    secret_version: int | None = None


class NoPush(Enum):
    NO_PUSH = "none"


NO_PUSH = NoPush.NO_PUSH
"""No target any more: the group is pulled from."""


class PushStatus(Struct, frozen=True, kw_only=True):
    """``failures``: deliveries that failed in a row. ``paused``: after many of them nothing is delivered until
    ``paused_until``. ``signing_secret`` is for ``hourwheel.client.webhooks.verify`` at the receiver (``https``)."""

    state: Literal["idle", "running", "paused"]
    paused_until: datetime | None = None
    failures: int = 0
    last_error: str | None = None
    signing_secret: str | None = None


class Group(Struct, frozen=True, kw_only=True):
    subject: str
    group: str
    start: Literal["earliest", "latest"]
    max_attempts: int
    retry: RetryPolicy = RetryPolicy()
    push: PushTarget | None = None
    created_at: datetime


class GroupPage(Struct, frozen=True, kw_only=True):
    groups: list[Group]
    next: str | None = None


class Position(Struct, frozen=True):
    queue: int
    offset: int


class Lag(Struct, frozen=True, kw_only=True):
    """``waiting`` may count too much after a writer died, never too little. ``backing_off`` counts messages that wait
    to be tried again."""

    waiting: int
    in_flight: int
    retrying: int
    dead: int
    backing_off: int = 0
    oldest_at: datetime | None = None
    queues: list[QueueLag] = []


class DeadPage(Struct, frozen=True, kw_only=True):
    messages: list[DeadLetter]
    next: str | None = None


class OrphanPage(Struct, frozen=True, kw_only=True):
    messages: list[Orphan]
    next: str | None = None


class ScheduledMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A delayed message. ``dispatched``: it was sent, to that offset of that queue. ``moved``: the answer to who moved
    it to another time, at which it may have been sent since; ``scheduled_id`` is a new one then, and the old one serves
    as well."""

    scheduled_id: str
    state: Literal["waiting", "cancelled", "dispatched", "moved"]
    id: str
    subject: str
    deliver_at: datetime
    dispatched_at: datetime | None = None
    queue: int | None = None
    offset: int | None = None


class ForecastHour(Struct, frozen=True, kw_only=True):
    """``hour`` is its start."""

    hour: datetime
    messages: int


class Forecast(Struct, frozen=True, kw_only=True):
    """How many delayed messages of a subject are due, in all and in each hour that has any."""

    subject: str
    messages: int
    hours: list[ForecastHour]


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
