"""Validates the bodies and query parameters of control requests."""

from typing import Annotated, Literal, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field, model_validator

from hourwheel.model.fields import (
    BATCH_MESSAGES,
    MAX_CONSUMER_EXPIRES_SECONDS,
    MAX_HELD,
    MAX_QUEUES,
    MAX_RETENTION_SECONDS,
    MAX_RETRY_SECONDS,
    MIN_CONSUMER_EXPIRES_SECONDS,
    MIN_RETENTION_SECONDS,
    Delay,
)
from hourwheel.model.groups import KEEP_VERSION, PushKind, PushTarget, RetryPolicy, TagFilter, WhenDead
from hourwheel.model.overview import OverviewSort, SortOrder
from hourwheel.model.route_records import CellKind

# The most entries of a page. A subject lists its first hundred groups, so a page of subjects names at most 10,000.
PAGE = 100
MOST_IN_FLIGHT = MOST_PER_SECOND = 1_000_000  # a group that gets more has no use for a limit
LARGEST_OFFSET = 2**63 - 1  # stores keep sequences as signed 64-bit integers


class _Body(BaseModel):
    # A misspelt field is refused instead of ignored, and a number sent as text is no number.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _had(**fields: object) -> str:
    """Returns the end of the sentence for a wrong choice of fields: the names of those that the request had."""
    *names, last = [name for name, value in fields.items() if value is not None] or ["none of them"]
    return f": the request has {', '.join(names)}{' and ' if names else ''}{last}"


class SubjectBody(_Body):
    queues: Annotated[int, Field(ge=1, le=MAX_QUEUES)] | None = None
    retention_seconds: Annotated[int, Field(ge=MIN_RETENTION_SECONDS, le=MAX_RETENTION_SECONDS)] | None = None
    clamp_delays: bool | None = None
    read_only: bool | None = None


RetrySeconds = Annotated[float, Field(ge=0, le=MAX_RETRY_SECONDS, allow_inf_nan=False)]


class RetryBody(_Body):
    """Describes a ``RetryPolicy``: either ``delays_seconds``, or any of the other three fields."""

    first_seconds: RetrySeconds | None = None
    factor: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False)] | None = None
    cap_seconds: RetrySeconds | None = None
    delays_seconds: Annotated[list[RetrySeconds], Field(min_length=1, max_length=100)] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        growing = (self.first_seconds, self.factor, self.cap_seconds)
        if self.delays_seconds is not None and any(field is not None for field in growing):
            raise ValueError("delays_seconds stands alone: leave out first_seconds, factor and cap_seconds")
        return self

    @property
    def policy(self) -> RetryPolicy:
        return msgspec.convert(self.model_dump(exclude_none=True), RetryPolicy)


# The field of an address by the kind of its target; all other kinds are resources of AWS, with an ARN.
_ADDRESSES: dict[str, str] = {"https": "url", "python": "name"}


class PushBody(_Body):
    """Describes a ``PushTarget``. Its ``kind`` decides which field holds its address: ``arn``, ``url`` or ``name``."""

    kind: PushKind
    arn: Annotated[str, Field(min_length=1, max_length=2_000)] | None = None
    url: Annotated[str, Field(min_length=1, max_length=2_000)] | None = None
    name: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    batch: Annotated[int, Field(ge=1, le=BATCH_MESSAGES)] = 10
    concurrency: Annotated[int, Field(ge=1, le=20)] = 2
    # The function push needs twice this time and a minute more (``api/push.py``), of Lambda's 15 minutes.
    timeout_seconds: Annotated[int, Field(ge=1, le=300)] = 30
    secret_version: Annotated[int, Field(ge=1, le=1_000_000)] | None = None

    @model_validator(mode="after")
    def _one_address(self) -> Self:
        field = _ADDRESSES.get(self.kind, "arn")
        if [name for name in ("arn", "url", "name") if getattr(self, name) is not None] != [field]:
            raise ValueError(f"a target of the kind {self.kind} needs {field} and takes no other address")
        if self.secret_version is not None and self.kind != "https":
            raise ValueError("secret_version is for targets of the kind https: only they are signed")
        return self

    @property
    def target(self) -> PushTarget:
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


