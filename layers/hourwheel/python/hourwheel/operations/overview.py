"""Shows the subjects of a deployment, and the groups of a subject, with their numbers side by side.

The numbers of subjects come from a table in memory. Calls refresh the table, the oldest numbers first, as far as
``RefreshShare`` allows: whatever the number of subjects and of open pages, this takes about a hundredth of one core.
"""

import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hourwheel.context import Context
from hourwheel.delay.lists.pending_counts import Address, PendingCounts
from hourwheel.errors import Rejected
from hourwheel.groups.numbers import MOST_GROUPS, GroupNumbers, SubjectNumbers
from hourwheel.model.overview import (
    GroupOverview,
    GroupOverviewPage,
    OverviewPage,
    OverviewSort,
    QueueOverview,
    SortOrder,
    SubjectOverview,
)
from hourwheel.model.routes import counted
from hourwheel.model.subjects import Subject
from hourwheel.operations.concerns import WatchedGroup, concerns_of_group
from hourwheel.operations.entries import GroupConcerns, SubjectEntry
from hourwheel.operations.history import GroupReading, LastHour, readings_of
from hourwheel.operations.queue_numbers import queue_numbers
from hourwheel.operations.refresh_share import RefreshShare
from hourwheel.operations.thresholds import THRESHOLDS
from hourwheel.operations.trends import LagHistory, histories_after, look_at
from hourwheel.ports.storage import transactional
from hourwheel.registry.broadcast import consumer_groups
from hourwheel.registry.records import subject_record
from hourwheel.registry.registry import Registry
from hourwheel.registry.removed_names import RemovedNames, drop_keys
from hourwheel.times import parse_rfc3339, rfc3339, within

_FRESH_MS = 1_000
"""Numbers of this age are not read again."""

_FIRST_MS = 250
"""A call fills the table of a server that has just started for this long. Later calls complete it."""

_DELAYED_MS, _DELAYED_FAR_MS = 2_000, 30_000
"""The time between two counts of the delayed messages: on one machine, and where each read costs money."""

_DELAYED_ROWS = 20_000  # of schedule logs, read by one call: about 100 ms on one machine
_LISTED_MS = 5_000  # a page that is sorted by a number shows new subjects this late
_NEVER = -(1 << 62)  # before every time, and below every number by which subjects are sorted


_NUMBER = re.compile(r"-?\d+", re.ASCII)
_SUMS = (
    "waiting",
    "in_flight",
    "retrying",
    "backing_off",
    "dead",
    "settled",
    "held",
    "stopped",
    "expired_unread",
)
"""The numbers of a subject that are sums over its groups."""


class OverviewRequest(NamedTuple):
    """Asks for up to ``limit`` subjects behind the cursor ``after`` whose names begin with ``prefix``."""

    after: str = ""
    limit: int = 100
    prefix: str = ""
    sort: OverviewSort = "name"
    order: SortOrder = "asc"


class _OverviewRow(NamedTuple):
    """A subject and the number by which it is sorted."""

    rank: int
    name: str
    subject: Subject

    def order_key(self) -> tuple[int, str]:
        return self.rank, self.name


