"""Defines the types of requests and answers. The client ignores unknown fields, so answers may gain fields.

Types that server and client share come from ``hourwheel.model``. Messages are excluded from garbage collection
(``gc=False``): a pull has up to a thousand of them, and they hold no cycles.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from hourwheel import model
from hourwheel.client.due import Delay, Moment, at_most_one, checked_delay, checked_moment
from hourwheel.model import NewMessage, QueueLag, Settled


class Message(Struct, frozen=True, omit_defaults=True, gc=False):
    """A message to send. Its ``body`` is text or bytes; the message has at most 1 MiB in all.

    Messages with one ``key`` (1 to 256 characters) share a queue and stay in order. ``tags`` are up to 10, ``headers``
    up to 32. The server gives the message an ``id`` where the caller gives none. The queue delivers the message
    after ``delay`` (seconds, text such as "90d", or a ``timedelta``) or at ``deliver_at`` (a ``datetime`` with a zone,
    or RFC 3339 text).

    Raises:
        ValueError: both ``delay`` and ``deliver_at`` are given, or the given one is not valid.

    Example:
        >>> Message("paid", key="customer-42", tags=["eu"], headers={"trace": "abc"}).key
        'customer-42'
        >>> Message("remind", delay=timedelta(hours=2)).delay
        7200.0
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
    """A ``Message`` that names its subject, for ``Api.produce_many``.

    Raises:
        ValueError: both ``delay`` and ``deliver_at`` are given, or the given one is not valid.

    Example:
        >>> AddressedMessage("paid", subject="orders").subject
        'orders'
    """

    subject: str


class Placed(Struct, frozen=True, omit_defaults=True, gc=False):
    """The place of an accepted message: its ``queue``, and its ``offset`` there.

    A delayed message has instead the time for which it is ``scheduled``, and a ``scheduled_id``. With the id the
    ``Api`` looks up, moves and cancels the message until that time. Keep the id: no call lists the ids.

    Example:
        >>> (placed,) = api.produce("orders", [Message("remind", delay="90d")])
        >>> placed.offset is None, placed.scheduled_id is None
        (True, False)
    """

    id: str
    queue: int | None = None
    offset: int | None = None
    scheduled: datetime | None = None
    scheduled_id: str | None = None


