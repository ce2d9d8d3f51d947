"""Tends delayed work: starts the wheels that should run, finishes cut-off changes, and removes closed buckets."""

from collections.abc import Callable
from dataclasses import dataclass

from hourwheel.context import Context
from hourwheel.delay.changes import ScheduledMessages
from hourwheel.delay.maintenance import RegisteredBucket, buckets_due_soon, drop_closed, start_wheels
from hourwheel.faults import Faults
from hourwheel.sweep.faults import SweepFaults
from hourwheel.sweep.report import DelayedReport, report_left


@dataclass(frozen=True)
class DelayedWork:
    """Tends the delayed work of a deployment, beside all other work of the sweeper. Any number of processes may do so
    at the same time."""

    context: Context
    faults: Faults

    def tend(self, start_others: Callable[[], object] = lambda: None) -> DelayedReport:
        """Starts the wheels that should run, finishes changes that were cut off, and removes closed buckets, which may
        take half a minute. Returns the counts. Calls ``start_others`` once all that is urgent is done, whatever comes
        of it. A faulty bucket or change does not stop the pass."""
        report, faults = DelayedReport(), SweepFaults(self.context, self.faults)
        try:
            buckets = self._buckets(faults)
            report.started_wheels = start_wheels(self.context, buckets, faults.whole)
            self._finish_changes(faults, 0)
        finally:
            start_others()
        report.dropped_buckets = drop_closed(self.context, buckets, faults.whole)
        report.left = len(faults.left)
        report_left(self.context, faults.left)
        return report

    def _buckets(self, faults: SweepFaults) -> list[RegisteredBucket]:
        """Returns the buckets that are over, open, or about to begin, without those whose record cannot be decoded."""

        def set_aside(name: str, error: Exception) -> None:
            faults.report(f"reading the record of bucket {name}", error)

        with faults.whole("reading the buckets"):
            return buckets_due_soon(self.context, set_aside)
        return []

    def finish_changes(self, older_ms: int = 0) -> None:
        """Finishes cancels and moves of delayed messages that were cut off and requested at least ``older_ms`` ago. One
        read if there are none."""
        self._finish_changes(SweepFaults(self.context, self.faults), older_ms)

    def _finish_changes(self, faults: SweepFaults, older_ms: int) -> None:
        with faults.part("finishing changes of delayed messages"):
            ScheduledMessages(self.context, patience_ms=0).finish_changes(faults.whole, older_ms=older_ms)
