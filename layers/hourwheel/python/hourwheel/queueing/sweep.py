"""The sweeper: ends leases nobody looked at, moves checkpoints, lets expired rows go."""

from contextlib import AbstractContextManager
from dataclasses import dataclass

import msgspec

from hourwheel.context import Context
from hourwheel.delay.fate import Fates
from hourwheel.delay.orphans import delist, orphan_logs
from hourwheel.delay.upkeep import drop_closed, start_wheels
from hourwheel.logs.log import Log
from hourwheel.meta.directory import Directory
from hourwheel.model import Group, Subject
from hourwheel.ports import Table
from hourwheel.queueing.dead import DeadLetters
from hourwheel.queueing.leases import Leases
from hourwheel.queueing.pulllog import PullLog, pull_logs

_PAGE = 64


class SweepReport(msgspec.Struct):
    subjects: int = 0
    groups: int = 0
    ended_leases: int = 0
    started_wheels: int = 0
    dropped_buckets: int = 0


@dataclass(frozen=True)
class Sweeper:
    context: Context
    directory: Directory
    leases: Leases

    def sweep(self) -> SweepReport:
        """One pass over everything, around what is faulty. Safe to run anywhere, any number at once."""
        report = SweepReport()
        for subject in self.directory.all_subjects():
            with self._contained(f"sweeping subject {subject.name}"):
                self._subject(subject, report)
        self._delayed(report)
        self.context.store.collect(Table.KEYS, self.context.clock.now_ms())
        return report

    def _delayed(self, report: SweepReport) -> None:
        with self._contained("starting wheels"):
            report.started_wheels = start_wheels(self.context)
        with self._contained("finishing moves of delayed messages"):
            Fates(self.context, patience_ms=0).finish_moves(self._contained)
        with self._contained("removing closed buckets"):
            report.dropped_buckets = drop_closed(self.context)
        for name in orphan_logs(self.context):
            with self._contained(f"sweeping {name}"):
                self._trim(self.context.log(name))
                delist(self.context, self.context.log(name))

    def end_leases(self, subject: Subject, group: Group) -> int:
        """Ends the leases of one group that are over, and wakes its consumers; how many."""
        return sum(self._end_leases(log, subject) for log in pull_logs(self.context, subject, group))

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

    def _subject(self, subject: Subject, report: SweepReport) -> None:
        if subject.deleted:
            self.directory.erase_subject(subject)
            return
        report.subjects += 1
        for queue in range(subject.queues):
            self._trim(self.context.log(subject.log(queue)))
        for group in self.directory.all_groups(subject):
            if group.deleted:
                with self._contained(f"erasing group {group.member} of {subject.name}"):
                    self.directory.erase_group(subject, group)
            else:
                report.groups += 1
                report.ended_leases += self._group(subject, group)

    def _group(self, subject: Subject, group: Group) -> int:
        ended = self.end_leases(subject, group)
        for log in pull_logs(self.context, subject, group):
            with self._contained(f"the checkpoint of {log.partition}"):
                self.leases.checkpoint(log)
        with self._contained(f"sweeping {group.dead_log}"):
            DeadLetters(self.context, subject, group).sweep()
        self._trim(self.context.log(group.retry_log))
        return ended

    def _trim(self, log: Log) -> None:
        """Moves the trim mark past the rows that have expired."""
        with self._contained(f"trimming {log.name}"):
            log.clear()
            below = start = log.trimmed()
            while True:
                rows = log.read(below, _PAGE, consistent=True)
                live = next((number for number, row in rows if row.expires_ms > self.context.clock.now_ms()), None)
                below = live if live is not None else rows[-1][0] + 1 if rows else below
                if live is not None or len(rows) < _PAGE:
                    break
            if below > start:
                log.trim(below)

    def _contained(self, what: str) -> AbstractContextManager[None]:
        return self.leases.faults.contained(self.context, what)
