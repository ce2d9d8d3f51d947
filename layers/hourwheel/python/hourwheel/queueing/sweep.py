"""The sweeper: ends leases nobody looked at, moves checkpoints, lets expired rows go."""

from dataclasses import dataclass

import msgspec

from hourwheel.context import Context
from hourwheel.logs.log import Log
from hourwheel.meta.directory import Directory
from hourwheel.model import Group, Subject
from hourwheel.ports import Table
from hourwheel.queueing.dead import DeadLetters
from hourwheel.queueing.leases import Leases
from hourwheel.queueing.pull import pull_logs

_PAGE = 64


class SweepReport(msgspec.Struct):
    subjects: int = 0
    groups: int = 0
    ended_leases: int = 0


@dataclass(frozen=True)
class Sweeper:
    context: Context
    directory: Directory
    leases: Leases

    def sweep(self) -> SweepReport:
        """One pass over everything. Safe to run anywhere, any number at once."""
        report = SweepReport()
        after = ""
        while True:
            subjects, following = self.directory.subjects(after, _PAGE)
            for subject in subjects:
                report.subjects += 1
                for queue in range(subject.queues):
                    self._trim(self.context.log(subject.log(queue)))
                for group in self.directory.groups(subject):
                    report.groups += 1
                    report.ended_leases += self._group(subject, group)
            if following is None:
                break
            after = following
        self.context.store.collect(Table.KEYS, self.context.clock.now_ms())
        return report

    def end_leases(self, subject: Subject, group: Group) -> int:
        """Ends the leases of one group that are over, and wakes its consumers; how many."""
        ended = sum(self.leases.expire(log, subject) for log in pull_logs(self.context, subject, group))
        if ended:
            self.context.arrivals.announce(subject.name, group.name)
        return ended

    def end_busy_leases(self) -> int:
        """Ends the leases that are over in the groups that this process serves: cheap enough for every second."""
        total = 0
        for log, subject in self.leases.busy(self.context.clock.now_ms()):
            ended = self.leases.expire(log, subject)
            if ended:
                self.context.arrivals.announce(subject.name, log.group.name)
            total += ended
        return total

    def _group(self, subject: Subject, group: Group) -> int:
        ended = self.end_leases(subject, group)
        for log in pull_logs(self.context, subject, group):
            self.leases.checkpoint(log)
        DeadLetters(self.context, subject, group).sweep()
        self._trim(self.context.log(group.retry_log))
        return ended

    def _trim(self, log: Log) -> None:
        """Moves the trim mark past the rows that have expired."""
        now_ms = self.context.clock.now_ms()
        start = log.trimmed()
        below = start
        while True:
            rows = log.read(below, _PAGE, consistent=True)
            expired = 0
            for number, row in rows:
                if row.expires_ms > now_ms:
                    break
                below, expired = number + 1, expired + 1
            if expired < _PAGE:
                break
        if below > start:
            log.trim(below)