Tag = Annotated[str, Field(min_length=1, max_length=100)]


class FilterBody(_Body):
    """Describes a ``TagFilter``."""

    tags_any: Annotated[list[Tag], Field(max_length=100)] = []
    tags_all: Annotated[list[Tag], Field(max_length=10)] = []  # a message has at most ten tags
    tags_none: Annotated[list[Tag], Field(max_length=100)] = []

    @model_validator(mode="after")
    def _takes_something(self) -> Self:
        if not (self.tags_any or self.tags_all or self.tags_none):
            raise ValueError("send a tag in tags_any, tags_all or tags_none; a filter of null removes the filter")
        banned = set(self.tags_none)
        if banned.intersection(self.tags_all) or (self.tags_any and banned.issuperset(self.tags_any)):
            raise ValueError("this filter takes no message: tags_none excludes tags that tags_all or tags_any require")
        return self

    @property
    def filter(self) -> TagFilter:
        return TagFilter(**{name: tuple(dict.fromkeys(tags)) for name, tags in self.model_dump().items()})


class GroupBody(_Body):
    """Describes the settings of a group. A ``push`` of null removes the target, and a ``filter`` of null removes the
    filter. The group keeps each setting that the body leaves out."""

    start: Literal["earliest", "latest"] | None = None
    max_attempts: Annotated[int, Field(ge=1, le=1_000)] | None = None
    max_in_flight: Annotated[int, Field(ge=0, le=MOST_IN_FLIGHT)] | None = None
    messages_per_second: Annotated[float, Field(ge=0, le=MOST_PER_SECOND, allow_inf_nan=False)] | None = None
    retry_percent: Annotated[int, Field(ge=1, le=100)] | None = None
    retry: RetryBody | None = None
    push: PushBody | None = None
    filter: FilterBody | None = None
    broadcast: bool | None = None
    consumer_expires_seconds: (
        Annotated[int, Field(ge=MIN_CONSUMER_EXPIRES_SECONDS, le=MAX_CONSUMER_EXPIRES_SECONDS)] | None
    ) = None
    ordered: bool | None = None
    when_dead: WhenDead | None = None
    max_held: Annotated[int, Field(ge=1, le=MAX_HELD)] | None = None
    redelivery_delay_seconds: Annotated[float, Field(ge=0, le=MAX_RETRY_SECONDS, allow_inf_nan=False)] | None = None


MessageKey = Annotated[str, Field(min_length=1, max_length=256)]


class DecisionBody(_Body):
    """Decides whether the stopped keys of an ordered group are retried or given up: all of them, or those in
    ``keys``."""

    then: Literal["retry", "dead"]
    keys: Annotated[list[MessageKey], Field(min_length=1, max_length=1_000)] | None = None
    all: Literal[True] | None = None

    @model_validator(mode="after")
    def _one_choice(self) -> Self:
        if (self.keys is None) is (self.all is None):
            raise ValueError('send either {"all": true} or {"keys": […]}' + _had(all=self.all, keys=self.keys))
        return self


class SeekBody(_Body):
    """Names the new position of a group by exactly one of ``to``, ``time``, or ``queue`` with ``offset``. With
    ``dry_run`` nothing changes."""

    to: Literal["start", "end"] | None = None
    time: str | None = None
    queue: Annotated[int, Field(ge=0, le=MAX_QUEUES - 1)] | None = None
    offset: Annotated[int, Field(ge=0, le=LARGEST_OFFSET)] | None = None
    dry_run: bool = False

    @model_validator(mode="after")
    def _one_aim(self) -> Self:
        aims = (self.to is not None, self.time is not None, self.queue is not None or self.offset is not None)
        if sum(aims) != 1 or (self.queue is None) is not (self.offset is None):
            raise ValueError(
                'send one of {"to": "start" or "end"}, {"time": …} or {"queue": …, "offset": …}'
                + _had(to=self.to, time=self.time, queue=self.queue, offset=self.offset)
            )
        return self


