"""Defines pulls and settlements: the requests of consumers, and the answers to them."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Raw, Struct

from hourwheel.model.fields import (
    BATCH_MESSAGES,
    DEFAULT_LEASE_SECONDS,
    MAX_LEASE_SECONDS,
    MAX_WAIT_SECONDS,
    Delay,
    Detail,
    Index,
    Indexes,
    Name,
)
from hourwheel.model.messages import Message


class RetryLater(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Names a message of a pull that Hourwheel retries: after a ``delay`` that the consumer chooses (seconds, or text
    such as "10m", up to 732 days), else by the group's policy. ``detail`` says why in up to 1,000 characters, and
    stands in the dead letter if this was the last attempt.

    Example:
        >>> (pull,) = api.pull("orders", "billing", "host-1").pulls
        >>> retry = [RetryLater(index=0, delay="10m", detail="the bank is closed")]
        >>> api.settle("orders", "billing", [Settlement(receipt=pull.receipt, retry=retry)])[0].status
        'settled'
    """

    index: Index
    delay: Delay | None = None
    detail: Detail | None = None


class Rejection(Struct, kw_only=True, forbid_unknown_fields=True):
    """Names a message of a pull that becomes a dead letter, and says why (up to 1,000 characters).

    Example:
        >>> (pull,) = api.pull("orders", "billing", "host-1").pulls
        >>> rejection = Rejection(index=0, detail="the order is empty")
        >>> settled = api.settle("orders", "billing", [Settlement(receipt=pull.receipt, dead=[rejection])])
        >>> api.list_dead("orders", "billing").messages[0].detail
        'the order is empty'
    """

    index: Index
    detail: Detail


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
    dead: Annotated[list[Index | Rejection], Meta(max_length=BATCH_MESSAGES)] | None = None
    extend_seconds: Annotated[int, Meta(ge=1, le=MAX_LEASE_SECONDS)] | None = None


SettleStatus = Literal["settled", "open", "extended", "stale", "unavailable"]


class Settled(Struct, omit_defaults=True):
    """The answer to a settlement. ``settled``: every message of the pull is settled. ``open``: the named messages are
    settled, others of the pull are not. ``extended``: the lease ends at ``lease_until``. ``stale``: the lease had
    ended, and the settlement changed nothing. ``unavailable``: the messages are in a cell that is out of reach; send
    the settlement again, unchanged, after a pause.

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


WakeupState: TypeAlias = Literal["able", "woken", "missing"]
"""What a consumer says about wake-up queues: it can wait at one; a wake-up came; the queue of its group is not
there."""


MAX_IDLE_SECONDS = 31_536_000
"""A consumer that has been idle for longer than a year says a year."""


class PullRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """A request for messages. ``suspects``: the pull may bring a suspect, which comes alone. A consumer that holds
    messages says False, so that it never loses a suspect and other messages together. ``create``: the pull creates the
    subject, the group and the consumer of a broadcast group where they are missing."""

    consumer: Name
    max_messages: Annotated[int, Meta(ge=1, le=BATCH_MESSAGES)] = 100
    wait_seconds: Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS)] = 0
    lease_seconds: Annotated[int, Meta(ge=1, le=MAX_LEASE_SECONDS)] = DEFAULT_LEASE_SECONDS
    settle: Annotated[list[Settlement], Meta(max_length=1_000)] | None = None
    idle_seconds: Annotated[float, Meta(ge=0, le=MAX_IDLE_SECONDS)] | None = None
    wakeup: WakeupState | None = None
    suspects: bool = True
    create: bool = True


class WakeupQueue(Struct, frozen=True):
    """The queue at which a consumer waits without a request to Hourwheel: the ``url`` of an SQS queue in ``region``.
    The consumer pulls when a wake-up comes, and after ``wait_seconds`` at the latest."""

    url: str
    region: str
    wait_seconds: float = 0


class Pull(Struct, omit_defaults=True):
    """The messages of one pull. In an ``ordered`` pull the messages of a key are to be handled one after the other. The
    one message of a ``suspect`` pull was leased before, and that lease ended: hold no other message beside it."""

    receipt: str
    queue: int | Literal["retry"]
    lease_until: str
    messages: list[Message]
    ordered: bool = False
    suspect: bool = False

    @classmethod
    def by_key(
        cls, receipt: str, queue: int | Literal["retry"], lease_until: str, messages: list[Message], *, suspect: bool
    ) -> "Pull":
        """Returns an ordered pull."""
        return cls(receipt, queue, lease_until, messages, ordered=True, suspect=suspect)


class MessageBlock(Struct, kw_only=True, omit_defaults=True):
    """Messages of one row, as they are stored, with the fields that they leave out. With ``n = indexes[i]``, or ``n =
    i`` without ``indexes``, message ``i`` has the offset ``offset + n``, the id ``{prefix}-{index + n}`` if it has
    none, and the other fields of the block. A field of the message itself counts instead of the block's."""

    messages: Raw
    queue: int | None = None
    offset: int | None = None
    attempt: int = 0
    produced_at: str | None = None
    prefix: str = ""
    index: int = 0
    indexes: list[int] | None = None


class CompactPull(Struct, omit_defaults=True):
    """The messages of one pull, as ``Pull`` has them, in blocks."""

    receipt: str
    queue: int | Literal["retry"]
    lease_until: str
    blocks: list[MessageBlock]
    ordered: bool = False
    suspect: bool = False

    @classmethod
    def by_key(
        cls, receipt: str, queue: int | Literal["retry"], lease_until: str, blocks: list[MessageBlock], *, suspect: bool
    ) -> "CompactPull":
        """Returns an ordered pull."""
        return cls(receipt, queue, lease_until, blocks, ordered=True, suspect=suspect)


LimitedBy: TypeAlias = Literal["paused", "subject_paused", "max_in_flight", "messages_per_second"]
"""The reason why a group gets no messages: its own pause, the pause of its subject, or a limit that the group sets."""


class PullResult(Struct, omit_defaults=True):
    """The answer to a pull. ``limited_by`` says what kept messages back, whether or not any waits. After an answer
    without messages a consumer that said how long it has been idle pulls again after ``next_pull_seconds``, or waits at
    the queue ``wakeup``. ``suspects_wait``: a pull that may bring suspects would bring one."""

    pulls: list[Pull]
    settled: list[Settled] | None = None
    limited_by: LimitedBy | None = None
    next_pull_seconds: float = 0
    wakeup: WakeupQueue | None = None
    suspects_wait: bool = False


class CompactPullResult(Struct, omit_defaults=True):
    """The answer to a pull, as ``PullResult`` has it, with the messages in blocks."""

    pulls: list[CompactPull]
    settled: list[Settled] | None = None
    limited_by: LimitedBy | None = None
    next_pull_seconds: float = 0
    wakeup: WakeupQueue | None = None
    suspects_wait: bool = False
