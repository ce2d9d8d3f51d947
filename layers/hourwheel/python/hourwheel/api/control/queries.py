"""Validates the query parameters of control requests."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from hourwheel.api.control.bodies import DeathDetail, DeathReason, Offset, QueueNumber, check_detail
from hourwheel.model.fields import Text
from hourwheel.model.messages import Key
from hourwheel.model.overview import OverviewSort, SortOrder

# The most entries of a page. A subject lists its first hundred groups, so a page of subjects names at most 10,000.
PAGE = 100

NameText = Annotated[str, Meta(min_length=1, max_length=100)]
TimeText = Annotated[str, Meta(max_length=64)]


class _Query(Struct, kw_only=True, forbid_unknown_fields=True, rename={"since": "from", "until": "to"}):
    """The base of queries. ``from`` is a word of Python, and no name of a field there."""


class PageQuery(_Query):
    limit: Annotated[int, Meta(ge=1, le=PAGE)] = PAGE
    # A page of a broadcast group ends at the name of a consumer, of up to 100 characters, and the id of a dead letter.
    after: Annotated[str, Meta(min_length=1, max_length=150)] | None = None


class OverviewQuery(PageQuery):
    """Asks for a page of the overview. Without ``order``, names are sorted from A to Z and numbers from the largest."""

    prefix: NameText | None = None
    sort: OverviewSort = "name"
    order: SortOrder | None = None


class HistoryQuery(PageQuery):
    """Asks for the history of one group, or of a page of groups."""

    group: NameText | None = None


class AttentionQuery(_Query):
    """Says how many concerns are shown."""

    limit: Annotated[int, Meta(ge=1, le=PAGE)] = PAGE


class DeadQuery(PageQuery):
    """Asks for a page of dead letters: all, or those with a reason."""

    reason: DeathReason | None = None
    detail: DeathDetail | None = None
    newest: bool = False

    def __post_init__(self) -> None:
        check_detail(self.reason, self.detail)


class DelayedQuery(PageQuery):
    """Asks for a page of delayed messages that are due in a span of time, with or without the beginnings of their
    bodies. A ``key``, a ``tag`` and the ``id`` that their sender gave choose some of them."""

    since: TimeText | None = None
    until: TimeText | None = None
    bodies: bool = False
    key: Key | None = None
    tag: Text | None = None
    id: Text | None = None


class DueQuery(_Query):
    """Asks for delayed messages by hour or minute, in a span of time, of one subject or of all."""

    subject: NameText | None = None
    since: TimeText | None = None
    until: TimeText | None = None
    step: Literal["hour", "minute"] = "hour"


class TraceQuery(_Query):
    """Says where a trace searches for a message: in a span of time, and from the position ``after`` on, at which an
    earlier search ended. With ``group`` it shows that group alone."""

    since: TimeText | None = None
    until: TimeText | None = None
    after: Annotated[str, Meta(min_length=1, max_length=25)] | None = None
    group: NameText | None = None

    def __post_init__(self) -> None:
        if self.until is not None and self.since is None:
            raise ValueError("to needs from: give the time at which the search begins too")


class PendingQuery(_Query):
    """Says how many hours ahead are counted; without ``hours`` three days, and the total of all times beside them."""

    hours: Annotated[int, Meta(ge=1, le=744)] | None = None  # 744 hours are 31 days


class PeekQuery(_Query):
    """Says where a peek starts, and in which direction it goes: see ``PeekStart``."""

    offset: Offset | None = None
    time: TimeText | None = None
    newest: bool = False
    limit: Annotated[int, Meta(ge=1, le=PAGE)] = PAGE

    def __post_init__(self) -> None:
        if self.offset is not None and self.time is not None:
            raise ValueError("give either offset or time, not both")


class WithdrawQuery(_Query):
    """Chooses the queue whose pending move is withdrawn; without it all pending changes of the route are."""

    queue: QueueNumber | None = None
    dry_run: bool = False


class RemovalQuery(_Query):
    """``lost``: gives the cell up, with everything that is in it."""

    dry_run: bool = False
    lost: bool = False


class LeaveQuery(_Query):
    """``forget``: a broadcast group forgets the consumer, too."""

    forget: bool = False