DeathReason = Literal["attempts", "rejected"]
DeathDetail = Annotated[str, Field(min_length=1, max_length=1_000)]


class SelectionBody(_Body):
    """Selects dead letters by exactly one of ``all``, ``ids``, the time of death (``from``, ``to`` or both), or a
    ``reason``, which may have a ``detail``."""

    all: Literal[True] | None = None
    ids: Annotated[list[str], Field(min_length=1, max_length=1_000)] | None = None
    since: str | None = Field(default=None, alias="from")
    until: str | None = Field(default=None, alias="to")
    reason: DeathReason | None = None
    detail: DeathDetail | None = None

    @model_validator(mode="after")
    def _one_choice(self) -> Self:
        in_time = self.since is not None or self.until is not None
        if sum((self.all is not None, self.ids is not None, in_time, self.reason is not None)) != 1:
            times = {"from": self.since, "to": self.until}
            raise ValueError(
                'send one of {"all": true}, {"ids": […]}, {"from": …, "to": …} or {"reason": …}'
                + _had(all=self.all, ids=self.ids, **times, reason=self.reason)
            )
        _check_detail(self.reason, self.detail)
        return self


class MoveBody(_Body):
    """Names the cell to which a queue moves. With ``dry_run`` nothing changes."""

    cell: Annotated[str, Field(min_length=1, max_length=30)]
    dry_run: bool = False


class SpreadBody(_Body):
    """Names the cells over which a subject's queues spread; without ``cells`` they spread over all cells that take
    queues. With ``dry_run`` nothing changes."""

    cells: Annotated[list[str], Field(min_length=1, max_length=100)] | None = None
    dry_run: bool = False


class QueuesBody(_Body):
    """Says how many queues the subject has afterwards. With ``dry_run`` nothing changes."""

    queues: Annotated[int, Field(ge=1, le=MAX_QUEUES)]
    dry_run: bool = False


class CellBody(_Body):
    """Adds a cell or changes its kinds, or with ``state`` sets the state of the cell. With ``dry_run`` nothing
    changes."""

    kinds: Annotated[list[CellKind], Field(min_length=1, max_length=2)] | None = None
    state: Literal["normal", "read_only", "draining", "offline"] | None = None
    dry_run: bool = False


class DrainBody(_Body):
    """Moves every queue of a cell to other cells. With ``dry_run`` nothing changes."""

    dry_run: bool = False


class RescheduleBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Names the new time of a delayed message in exactly one of the two fields, in the form that a new message has."""

    deliver_at: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    delay: Delay | None = None


class _Query(BaseModel):
    """Parses numbers from text, because query parameters are text."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PendingQuery(_Query):
    """Says how many hours ahead are counted; without ``hours`` three days, and the total of all times beside them."""

    hours: Annotated[int, Field(ge=1, le=744)] | None = None  # 744 hours are 31 days


class PeekQuery(_Query):
    """Says where a peek starts, and in which direction it goes: see ``PeekStart``."""

    offset: Annotated[int, Field(ge=0, le=LARGEST_OFFSET)] | None = None
    time: Annotated[str, Field(max_length=64)] | None = None
    newest: bool = False
    limit: Annotated[int, Field(ge=1, le=PAGE)] = PAGE

    @model_validator(mode="after")
    def _one_start(self) -> Self:
        if self.offset is not None and self.time is not None:
            raise ValueError("give either offset or time, not both")
        return self


class DryRunQuery(_Query):
    dry_run: bool = False


class WithdrawQuery(_Query):
    """Chooses the queue whose pending move is withdrawn; without it all pending changes of the route are."""

    queue: Annotated[int, Field(ge=0, le=MAX_QUEUES - 1)] | None = None
    dry_run: bool = False


class RemovalQuery(DryRunQuery):
    """``lost``: gives the cell up, with everything that is in it."""

    lost: bool = False


class LeaveQuery(_Query):
    """``forget``: a broadcast group forgets the consumer, too."""

    forget: bool = False


