"""Defines groups with their retry policy, push target and lag, as the API takes and answers them."""

from collections.abc import Iterable
from datetime import datetime
from enum import Enum
from typing import Literal, Self

from msgspec import Struct

from hourwheel.model.group_settings import GroupSettings, WhenDead
from hourwheel.model.lag import ConsumerLag, HeldKeys, QueueLag


class RetryPolicy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The delays before a failed message is retried. The first delay is ``first_seconds`` (5 by default), and each
    further one ``factor`` (2 by default) times as long, up to ``cap_seconds`` (7,200 by default). Or ``delays_seconds``
    lists up to 100 delays, of which the last is repeated.

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
    """The target to which Hourwheel delivers the messages of a group. By its ``kind`` it is the ``arn`` of a function
    (``lambda``), queue (``sqs``) or event bus (``eventbridge``), a ``url`` (``https``), or the ``name`` of a function
    of the embedded server (``python``). An event bus of the kind ``notify`` learns only that messages wait, and
    consumers pull them.

    A delivery holds at most ``batch`` messages (1 to 1,000; 10 by default). At most ``concurrency`` deliveries (1 to
    20; 2 by default) are under way at a time, and each may take ``timeout_seconds`` (1 to 300; 30 by default). A higher
    ``secret_version`` signs deliveries over ``https`` with another secret.

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
    """The state of the deliveries to a group's target. ``failures`` counts the latest deliveries that failed in a row;
    after five failures the server pauses deliveries until ``paused_until``. That is None while deliveries are not
    paused, or only an operator has paused the group or its subject. The receiver of an ``https`` target passes
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


class TagFilter(Struct, frozen=True, kw_only=True):
    """The messages that a group takes, by their tags: those with at least one of ``tags_any``, every tag of
    ``tags_all`` and no tag of ``tags_none``. An empty list asks for nothing.

    Example:
        >>> europe = TagFilter(tags_any=("eu", "uk"), tags_none=("test",))
        >>> api.put_group("orders", "europe", filter=europe).filter.tags_any
        ('eu', 'uk')
    """

    tags_any: tuple[str, ...] = ()
    tags_all: tuple[str, ...] = ()
    tags_none: tuple[str, ...] = ()


class NoFilter(Enum):
    NO_FILTER = "none"


NO_FILTER = NoFilter.NO_FILTER
"""The value of ``filter`` that removes a group's filter. The group then takes all messages."""


class Group(GroupSettings, frozen=True, kw_only=True):
    """A group and its settings, which ``Api.put_group`` explains. A ``paused`` group gets no messages. ``retry`` is the
    policy of the group, or that of the server if the group has none. A group that is not ``ordered`` has no
    ``when_dead`` and ``max_held``, and one without ``broadcast`` no ``consumer_expires_seconds``: they are None.

    Example:
        >>> group = api.get_group("orders", "billing")
        >>> group.start, group.max_attempts
        ('earliest', 16)
    """

    subject: str
    group: str
    retry: RetryPolicy = RetryPolicy()
    push: PushTarget | None = None
    paused: bool = False
    filter: TagFilter | None = None
    consumer_expires_seconds: int | None = None
    when_dead: WhenDead | None = None
    max_held: int | None = None
    created_at: datetime


class GroupPage(Struct, frozen=True, kw_only=True):
    """A page of groups. ``next`` is the ``after`` of the next page; None after the last one.

    Example:
        >>> api.list_groups("orders", limit=10).next is None
        True
    """

    groups: list[Group]
    next: str | None = None


class QueueOffset(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """An offset in a queue, for ``Api.seek``. In the answer to a dry run, ``served_again`` is the number of messages
    that the seek would serve again, and ``passed_over`` of those that it would pass over.

    Example:
        >>> api.seek("orders", "billing", QueueOffset(queue=0, offset=0))
        [QueueOffset(queue=0, offset=0)]
    """

    queue: int
    offset: int
    served_again: int | None = None
    passed_over: int | None = None


class ConsumerState(Struct, frozen=True, kw_only=True):
    """A consumer of a group. ``since`` and ``pulled_at`` are the times of the first and the last of its recent pulls
    that the server knows. It holds ``in_flight`` messages in ``leases`` pulls, and the first lease ends at
    ``lease_until``.

    Example:
        >>> pulled = api.pull("orders", "billing", "host-1")
        >>> [each.in_flight for each in api.list_consumers("orders", "billing") if each.consumer == "host-1"]
        [1]
    """

    consumer: str
    since: datetime
    pulled_at: datetime
    in_flight: int
    leases: int
    lease_until: datetime | None = None


class ConsumerStates(list[ConsumerState]):
    """The consumers of a group, by name. ``cells_out`` names cells that cannot be reached: consumers that pulled only
    there are not listed, and leases there are not counted.

    Example:
        >>> api.list_consumers("orders", "billing").cells_out
        []
    """

    def __init__(self, consumers: Iterable[ConsumerState] = (), cells_out: Iterable[str] = ()) -> None:
        super().__init__(consumers)
        self.cells_out = list(cells_out)


class LeaveResult(int):
    """The number of messages that a consumer held and others get now. ``cells_out`` names cells that cannot be reached:
    the leases there were not ended, and the messages are served again when the leases end.

    Example:
        >>> api.leave("orders", "billing", "host-1").cells_out
        []
    """

    cells_out: list[str]

    def __new__(cls, released: int, cells_out: Iterable[str] = ()) -> Self:
        result = super().__new__(cls, released)
        result.cells_out = list(cells_out)
        return result


class Lag(Struct, frozen=True, kw_only=True):
    """The numbers of the messages that a group has not acknowledged: ``waiting`` were never pulled (after a crash of
    the server the number may be too high, never too low). ``in_flight`` are leased, ``retrying`` can be pulled again,
    ``backing_off`` wait for the delay of their retry, ``dead`` were given up. ``expired_unread`` messages have expired,
    since the group was created, before the group had pulled them. The oldest waiting message was accepted at
    ``oldest_at``. ``limited_by`` names the limit that keeps messages from the group: ``paused``, ``subject_paused``,
    ``max_in_flight``, ``messages_per_second``, or None. ``consumers`` has the lag of each consumer of a broadcast
    group. ``cells_out`` names cells that cannot be reached, whose messages are not counted. ``held`` describes the held
    keys of an ordered group, and is None for other groups.

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
    limited_by: str | None = None
    consumers: list[ConsumerLag] = []
    cells_out: list[str] = []
    held: HeldKeys | None = None
    expired_unread: int = 0


class GroupHistory(Struct, frozen=True, kw_only=True):
    """The numbers of a group over the last hour, a point about each minute, the oldest first. The lists have one entry
    for each point; ``accepted_per_second`` is that of the subject. A rate is the mean since the point before, None if
    the progress was set meanwhile. ``oldest_seconds`` is the age of the oldest message, 0 if none waits.

    Example:
        >>> [group.waiting for group in api.history("orders").groups]  # the server keeps a point a minute
        []
    """

    group: str
    at: list[datetime]
    accepted_per_second: list[float | None]
    pulled_per_second: list[float | None]
    waiting: list[int]
    oldest_seconds: list[int]
    dead: list[int]


class HistoryPage(Struct, frozen=True, kw_only=True):
    """The history of those groups of a page that moved within an hour. The server keeps points since ``since``; None
    if it keeps none. ``next`` is the ``after`` of the next page.

    Example:
        >>> api.history("orders").next is None
        True
    """

    subject: str
    groups: list[GroupHistory]
    at: datetime
    since: datetime | None = None
    next: str | None = None
