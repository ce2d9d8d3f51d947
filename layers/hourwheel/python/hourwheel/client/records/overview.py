"""Defines the numbers of subjects and groups, and the states of wheels, archive and lake, as the API answers them."""

from datetime import datetime
from typing import Literal

from msgspec import Struct

from hourwheel.model.pulls import LimitedBy


class GroupOverview(Struct, frozen=True, kw_only=True):
    """The numbers of a group, as in its ``Lag``. ``settled`` is the sum, over the queues, of the messages that
    the group has pulled or passed over, without those of lost parts; the difference of two answers is the progress of
    the group. ``held`` is the number of held keys of an ordered group, and ``stopped`` of those that wait for an
    operator. ``expired_unread`` messages expired before the group had pulled them. The first dead letter died at
    ``dead_since``; ``limited_by`` names the limit at which the group is. ``pulled_at`` is the last known pull of a
    group whose messages nobody holds. ``inexact`` names the numbers whose count stopped at a limit; ``complete`` is
    False if there are any.

    Example:
        >>> [(group.group, group.waiting) for group in api.subject_overview("orders").groups]
        [('billing', 1)]
    """

    group: str
    waiting: int
    in_flight: int
    retrying: int
    backing_off: int
    dead: int
    settled: int
    oldest_at: datetime | None = None
    paused: bool = False
    broadcast: bool = False
    ordered: bool = False
    pushed: bool = False
    complete: bool = True
    held: int = 0
    stopped: int = 0
    expired_unread: int = 0
    dead_since: datetime | None = None
    limited_by: LimitedBy | None = None
    pulled_at: datetime | None = None
    inexact: list[str] = []


class SubjectOverview(Struct, frozen=True, kw_only=True):
    """The numbers of a subject, summed over its groups, as they were at ``at``. ``end`` is the number of
    messages that the queues ever took, and ``settled`` of those that the groups have pulled: the differences between
    two answers are the messages that came and that were pulled. A part that was lost while it took messages is not
    counted: both are smaller after its loss. ``cells_out`` names cells that cannot be
    reached, whose logs are not counted. ``inexact`` names the numbers whose count stopped at a limit.

    Example:
        >>> [(subject.subject, subject.waiting, subject.end) for subject in api.overview().subjects]
        [('orders', 1, 1)]
    """

    subject: str
    queues: int
    groups: int
    waiting: int
    in_flight: int
    retrying: int
    backing_off: int
    dead: int
    delayed: int
    end: int
    settled: int
    paused: bool
    read_only: bool
    retention_seconds: int
    at: datetime
    oldest_at: datetime | None = None
    cells_out: list[str] = []
    complete: bool = True
    held: int = 0
    stopped: int = 0
    expired_unread: int = 0
    inexact: list[str] = []


class OverviewPage(Struct, frozen=True, kw_only=True):
    """A page of subjects with their numbers. ``next`` is the ``after`` of the next page; None after the last one.
    ``complete`` is False while the server has not read the numbers of every subject yet.

    Example:
        >>> api.overview(sort="waiting").complete
        True
    """

    subjects: list[SubjectOverview]
    at: datetime
    next: str | None = None
    complete: bool = True


class QueueOverview(Struct, frozen=True, kw_only=True):
    """The numbers of a queue. ``start`` is the offset of the first message that is kept, ``end`` that of the next
    message. ``messages`` is the number of messages that are kept (less than the difference where a part of the queue
    was lost). ``produced_per_second`` is the mean of the last minute, and ``bytes`` an estimate of the size of the
    messages before compression. A number that the server does not know is None.

    Example:
        >>> [(queue.start, queue.end, queue.messages) for queue in api.subject_overview("orders").queues]
        [(0, 1, 1)]
    """

    queue: int
    start: int | None = None
    end: int | None = None
    produced_per_second: float | None = None
    bytes: int | None = None
    messages: int | None = None


