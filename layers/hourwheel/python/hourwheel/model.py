"""Defines the records that clients send, that the store keeps and that answers contain.

Messages are msgspec structs: the library reads them from JSON, stores them as msgpack and answers them as JSON without
a conversion in between.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

from hourwheel.errors import Rejected
from hourwheel.log_names import LogName, Member, shared_name
from hourwheel.routes import Mapping, MoveTarget, Route, RouteChange

MESSAGE_BYTES = 1 << 20
# With base64 (a third more) and the names of the fields a full batch still fits into a request.
BATCH_BYTES = 4 << 20
# An index within a batch fits into ten bits (``delay/timing.py``).
BATCH_MESSAGES = 1_000
# Lambda takes 6 MiB with headers and wrapping.
REQUEST_BYTES = 6_000_000
# A waiting pull reads the counters of all queues and of the retry log in one request of ``GET_MANY``.
MAX_QUEUES = 64
MIN_RETENTION_SECONDS = 60
MAX_RETENTION_SECONDS = 30 * 86_400
DEFAULT_RETENTION_SECONDS = 3 * 86_400
DEFAULT_MAX_ATTEMPTS = 16  # with the default pauses, from 5 s doubling to 2 h, about 11 hours
# Each consumer of a broadcast group costs what a group costs.
MAX_BROADCAST_CONSUMERS = 1_000
DEFAULT_CONSUMER_EXPIRES_SECONDS = 3 * 86_400
MIN_CONSUMER_EXPIRES_SECONDS = 60
MAX_CONSUMER_EXPIRES_SECONDS = 30 * 86_400
DEFAULT_LEASE_SECONDS = 30
# Settled rows, which say where the next claim goes, are kept for three days (docs/decisions/0005-leases.md).
MAX_LEASE_SECONDS = 12 * 3_600
# API Gateway gives up on an invocation after 30 s.
MAX_WAIT_SECONDS = 20
MAX_RETRY_SECONDS = 30 * 86_400
# Two years, whether or not one of them is a leap year.
MAX_DELAY_MS = 2 * 366 * 86_400_000
DEAD_RETENTION_MS = 30 * 86_400_000
# So many parked messages fit into one record of every store (350 KB), which lets a new process begin.
MAX_HELD = 10_000
# Longer than a client repeats a request; each key is stored for this time (docs/decisions/0004).
IDEMPOTENCY_MS = 10 * 60_000

NAME_PATTERN = r"[A-Za-z0-9._-]{1,100}"
_NAME = re.compile(NAME_PATTERN)

Name = Annotated[str, Meta(min_length=1, max_length=100, pattern=f"^{NAME_PATTERN}$")]
Text = Annotated[str, Meta(min_length=1, max_length=100)]
Index = Annotated[int, Meta(ge=0, lt=BATCH_MESSAGES)]
Indexes = Annotated[list[Index], Meta(max_length=BATCH_MESSAGES)]
Headers = Annotated[dict[Text, Annotated[str, Meta(max_length=4_096)]], Meta(max_length=32)]


def check_name(value: str, field: str) -> str:
    """Returns the value if it is a valid name; raises ``Rejected`` for any other."""
    if not _NAME.fullmatch(value) or value in {".", ".."}:
        raise Rejected(
            "name-invalid",
            f"{field} must match {NAME_PATTERN} and not be '.' or '..', got {value[:120]!r}",
            field=field,
        )
    return value


Delay: TypeAlias = int | float | Annotated[str, Meta(max_length=30)]
"""A delay: seconds, or a number with ``ms``, ``s``, ``m``, ``h`` or ``d``: "500ms", "90d"."""


class NewMessage(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A message as a producer sends it. It has exactly one of ``body`` and ``body_base64``, at most one of ``delay``
    and ``deliver_at`` (RFC 3339). ``queue`` names the queue; without it the key chooses."""

    body: str | None = None
    body_base64: bytes | None = None
    key: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    tags: Annotated[list[Text], Meta(max_length=10)] | None = None
    headers: Headers | None = None
    id: Text | None = None
    delay: Delay | None = None
    deliver_at: Annotated[str, Meta(max_length=64)] | None = None
    queue: Annotated[int, Meta(ge=0, lt=MAX_QUEUES)] | None = None


