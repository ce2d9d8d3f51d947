"""Defines the numbers of subjects and groups side by side, as calls return them."""

from typing import Literal, TypeAlias

from msgspec import Struct

from hourwheel.model.last_runs import ReconcileRun
from hourwheel.model.pulls import LimitedBy

OverviewSort: TypeAlias = Literal["name", "waiting", "in_flight", "retrying", "dead", "delayed", "oldest"]

SortOrder: TypeAlias = Literal["asc", "desc"]


class GroupOverview(Struct, kw_only=True):
    """The numbers of a group, as in its lag. ``settled`` is the sum over the queues of the messages that the group has
    pulled or passed over, without those of lost parts; ``expired_unread`` counts those that expired before the group
    had pulled them. An ordered group has ``held`` keys, of which ``stopped`` ones
    wait for an operator. The first of the dead letters died at ``dead_since``. ``limited_by`` names the limit at which
    the group is. ``pulled_at`` is the last known pull of a group whose messages nobody holds. ``inexact`` names the
    numbers whose count stopped at its limit; ``complete`` is False where there are any."""

    group: str
    waiting: int = 0
    in_flight: int = 0
    retrying: int = 0
    backing_off: int = 0
    dead: int = 0
    oldest_at: str | None = None
    settled: int = 0
    held: int = 0
    stopped: int = 0
    expired_unread: int = 0
    paused: bool = False
    broadcast: bool = False
    ordered: bool = False
    pushed: bool = False
    complete: bool = True
    dead_since: str | None = None
    limited_by: LimitedBy | None = None
    pulled_at: str | None = None
    inexact: list[str] = []


class SubjectOverview(Struct, kw_only=True):
    """The numbers of a subject: those of its groups, summed. ``end`` is the sum over the queues of the messages
    that they ever took, without those of parts that were lost while they took messages; ``settled`` counts those that
    the groups have pulled. ``inexact`` names the numbers that are so in a group. All were read at ``at``."""

    subject: str
    queues: int
    groups: int
    waiting: int
    in_flight: int
    retrying: int
    backing_off: int
    dead: int
    delayed: int
    oldest_at: str | None
    end: int
    settled: int
    held: int
    stopped: int
    expired_unread: int
    paused: bool
    read_only: bool
    retention_seconds: int
    cells_out: list[str]
    complete: bool
    at: str
    inexact: list[str] = []


class OverviewPage(Struct, kw_only=True):
    """A page of subjects. ``complete`` is False while the server has not read the numbers of every subject yet, so that
    a page that is sorted by a number may lack some."""

    subjects: list[SubjectOverview]
    next: str | None
    at: str
    complete: bool = True


class QueueOverview(Struct, kw_only=True):
    """A queue: the offset of the first message that is kept (``start``), the one that the next message gets (``end``),
    and the number of ``messages`` that are kept. This number is less than the difference where a part was lost.
    ``produced_per_second`` is the mean of the last minute, ``bytes`` an estimate from the newest rows, before
    compression. None: not known, because the queue is out of reach or the subject has many queues."""

    queue: int
    start: int | None
    end: int | None
    messages: int | None
    produced_per_second: float | None
    bytes: int | None


class GroupOverviewPage(Struct, kw_only=True):
    """A subject with a page of its groups side by side."""

    subject: str
    delayed: int
    queues: list[QueueOverview]
    groups: list[GroupOverview]
    next: str | None
    at: str
    cells_out: list[str]
    complete: bool


class GroupHistory(Struct, kw_only=True):
    """The numbers of a group over the last hour, a point about each minute, the oldest first. The lists have one entry
    for each point. A rate is the mean since the point before; None if the progress was set meanwhile."""

    group: str
    at: list[str] = []
    accepted_per_second: list[float | None] = []
    """Of the subject."""
    pulled_per_second: list[float | None] = []
    waiting: list[int] = []
    oldest_seconds: list[int] = []
    """The age of the oldest message; 0 if none waits."""
    dead: list[int] = []


class HistoryPage(Struct, kw_only=True):
    """The history of those groups of a page that moved within an hour. ``since`` is the time from which on this server
    keeps points; None if it keeps none."""

    subject: str
    since: str | None
    groups: list[GroupHistory]
    next: str | None
    at: str


class AttemptCount(Struct, kw_only=True):
    """Messages whose next attempt is ``attempt``: those that can be pulled, and those that wait for their delay."""

    attempt: int
    retrying: int = 0
    backing_off: int = 0
    messages: int = 0


