"""The sweeper: ends leases nobody looked at, moves checkpoints, lets expired rows go, tells how far groups are behind.

A look at a subject reads counters and the tails of pull logs, and ends leases. Where anything moved since the look
before, is leased or waits, the subject is tended, too, and looked at again by the next sweep. Else, with a setting, it
rests twice as long as the time before. What a process remembers of that is only a hint: a new one looks at everything.
"""

import logging
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from hourwheel.archive.keeping import keep
from hourwheel.archive.kinds import MESSAGES, PULLS
from hourwheel.archive.marks import behind_seconds, kept_below
from hourwheel.context import Context
from hourwheel.delay.fate import Fates
from hourwheel.delay.orphans import delist, orphan_logs
from hourwheel.delay.upkeep import Known, drop_closed, soon, start_wheels
from hourwheel.logs.log import Log
from hourwheel.meta.directory import Directory
from hourwheel.model import DEAD_RETENTION_MS, Group, Subject
from hourwheel.ports import Counter, Table
from hourwheel.push.waking import start_free, start_overdue
from hourwheel.queueing.dead import DeadLetters
from hourwheel.queueing.leases import Leases
from hourwheel.queueing.openends import LogEnd, OpenEnds
from hourwheel.queueing.progress import standing_of
from hourwheel.queueing.pulllog import PullLog, pull_logs

_PAGE = 64
_REST_MS = 60_000
_EARLY_MS = 10_000
"""Sweeps come each minute, give or take seconds: a rest may end so much earlier."""

_TEND_MS = 12 * 3_600_000
"""Resting subjects are tended so often: rows vanish a day after they expire, the trim mark must have passed them."""

_KEEP_MS = 6 * 3_600_000
"""So often it is looked whether rows that are not archived have to be kept for longer than their time."""

_LINES = 100

_logger = logging.getLogger("hourwheel")


class SweepReport(msgspec.Struct):
    subjects: int = 0
    groups: int = 0
    ended_leases: int = 0
    started_wheels: int = 0
    started_pushes: int = 0
    dropped_buckets: int = 0
    resting: int = 0


class Behind(msgspec.Struct, frozen=True):
    """How far a group is behind. ``oldest_ms``: since when the oldest message waits."""

    subject: str
    group: str
    waiting: int
    in_flight: int
    retrying: int
    oldest_ms: int | None

    @property
    def total(self) -> int:
        """Retries wait as well."""
        return self.waiting + self.retrying

    def oldest_seconds(self, now_ms: int) -> float:
        return 0.0 if self.oldest_ms is None else max(0.0, (now_ms - self.oldest_ms) / 1_000)

    def line(self, now_ms: int) -> dict[str, object]:
        """As it stands in the log."""
        return {
            "subject": self.subject,
            "group": self.group,
            "waiting": self.waiting,
            "in_flight": self.in_flight,
            "retrying": self.retrying,
            "oldest_seconds": self.oldest_seconds(now_ms),
        }


class _Member(NamedTuple):
    """A group at a look, and those of its pull logs that were ever used."""

    group: Group
    logs: list[PullLog]
    dead: Counter


class _Look(NamedTuple):
    """``marks`` change with whatever is stored, claimed, sought or set."""

    marks: tuple[object, ...]
    at_ms: int
    tended_ms: int
    rest_ms: int = 0