class GroupOverviewPage(Struct, frozen=True, kw_only=True):
    """A subject with its queues and a page of its groups. ``next`` is the ``after`` of the next page.

    Example:
        >>> api.subject_overview("orders").next is None
        True
    """

    subject: str
    delayed: int
    queues: list[QueueOverview]
    groups: list[GroupOverview]
    at: datetime
    next: str | None = None
    cells_out: list[str] = []
    complete: bool = True


class AttemptCount(Struct, frozen=True, kw_only=True):
    """The ``messages`` of a group whose next attempt is ``attempt``: ``retrying`` ones can be pulled, ``backing_off``
    ones wait for the end of their delay.

    Example:
        >>> (pull,) = api.pull("orders", "billing", "host-1").pulls
        >>> settled = api.settle("orders", "billing", [Settlement(receipt=pull.receipt, retry=[0])])
        >>> [(count.attempt, count.messages) for count in api.count_retries("orders", "billing").attempts]
        [(2, 1)]
    """

    attempt: int
    retrying: int
    backing_off: int
    messages: int


class RetryCounts(Struct, frozen=True, kw_only=True):
    """The retries of a group by attempt. ``complete`` is False if the server stopped counting at its limit.

    Example:
        >>> api.count_retries("orders", "billing").complete
        True
    """

    attempts: list[AttemptCount]
    complete: bool


class EarlyRetries(Struct, frozen=True, kw_only=True):
    """The number of messages that are retried at once. A call with ``next`` as its ``after`` goes on; None: all are.

    Example:
        >>> api.retry_now("orders", "billing", everything=True)
        EarlyRetries(retried=0, next=None)
    """

    retried: int
    next: str | None = None


class OpenLease(Struct, frozen=True, kw_only=True):
    """A lease of ``messages`` to a consumer. The first message of the pull has ``offset`` in ``queue``; both are None
    for retries.

    Example:
        >>> pulled = api.pull("orders", "billing", "host-1")
        >>> [(lease.consumer, lease.messages) for lease in api.list_leases("orders", "billing").leases]
        [('host-1', 1)]
    """

    consumer: str
    messages: int
    lease_until: datetime
    queue: int | None = None
    offset: int | None = None


class OpenLeases(Struct, frozen=True, kw_only=True):
    """The leases of a group that end first. ``complete`` is False if there are more.

    Example:
        >>> api.list_leases("orders", "billing").leases
        []
    """

    leases: list[OpenLease]
    complete: bool


class DeadReason(Struct, frozen=True, kw_only=True):
    """The dead letters with one reason and detail: their number, and when the first and the last one died.

    Example:
        >>> (pull,) = api.pull("orders", "billing", "host-1").pulls
        >>> settled = api.settle("orders", "billing", [Settlement(receipt=pull.receipt, dead=[0])])
        >>> [(each.reason, each.messages) for each in api.dead_reasons("orders", "billing").reasons]
        [('rejected', 1)]
    """

    reason: Literal["attempts", "rejected"]
    messages: int
    first_at: datetime
    last_at: datetime
    detail: str | None = None


class DeadReasons(Struct, frozen=True, kw_only=True):
    """The dead letters of a group by reason, the most frequent reason first. ``others`` counts the dead letters with
    reasons that are left out. ``complete`` is False if the server counted only the oldest dead letters.

    Example:
        >>> api.dead_reasons("orders", "billing").reasons
        []
    """

    reasons: list[DeadReason]
    others: int
    complete: bool


class DueCount(Struct, frozen=True, kw_only=True):
    """The delayed messages that fall due in the hour or minute that begins at ``at``.

    Example:
        >>> result = api.produce("orders", [Message("remind", delay="2h")])
        >>> [step.messages for step in api.due("orders").steps]
        [1]
    """

    at: datetime
    messages: int