@dataclass
class Overview:
    """The overview of a deployment. Thread-safe."""

    registry: Registry
    numbers: GroupNumbers
    pending_counts: PendingCounts
    history: LastHour = field(default_factory=LastHour)
    _entries: dict[str, SubjectEntry] = field(default_factory=dict)
    _share: RefreshShare = field(default_factory=RefreshShare)
    _since_ms: int = 0
    """The time of the first look: pulls that find nothing are known since then at least."""

    _listed: list[Subject] = field(default_factory=list)
    _listed_ms: int = _NEVER
    _delayed: Counter[Address] = field(default_factory=Counter)
    _delayed_read: bool = False
    _delayed_ms: int = _NEVER
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def context(self) -> Context:
        return self.registry.context

    def drop(self, deleted: RemovedNames) -> None:
        """Drops the numbers of deleted subjects."""
        self.history.drop(deleted)
        with self._lock:  # other calls look names up that they have listed
            drop_keys(self._entries, [name for name in self._entries if deleted.has_subject(name)])
            self._listed = [subject for subject in self._listed if not deleted.has_subject(subject.name)]

    def page(self, request: OverviewRequest) -> OverviewPage:
        """Returns a page of subjects. Its first call reads the numbers of its subjects, which later calls refresh; a
        page whose subjects have more than ``MOST_GROUPS`` groups, and whose numbers were not read before, ends early.

        Raises ``Rejected`` for a sort by a number where the deployment has no transactions: there each read costs
        money, and such a page needs the numbers of all subjects.

        On DynamoDB: a query for the subjects, for each subject what ``GroupNumbers.read`` needs, and every 30 s what
        ``PendingCounts.everywhere`` needs.
        """
        by_name = (request.sort, request.order) == ("name", "asc")
        if not by_name and not transactional(self.context.store):
            detail = "sort is name and order is asc on this deployment: other orders need the numbers of all subjects"
            raise Rejected("field-invalid", detail, field="sort")
        with self._lock:
            self._count_delayed()
            return self._by_name(request) if by_name else self._by_number(request)

    def concerns(self) -> GroupConcerns:
        """Returns what needs an operator in the subjects. Reads subjects as a page by a number does.

        On DynamoDB: every 30 s a query for each 100 subjects, and what ``page`` needs.
        """
        with self._lock:
            self._count_delayed()
            self._list()
            self._refresh(self._listed)
            entries = [self._entries[subject.name] for subject in self._listed if self._known(subject)]
            seen, now_ms = self.numbers.seen_pulls, self.context.clock.now_ms()
            concerns = [concern for entry in entries for concern in entry.concerns(seen, now_ms)]
            oldest_ms = min((entry.began_ms for entry in entries), default=None)
            return GroupConcerns(concerns, len(entries) == len(self._listed), oldest_ms)

    def groups(self, name: str, after: str, limit: int) -> GroupOverviewPage:
        """Returns up to ``limit`` groups of a subject behind the name ``after``, and its queues. Raises ``NotFound``.

        On DynamoDB: a query for the groups, what ``GroupNumbers.read_groups`` and ``queue_numbers`` need, and every
        30 s what ``PendingCounts.everywhere`` needs.
        """
        subject = self.registry.current_subject(name)
        with self._lock:
            self._count_delayed()
        groups, following = self.registry.group_page(subject, after, limit)
        members = [
            member
            for group in groups
            for member in (group, *(consumer_groups(self.registry, subject, group) if group.broadcast else ()))
        ]
        complete = len(members) <= MOST_GROUPS and self._delayed_read
        read = self.numbers.read_groups(subject, members[:MOST_GROUPS], self._delayed, complete=complete)
        return GroupOverviewPage(
            subject=name,
            delayed=self._delayed_of(subject),
            queues=[self._queue(subject, read, queue) for queue in range(subject.queues)],
            groups=read.groups,
            next=following,
            at=rfc3339(self.context.clock.now_ms()),
            cells_out=read.outages.names,
            complete=read.complete,
        )

    def since_ms(self) -> int | None:
        """Returns since when this process keeps a history: the first call begins it. None if it keeps none."""
        if not transactional(self.context.store):
            return None
        self._since_ms = self._since_ms or self.context.clock.now_ms()
        return self._since_ms

    def look(self) -> None:
        """Reads the numbers of all subjects again, the oldest first, as far as the share allows. Called once a minute
        on one machine, so that the history and the rates go on while nobody looks."""
        with self._lock:
            self._count_delayed()
            self._list()
            listed = sorted(self._listed, key=self._read_ms)
        for subject in listed:
            with self._lock:  # for one subject alone: a page must not wait for all of them
                current = self._current(subject)
                if not self._share.allows(self.context.clock.now_ms()):
                    return
                if current is not None:
                    self._read(current)

    def _read_ms(self, subject: Subject) -> int:
        return self._entries[subject.name].read_ms if self._known(subject) else _NEVER

    def _queue(self, subject: Subject, read: SubjectNumbers, queue: int) -> QueueOverview:
        return queue_numbers(self.context, subject, queue, read.totals)

    def _count_delayed(self) -> None:
        now_ms = self.context.clock.now_ms()
        rest_ms = _DELAYED_MS if transactional(self.context.store) else _DELAYED_FAR_MS
        if within(self._delayed_ms, now_ms, rest_ms) or not self._share.allows(now_ms):
            return
        self._delayed, self._delayed_read = self.pending_counts.everywhere(self.context, most_rows=_DELAYED_ROWS)
        self._delayed_ms = now_ms
        self._share.spend(self.context.clock.now_ms() - now_ms)

    def _delayed_of(self, subject: Subject) -> int:
        return max(0, self._delayed[subject.name, subject.generation, None])

    def _by_name(self, request: OverviewRequest) -> OverviewPage:
        subjects, following = self.registry.subjects(request.after, request.limit, prefix=request.prefix)
        self._refresh(subjects)
        # A page ends before the first subject that was not read. It has one subject at least: ``_refresh`` reads the
        # first one whatever the limits are.
        shown = [subject for index, subject in enumerate(subjects) if all(map(self._known, subjects[: index + 1]))]
        if len(shown) < len(subjects):
            following = shown[-1].name
        return self._page([self._shown(subject) for subject in shown], following)

    def _by_number(self, request: OverviewRequest) -> OverviewPage:
        self._list()
        self._refresh(self._listed)
        ranked = self._ranked(request)
        first = ranked[: request.limit]
        following = f"{first[-1].rank}~{first[-1].name}" if len(ranked) > len(first) else None
        subjects = [self._current(entry.subject) for entry in first]
        page = self._page([self._shown(subject) for subject in subjects if subject is not None], following)
        page.complete = all(map(self._known, self._listed))
        return page

    def _list(self) -> None:
        """Lists the subjects again where the list is old and the share allows it."""
        now_ms = self.context.clock.now_ms()
        rest_ms = _LISTED_MS if transactional(self.context.store) else _DELAYED_FAR_MS
        fresh = within(self._listed_ms, now_ms, rest_ms)
        if self._listed_ms != _NEVER and (fresh or not self._share.allows(now_ms)):
            return
        self._listed = [record for record in self.registry.all_subjects() if not record.deleted]
        self._listed_ms = now_ms
        self._share.spend(self.context.clock.now_ms() - now_ms)
        # Numbers of subjects that were deleted since would stay in memory.
        names = {subject.name for subject in self._listed}
        self._entries = {name: entry for name, entry in self._entries.items() if name in names}

    def _ranked(self, request: OverviewRequest) -> list[_OverviewRow]:
        """Returns the subjects of the request behind its cursor, in its order."""
        listed = [record for record in self._listed if record.name.startswith(request.prefix)]
        ranked = [
            _OverviewRow(_rank(request.sort, self._shown(record)), record.name, record)
            for record in filter(self._known, listed)
        ]
        descending = request.order == "desc"
        ranked.sort(key=_OverviewRow.order_key, reverse=descending)
        if not request.after:
            return ranked
        cursor = _parse_cursor(request.after)
        return [entry for entry in ranked if (entry.order_key() < cursor) == descending and entry.order_key() != cursor]

    def _current(self, subject: Subject) -> Subject | None:
        """Returns the subject with its settings of now; None if it was deleted meanwhile."""
        current = subject_record(self.context, subject.name).load()
        if current is None or current.value.deleted or current.value.generation != subject.generation:
            return None
        return current.value

    def _page(self, subjects: list[SubjectOverview], following: str | None) -> OverviewPage:
        return OverviewPage(subjects=subjects, next=following, at=rfc3339(self.context.clock.now_ms()))

    def _known(self, subject: Subject) -> bool:
        entry = self._entries.get(subject.name)
        return entry is not None and entry.generation == subject.generation

    def _shown(self, subject: Subject) -> SubjectOverview:
        """Returns the numbers as they were read last, with the settings of the record that the caller has read."""
        numbers = self._entries[subject.name].numbers
        numbers.queues, numbers.retention_seconds = subject.queues, subject.retention_seconds
        numbers.paused, numbers.read_only = subject.paused, subject.read_only
        numbers.delayed = self._delayed_of(subject)
        return numbers

    def _refresh(self, subjects: Sequence[Subject]) -> None:
        """Reads the numbers of subjects that were never read, up to a limit, then the oldest ones as far as the share
        allows."""
        began_ms = self.context.clock.now_ms()
        read = 0
        for subject in self._unread(subjects):
            if read and (read >= MOST_GROUPS or self.context.clock.now_ms() - began_ms > _FIRST_MS):
                break
            read += self._read(subject)
        for subject in sorted(filter(self._known, subjects), key=lambda record: self._entries[record.name].order_ms()):
            now_ms = self.context.clock.now_ms()
            if read >= MOST_GROUPS or not self._share.allows(now_ms):
                break
            if within(self._entries[subject.name].read_ms, now_ms, _FRESH_MS):
                continue
            read += self._read(subject)

    def _unread(self, subjects: Sequence[Subject]) -> Iterator[Subject]:
        return (subject for subject in subjects if not self._known(subject))

    def _read(self, subject: Subject) -> int:
        """Reads the numbers of one subject. Returns the number of groups, at least 1."""
        began_ms = self.context.clock.now_ms()
        read = self.numbers.read(subject, self._delayed)
        groups = read.groups
        sums = {name: sum(getattr(group, name) for group in groups) for name in _SUMS}
        numbers = SubjectOverview(
            **sums,
            subject=subject.name,
            queues=subject.queues,
            groups=len(groups),
            delayed=self._delayed_of(subject),
            oldest_at=min((group.oldest_at for group in groups if group.oldest_at is not None), default=None),
            end=sum(counted(read.totals[log].numbers) for log in self._last_logs(subject) if log in read.totals),
            paused=subject.paused,
            read_only=subject.read_only,
            retention_seconds=subject.retention_seconds,
            cells_out=read.outages.names,
            complete=read.complete and self._delayed_read,
            inexact=_inexact(groups, delayed=self._delayed_read),
            at=rfc3339(began_ms),
        )
        now_ms = self.context.clock.now_ms()
        histories = self._histories(subject)
        watched = self._watched(subject, read, histories, began_ms)
        troubled = any(concerns_of_group(group, THRESHOLDS, began_ms) for group in watched)
        points = {group.group: look_at(read, group, began_ms) for group in groups}
        later = histories_after(histories, points, THRESHOLDS)
        readings = self._readings(subject, readings_of(read, numbers.end, began_ms))
        self._entries[subject.name] = SubjectEntry(
            subject.generation, began_ms, now_ms, numbers, watched, troubled, later, readings
        )
        self._share.spend(now_ms - began_ms)
        return max(1, len(groups))

    def _histories(self, subject: Subject) -> Mapping[str, LagHistory]:
        return self._entries[subject.name].histories if self._known(subject) else {}

    def _readings(self, subject: Subject, now: Mapping[str, GroupReading]) -> Mapping[str, GroupReading]:
        """Keeps the history of the groups where a server runs all the time; a function on AWS would show gaps."""
        if not transactional(self.context.store):
            return {}
        return self.history.follow(
            subject.name, self._entries[subject.name].readings if self._known(subject) else {}, now
        )

    def _watched(
        self, subject: Subject, read: SubjectNumbers, histories: Mapping[str, LagHistory], now_ms: int
    ) -> tuple[WatchedGroup, ...]:
        watched_ms = self.since_ms()
        watched: list[WatchedGroup] = []
        for group in read.groups:
            history = histories.get(group.group)
            point = look_at(read, group, now_ms)
            trend = None if history is None or point is None else history.trend(point, THRESHOLDS)
            watched.append(WatchedGroup(subject.name, group, trend, watched_ms, read.pullable_since.get(group.group)))
        return tuple(watched)

    @staticmethod
    def _last_logs(subject: Subject) -> list[str]:
        return [subject.log(queue) for queue in range(subject.queues)]


def _inexact(groups: Sequence[GroupOverview], *, delayed: bool) -> list[str]:
    """Returns the names of the numbers of a subject that are not exact in one of its groups."""
    return sorted({name for group in groups for name in group.inexact} | (set() if delayed else {"delayed"}))


def _rank(sort: OverviewSort, numbers: SubjectOverview) -> int:
    """Returns the number by which the subject is sorted; the older the oldest message, the higher."""
    if sort == "name":
        return 0
    if sort == "oldest":
        return _NEVER if numbers.oldest_at is None else -parse_rfc3339(numbers.oldest_at, "oldest_at")
    rank: int = getattr(numbers, sort)
    return rank


def _parse_cursor(after: str) -> tuple[int, str]:
    rank, separator, name = after.partition("~")
    if not (separator and _NUMBER.fullmatch(rank)):
        raise Rejected(
            "field-invalid", f"after must be the next of an earlier answer, got {after[:40]!r}", field="after"
        )
    return int(rank), name
