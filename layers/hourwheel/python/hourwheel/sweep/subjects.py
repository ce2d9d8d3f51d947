"""Tends one subject in a sweep: finishes deletions, moves and seeks that were cut off, and looks at its logs."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from hourwheel.context import Context
from hourwheel.errors import NotFound
from hourwheel.model.groups import Group
from hourwheel.model.subjects import Subject
from hourwheel.pull_log.totals import read_totals
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


@dataclass(frozen=True)
class SubjectSweep:
    """Tends the subjects of one sweep. ``deleted`` receives the names of deleted subjects and groups."""

    looks: SubjectLook
    deleted: RemovedNames

    @property
    def registry(self) -> Registry:
        return self.looks.registry

    @property
    def context(self) -> Context:
        return self.looks.context

    @property
    def faults(self) -> SweepFaults:
        return self.looks.faults

    def tend(self, entry: ListedSubject) -> None:
        """Tends the subject of an entry of the list. Raises ``Unavailable`` where the store refuses several calls."""
        if entry.erased:
            self.deleted.add_erased(entry.name, entry.erased)
            return
        # The read may be out of date: the next sweep finds a subject or a group that this one misses.
        records = self.registry.whole_subject(entry.name, consistent=False, unreadable=self._set_aside)
        if records is not None:
            self._tend(*records)

    def _set_aside(self, record: str, error: Exception) -> None:
        self.faults.report(f"reading the record of {record}", error)

    def _tend(self, subject: Subject, records: list[Group]) -> None:
        self.deleted.add_subject(subject)
        if subject.deleted:
            self.registry.erase_subject(subject)
            return
        report = self.looks.report
        report.subjects += 1
        groups = list(self._groups(subject, records))
        report.groups += len(groups)
        if subject.change is not None and self._moves_queues(subject):
            return  # the next sweep looks at the queues where they are then
        last = self.looks.memory.looks.get(subject.name)
        if rests(last, subject, groups, self.context.clock.now_ms()) and not self._stirs(last, subject):
            report.resting += 1
        else:
            self.looks.look(subject, groups)

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

    def _stirs(self, last: LastLook | None, subject: Subject) -> bool:
        """Returns whether a resting subject with dozing groups has new rows, or its counters cannot be read: a wake-up
        may be lost, and a consumer that took one may end before it pulls. Half a read unit for each log."""
        if last is None or not subject.wakes_groups:
            return False
        totals = last.snapshot.totals
        with self.faults.part(f"reading the counters of {subject.name}"):
            return any(total.rows != totals[name].rows for name, total in read_totals(self.context, totals).items())
        return True