class DueCounts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The delayed messages by hour or minute, without the steps in which none is due. ``complete`` is False while the
    server has not read all of them. A call without ``since`` and ``until`` is told the ``total`` of all times, and when
    the next message is due (``next_at``; None: no message is delayed).

    Example:
        >>> result = api.produce("orders", [Message("remind", delay="90d")])
        >>> due = api.due("orders")
        >>> due.messages, due.total
        (0, 1)
    """

    messages: int
    steps: list[DueCount]
    complete: bool
    total: int | None = None
    next_at: datetime | None = None


class BucketWheel(Struct, frozen=True, kw_only=True):
    """The wheel of an open hour bucket. Its ``state`` is ``turning`` (under the lease of its ``owner``), ``asleep``
    (until ``wakes_at``), ``waiting`` (for the time of the bucket) or ``overdue``. ``messages`` counts all messages that
    were stored in the bucket.

    Example:
        >>> result = api.produce("orders", [Message("remind", delay="90d")])
        >>> sum(wheel.messages for wheel in api.wheels().wheels) > 0
        True
    """

    bucket: str
    starts_at: datetime
    ends_at: datetime
    state: Literal["turning", "asleep", "waiting", "overdue"]
    messages: int
    owner: str | None = None
    lease_until: datetime | None = None
    wakes_at: datetime | None = None


class LatenessStep(Struct, frozen=True, kw_only=True):
    """The number of hand-overs of delayed messages that were late by at most ``seconds`` (None: without a limit), and
    by more than the ``seconds`` of the step before.

    Example:
        >>> (api.wheels().lateness or [])[0].seconds
        0.1
    """

    handovers: int
    seconds: float | None = None


class BucketWheels(Struct, frozen=True, kw_only=True):
    """The wheels of the first open buckets; ``complete`` is False if there are more. ``lateness`` is None if the server
    does not measure it.

    Example:
        >>> api.wheels().complete
        True
    """

    wheels: list[BucketWheel]
    complete: bool
    lateness: list[LatenessStep] | None = None


class LakeTable(Struct, frozen=True, kw_only=True):
    """A table of the lake. ``behind`` counts the manifests of the archive whose rows it does not contain yet,
    ``quarantined`` the segments that could not be read. Rows were last added at ``changed_at``.

    Example:
        >>> lake = api.archive().lake
        >>> [] if lake is None else [table.table for table in lake.tables if table.behind]
        []
    """

    table: str
    rows: int
    behind: int
    quarantined: int
    changed_at: datetime | None = None


class LakeState(Struct, frozen=True, kw_only=True):
    """The state of the lake after the last run of ``compact``. ``problems`` counts the damaged or missing objects of
    the archive.

    Example:
        >>> lake = api.archive().lake
        >>> 0 if lake is None else lake.problems
        0
    """

    tables: list[LakeTable]
    problems: int


class Reconciliation(Struct, frozen=True, kw_only=True):
    """The findings of the last ``reconcile`` among the messages that were stored before ``horizon_at``: their number
    by kind, and how many of them are ``errors``. ``totals`` counts messages that were accepted, delivered and given up.

    Example:
        >>> reconciled = api.archive().reconciled
        >>> {} if reconciled is None else reconciled.findings
        {}
    """

    found_at: datetime
    horizon_at: datetime
    findings: dict[str, int]
    errors: int
    totals: dict[str, int]


class ReportPage(Struct, frozen=True, kw_only=True):
    """The report of the pipeline, made at ``made_at``. ``page`` is its location in a bucket; None if it is on the
    machine of the job. If it is ``served``, ``GET /v1/report`` returns it.

    Example:
        >>> report = api.archive().report
        >>> None if report is None else report.page
    """

    made_at: datetime
    page: str | None = None
    served: bool = False


class ArchiveState(Struct, frozen=True, kw_only=True):
    """The state of the archive. Every row that was stored before ``complete_at`` is archived, and the last manifest was
    written at ``last_at``. ``enabled`` is False if the server archives nothing. ``lake``, ``reconciled`` and ``report``
    are the results of the last runs of the pipeline's jobs: None if no job has run, or the server cannot read the lake.

    Example:
        >>> api.archive().manifests
        0
    """

    enabled: bool
    manifests: int
    last_at: datetime | None = None
    complete_at: datetime | None = None
    since: datetime | None = None
    pass_began_at: datetime | None = None
    behind_seconds: float | None = None
    lake: LakeState | None = None
    reconciled: Reconciliation | None = None
    report: ReportPage | None = None
