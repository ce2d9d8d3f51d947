"""Validates the bodies of control requests. A misspelt field is refused instead of ignored."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, UnsetType, field

from hourwheel.model.fields import BATCH_MESSAGES, MAX_QUEUES, MAX_RETRY_SECONDS, Delay, Text
from hourwheel.model.group_settings import AllGroupSettings
from hourwheel.model.groups import KEEP_VERSION, PushKind, PushTarget, RetryPolicy, TagFilter
from hourwheel.model.route_records import CellKind
from hourwheel.model.settings import type_of_change
from hourwheel.model.subject_settings import SubjectSettings

LARGEST_OFFSET = 2**63 - 1  # stores keep sequences as signed 64-bit integers

Offset = Annotated[int, Meta(ge=0, le=LARGEST_OFFSET)]
QueueNumber = Annotated[int, Meta(ge=0, le=MAX_QUEUES - 1)]


class _Body(Struct, kw_only=True, forbid_unknown_fields=True):
    """The base of bodies."""


def _had(**fields: object) -> str:
    """Returns the end of the sentence for a wrong choice of fields: the names of those that the request had."""
    *names, last = [name for name, value in fields.items() if value is not None] or ["none of them"]
    return f": the request has {', '.join(names)}{' and ' if names else ''}{last}"


SubjectBody = type_of_change(
    "SubjectBody",
    SubjectSettings,
    "Describes the settings of a subject, which keeps each setting that the body leaves out.",
)


RetrySeconds = Annotated[float, Meta(ge=0, le=MAX_RETRY_SECONDS)]
FirstSeconds = Annotated[
    float, Meta(title="First delay", description="the first delay (5 by default)", ge=0, le=MAX_RETRY_SECONDS)
]
Factor = Annotated[
    float, Meta(title="Factor", description="the factor by which each delay is longer (2 by default)", ge=1, le=100)
]
CapSeconds = Annotated[
    float, Meta(title="Longest delay", description="the longest delay (7,200 by default)", ge=0, le=MAX_RETRY_SECONDS)
]


class RetryBody(_Body, omit_defaults=True):
    """Describes a ``RetryPolicy``: either ``delays_seconds``, or any of the other three fields."""

    first_seconds: FirstSeconds | None = None
    factor: Factor | None = None
    cap_seconds: CapSeconds | None = None
    delays_seconds: Annotated[list[RetrySeconds], Meta(min_length=1, max_length=100)] | None = None

    def __post_init__(self) -> None:
        growing = (self.first_seconds, self.factor, self.cap_seconds)
        if self.delays_seconds is not None and any(value is not None for value in growing):
            raise ValueError("delays_seconds stands alone: leave out first_seconds, factor and cap_seconds")

    @property
    def stored(self) -> RetryPolicy:
        return msgspec.convert(msgspec.to_builtins(self), RetryPolicy)


# The field of an address by the kind of its target; all other kinds are resources of AWS, with an ARN.
_ADDRESSES: dict[str, str] = {"https": "url", "python": "name"}


BatchMessages = Annotated[
    int, Meta(title="Batch", description="the most messages of a delivery", ge=1, le=BATCH_MESSAGES)
]
Deliveries = Annotated[
    int, Meta(title="Deliveries at a time", description="the most deliveries at a time", ge=1, le=20)
]
# The function push needs twice this time and a minute more (``api/background/push.py``), of Lambda's 15 minutes.
DeliverySeconds = Annotated[
    int, Meta(title="Time-out", description="the time that the target has for a delivery", ge=1, le=300)
]
SecretVersion = Annotated[
    int,
    Meta(
        title="Version of the secret",
        description="the version of the signing secret (https): raise it for a new one",
        ge=1,
        le=1_000_000,
    ),
]


class PushBody(_Body):
    """Describes a ``PushTarget``. Its ``kind`` decides which field holds its address: ``arn``, ``url`` or ``name``."""

    kind: PushKind
    arn: Annotated[str, Meta(min_length=1, max_length=2_000)] | None = None
    url: Annotated[str, Meta(min_length=1, max_length=2_000)] | None = None
    name: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    batch: BatchMessages = 10
    concurrency: Deliveries = 2
    timeout_seconds: DeliverySeconds = 30
    secret_version: SecretVersion | None = None

    def __post_init__(self) -> None:
        address = _ADDRESSES.get(self.kind, "arn")
        if [name for name in ("arn", "url", "name") if getattr(self, name) is not None] != [address]:
            raise ValueError(f"a target of the kind {self.kind} needs {address} and takes no other address")
        if self.secret_version is not None and self.kind != "https":
            raise ValueError("secret_version is for targets of the kind https: only they are signed")

    @property
    def stored(self) -> PushTarget:
        return PushTarget(
            kind=self.kind,
            address=getattr(self, _ADDRESSES.get(self.kind, "arn")),
            batch=self.batch,
            concurrency=self.concurrency,
            timeout_seconds=self.timeout_seconds,
            secret_version=self.secret_version or KEEP_VERSION,
        )

    @staticmethod
    def of(target: PushTarget) -> dict[str, object]:
        """Returns the body that a client would send for the target."""
        fields = msgspec.structs.asdict(target)
        address = fields.pop("address")
        if target.kind != "https":
            del fields["secret_version"]
        return {"kind": fields.pop("kind"), _ADDRESSES.get(target.kind, "arn"): address, **fields}


Tag = Annotated[str, Meta(min_length=1, max_length=100)]


class FilterBody(_Body):
    """Describes a ``TagFilter``."""

    tags_any: Annotated[list[Tag], Meta(max_length=100)] = field(default_factory=list)
    tags_all: Annotated[list[Tag], Meta(max_length=10)] = field(default_factory=list)  # a message has at most ten tags
    tags_none: Annotated[list[Tag], Meta(max_length=100)] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not (self.tags_any or self.tags_all or self.tags_none):
            raise ValueError("send a tag in tags_any, tags_all or tags_none; a filter of null removes the filter")
        banned = set(self.tags_none)
        if banned.intersection(self.tags_all) or (self.tags_any and banned.issuperset(self.tags_any)):
            raise ValueError("this filter takes no message: tags_none excludes tags that tags_all or tags_any require")

    @property
    def stored(self) -> TagFilter:
        return TagFilter(**{name: tuple(dict.fromkeys(tags)) for name, tags in msgspec.structs.asdict(self).items()})


GroupBody = type_of_change(
    "GroupBody",
    AllGroupSettings,
    "Describes the settings of a group. A ``push`` of null removes the target, and a ``filter`` of null removes the"
    " filter. The group keeps each setting that the body leaves out.",
    retry=Annotated[RetryBody | UnsetType | None, Meta(description="how long a message waits before it is retried")],
    push=Annotated[PushBody | UnsetType | None, Meta(description="where messages are delivered")],
    filter=Annotated[FilterBody | UnsetType | None, Meta(description="which messages the group takes")],
)


MessageKey = Annotated[str, Meta(min_length=1, max_length=256)]


class DecisionBody(_Body):
    """Decides whether the stopped keys of an ordered group are retried or given up: all of them, or those in
    ``keys``."""

    then: Literal["retry", "dead"]
    keys: Annotated[list[MessageKey], Meta(min_length=1, max_length=1_000)] | None = None
    all: Literal[True] | None = None

    def __post_init__(self) -> None:
        if (self.keys is None) is (self.all is None):
            raise ValueError('send either {"all": true} or {"keys": […]}' + _had(all=self.all, keys=self.keys))


class SeekBody(_Body):
    """Names the new position of a group by exactly one of ``to``, ``time``, or ``queue`` with ``offset``. With
    ``dry_run`` nothing changes."""

    to: Literal["start", "end"] | None = None
    time: str | None = None
    queue: QueueNumber | None = None
    offset: Offset | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        aims = (self.to is not None, self.time is not None, self.queue is not None or self.offset is not None)
        if sum(aims) != 1 or (self.queue is None) is not (self.offset is None):
            raise ValueError(
                'send one of {"to": "start" or "end"}, {"time": …} or {"queue": …, "offset": …}'
                + _had(to=self.to, time=self.time, queue=self.queue, offset=self.offset)
            )


DeathReason = Literal["attempts", "rejected"]
DeathDetail = Annotated[str, Meta(min_length=1, max_length=1_000)]


class EarlyRetryBody(_Body):
    """Chooses the messages that are retried at once: ``all`` that wait for their delay, or those with a ``key``, with
    the ``detail`` that the consumer said of the failure, or with both. ``after`` is the ``next`` of an answer."""

    all: Literal[True] | None = None
    key: MessageKey | None = None
    detail: DeathDetail | None = None
    after: str | None = None

    def __post_init__(self) -> None:
        if (self.all is None) is (self.key is None and self.detail is None):
            raise ValueError(
                'send {"all": true}, or a key, a detail or both' + _had(all=self.all, key=self.key, detail=self.detail)
            )


class SelectionBody(_Body, rename={"since": "from", "until": "to"}):
    """Selects dead letters by exactly one of ``all``, ``ids``, the time of death (``from``, ``to`` or both), or a
    ``reason``, which may have a ``detail``."""

    all: Literal[True] | None = None
    ids: Annotated[list[str], Meta(min_length=1, max_length=1_000)] | None = None
    since: str | None = None
    until: str | None = None
    reason: DeathReason | None = None
    detail: DeathDetail | None = None

    def __post_init__(self) -> None:
        in_time = self.since is not None or self.until is not None
        if sum((self.all is not None, self.ids is not None, in_time, self.reason is not None)) != 1:
            times = {"from": self.since, "to": self.until}
            raise ValueError(
                'send one of {"all": true}, {"ids": […]}, {"from": …, "to": …} or {"reason": …}'
                + _had(all=self.all, ids=self.ids, **times, reason=self.reason)
            )
        check_detail(self.reason, self.detail)


def check_detail(reason: str | None, detail: str | None) -> None:
    """Raises ``ValueError`` for a detail without a reason."""
    if detail is not None and reason is None:
        raise ValueError("detail needs reason: give the reason that the detail belongs to")


class MoveBody(_Body):
    """Names the cell to which a queue moves. With ``dry_run`` nothing changes."""

    cell: Annotated[str, Meta(min_length=1, max_length=30)]
    dry_run: bool = False


class SpreadBody(_Body):
    """Names the cells over which a subject's queues spread; without ``cells`` they spread over all cells that take
    queues. With ``dry_run`` nothing changes."""

    cells: Annotated[list[str], Meta(min_length=1, max_length=100)] | None = None
    dry_run: bool = False


class QueuesBody(_Body):
    """Says how many queues the subject has afterwards. With ``dry_run`` nothing changes."""

    queues: Annotated[int, Meta(ge=1, le=MAX_QUEUES)]
    dry_run: bool = False


class CellBody(_Body):
    """Adds a cell or changes its kinds, or with ``state`` sets the state of the cell. With ``dry_run`` nothing
    changes."""

    kinds: Annotated[list[CellKind], Meta(min_length=1, max_length=2)] | None = None
    state: Literal["normal", "read_only", "draining", "offline"] | None = None
    dry_run: bool = False


class DrainBody(_Body):
    """Moves every queue of a cell to other cells. With ``dry_run`` nothing changes."""

    dry_run: bool = False


class RescheduleBody(_Body):
    """Names the new time of a delayed message in exactly one of the two fields, in the form that a new message has."""

    deliver_at: Annotated[str, Meta(max_length=64)] | None = None
    delay: Delay | None = None

    def __post_init__(self) -> None:
        if (self.deliver_at is None) is (self.delay is None):
            raise ValueError('send either {"deliver_at": …} or {"delay": …}')


class ChoiceBody(_Body, rename={"since": "from", "until": "to"}):
    """Chooses delayed messages: ``all``, or those that are due in a span, that have the ``key``, the ``tag`` or the
    ``id`` that their sender gave. ``after`` is the ``next`` of an answer. With ``dry_run`` nothing changes."""

    all: Literal[True] | None = None
    since: Annotated[str, Meta(max_length=64)] | None = None
    until: Annotated[str, Meta(max_length=64)] | None = None
    key: MessageKey | None = None
    tag: Text | None = None
    id: Text | None = None
    after: str | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        chosen = {"from": self.since, "to": self.until, "key": self.key, "tag": self.tag, "id": self.id}
        if (self.all is None) is not any(value is not None for value in chosen.values()):
            raise ValueError(
                'send {"all": true}, or one or more of from, to, key, tag and id' + _had(all=self.all, **chosen)
            )


class ChoiceMoveBody(ChoiceBody, kw_only=True, rename={"since": "from", "until": "to"}):
    """Chooses delayed messages, and names their new time. With ``dry_run`` nothing changes."""

    deliver_at: Annotated[str, Meta(max_length=64)]


_ROLE_OR_USER = r"^arn:aws[a-z-]*:iam::\d{12}:(role|user)/[A-Za-z0-9+=.@_/-]*[A-Za-z0-9+=.@_-]\Z"
_SUBJECT_PATTERN = r"[A-Za-z0-9._-]{0,100}\*?"
_GRANT_DAYS = 7  # the longest lifetime of a token that is not renewed: bounds the harm of a stolen one

_RENEWED_DAYS = 400  # more than a year, so that an operator may create tokens once a year


class GrantBody(_Body):
    """Says what the bearer of a token may do, and for how long. ``caller``: the role or user that alone may use it."""

    produce: Annotated[
        list[Annotated[str, Meta(pattern=rf"^{_SUBJECT_PATTERN}\Z", min_length=1)]], Meta(max_length=20)
    ] = field(default_factory=list)
    pull: Annotated[
        list[Annotated[str, Meta(pattern=rf"^{_SUBJECT_PATTERN}/{_SUBJECT_PATTERN}\Z")]], Meta(max_length=20)
    ] = field(default_factory=list)
    delayed: bool = False
    caller: Annotated[str, Meta(pattern=_ROLE_OR_USER, max_length=700)] | None = None
    seconds: Annotated[int, Meta(ge=60, le=_GRANT_DAYS * 86_400)] = 12 * 3_600
    renew_seconds: Annotated[int, Meta(ge=0, le=_RENEWED_DAYS * 86_400)] = 0

    def __post_init__(self) -> None:
        if not (self.produce or self.pull):
            raise ValueError("a token must allow something: name subjects in produce, or groups in pull")
        if any(pattern.startswith("/") or pattern.endswith("/") for pattern in self.pull):
            raise ValueError("an entry of pull must name a subject and a group, such as orders/billing")


class RotateBody(_Body):
    """Begins another key for tokens. With ``revoke`` no earlier token is valid any more."""

    revoke: bool = False