@dataclass(frozen=True)
class Sweeper:
    context: Context
    directory: Directory
    leases: Leases
    _looks: dict[str, _Look] = field(default_factory=dict)
    _ends: OpenEnds = field(default_factory=OpenEnds)
    _done_ms: dict[str, int] = field(default_factory=dict)
    _kept_ms: dict[str, int] = field(default_factory=dict)

    def sweep(self) -> SweepReport:
        """One pass over everything, around what is faulty. Safe to run anywhere, any number at once."""
        began_ms = self.context.clock.now_ms()
        report = SweepReport()
        behind: list[Behind] = []
        with self._contained("starting pushes"):
            report.started_pushes += start_overdue(self.context, self.directory)
        for subject in self.directory.all_subjects():
            with self._contained(f"sweeping subject {subject.name}"):
                self._subject(subject, report, behind)
        self._delayed(report)
        self.context.store.collect(Table.KEYS, self.context.clock.now_ms())
        self._tell(behind, began_ms)
        return report

    def _delayed(self, report: SweepReport) -> None:
        known: list[Known] = []
        with self._contained("reading the buckets"):
            known = soon(self.context)
        with self._contained("starting wheels"):
            report.started_wheels = start_wheels(self.context, known)
        with self._contained("finishing changes of delayed messages"):
            self.finish_changes()
        with self._contained("removing closed buckets"):
            report.dropped_buckets = drop_closed(self.context, known)
        if self._due("orphans"):
            for name in orphan_logs(self.context):
                with self._contained(f"sweeping {name}"):
                    self._trim(self.context.log(name))
                    delist(self.context, self.context.log(name))

    def finish_changes(self, older_ms: int = 0) -> None:
        """Finishes cancels and moves of delayed messages that were requested so long ago and cut off. One read where
        there are none."""
        Fates(self.context, patience_ms=0).finish_changes(self._contained, older_ms=older_ms)

    def _due(self, what: str) -> bool:
        """Whether to do what is in no hurry: each time, or twice a day where reads take money."""
        now_ms = self.context.clock.now_ms()
        if self.context.settings.sweep_rest_seconds and 0 <= now_ms - self._done_ms.get(what, 0) < _TEND_MS:
            return False
        self._done_ms[what] = now_ms
        return True

    def end_busy_leases(self) -> int:
        """Ends the leases that are over in the groups that this process serves: cheap enough for every second."""
        busy = self.leases.busy(self.context.clock.now_ms())
        return sum(self._end_leases(log, subject) for log, subject in busy)

    def _end_leases(self, log: PullLog, subject: Subject) -> int:
        ended = 0
        with self._contained(f"ending leases of {log.partition}"):
            ended = self.leases.expire(log, subject)
            if ended:
                self.context.arrivals.announce(subject.name, log.group.name)
        return ended

    def _subject(self, subject: Subject, report: SweepReport, behind: list[Behind]) -> None:
        if subject.deleted:
            self._looks.pop(subject.name, None)
            self._ends.forget(subject.name)
            self.directory.erase_subject(subject)
            return
        report.subjects += 1
        groups = []
        # What is missed by a read that may be out of date is found a minute later.
        for group in self.directory.all_groups(subject, consistent=False):
            if group.deleted:
                with self._contained(f"erasing group {group.member} of {subject.name}"):
                    self.directory.erase_group(subject, group)
            else:
                groups.append(group)
        report.groups += len(groups)
        if self._rests(subject, groups):
            report.resting += 1
        else:
            self._look(subject, groups, report, behind)

    def _rests(self, subject: Subject, groups: list[Group]) -> bool:
        last = self._looks.get(subject.name)
        if last is None or last.marks[:2] != (subject, groups):
            return False
        return 0 <= self.context.clock.now_ms() - last.at_ms < last.rest_ms - _EARLY_MS

    def _look(self, subject: Subject, groups: list[Group], report: SweepReport, behind: list[Behind]) -> None:
        last = self._looks.pop(subject.name, None)
        now_ms = self.context.clock.now_ms()
        queues = [self.context.log(subject.log(queue)) for queue in range(subject.queues)]
        totals = {log.name: log.totals() for log in queues}
        members = []
        for group in groups:
            totals[group.retry_log] = self.context.log(group.retry_log).totals()
            retries, *logs = pull_logs(self.context, subject, group)
            if totals[group.retry_log].rows:
                logs.insert(0, retries)  # most groups never retry
            report.ended_leases += sum(self._end_leases(log, subject) for log in logs)
            members.append(_Member(group, logs, self.context.log(group.dead_log).totals()))
        self._fill_ends(subject, totals, members)
        known = [self.leases.known(log) for member in members for log in member.logs]
        marks = (subject, groups, totals, [member.dead for member in members], [tail for tail, _ in known])
        still = last is not None and last.marks == marks
        tended_ms = last.tended_ms if last is not None and last.rest_ms and still else 0
        if any(leased for _, leased in known) or not 0 <= now_ms - tended_ms < _TEND_MS:
            self._tend(subject, queues, members)
            tended_ms = now_ms
        told = [self._behind(member, totals) for member in members]
        behind += [one for one in told if one is not None]
        for member, one in zip(members, told, strict=True):
            if member.group.push is not None and (one is None or one.total):
                with self._contained(f"pushing for {member.group.member} of {subject.name}"):
                    report.started_pushes += start_free(self.context, member.group)
        busy = any(one is None or one.waiting or one.retrying or one.in_flight for one in told)
        longest_ms = self.context.settings.sweep_rest_seconds * 1_000
        rest_ms = 0
        if still and not busy and last is not None:
            # A push whose wake was lost is found here alone: looked at each minute.
            pushed = any(member.group.push is not None for member in members)
            rest_ms = min(max(2 * last.rest_ms, _REST_MS), _REST_MS if pushed else longest_ms)
        if longest_ms:
            self._looks[subject.name] = _Look(marks, now_ms, tended_ms, rest_ms)

    def _fill_ends(self, subject: Subject, totals: dict[str, Counter], members: list[_Member]) -> None:
        ends = [LogEnd(self.context.log(name), total, subject.retention_ms) for name, total in totals.items()]
        ends += [LogEnd(self.context.log(member.group.dead_log), member.dead, DEAD_RETENTION_MS) for member in members]
        self._ends.fill(subject.name, ends, self._contained(f"the ends of the logs of {subject.name}"))

    def _tend(self, subject: Subject, queues: list[Log], members: list[_Member]) -> None:
        for queue in queues:
            self._trim(queue)
        for group, logs, dead in members:
            for log in logs:
                with self._contained(f"the checkpoint of {log.partition}"):
                    self.leases.checkpoint(log)
                self._keep(PULLS, log.partition)
                if log.queue is None:
                    self._trim(log.source)
            if dead.rows:
                self._keep(MESSAGES, group.dead_log)
                with self._contained(f"sweeping {group.dead_log}"):
                    DeadLetters(self.context, subject, group).sweep()

    def _behind(self, member: _Member, totals: dict[str, Counter]) -> Behind | None:
        """Where the group stands; None where that cannot be told."""
        waiting = {False: 0, True: 0}
        in_flight = 0
        oldest_ms: list[int] = []
        with self._contained(f"the standing of {member.group.member} on {member.group.subject}"):
            for log in member.logs:
                tail, leased = self.leases.known(log)
                if tail is None:
                    return None  # its leases could not be looked at
                standing = standing_of(log, tail, totals[log.source.name])
                waiting[log.queue is None] += standing.waiting
                in_flight += leased
                if standing.oldest_ms is not None:
                    oldest_ms.append(standing.oldest_ms)
            return Behind(
                subject=member.group.subject,
                group=member.group.name,
                waiting=waiting[False],
                in_flight=in_flight,
                retrying=waiting[True],
                oldest_ms=min(oldest_ms, default=None),
            )
        return None

    def _tell(self, behind: list[Behind], began_ms: int) -> None:
        """Gauges, those that are not zero, and a line for each group in which something waits. In those of resting
        subjects nothing does."""
        now_ms = self.context.clock.now_ms()
        lines = sorted((one for one in behind if one.total), key=lambda one: one.total, reverse=True)
        for one in lines[:_LINES]:
            _logger.info("lag", extra=one.line(now_ms))
        meter = self.context.meter
        if lines:
            meter.record("WaitingMessages", sum(one.total for one in lines))
        if oldest_seconds := max((one.oldest_seconds(now_ms) for one in lines), default=0.0):
            meter.record("OldestMessageSeconds", oldest_seconds, unit="Seconds")
        if self.context.settings.archive:
            meter.record("ArchiveBehindSeconds", behind_seconds(self.context), unit="Seconds")
        if now_ms > began_ms:
            meter.record("SweepSeconds", (now_ms - began_ms) / 1_000, unit="Seconds")

    def _keep(self, kind: str, log: str) -> None:
        now_ms = self.context.clock.now_ms()
        looked_ms = self._kept_ms.get(log, 0)
        if self.context.settings.archive and not 0 <= now_ms - looked_ms < _KEEP_MS:
            with self._contained(f"keeping {log} for the archive"):
                keep(self.context, kind, log)
                self._kept_ms[log] = now_ms

    def _trim(self, log: Log) -> None:
        """Moves the trim mark past the rows that have expired."""
        self._keep(MESSAGES, log.name)
        with self._contained(f"trimming {log.name}"):
            log.clear()
            below = start = log.trimmed()
            page = 1  # most often the first row is live: its neighbours need not be read
            while True:
                rows = log.read(below, page, consistent=True)
                live = next((number for number, row in rows if row.expires_ms > self.context.clock.now_ms()), None)
                below = live if live is not None else rows[-1][0] + 1 if rows else below
                if live is not None or len(rows) < page:
                    break
                page = _PAGE
            if below > start and (below := kept_below(self.context, MESSAGES, log.name, below)) > start:
                log.trim(below)

    def _contained(self, what: str) -> AbstractContextManager[None]:
        return self.leases.faults.contained(self.context, what)
