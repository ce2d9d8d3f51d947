"""Tends one subject in a sweep: finishes deletions, moves and seeks that were cut off, and looks at its logs."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from hourwheel.context import Context
from hourwheel.errors import NotFound
from hourwheel.model.groups import Group
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Counter
from hourwheel.pull_log.totals import read_missing
from hourwheel.registry.broadcast import with_all_settings
from hourwheel.registry.registry import Registry
from hourwheel.registry.removed_names import RemovedNames
from hourwheel.registry.subject_list import ListedSubject
from hourwheel.sweep.consumers import forget_if_away
from hourwheel.sweep.decisions import LastLook, rests
from hourwheel.sweep.faults import SweepFaults
from hourwheel.sweep.looks import SubjectLook
from hourwheel.sweep.parts import finish_moves
from hourwheel.times import within

_SEEK_MS = 60_000  # longer than a request for a seek may take


class _Records(NamedTuple):
    """A subject with its groups that have logs. ``rests``: its logs need no look."""

    subject: Subject
    groups: list[Group]
    rests: bool


@dataclass
class SubjectSweep:
    """Tends one subject of a sweep: ``prepare``, then ``tend``. ``deleted`` receives the names of deleted subjects and
    groups. For one thread at a time."""

    looks: SubjectLook
    deleted: RemovedNames
    entry: ListedSubject
    _records: "_Records | None" = None
    """None where the subject needs no look."""

    @property
    def registry(self) -> Registry:
        return self.looks.registry

    @property
    def context(self) -> Context:
        return self.looks.context

    @property
    def faults(self) -> SweepFaults:
        return self.looks.faults

    def prepare(self) -> None:
        """Finishes what was cut off in the records of the subject and its groups, and decides what is to be read."""
        with self.faults.whole(f"reading the records of subject {self.entry.name}"):
            if self.entry.erased:
                self.deleted.add_erased(self.entry.name, self.entry.erased)
                return
            # The read may be out of date: the next sweep finds a subject or a group that this one misses.
            records = self.registry.whole_subject(self.entry.name, consistent=False, unreadable=self._set_aside)
            if records is not None:
                self._prepare(*records)

    def logs(self) -> list[str]:
        """Returns the logs whose counters ``tend`` needs."""
        if self._records is None or (self._records.rests and not self._records.subject.wakes_groups):
            return []
        return self.looks.logs(self._records.subject, self._records.groups)

    def tend(self, totals: Mapping[str, Counter]) -> None:
        """Looks at the logs of the subject, unless it rests. Reads the counters that ``totals`` lack."""
        if self._records is not None:
            with self.faults.whole(f"sweeping subject {self.entry.name}"):
                self._tend(self._records, totals)

    def _set_aside(self, record: str, error: Exception) -> None:
        self.faults.report(f"reading the record of {record}", error)

    def _prepare(self, subject: Subject, records: list[Group]) -> None:
        report = self.looks.report
        self.deleted.add_subject(subject)
        if subject.deleted:
            self.registry.erase_subject(subject)
            return
        report.subjects += 1
        groups = list(self._groups(subject, records))
        report.groups += len(groups)
        if subject.change is not None and self._moves_queues(subject):
            return  # the next sweep looks at the queues where they are then
        last = self.looks.memory.looks.get(subject.name)
        self._records = _Records(subject, groups, rests(last, subject, groups, self.context.clock.now_ms()))

    def _tend(self, visit: "_Records", totals: Mapping[str, Counter]) -> None:
        last = self.looks.memory.looks.get(visit.subject.name)
        if visit.rests and not self._stirs(last, visit.subject, totals):
            self.looks.report.resting += 1
        else:
            self.looks.look(visit.subject, visit.groups, totals)

    def _groups(self, subject: Subject, records: list[Group]) -> Iterator[Group]:
        """Yields the groups of the subject that have logs. Erases the deleted ones, and ends seeks."""
        for group in with_all_settings(records):
            self.deleted.add_group(group)
            if group.deleted:
                with self.faults.part(f"erasing group {group.member} of {subject.name}"):
                    self.registry.erase_group(subject, group)
            elif not (group.broadcast or self._forgets(subject, group)):
                yield group
                self._end_seek(subject, group)

    def _forgets(self, subject: Subject, group: Group) -> bool:
        """Returns whether the group is that of a consumer, and is left out: the consumer stayed away, so that the group
        is deleted now, or the settings of its broadcast group cannot be read."""
        if not group.consumer:
            return False
        forgotten = not group.consumer_expires_seconds
        with self.faults.part(f"forgetting consumer {group.consumer} of {group.shared_name}"):
            return forget_if_away(self.context, self.registry, self.looks.leases, subject, group) or forgotten
        return forgotten

    def _moves_queues(self, subject: Subject) -> bool:
        """Carries the open change of the route to its end. Returns False if a cell is out of reach: its queues stay
        where they are, and the others are looked at."""
        with self.faults.part(f"moving queues of {subject.name}"):
            finish_moves(self.registry, subject)
            return True
        return False

    def _end_seek(self, subject: Subject, group: Group) -> None:
        """Ends a seek that was cut off: until then each look of a pull reads all queues."""
        if group.seeking_ms and not within(group.seeking_ms, self.context.clock.now_ms(), _SEEK_MS):
            with self.faults.part(f"ending a seek of {group.member} of {subject.name}"), suppress(NotFound):
                self.registry.end_seek(subject, group, group.seeking_ms)

    def _stirs(self, last: LastLook | None, subject: Subject, counted: Mapping[str, Counter]) -> bool:
        """Returns whether a resting subject with dozing groups has new rows, or its counters cannot be read: a wake-up
        may be lost, and a consumer that took one may end before it pulls. Half a read unit for each log."""
        if last is None or not subject.wakes_groups:
            return False
        before = last.snapshot.totals
        with self.faults.part(f"reading the counters of {subject.name}"):
            totals = read_missing(self.context, before, counted)
            return any(total.rows != before[name].rows for name, total in totals.items())
        return True