class AddressedMessage(NewMessage, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A message of a batch that spans subjects."""

    subject: Name


class Message(NewMessage, kw_only=True, omit_defaults=True, forbid_unknown_fields=False):
    """A message as it is stored and delivered.

    ``queue`` and ``offset`` say where the message was first accepted; ``attempt`` counts from 1. Rows of a queue's log
    leave the three out, as the row implies them; copies in retry and dead logs contain them. ``due_at`` is the time at
    which a delayed message was due. The limits of ``NewMessage`` do not apply to stored messages.
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
    dead_id: str | None = None


class ProduceRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    messages: Annotated[list[NewMessage], Meta(min_length=1)]
    idempotency_key: Text | None = None


class ProduceManyRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    messages: Annotated[list[AddressedMessage], Meta(min_length=1)]
    idempotency_key: Text | None = None


class Placed(Struct, omit_defaults=True):
    """Where an accepted message is stored. A message that was sent at once has ``queue`` and ``offset``, its sequence
    in that queue. A delayed message has ``scheduled``, the time at which it is due, and ``scheduled_id``, by which
    clients look it up, cancel it and move it."""

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
    results: list[Placed]


class RetryLater(Struct, kw_only=True, forbid_unknown_fields=True):
    """Names a message of a pull that Hourwheel retries after a delay that the consumer chooses: seconds, or text such
    as "10m", up to 732 days.

    Example:
        >>> (pull,) = api.pull("orders", "billing", "host-1").pulls
        >>> later = Settlement(receipt=pull.receipt, retry=[RetryLater(index=0, delay="10m")])
        >>> api.settle("orders", "billing", [later])[0].status
        'settled'
    """

    index: Index
    delay: Delay


class Settlement(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Settles one pull. The lists name messages by their index in the pull.

    Without ``ack``, every message that no list names is acknowledged; with ``ack``, the other messages stay leased.
    ``retry`` counts an attempt and delivers the messages again, ``release`` delivers them again without counting an
    attempt, ``dead`` makes them dead letters. ``extend_seconds`` (1 to 43,200 from now) extends the lease, and excludes
    the lists.

    Example:
        >>> (pull,) = api.pull("orders", "billing", "host-1").pulls
        >>> api.settle("orders", "billing", [Settlement(receipt=pull.receipt)])[0].status
        'settled'
    """

    receipt: Annotated[str, Meta(min_length=1, max_length=16_384)]
    ack: Indexes | None = None
    retry: Annotated[list[Index | RetryLater], Meta(max_length=BATCH_MESSAGES)] | None = None
    release: Indexes | None = None
    dead: Indexes | None = None
    extend_seconds: Annotated[int, Meta(ge=1, le=MAX_LEASE_SECONDS)] | None = None


SettleStatus = Literal["settled", "open", "extended", "stale"]


class Settled(Struct, omit_defaults=True):
    """The answer to a settlement. ``settled``: every message of the pull is settled. ``open``: the named messages are
    settled, others of the pull are not. ``extended``: the lease ends at ``lease_until``. ``stale``: the lease had
    ended, and the settlement changed nothing.

    Example:
        >>> (pull,) = api.pull("orders", "billing", "host-1").pulls
        >>> api.settle("orders", "billing", [Settlement(receipt=pull.receipt, extend_seconds=60)])[0].status
        'extended'
    """

    status: SettleStatus
    lease_until: str | None = None


class SettleRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    settle: Annotated[list[Settlement], Meta(min_length=1, max_length=1_000)]


class SettleResult(Struct):
    results: list[Settled]


class PullRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    consumer: Name
    max_messages: Annotated[int, Meta(ge=1, le=BATCH_MESSAGES)] = 100
    wait_seconds: Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS)] = 0
    lease_seconds: Annotated[int, Meta(ge=1, le=MAX_LEASE_SECONDS)] = DEFAULT_LEASE_SECONDS
    settle: Annotated[list[Settlement], Meta(max_length=1_000)] | None = None


class Pulled(Struct, omit_defaults=True):
    """The messages of one pull. In an ``ordered`` pull the messages of a key are to be handled one after the other."""

    receipt: str
    queue: int | Literal["retry"]
    lease_until: str
    messages: list[Message]
    ordered: bool = False


LimitedBy: TypeAlias = Literal["paused", "subject_paused", "max_in_flight", "messages_per_second"]
"""What keeps messages from a group: its own pause, the pause of its subject, or a limit that the group sets."""


class PullResult(Struct, omit_defaults=True):
    """The answer to a pull. ``limited_by`` says what kept messages back, whether or not any waits."""

    pulls: list[Pulled]
    settled: list[Settled] | None = None
    limited_by: LimitedBy | None = None


class RetryPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Determines the time between two attempts: ``first_seconds`` after the first attempt, then each time ``factor``
    times longer up to ``cap_seconds``; or the delays of ``delays_seconds``, of which the last one is repeated."""

    first_seconds: Annotated[float, Meta(ge=0, le=MAX_RETRY_SECONDS)] = 5.0
    factor: Annotated[float, Meta(ge=1, le=100)] = 2.0
    cap_seconds: Annotated[float, Meta(ge=0, le=MAX_RETRY_SECONDS)] = 7_200.0
    delays_seconds: Annotated[tuple[float, ...], Meta(max_length=100)] = ()

    def delay_ms(self, attempt: int) -> int:
        """Returns the delay after the failure of this attempt (counted from 1)."""
        if self.delays_seconds:
            seconds = self.delays_seconds[min(attempt, len(self.delays_seconds)) - 1]
        else:
            # Past this many doublings every cap is reached; the power stays a small number.
            seconds = min(self.cap_seconds, self.first_seconds * self.factor ** min(attempt - 1, 64))
        return round(seconds * 1_000)

    @property
    def longest_ms(self) -> int:
        return round(max(self.delays_seconds or (self.cap_seconds,)) * 1_000)


class TagFilter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The messages that a group takes, by their tags: those with at least one of ``tags_any``, every tag of
    ``tags_all`` and no tag of ``tags_none``. An empty list asks for nothing."""

    tags_any: tuple[str, ...] = ()
    tags_all: tuple[str, ...] = ()
    tags_none: tuple[str, ...] = ()

    @property
    def takes_untagged(self) -> bool:
        return not (self.tags_any or self.tags_all)

    def takes(self, tags: Sequence[str] | None) -> bool:
        """Returns whether the group takes a message with these tags."""
        tag_set = frozenset(tags or ())
        return (
            (not self.tags_any or not tag_set.isdisjoint(self.tags_any))
            and tag_set.issuperset(self.tags_all)
            and tag_set.isdisjoint(self.tags_none)
        )


PushKind: TypeAlias = Literal["lambda", "sqs", "eventbridge", "notify", "https", "python"]


WhenDead: TypeAlias = Literal["continue", "stop"]
"""What becomes of a key in an ordered group after its first message was given up: the message becomes a dead letter,
and the key goes on; or the key stops with that message, until an operator decides."""

KEEP_VERSION = 0
"""As ``secret_version`` of a request: the version that the group has."""


class PushTarget(Struct, frozen=True, kw_only=True):
    """The target to which Hourwheel delivers the messages of a group. ``address`` is the ARN of a function, queue or
    bus, a URL, or the name of a Python target. A delivery contains at most ``batch`` messages and may take
    ``timeout_seconds``; at most ``concurrency`` deliveries run at once. A target of the kind ``notify`` learns only
    that there are messages. A new ``secret_version`` signs with a new secret; ``KEEP_VERSION`` keeps the group's
    version."""

    kind: PushKind
    address: str
    batch: int = 10
    concurrency: int = 2
    timeout_seconds: int = 30
    secret_version: int = 1


class Subject(Struct, frozen=True, kw_only=True):
    """A subject's record. A subject that is created again after its deletion has the next ``generation``, and so new
    logs. ``erased`` says that nothing is left of a deleted subject. With ``clamp_delays`` a delay that is too long is
    cut to the longest one instead of being refused. While the subject is ``paused``, no group gets
    messages; while it is ``read_only``, it takes no messages from producers. ``routes`` says where each queue
    is (empty: every queue is one log in the home cell), ``epoch`` counts its changes, and ``change`` is a change that
    is not complete."""

    name: str
    generation: int
    queues: int
    retention_seconds: int
    created_ms: int
    clamp_delays: bool = False
    paused: bool = False
    read_only: bool = False
    deleted: bool = False
    erased: bool = False
    routes: tuple[Route, ...] = ()
    epoch: int = 0
    change: RouteChange | None = None

    @property
    def retention_ms(self) -> int:
        return self.retention_seconds * 1_000

    def log(self, queue: int) -> str:
        """Returns the name of the log that takes the queue's new messages."""
        if not self.routes:
            return str(LogName.of_queue(self.name, self.generation, queue))
        return self.log_of(queue, self.routes[queue].last)

    def log_of(self, queue: int, where: Mapping | MoveTarget) -> str:
        """Returns the name of the log of a mapping of the queue."""
        return str(LogName.of_queue(self.name, self.generation, queue, where.part, where.turn, where.cell))

    def route(self, queue: int) -> Route:
        return self.routes[queue] if self.routes else Route()

    def all_routes(self) -> tuple[Route, ...]:
        """Returns the route of each queue."""
        return self.routes or (Route(),) * self.queues

    def parts(self, queue: int) -> list[tuple[Mapping, str]]:
        """Returns the mappings of the queue that may hold messages, oldest first, each with the name of its log."""
        return [(mapping, self.log_of(queue, mapping)) for mapping in self.route(queue).readable]

    def queue_logs(self) -> list[str]:
        """Returns the names of the logs of all queues that may hold messages."""
        if not self.routes:
            return [self.log(queue) for queue in range(self.queues)]
        return [log for queue in range(self.queues) for _, log in self.parts(queue)]


class Group(Struct, frozen=True, kw_only=True):
    """A group's record, valid for one generation of its subject. ``origins[q]`` is the row at which queue ``q`` begins
    for a group that started at the latest message (0 if the tuple is shorter), in the log that took the queue's
    messages in epoch ``origin_epoch``. ``push_secret`` is the latest version of the secret that signs deliveries.
    ``seeks`` counts the seeks of the group and the changes of its filter: a waiting pull that sees the number change
    looks at all queues again. ``seeking_ms``: a seek began at this time and has not ended (0: none); pulls look at all
    queues meanwhile. A ``paused`` group gets no messages. ``filter`` says which messages of the queues the group takes
    (None: all). A ``broadcast`` group hands every message to each of its consumers, and forgets a consumer that was
    away for ``consumer_expires_seconds``. Each has a group of its own, whose record names the ``consumer`` and says
    when it pulled last (``seen_ms``): see ``registry/broadcast.py``. At most ``max_in_flight`` messages are leased at
    once, and ``messages_per_second`` in the long run (0: no limit). An ``ordered`` group serves the messages of a key
    one after the other; at most ``max_held`` messages of a queue are parked, and ``when_dead`` says what a dead letter
    means for its key."""

    subject: str
    subject_generation: int
    name: str
    generation: int
    start: Literal["earliest", "latest"]
    max_attempts: int
    created_ms: int
    retry: RetryPolicy | None = None
    push: PushTarget | None = None
    push_secret: int = 0
    origins: tuple[int, ...] = ()
    origin_epoch: int = 0
    seeks: int = 0
    max_in_flight: int = 0
    messages_per_second: float = 0.0
    paused: bool = False
    filter: TagFilter | None = None
    broadcast: bool = False
    consumer_expires_seconds: int = 0
    consumer: str = ""
    seen_ms: int = 0
    ordered: bool = False
    when_dead: WhenDead = "continue"
    max_held: int = MAX_HELD
    deleted: bool = False
    erased: bool = False
    seeking_ms: int = 0

    @property
    def flow_limited(self) -> bool:
        return bool(self.max_in_flight or self.messages_per_second)

    @property
    def member(self) -> str:
        return str(Member(self.name, self.generation))

    @property
    def shared_name(self) -> str:
        """The name in requests: that of the broadcast group for the group of one of its consumers."""
        return shared_name(self.name)

    @property
    def retry_log(self) -> str:
        return str(LogName.of_retries(self.subject, self.subject_generation, Member(self.name, self.generation)))

    @property
    def dead_log(self) -> str:
        return str(LogName.of_dead(self.subject, self.subject_generation, Member(self.name, self.generation)))


class QueueLag(Struct):
    """The lag of a group in one queue. The next message of the group has ``offset``; the next message that a producer
    sends gets the offset ``end``.

    Example:
        >>> api.lag("orders", "billing").queues
        [QueueLag(queue=0, waiting=1, in_flight=0, offset=0, end=1)]
    """

    queue: int
    waiting: int
    in_flight: int
    offset: int
    end: int


class ConsumerLag(Struct):
    """The lag of one consumer of a broadcast group.

    Example:
        >>> group = api.put_group("orders", "screens", broadcast=True)
        >>> pulled = api.pull("orders", "screens", "hall")
        >>> [(lag.consumer, lag.in_flight) for lag in api.lag("orders", "screens").consumers]
        [('hall', 1)]
    """

    consumer: str
    waiting: int
    in_flight: int
    retrying: int
    dead: int
    backing_off: int = 0


class HeldKey(Struct):
    """A key of an ordered group whose first message failed, with that message's queue, offset and next attempt.
    ``due_at`` is the time of the retry; a key that is ``stopped`` waits for an operator. ``behind`` is the number of
    messages that are parked behind it.

    Example:
        >>> api.lag("orders", "ledger").held
        HeldKeys(keys=0, parked=0, full=[], first=[])
    """

    key: str | None
    queue: int
    offset: int
    attempt: int
    stopped: bool
    due_at: str | None
    behind: int


class HeldKeys(Struct):
    """What an ordered group holds back: the number of held ``keys``, the number of ``parked`` messages, the queues that
    are ``full``, so that they wait until a parked message is settled, and the ``first`` held keys, up to 100.

    Example:
        >>> api.lag("orders", "ledger").held
        HeldKeys(keys=0, parked=0, full=[], first=[])
    """

    keys: int = 0
    parked: int = 0
    full: list[int] = field(default_factory=list)
    first: list[HeldKey] = field(default_factory=list)


class Lag(Struct):
    """The answer to a question for the lag. ``cells_out`` names cells that cannot be reached: what is in them is not
    counted. ``consumers`` has an entry for each consumer of a broadcast group."""

    waiting: int
    in_flight: int
    retrying: int
    dead: int
    oldest_at: str | None
    queues: list[QueueLag]
    backing_off: int = 0
    limited_by: LimitedBy | None = None
    cells_out: list[str] = []
    consumers: list[ConsumerLag] = []
    held: HeldKeys | UnsetType = UNSET


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


TraceState: TypeAlias = Literal[
    "waiting",
    "in_flight",
    "retrying",
    "backing_off",
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
    ``due`` (a retry whose delay is over), ``dead``, ``redriven``. ``at`` is left out where the time is not stored."""

    event: str
    at: str | None = None
    attempt: int | None = None
    consumer: str | None = None
    lease_until: str | None = None
    due_at: str | None = None
    reason: str | None = None
    dead_id: str | None = None


class GroupTrace(Struct, omit_defaults=True):
    """The history of a message in a group, or of one consumer of a broadcast group. ``complete``: nothing can be
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


def message_bytes(message: NewMessage) -> int:
    """Returns the UTF-8 bytes of body, key, tags and headers, which the limits count."""
    size = len(message.body_base64 or b"") + len((message.body or "").encode())
    size += len((message.key or "").encode()) + sum(len(tag.encode()) for tag in message.tags or ())
    return size + sum(len(name.encode()) + len(text.encode()) for name, text in (message.headers or {}).items())
