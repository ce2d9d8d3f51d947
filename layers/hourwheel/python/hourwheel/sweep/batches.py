"""Tends several subjects of a sweep at a time: lists their groups, reads all their counters at once, looks at each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from hourwheel.delay.call_workers import in_parallel
from hourwheel.errors import HourwheelError
from hourwheel.ports.storage import Counter
from hourwheel.pull_log.totals import read_totals
from hourwheel.reach.storages import at_home
from hourwheel.registry.removed_names import RemovedNames
from hourwheel.registry.subject_list import ListedSubject
from hourwheel.sweep.looks import SubjectLook
from hourwheel.sweep.report import SweepReport
from hourwheel.sweep.subjects import SubjectSweep


@dataclass(frozen=True)
class BatchSweep:
    """Tends the subjects of one sweep. ``deleted`` receives the names of deleted subjects and groups."""

    looks: SubjectLook
    deleted: RemovedNames

    def tend(self, entries: Sequence[ListedSubject]) -> None:
        """Tends the subjects of these entries of the list, as many at the same time as the context makes calls.
        Contains the faults of each."""
        visits = [self._visit(entry) for entry in entries]
        threads = self.looks.context.threads
        in_parallel([visit.prepare for visit in visits], threads)
        totals = self._totals(visits) if len(visits) > 1 else {}
        in_parallel([partial(visit.tend, totals) for visit in visits], threads)
        for visit in visits:
            self.looks.report.add(visit.looks.report)

    def _visit(self, entry: ListedSubject) -> SubjectSweep:
        """Returns an object for the work on one subject, in whichever thread."""
        looks = self.looks
        faults = looks.faults.alone()
        retention = replace(looks.retention, faults=faults)
        alone = replace(looks, faults=faults, retention=retention, report=SweepReport())
        return SubjectSweep(alone, self.deleted, entry)

    def _totals(self, visits: Sequence[SubjectSweep]) -> Mapping[str, Counter]:
        """Reads the counters of all these subjects at once, those at home. Returns none where that fails: each subject
        then reads its own, so that one that is refused does not hold up the others."""
        names = [name for visit in visits for name in visit.logs() if at_home(name)]
        try:
            return read_totals(self.looks.context, names)
        except HourwheelError:
            return {}
