"""Sweeps a deployment: ends expired leases, moves checkpoints, removes expired rows, reports how far groups are behind.

A subject is tended by ``sweep/subjects.py``, delayed work by ``sweep/delayed.py``. The memory of a process is only a
hint: a new process looks at everything.
"""

from dataclasses import dataclass, field

from hourwheel.context import Context
from hourwheel.delay.orphans import orphan_logs, unregister_orphan
from hourwheel.ports.storage import Table
from hourwheel.pull_log.open_logs import PullLogs
from hourwheel.push.waking import start_overdue
from hourwheel.registry.registry import Registry
from hourwheel.registry.removed_names import RemovedNames
from hourwheel.registry.subject_list import ListedSubject
from hourwheel.retention.kinds import MESSAGES
from hourwheel.settling.leases import Leases
from hourwheel.sweep.decisions import MAINTENANCE_MS, GroupLag
from hourwheel.sweep.delayed import DelayedWork
from hourwheel.sweep.faults import SweepFaults
from hourwheel.sweep.looks import SubjectLook, end_leases
from hourwheel.sweep.memory import SweepMemory
from hourwheel.sweep.position import StoredPosition, SweepPosition
from hourwheel.sweep.report import SweepReport, report_lags, report_left
from hourwheel.sweep.retention import LogRetention
from hourwheel.sweep.subjects import SubjectSweep
from hourwheel.times import within

_SWEEP_MS = 45_000
"""The time of a sweep, which is started each minute: the next one goes on where it stopped."""

_LONG_MS = 1_000
_TOLD_MS = 230_000
"""The length of a shorter sweep is recorded this often where each line costs money: an alarm counts one in five
minutes."""


@dataclass(frozen=True)
class Sweeper:
    context: Context
    registry: Registry
    leases: Leases
    opener: PullLogs
    _memory: SweepMemory = field(default_factory=SweepMemory)

    @property
    def delayed(self) -> DelayedWork:
        """Tends wheels, changes of delayed messages, and buckets."""
        return DelayedWork(self.context, self.leases.faults, self._memory)

    def sweep(self) -> SweepReport:
        """Makes one pass over the deployment and returns its counts. A faulty subject or log does not stop the pass.
        Any number of sweeps may run at the same time."""
        delayed = self.delayed.tend()
        report = self.sweep_subjects()
        report.started_wheels, report.dropped_buckets = delayed.started_wheels, delayed.dropped_buckets
        report.left += delayed.left
        return report

    def sweep_subjects(self) -> SweepReport:
        """Makes a pass over all work that is not delayed, for less than a minute, and returns its counts. The next
        sweep goes on with the subjects that are left."""
        began_ms = self.context.clock.now_ms()
        report, behind, deleted = SweepReport(), list[GroupLag](), RemovedNames()
        faults = SweepFaults(self.context, self.leases.faults)
        retention = LogRetention(self.context, faults, self._memory)
        looks = SubjectLook(self.registry, self.leases, self.opener, self._memory, faults, retention, report, behind)
        with faults.whole("starting pushes"):
            report.started_pushes += start_overdue(self.context, self.registry)
        round_began_ms = self._subjects(SubjectSweep(looks, deleted), began_ms + _SWEEP_MS, report)
        self.registry.on_deletion(deleted)
        if self._due("orphans", MAINTENANCE_MS):
            self._orphans(retention, faults)
        retention.extend_further(began_ms + _SWEEP_MS)
        with faults.whole("removing old idempotency keys"):
            # Idempotency keys belong to no log: no trim mark passes them.
            self.context.store.collect(Table.KEYS, self.context.clock.now_ms())
        with faults.whole("reporting lags"):
            report_lags(self.context, behind)
        report.left = len(faults.left)
        report_left(self.context, faults.left)
        # A round that takes several sweeps counts from its beginning, so that one that never ends shows.
        taken_ms = self.context.clock.now_ms() - round_began_ms
        if taken_ms >= _LONG_MS or self._due("telling", _TOLD_MS):
            self.context.meter.record("SweepSeconds", taken_ms / 1_000, unit="Seconds")
        return report

    def drop(self, deleted: RemovedNames) -> None:
        """Drops what this sweeper knows of deleted subjects and groups."""
        self._memory.drop(deleted)

    def end_busy_leases(self) -> int:
        """Ends the expired leases of the groups that this process serves; returns their number. Cheap enough for every
        second."""
        context, faults = self.context, self.leases.faults
        return sum(
            end_leases(
                context, self.leases, log, subject, faults.contained(context, f"ending leases of {log.partition}")
            )
            for log, subject in self.leases.active_logs(context.clock.now_ms())
        )

    def _subjects(self, sweep: SubjectSweep, until_ms: int, report: SweepReport) -> int:
        """Tends subjects from the stored position on until that time, one at least, and stores the position. Reports
        whether the sweep came to the end of the subjects, or its time did. Returns when the round began."""
        stored = StoredPosition(self.context, self._memory)
        began = SweepPosition("", self.context.clock.now_ms())
        with sweep.faults.whole("reading the position of the sweep"):
            began = stored.load()
        reached, listed = began, 0
        with sweep.faults.whole("reading the subjects"):
            # The list may be out of date: the next sweep finds what this one misses.
            for number, entry in enumerate(self.registry.listed.entries(began.after, consistent=False), start=1):
                self._tend(sweep, entry, stored, began)
                listed, reached = number, SweepPosition(entry.name, began.began_ms)
                if self.context.clock.now_ms() >= until_ms:
                    report.is_cut_off = True
                    break
            else:
                report.is_complete = True
        with sweep.faults.whole("dividing the list of subjects"):
            self.registry.listed.divide(listed)
        with sweep.faults.whole("storing the position of the sweep"):
            if report.is_complete:
                stored.complete()
            elif reached is began:
                stored.forget()  # the list cannot be read from there on: the subjects before have their turn
            else:
                stored.stop(reached)
        return began.began_ms

    @staticmethod
    def _tend(sweep: SubjectSweep, entry: ListedSubject, stored: StoredPosition, began: SweepPosition) -> None:
        with sweep.faults.whole("storing how far the sweep is"):
            stored.pass_on(entry.name, began.began_ms)
        with sweep.faults.whole(f"sweeping subject {entry.name}"):
            sweep.tend(entry)

    def _orphans(self, retention: LogRetention, faults: SweepFaults) -> None:
        with faults.whole("reading the logs of orphans"):
            for name in orphan_logs(self.context):
                if not retention.extend(MESSAGES, name):
                    self._memory.done_ms.pop("orphans", None)  # the next sweep goes on
                with faults.whole(f"sweeping {name}"):
                    retention.trim(self.context.log(name))
                    unregister_orphan(self.context, self.context.log(name))

    def _due(self, what: str, pause_ms: int) -> bool:
        """Returns whether a task that is in no hurry is due: in each sweep, or after this pause where it costs
        money."""
        now_ms = self.context.clock.now_ms()
        if self.context.settings.sweep_rest_seconds and within(self._memory.done_ms.get(what, 0), now_ms, pause_ms):
            return False
        self._memory.done_ms[what] = now_ms
        return True
