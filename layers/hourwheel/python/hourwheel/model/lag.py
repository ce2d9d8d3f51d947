"""Defines the lag of a group, as calls return it."""

from msgspec import UNSET, Struct, UnsetType, field

from hourwheel.model.pulls import LimitedBy


class QueueLag(Struct, omit_defaults=True, repr_omit_defaults=True):
    """The lag of a group in one queue. The next message of the group has ``offset``; the next message that a producer
    sends gets the offset ``end``. ``cells_out`` names cells that cannot be reached and hold messages of the queue. The
    group may have more messages there than the numbers say, and an offset that only such a cell knows is None.

    Example:
        >>> api.lag("orders", "billing").queues
        [QueueLag(queue=0, waiting=1, in_flight=0, offset=0, end=1)]
    """

    queue: int
    waiting: int
    in_flight: int
    offset: int | None
    end: int | None
    cells_out: list[str] = []


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
    expired_unread: int = 0


class HeldKey(Struct):
    """A key of an ordered group whose first message failed, with that message's queue, offset and next attempt.
    ``due_at`` is the time of the retry; a key that is ``stopped`` waits for an operator. ``behind`` is the number of
    messages that are parked behind it. ``reason`` and ``detail`` say why the last attempt of a stopped key failed, as
    those of a dead letter do.

    Example:
        >>> api.lag("orders", "ledger").held
        HeldKeys(keys=0, parked=0, full=[], first=[], stopped=0, full_of_messages=[])
    """

    key: str | None
    queue: int
    offset: int
    attempt: int
    stopped: bool
    due_at: str | None
    behind: int
    reason: str | None = None
    detail: str | None = None


class HeldKeys(Struct):
    """The keys and messages that an ordered group holds back. It holds this number of ``keys``, of which ``stopped``
    wait for an operator; ``first`` describes up to 100 of them. ``parked`` is the number of parked messages. Two bounds
    make a queue wait: the queues in ``full`` have ``max_held`` held keys, and hand out parked messages alone. Those in
    ``full_of_messages`` have 1,000,000 parked messages, and wait at the next message whose key is busy.

    Example:
        >>> api.lag("orders", "ledger").held
        HeldKeys(keys=0, parked=0, full=[], first=[], stopped=0, full_of_messages=[])
    """

    keys: int = 0
    parked: int = 0
    full: list[int] = field(default_factory=list)
    first: list[HeldKey] = field(default_factory=list)
    stopped: int = 0
    full_of_messages: list[int] = field(default_factory=list)


class Lag(Struct):
    """The lag of a group. ``cells_out`` names cells that cannot be reached, whose messages are not counted.
    ``consumers`` has an entry for each consumer of a broadcast group. ``expired_unread`` counts the messages that
    expired before the group had pulled them, since it was created."""

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
    expired_unread: int = 0
