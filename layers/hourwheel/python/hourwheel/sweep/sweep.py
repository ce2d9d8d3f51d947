"""Sweeps a deployment: ends expired leases, moves checkpoints, removes expired rows, reports how far groups are behind.

``sweep/passes.py`` goes through the subjects, ``sweep/subjects.py`` tends one, ``sweep/delayed.py`` delayed work.
The memory of a process is only a hint: a new process looks at everything.
"""

from dataclasses import dataclass, field

from hourwheel.context import Context
from hourwheel.delay.orphans import orphan_logs, unregister_orphan
from hourwheel.ports.storage import Table
from hourwheel.pull_log.open_logs import PullLogs
from hourwheel.push.waking import start_overdue
from hourwheel.registry.registry import Registry
from hourwheel.registry.removed_names import RemovedNames
from hourwheel.retention.kinds import MESSAGES
from hourwheel.settling.leases import Leases
from hourwheel.sweep.batches import BatchSweep
from hourwheel.sweep.decisions import MAINTENANCE_MS, GroupLag
from hourwheel.sweep.delayed import DelayedWork
from hourwheel.sweep.faults import SweepFaults
from hourwheel.sweep.looks import SubjectLook, end_leases
from hourwheel.sweep.memory import SweepMemory
from hourwheel.sweep.passes import SweepPass
from hourwheel.sweep.position import SweepPosition
from hourwheel.sweep.report import SweepReport, report_lags, report_left
from hourwheel.sweep.retention import LogRetention
from hourwheel.sweep.shares import WHOLE, Share, needed_shares, store_shares
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

    def sweep(self, share: Share = WHOLE) -> SweepReport:
        """Makes one pass over the deployment, or one share of its subjects, and returns its counts. A faulty subject or
        log does not stop the pass. Any number of sweeps may run at the same time."""
        delayed = self.delayed.tend()
        report = self.sweep_subjects(share)
        report.started_wheels, report.dropped_buckets = delayed.started_wheels, delayed.dropped_buckets
        report.left += delayed.left
        return report

    def sweep_subjects(self, share: Share = WHOLE) -> SweepReport:
        """Makes a pass over all work that is not delayed, or that of a share of the subjects, for less than a minute,
        and returns its counts. The next sweep of the share goes on with the subjects that are left."""
        began_ms = self.context.clock.now_ms()
        report, behind, deleted = SweepReport(), list[GroupLag](), RemovedNames()
        faults = SweepFaults(self.context, self.leases.faults)
        retention = LogRetention.begun(self.context, faults, self._memory)
        looks = SubjectLook(self.registry, self.leases, self.opener, self._memory, faults, retention, report, behind)
        if share.is_first:
            with faults.whole("starting pushes"):
                report.started_pushes += start_overdue(self.context, self.registry)
        position = SweepPass(BatchSweep(looks, deleted), share, began_ms + _SWEEP_MS).go_on()
        self.registry.on_deletion(deleted)
        if share.is_first:
            self._once(share, position, looks)
        retention.extend_further(began_ms + _SWEEP_MS)
        with faults.whole("reporting lags"):
            report_lags(self.context, behind, tells_archive=share.is_first)
        report.left = len(faults.left)
        report_left(self.context, faults.left)
        # A round that takes several sweeps counts from its beginning, so that one that never ends shows.
        taken_ms = self.context.clock.now_ms() - position.began_ms
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

    def _once(self, share: Share, reached: SweepPosition, looks: SubjectLook) -> None:
        """Does what is done once for the deployment, by the sweep of the first share."""
        faults = looks.faults
        if self._due("orphans", MAINTENANCE_MS):
            self._orphans(looks.retention, faults)
        with faults.whole("removing old idempotency keys"):
            # Idempotency keys belong to no log: no trim mark passes them.
            self.context.store.collect(Table.KEYS, self.context.clock.now_ms())
        with faults.whole("storing the number of shares"):
            most, is_cut_off = self.context.settings.sweep_shares, looks.report.is_cut_off
            needed = needed_shares(share, reached.busy, reached.unknown, is_cut_off=is_cut_off, most=most)
            # Nothing is read while the shares are as many as are needed.
            if needed != share.of and (is_cut_off or looks.report.is_complete):
                store_shares(self.context, needed)

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
