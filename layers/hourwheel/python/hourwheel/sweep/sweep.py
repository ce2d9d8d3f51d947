"""Sweeps a deployment: ends expired leases, moves checkpoints, removes expired rows, reports how far groups are behind.

A look at a subject reads counters and the tails of pull logs, and ends leases. ``sweep/decisions.py`` decides what
follows: maintenance, pushes, and whether the subject rests. The memory of a process is only a hint: a new process
looks at everything.
"""

import logging
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from hourwheel.cells.moves import finish_change, refresh_route
from hourwheel.context import Context
from hourwheel.dead_letters.dead import DeadLetters
from hourwheel.delay.changes import ScheduledMessages
from hourwheel.delay.maintenance import RegisteredBucket, buckets_due_soon, drop_closed, start_wheels
from hourwheel.delay.orphans import orphan_logs, unregister_orphan
from hourwheel.errors import NotFound
from hourwheel.groups.open_ends import LogEnd, OpenEnds
from hourwheel.groups.progress import LogLag, lag_of_log
from hourwheel.logs.log import Log
from hourwheel.model.fields import DEAD_RETENTION_MS
from hourwheel.model.groups import Group
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Counter, Table
from hourwheel.pull_log.open_logs import PullLogs
from hourwheel.pull_log.parked_counts import ParkedLag
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.totals import read_totals
from hourwheel.push.waking import start_free, start_overdue
from hourwheel.registry.broadcast import with_all_settings
from hourwheel.registry.registry import Registry
from hourwheel.registry.removed_names import RemovedNames, drop_keys, drop_logs
from hourwheel.retention.extend_ttl import extend_ttl
from hourwheel.retention.kinds import MESSAGES, PULLS
from hourwheel.retention.watermarks import behind_seconds, removable_below
from hourwheel.settling.leases import Leases
from hourwheel.sweep.consumers import forget_if_away
from hourwheel.sweep.decisions import (
    MAINTENANCE_MS,
    GroupLag,
    LastLook,
    LostRow,
    SubjectSnapshot,
    expired_below,
    groups_to_push,
    groups_to_wake,
    lag_of_group,
    lag_report,
    needs_maintenance,
    next_rest_ms,
    rests,
    unread_of,
)
from hourwheel.sweep.parts import expire_parts
from hourwheel.times import within

_PAGE = 64  # with rows of up to 12 KB (``inline_bytes``), below the 1 MB of a query of DynamoDB
_NO_END = sys.maxsize
_SEEK_MS = 60_000  # longer than a request for a seek may take

_EXTEND_MS = 6 * 3_600_000
"""The pause between two passes through a log that extend the expiry of unarchived rows: they live a day longer than
their retention."""

_logger = logging.getLogger("hourwheel")


class SweepReport(msgspec.Struct):
    """The counts of one sweep."""

    subjects: int = 0
    groups: int = 0
    ended_leases: int = 0
    started_wheels: int = 0
    started_pushes: int = 0
    dropped_buckets: int = 0
    resting: int = 0


class _Member(NamedTuple):
    """A group at a look, the pull logs that it has used, and the totals of its dead log."""

    group: Group
    logs: list[PullLog]
    dead: Counter