class RetryCounts(Struct, kw_only=True):
    """The retries of a group by attempt. ``complete`` is False where the count stopped at its limit."""

    attempts: list[AttemptCount]
    complete: bool


class OpenLease(Struct, kw_only=True):
    """A lease of this number of ``messages`` to a consumer. ``queue`` and ``offset`` are those of the pull's first
    message; both are None for a pull of retries."""

    consumer: str
    queue: int | None
    offset: int | None
    messages: int
    lease_until: str


class OpenLeases(Struct, kw_only=True):
    """The leases of a group that end first. ``complete`` is False where there are more."""

    leases: list[OpenLease]
    complete: bool


class DeadReason(Struct, kw_only=True):
    """The dead letters with one reason and detail: their number, and when the first and the last one died."""

    reason: str
    detail: str | None
    messages: int
    first_at: str
    last_at: str


class DeadReasons(Struct, kw_only=True):
    """The dead letters of a group by reason, the most frequent first. ``others`` have reasons that are left out.
    ``complete`` is False where the count stopped at its limit, behind the oldest dead letters."""

    reasons: list[DeadReason]
    others: int
    complete: bool


class DueCount(Struct, kw_only=True):
    """The delayed messages that fall due in the hour or minute that begins at ``at``."""

    at: str
    messages: int


class DueCounts(Struct, kw_only=True, omit_defaults=True):
    """Delayed messages by hour or minute; steps without any are left out. ``complete`` is False where not every row was
    read: a step may then be too high or, for one subject, too low. Where no span was asked for, ``total`` counts the
    delayed messages of all times, and ``next_at`` is the time at which the next one is due."""

    messages: int
    steps: list[DueCount]
    complete: bool
    total: int | None = None
    next_at: str | None = None


class DelayedCount(Struct, kw_only=True):
    """The number of delayed messages of all times, and when the next one is due (None: there is none). ``complete`` is
    False where not every row was read: there may then be more, and an earlier one."""

    messages: int
    next_at: str | None
    complete: bool


class BucketWheel(Struct, kw_only=True):
    """An open bucket and its wheel: ``turning`` under a lease of ``owner`` until ``lease_until``, ``asleep`` until
    ``wakes_at``, ``waiting`` for the time of its bucket, or ``overdue``: nobody turns it, and it should turn.
    ``messages`` counts those that were ever stored in the bucket."""

    bucket: str
    starts_at: str
    ends_at: str
    state: Literal["turning", "asleep", "waiting", "overdue"]
    owner: str | None
    lease_until: str | None
    wakes_at: str | None
    messages: int


class LatenessStep(Struct, kw_only=True):
    """The number of hand-overs that were at most ``seconds`` late (None: no bound), and later than those of the step
    before."""

    seconds: float | None
    handovers: int


class BucketWheels(Struct, kw_only=True):
    """The wheels of the next open buckets, and how late this process has handed messages over since it started (None:
    not known here)."""

    wheels: list[BucketWheel]
    lateness: list[LatenessStep] | None
    complete: bool


class LakeTable(Struct, kw_only=True):
    """A table of the lake: its rows, the manifests of the archive that it does not hold yet (``behind``), the segments
    that could not be read (``quarantined``), and when rows were last added."""

    table: str
    rows: int
    behind: int
    quarantined: int
    changed_at: str | None


class LakeState(Struct, kw_only=True):
    """The lake as the last ``compact`` left it. ``problems`` counts the damaged or missing objects of the archive."""

    tables: list[LakeTable]
    problems: int


class ReportState(Struct, kw_only=True):
    """The report of the pipeline. ``page`` is its place in a bucket; None where it is on the machine of the job. Where
    it is ``served``, ``GET /v1/report`` returns it."""

    made_at: str
    page: str | None
    served: bool


class ArchiveState(Struct, kw_only=True):
    """The progress of the archive: the number of its ``manifests``, and when the last one was written; the time before
    which every row is archived. It also tells when the pass that is under way began, and how many seconds the archive
    is behind. ``enabled`` is False where this server archives nothing. ``lake``, ``reconciled`` and ``report`` are the
    results of the last runs of the pipeline's jobs: None where none has run, or where the server cannot reach the
    lake."""

    enabled: bool
    manifests: int
    last_at: str | None
    complete_at: str | None
    since: str | None
    pass_began_at: str | None
    behind_seconds: float | None
    lake: LakeState | None = None
    reconciled: ReconcileRun | None = None
    report: ReportState | None = None