class TraceQuery(_Query):
    """Says where a trace searches for a message: in a span of time, and from the position ``after`` on, at which an
    earlier search ended. With ``group`` it shows that group alone."""

    since: Annotated[str, Field(max_length=64)] | None = Field(default=None, alias="from")
    until: Annotated[str, Field(max_length=64)] | None = Field(default=None, alias="to")
    after: Annotated[str, Field(min_length=1, max_length=25)] | None = None
    group: Annotated[str, Field(min_length=1, max_length=100)] | None = None

    @model_validator(mode="after")
    def _whole_span(self) -> Self:
        if self.until is not None and self.since is None:
            raise ValueError("to needs from: give the time at which the search begins too")
        return self


class PageQuery(_Query):
    limit: Annotated[int, Field(ge=1, le=PAGE)] = PAGE
    # A page of a broadcast group ends at the name of a consumer, of up to 100 characters, and the id of a dead letter.
    after: Annotated[str, Field(min_length=1, max_length=150)] | None = None


class OverviewQuery(PageQuery):
    """Asks for a page of the overview. Without ``order``, names are sorted from A to Z and numbers from the largest."""

    prefix: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    sort: OverviewSort = "name"
    order: SortOrder | None = None


class DueQuery(_Query):
    """Asks for delayed messages by hour or minute, in a span of time, of one subject or of all."""

    subject: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    since: Annotated[str, Field(max_length=64)] | None = Field(default=None, alias="from")
    until: Annotated[str, Field(max_length=64)] | None = Field(default=None, alias="to")
    step: Literal["hour", "minute"] = "hour"


class DelayedQuery(PageQuery):
    """Asks for a page of delayed messages that are due in a span of time, with or without the beginnings of their
    bodies."""

    since: Annotated[str, Field(max_length=64)] | None = Field(default=None, alias="from")
    until: Annotated[str, Field(max_length=64)] | None = Field(default=None, alias="to")
    bodies: bool = False


class DeadQuery(PageQuery):
    """Asks for a page of dead letters: all, or those with a reason."""

    reason: DeathReason | None = None
    detail: DeathDetail | None = None
    newest: bool = False

    @model_validator(mode="after")
    def _no_detail_alone(self) -> Self:
        _check_detail(self.reason, self.detail)
        return self


def _check_detail(reason: str | None, detail: str | None) -> None:
    """Raises ``ValueError`` for a detail without a reason."""
    if detail is not None and reason is None:
        raise ValueError("detail needs reason: give the reason that the detail belongs to")


_SUBJECT_PATTERN = r"[A-Za-z0-9._-]{0,100}\*?"
_GRANT_DAYS = 7  # the longest lifetime of a token that is not renewed: bounds the harm of a stolen one

_RENEWED_DAYS = 400  # more than a year, so that an operator may create tokens once a year


class GrantBody(_Body):
    """Says what the bearer of a token may do, and for how long."""

    produce: Annotated[
        list[Annotated[str, Field(pattern=f"^{_SUBJECT_PATTERN}$", min_length=1)]], Field(max_length=20)
    ] = []
    pull: Annotated[
        list[Annotated[str, Field(pattern=f"^{_SUBJECT_PATTERN}/{_SUBJECT_PATTERN}$")]], Field(max_length=20)
    ] = []
    delayed: bool = False
    seconds: Annotated[int, Field(ge=60, le=_GRANT_DAYS * 86_400)] = 12 * 3_600
    renew_seconds: Annotated[int, Field(ge=0, le=_RENEWED_DAYS * 86_400)] = 0

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not (self.produce or self.pull):
            raise ValueError("a token must allow something: name subjects in produce, or groups in pull")
        if any(pattern.startswith("/") or pattern.endswith("/") for pattern in self.pull):
            raise ValueError("an entry of pull must name a subject and a group, such as orders/billing")
        return self


class RotateBody(_Body):
    """Begins another key for tokens. With ``revoke`` no earlier token is valid any more."""

    revoke: bool = False