@dataclass(frozen=True)
class Sweeper:
    context: Context
    registry: Registry
    leases: Leases
    opener: PullLogs
    _looks: dict[str, LastLook] = field(default_factory=dict)
    _ends: OpenEnds = field(default_factory=OpenEnds)
    _done_ms: dict[str, int] = field(default_factory=dict)
    _extended_ms: dict[str, int] = field(default_factory=dict)

    def sweep(self) -> SweepReport:
        """Makes one pass over the deployment and returns its counts. A faulty subject or log does not stop the pass.
        Any number of sweeps may run at the same time."""
        began_ms = self.context.clock.now_ms()
        report = SweepReport()
        behind: list[GroupLag] = []
        deleted = RemovedNames()
        with self._contained("starting pushes"):
            report.started_pushes += start_overdue(self.context, self.registry)
        for subject in self.registry.all_subjects():
            with self._contained(f"sweeping subject {subject.name}"):
                self._subject(subject, report, behind, deleted)
        self.registry.on_deletion(deleted)
        self._delayed(report)
        # Idempotency keys belong to no log: no trim mark passes them.
        self.context.store.collect(Table.KEYS, self.context.clock.now_ms())
        self._report(behind, began_ms)
        return report

    def drop(self, deleted: RemovedNames) -> None:
        """Drops what this sweeper knows of deleted subjects and groups."""
        drop_keys(self._looks, [subject for subject in list(self._looks) if deleted.has_subject(subject)])
        drop_logs(deleted, self._extended_ms)
        self._ends.drop(deleted)

    def _delayed(self, report: SweepReport) -> None:
        buckets: list[RegisteredBucket] = []
        with self._contained("reading the buckets"):
            buckets = buckets_due_soon(self.context)
        with self._contained("starting wheels"):
            report.started_wheels = start_wheels(self.context, buckets)
        with self._contained("finishing changes of delayed messages"):
            self.finish_changes()
        with self._contained("removing closed buckets"):
            report.dropped_buckets = drop_closed(self.context, buckets)
        if self._due("orphans"):
            self._orphans()

    def _orphans(self) -> None:
        for name in orphan_logs(self.context):
            if not self._extend(MESSAGES, name):
                self._done_ms.pop("orphans", None)  # the next sweep goes on
            with self._contained(f"sweeping {name}"):
                self._trim(self.context.log(name))
                unregister_orphan(self.context, self.context.log(name))

    def finish_changes(self, older_ms: int = 0) -> None:
        """Finishes cancels and moves of delayed messages that were cut off and requested at least ``older_ms`` ago. One
        read if there are none."""
        ScheduledMessages(self.context, patience_ms=0).finish_changes(self._contained, older_ms=older_ms)

    def _due(self, what: str) -> bool:
        """Returns whether a task that is in no hurry is due: in each sweep, or twice a day where reads cost money."""
        now_ms = self.context.clock.now_ms()
        if self.context.settings.sweep_rest_seconds and within(self._done_ms.get(what, 0), now_ms, MAINTENANCE_MS):
            return False
        self._done_ms[what] = now_ms
        return True

    def end_busy_leases(self) -> int:
        """Ends the expired leases of the groups that this process serves; returns their number. Cheap enough for every
        second."""
        busy = self.leases.active_logs(self.context.clock.now_ms())
        return sum(self._end_leases(log, subject) for log, subject in busy)

    def _end_leases(self, log: PullLog, subject: Subject) -> int:
        ended = 0
        with self._contained(f"ending leases of {log.partition}"):
            ended = self.leases.expire(log, subject)
            if ended:
                self.context.wakeups.announce(subject.name, log.group.shared_name)
        return ended

    def _subject(self, subject: Subject, report: SweepReport, behind: list[GroupLag], deleted: RemovedNames) -> None:
        deleted.add_subject(subject)
        if subject.deleted:
            self.registry.erase_subject(subject)
            return
        report.subjects += 1
        groups = []
        # The read may be out of date: the next sweep finds a group that this one misses.
        for group in with_all_settings(self.registry.all_groups(subject, consistent=False)):
            deleted.add_group(group)
            if group.deleted:
                with self._contained(f"erasing group {group.member} of {subject.name}"):
                    self.registry.erase_group(subject, group)
            elif not (group.broadcast or self._forgets(subject, group)):
                groups.append(group)
                self._end_seek(subject, group)
        report.groups += len(groups)
        if subject.change is not None and self._moves_queues(subject):
            return  # the next sweep looks at the queues where they are then
        last = self._looks.get(subject.name)
        if rests(last, subject, groups, self.context.clock.now_ms()) and not self._stirs(last, subject):
            report.resting += 1
        else:
            self._look(subject, groups, report, behind)

    def _stirs(self, last: LastLook | None, subject: Subject) -> bool:
        """Returns whether a resting subject with dozing groups has new rows, or its counters cannot be read: a wake-up
        may be lost, and a consumer that took one may end before it pulls. Half a read unit for each log."""
        if last is None or not subject.wakes_groups:
            return False
        totals = last.snapshot.totals
        with self._contained(f"reading the counters of {subject.name}"):
            return any(total.rows != totals[name].rows for name, total in read_totals(self.context, totals).items())
        return True

    def _wake_idle(self, subject: Subject, members: list[_Member], lags: Sequence[GroupLag | None]) -> None:
        """Wakes the dozing groups in which messages wait that nobody takes."""
        for number in groups_to_wake(subject, [member.group for member in members], lags, self.context.clock.now_ms()):
            group, logs, _ = members[number]
            with self._contained(f"waking {group.member} of {subject.name}"):
                # A filter passes over messages that its group will never take.
                if any(log.has_message() for log in logs):
                    self.context.wakeups.announce(subject.name, group.shared_name)

    def _moves_queues(self, subject: Subject) -> bool:
        """Carries the open change of the route to its end. Returns False if a cell is out of reach: its queues stay
        where they are, and the others are looked at."""
        with self._contained(f"moving queues of {subject.name}"):
            finish_change(self.registry, subject.name)
            return True
        return False

    def _end_seek(self, subject: Subject, group: Group) -> None:
        """Ends a seek that was cut off: until then each look of a pull reads all queues."""
        if group.seeking_ms and not within(group.seeking_ms, self.context.clock.now_ms(), _SEEK_MS):
            with self._contained(f"ending a seek of {group.member} of {subject.name}"), suppress(NotFound):
                self.registry.end_seek(subject, group, group.seeking_ms)

    def _forgets(self, subject: Subject, group: Group) -> bool:
        """Returns whether the group was that of a consumer that stayed away, and is deleted now."""
        forgotten = False
        if group.consumer:
            with self._contained(f"forgetting consumer {group.consumer} of {group.shared_name}"):
                forgotten = forget_if_away(self.context, self.registry, self.leases, subject, group)
        return forgotten

    def _look(self, subject: Subject, groups: list[Group], report: SweepReport, behind: list[GroupLag]) -> None:
        """Reads the logs of a subject and ends leases, then does what follows from that: fills ends of logs, maintains,
        wakes and pushes. Adds the lags of its groups to ``behind``."""
        # Taken out: a subject whose look fails does not rest, and the next sweep looks again.
        last = self._looks.pop(subject.name, None)
        at_ms = self.context.clock.now_ms()
        totals = self._totals(subject)
        queues = [self.context.log(name) for name in totals]
        self._find_moves(subject, totals)
        members = [self._member(subject, group, totals, report) for group in groups]
        self._fill_ends(subject, totals, members)
        snapshot = self._snapshot(at_ms, subject, members, totals)
        maintained_ms = 0 if last is None else last.maintained_ms
        complete = True
        if needs_maintenance(last, snapshot):
            complete = self._maintain(subject, queues, members)
            expire_parts(self.registry, self.leases, subject, totals)
            maintained_ms = at_ms
        lags = [self._behind(member, totals, at_ms) for member in members]
        behind += [lag for lag in lags if lag is not None]
        self._wake_idle(subject, members, lags)
        self._start_pushes(subject, groups_to_push(subject, groups, lags), report)
        if longest_ms := self.context.settings.sweep_rest_seconds * 1_000:
            rest_ms = next_rest_ms(last, snapshot, lags, longest_ms) if complete else 0
            self._looks[subject.name] = LastLook(snapshot, maintained_ms, rest_ms)

    def _start_pushes(self, subject: Subject, groups: Sequence[Group], report: SweepReport) -> None:
        for group in groups:
            with self._contained(f"pushing for {group.member} of {subject.name}"):
                report.started_pushes += start_free(self.context, group)

    def _find_moves(self, subject: Subject, totals: dict[str, Counter]) -> None:
        """Brings the route up to date where a log that should take messages is sealed: a move was cut off."""
        if any(totals[name].sealed for name in map(subject.log, range(subject.queues)) if name in totals):
            with self._contained(f"moving queues of {subject.name}"):
                refresh_route(self.registry, subject)

    def _totals(self, subject: Subject) -> dict[str, Counter]:
        """Returns the totals of the logs of all queues by name, without those in a cell that is out of reach."""
        totals = {}
        for name in subject.queue_logs():
            with self._contained(f"reading {name}"):
                totals[name] = self.context.log(name).totals()
        return totals

    def _member(self, subject: Subject, group: Group, totals: dict[str, Counter], report: SweepReport) -> _Member:
        """Reads the logs of a group and ends its expired leases."""
        totals[group.retry_log] = self.context.log(group.retry_log).totals()
        retries, *logs = self.opener.of(self.context, subject, group)
        if totals[group.retry_log].rows:
            logs.insert(0, retries)  # most groups never retry
        logs = [log for log in logs if log.source.name in totals]
        report.ended_leases += sum(self._end_leases(log, subject) for log in logs)
        return _Member(group, logs, self.context.log(group.dead_log).totals())

    def _snapshot(
        self, at_ms: int, subject: Subject, members: list[_Member], totals: dict[str, Counter]
    ) -> SubjectSnapshot:
        states = [self.leases.snapshot(log) for member in members for log in member.logs]
        return SubjectSnapshot(
            at_ms=at_ms,
            subject=subject,
            groups=[member.group for member in members],
            totals=totals,
            dead=[member.dead for member in members],
            tails=[tail for tail, _ in states],
            leased=[leased for _, leased in states],
        )

    def _fill_ends(self, subject: Subject, totals: dict[str, Counter], members: list[_Member]) -> None:
        ends = [LogEnd(self.context.log(name), total, subject.retention_ms) for name, total in totals.items()]
        ends += [LogEnd(self.context.log(member.group.dead_log), member.dead, DEAD_RETENTION_MS) for member in members]
        self._ends.fill(subject.name, ends, self._contained(f"the ends of the logs of {subject.name}"))

    def _maintain(self, subject: Subject, queues: list[Log], members: list[_Member]) -> bool:
        """Moves checkpoints and trim marks, and extends the expiry of unarchived rows. Returns whether no rows are left
        whose expiry the next sweep has to look at."""
        # First: the store may remove a row at any moment once its expiry has passed.
        complete = self._extend_all(queues, members)
        trimmed = {queue.name: self._trim(queue) for queue in queues}
        for group, logs, dead in members:
            unread = 0
            for log in logs:
                with self._contained(f"the checkpoint of {log.partition}"):
                    # Before the checkpoint: rows below it may be removed some days later.
                    log.sweep()
                    self.leases.checkpoint(log)
                if log.queue is None:
                    trimmed[log.source.name] = self._trim(log.source)
                unread += unread_of(trimmed.get(log.source.name, []), self.leases.snapshot(log)[0])
            if unread:
                with self._contained(f"counting what expired before {group.member} had pulled it"):
                    self._report_unread(group, unread)
            if dead.rows:
                with self._contained(f"sweeping {group.dead_log}"):
                    DeadLetters(self.context, subject, group).sweep()
        return complete

    def _report_unread(self, group: Group, messages: int) -> None:
        self.context.meter.record("ExpiredUnread", messages)
        text = "%d messages of %s expired before group %s had pulled them"
        _logger.warning(text, messages, group.subject, group.name)
        # Last: the trim mark has moved, and nobody counts these messages again. One write for a group and a sweep; a
        # field of the group's record, which every process caches, would change with each sweep. A sweeper that dies
        # before it counts too few, an addition that is repeated after a lost answer too many.
        self.context.store.add(group.expired_counter, rows=1, numbers=messages)

    def _extend_all(self, queues: list[Log], members: list[_Member]) -> bool:
        logs = [(MESSAGES, queue.name) for queue in queues]
        for group, used, dead in members:
            logs += [(PULLS, log.partition) for log in used]
            logs += [(MESSAGES, log.source.name) for log in used if log.queue is None]
            logs += [(MESSAGES, group.dead_log)] if dead.rows else []
        complete = [self._extend(kind, log) for kind, log in logs]
        return all(complete)

    def _behind(self, member: _Member, totals: dict[str, Counter], since_ms: int) -> GroupLag | None:
        """Returns how far the group is behind; None if that is unknown. Parked messages that were counted since
        ``since_ms`` are not counted again."""
        log_lags: dict[bool, list[LogLag]] = {False: [], True: []}
        in_flight = []
        parked: list[ParkedLag] = []
        with self._contained(f"the standing of {member.group.member} on {member.group.subject}"):
            for log in member.logs:
                tail, leased = self.leases.snapshot(log)
                if tail is None:
                    return None  # the leases of the log could not be read
                log_lags[log.queue is None].append(lag_of_log(log, tail, totals[log.source.name]))
                in_flight.append(leased)
                if (parked_lag := log.parked(since_ms)) is not None:
                    parked.append(parked_lag)
            return lag_of_group(member.group, log_lags[True], log_lags[False], in_flight, parked)
        return None

    def _report(self, behind: list[GroupLag], began_ms: int) -> None:
        """Records the gauges that are not zero, and logs a line for each group with waiting messages. Groups of resting
        subjects have none."""
        now_ms = self.context.clock.now_ms()
        report = lag_report(behind, now_ms)
        for lag in report.lines:
            _logger.info("lag", extra=lag.line(now_ms))
        meter = self.context.meter
        if report.waiting:
            meter.record("WaitingMessages", report.waiting)
        if report.held_keys:
            meter.record("HeldKeys", report.held_keys)
        if report.oldest_seconds:
            meter.record("OldestMessageSeconds", report.oldest_seconds, unit="Seconds")
        if self.context.settings.archive:
            meter.record("ArchiveBehindSeconds", behind_seconds(self.context), unit="Seconds")
        if now_ms > began_ms:
            meter.record("SweepSeconds", (now_ms - began_ms) / 1_000, unit="Seconds")

    def _extend(self, kind: str, log: str) -> bool:
        """Extends the expiry of the log's unarchived rows, with a pause between two passes. Returns whether no pass is
        under way."""
        now_ms = self.context.clock.now_ms()
        if not self.context.settings.archive or within(self._extended_ms.get(log, 0), now_ms, _EXTEND_MS):
            return True
        complete = False
        with self._contained(f"keeping {log} for the archive"):
            complete = extend_ttl(self.context, kind, log)
        if complete:
            self._extended_ms[log] = now_ms
        return complete

    def _trim(self, log: Log) -> list[LostRow]:
        """Moves the trim mark past the rows that have expired, and returns those among them that have messages. Returns
        none if another sweeper was faster, which counts them."""
        with self._contained(f"trimming {log.name}"):
            mark = log.clear()
            expired, below = self._expired(log, mark.row_no)
            if below > mark.row_no and log.trim(below, mark):
                return [row for row in expired if row.row_no < below]
        return []

    def _expired(self, log: Log, below: int) -> tuple[list[LostRow], int]:
        """Returns the rows with messages that have expired from the row ``below`` on, and the row below which all may
        be trimmed."""
        expired: list[LostRow] = []
        page, end = 1, _NO_END  # most often the first row is live: its neighbours need not be read
        while below < end:
            rows = log.read(below, page, consistent=True)
            below, live = expired_below(rows, below, self.context.clock.now_ms())
            expired += (LostRow(row_no, row.count) for row_no, row in rows if row_no < below and not row.filler)
            if live or len(rows) < page:
                break
            # Read only where a row has expired: most sweeps trim nothing.
            if page == 1:
                page, end = _PAGE, removable_below(self.context, MESSAGES, log.name, _NO_END)
        return expired, min(below, end)

    def _contained(self, what: str) -> AbstractContextManager[None]:
        return self.leases.faults.contained(self.context, what)