class Kept(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A message as the server keeps it. ``due_at`` is the time at which a delayed message was due."""

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
        """The body as it was sent, text or bytes. A long text of control characters only may come as bytes."""
        return self.text if self.text is not None else self.data or b""


class Received(Kept, frozen=True, kw_only=True, gc=False):
    """A message as the server hands it out. ``attempt`` counts from 1.

    Example:
        >>> (pull,) = api.pull("orders", "billing", "host-1").pulls
        >>> message = pull.messages[0]
        >>> message.body, message.key, message.offset, message.attempt
        ('paid', 'customer-42', 0, 1)
    """

    queue: int
    offset: int
    attempt: int


class DeadLetter(Received, frozen=True, kw_only=True, gc=False):
    """A message that was given up at ``died_at``. The ``reason`` is ``attempts`` after the last attempt, or
    ``rejected`` by a consumer. The server keeps a dead letter for 30 days.

    Example:
        >>> (pull,) = api.pull("orders", "billing", "host-1").pulls
        >>> settled = api.settle("orders", "billing", [Settlement(receipt=pull.receipt, dead=[0])])
        >>> api.list_dead("orders", "billing").messages[0].reason
        'rejected'
    """

    dead_id: str
    died_at: datetime
    reason: Literal["attempts", "rejected"]


class Orphan(Kept, frozen=True, kw_only=True, gc=False):
    """A delayed message whose subject was deleted before the message was due. The server keeps it for 30 days from
    ``died_at``.

    Example:
        >>> [orphan.body for orphan in api.list_orphans("orders").messages]
        []
    """

    dead_id: str
    died_at: datetime


class Pull(Struct, frozen=True, kw_only=True):
    """Messages that were leased together, until ``lease_until``. A ``Settlement`` names them by their index in
    ``messages``. ``queue`` is ``"retry"`` for messages that are served again.

    Example:
        >>> (pull,) = api.pull("orders", "billing", "host-1", lease_seconds=60).pulls
        >>> pull.queue, len(pull.messages), pull.lease_until > datetime.now(UTC)
        (0, 1, True)
    """

    receipt: str
    queue: int | str
    lease_until: datetime
    messages: list[Received]


class Pulled(Struct, frozen=True, kw_only=True):
    """The answer to a pull: none, one or several ``pulls``, and in ``settled`` one answer for each settlement of the
    request, in order.

    Example:
        >>> pulled = api.pull("orders", "billing", "host-1")
        >>> len(pulled.pulls), pulled.settled
        (1, [])
    """

    pulls: list[Pull]
    settled: list[Settled] = []


class Subject(Struct, frozen=True, kw_only=True):
    """A subject and its settings. ``groups`` are the first 100 by name; ``more_groups`` says that there are more, which
    ``Api.list_groups`` lists.

    Example:
        >>> subject = api.get_subject("orders")
        >>> subject.queues, subject.retention_seconds
        (1, 259200)
    """

    subject: str
    queues: int
    retention_seconds: int
    created_at: datetime
    clamp_delays: bool = False
    groups: list[str] = []
    more_groups: bool = False


class SubjectPage(Struct, frozen=True, kw_only=True):
    """A page of subjects. ``next`` is the ``after`` of the next page; None after the last one.

    Example:
        >>> api.list_subjects(limit=10).next is None
        True
    """

    subjects: list[Subject]
    next: str | None = None


class RetryPolicy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The waits before a failed message is retried. The first is ``first_seconds`` (5 by default), each further one is
    ``factor`` (2) times longer, up to ``cap_seconds`` (7,200). Or ``delays_seconds`` lists up to 100 waits, of which
    the last is repeated.

    Example:
        >>> slowly = RetryPolicy(first_seconds=1, factor=3, cap_seconds=600)
        >>> api.put_group("orders", "billing", retry=RetryPolicy(delays_seconds=(1, 10, 60))).retry.delays_seconds
        (1.0, 10.0, 60.0)
    """

    first_seconds: float | None = None
    factor: float | None = None
    cap_seconds: float | None = None
    delays_seconds: tuple[float, ...] = ()


class PushTarget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The target to which the messages of a group are delivered, instead of being pulled: the ``arn`` of a function
    (``lambda``), queue (``sqs``) or event bus (``eventbridge``), a ``url`` (``https``), or the ``name`` of a function
    of the embedded server (``python``). For ``notify`` the event bus ``arn`` learns only that messages wait, and
    consumers pull them.

    A delivery holds at most ``batch`` messages (1 to 1,000; 10 by default), ``concurrency`` deliveries (1 to 20; 2) are
    under way at a time, and the target has ``timeout_seconds`` (1 to 300; 30) for one. A higher ``secret_version``
    means another signing secret (``https``).

    Example:
        >>> PushTarget(kind="https", url="https://billing.example.org/orders", batch=50).batch
        50
        >>> PushTarget(kind="lambda", arn="arn:aws:lambda:eu-west-1:111122223333:function:bill").kind
        'lambda'
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
"""The value of ``push`` that removes a group's target. Consumers then pull from the group again."""


class PushStatus(Struct, frozen=True, kw_only=True):
    """The state of the deliveries to a group's target. ``failures`` counts the last deliveries that failed in a row;
    after many failures the server pauses deliveries until ``paused_until``. The receiver of an ``https`` target passes
    ``signing_secret`` to ``hourwheel.client.webhooks.verify``.

    Example:
        >>> target = PushTarget(kind="https", url="https://billing.example.org/orders")
        >>> group = api.put_group("invoices", "mail", push=target)
        >>> api.push("invoices", "mail").signing_secret[:6]
        'whsec_'
    """

    state: Literal["idle", "running", "paused"]
    paused_until: datetime | None = None
    failures: int = 0
    last_error: str | None = None
    signing_secret: str | None = None


class Group(Struct, frozen=True, kw_only=True):
    """A group and its settings. ``retry`` is the policy in force: the group's own, or the server's.

    Example:
        >>> group = api.get_group("orders", "billing")
        >>> group.start, group.max_attempts
        ('earliest', 16)
    """

    subject: str
    group: str
    start: Literal["earliest", "latest"]
    max_attempts: int
    retry: RetryPolicy = RetryPolicy()
    push: PushTarget | None = None
    created_at: datetime


class GroupPage(Struct, frozen=True, kw_only=True):
    """A page of groups. ``next`` is the ``after`` of the next page; None after the last one.

    Example:
        >>> api.list_groups("orders", limit=10).next is None
        True
    """

    groups: list[Group]
    next: str | None = None


class Position(Struct, frozen=True):
    """An offset of one queue, for ``Api.seek``.

    Example:
        >>> api.seek("orders", "billing", Position(queue=0, offset=0))
        [Position(queue=0, offset=0)]
    """

    queue: int
    offset: int


class Lag(Struct, frozen=True, kw_only=True):
    """The messages of a group that are not done: ``waiting`` were never pulled (after a crash of the server the count
    may be too high, never too low), ``in_flight`` are leased, ``retrying`` can be pulled again, ``backing_off`` wait
    for their retry, ``dead`` were given up. ``oldest_at`` is when the oldest waiting message was accepted.

    Example:
        >>> lag = api.lag("orders", "billing")
        >>> lag.waiting, lag.in_flight, lag.queues[0].end
        (1, 0, 1)
    """

    waiting: int
    in_flight: int
    retrying: int
    dead: int
    backing_off: int = 0
    oldest_at: datetime | None = None
    queues: list[QueueLag] = []


class DeadPage(Struct, frozen=True, kw_only=True):
    """A page of dead letters. ``next`` is the ``after`` of the next page; None after the last one.

    Example:
        >>> api.list_dead("orders", "billing").next is None
        True
    """

    messages: list[DeadLetter]
    next: str | None = None


class OrphanPage(Struct, frozen=True, kw_only=True):
    """A page of orphans. ``next`` is the ``after`` of the next page; None after the last one.

    Example:
        >>> api.list_orphans("orders").next is None
        True
    """

    messages: list[Orphan]
    next: str | None = None


class ScheduledMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A delayed message, due at ``deliver_at``. Its ``state`` is ``waiting``, ``cancelled``, or ``dispatched``: then it
    went to ``offset`` of ``queue`` at ``dispatched_at``. ``moved`` stands only in the answer of ``Api.reschedule``,
    with a new ``scheduled_id``; the old one finds the message as well.

    Example:
        >>> (placed,) = api.produce("orders", [Message("remind", delay="90d")])
        >>> scheduled = api.get_scheduled(placed.scheduled_id)
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


class ForecastHour(Struct, frozen=True, kw_only=True):
    """The delayed messages that fall due in the hour that begins at ``hour``.

    Example:
        >>> placed = api.produce("orders", [Message("remind", delay="2h")])
        >>> [hour.messages for hour in api.pending("orders").hours]
        [1]
    """

    hour: datetime
    messages: int


class Forecast(Struct, frozen=True, kw_only=True):
    """The numbers of delayed messages of a subject: of all hours asked for, and of each hour that has any.

    Example:
        >>> api.pending("orders", hours=24)
        Forecast(subject='orders', messages=0, hours=[])
    """

    subject: str
    messages: int
    hours: list[ForecastHour]


class Health(Struct, frozen=True, kw_only=True):
    """The answer of a server that runs.

    Example:
        >>> api.health().status
        'ok'
    """

    status: str
    version: str


class DeadSelection(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The dead letters to redrive or drop. Make one with ``everything``, ``named`` or ``between``.

    Example:
        >>> api.redrive("orders", "billing", DeadSelection.everything())
        0
    """

    all: bool | UnsetType = UNSET
    ids: list[str] | UnsetType = UNSET
    since: str | UnsetType = msgspec.field(name="from", default=UNSET)
    until: str | UnsetType = msgspec.field(name="to", default=UNSET)

    @staticmethod
    def everything() -> "DeadSelection":
        """Selects all dead letters of a group.

        Raises nothing.

        Example:
            >>> DeadSelection.everything().all
            True
        """
        return DeadSelection(all=True)

    @staticmethod
    def named(ids: Sequence[str]) -> "DeadSelection":
        """Selects dead letters by their ``dead_id``.

        Raises nothing.

        Example:
            >>> DeadSelection.named(["12-0", "12-1"]).ids
            ['12-0', '12-1']
        """
        return DeadSelection(ids=list(ids))

    @staticmethod
    def between(since: datetime | None, until: datetime | None) -> "DeadSelection":
        """Selects the messages that died at ``since`` or later, and before ``until``. One of the two may be None; the
        server refuses a selection without both.

        Raises:
            ValueError: a time has no zone.

        Example:
            >>> yesterday = datetime.now(UTC) - timedelta(days=1)
            >>> api.drop("orders", "billing", DeadSelection.between(None, yesterday))
            0
        """
        return DeadSelection(
            since=UNSET if since is None else rfc3339(since), until=UNSET if until is None else rfc3339(until)
        )


class ProduceBody(Struct, omit_defaults=True):
    messages: Sequence[Message | NewMessage]
    idempotency_key: str | None = None


def rfc3339(moment: datetime) -> str:
    """Returns the time as the API writes it, in UTC with milliseconds. Raises ``ValueError`` without a zone."""
    if moment.utcoffset() is None:
        raise ValueError(f"a time needs a zone, such as datetime(..., tzinfo=UTC): {moment.isoformat()} has none")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def on_the_wire(message: Message) -> Message | NewMessage:
    """Returns the message as the API takes it. A body of bytes becomes base64; text stays as it is."""
    if isinstance(message.body, str):
        return message
    fields = {name: getattr(message, name) for name in message.__struct_fields__ if name != "body"}
    if fields["tags"] is not None:
        fields["tags"] = list(fields["tags"])
    form = model.AddressedMessage if isinstance(message, AddressedMessage) else NewMessage
    return form(body_base64=bytes(message.body), **fields)
