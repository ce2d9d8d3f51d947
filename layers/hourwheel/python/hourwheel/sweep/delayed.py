"""Tends delayed work: starts the wheels that should run, finishes cut-off changes, and removes closed buckets."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from hourwheel.context import Context
from hourwheel.delay.changes import ScheduledMessages
from hourwheel.delay.maintenance import RegisteredBucket, buckets_due_soon, drop_closed, start_wheels
from hourwheel.errors import Unavailable
from hourwheel.faults import Faults
from hourwheel.sweep.faults import SweepFaults
from hourwheel.sweep.memory import SweepMemory
from hourwheel.sweep.report import DelayedReport, report_left
from hourwheel.sweep.shares import Share, shares_now, shares_of

_STARTING_MS = 20_000
"""The sweep waits for the start of wheels for at most this long: a third of the time between two of them."""

_CHANGES_MS = 30_000
"""Changes are finished for at most this long, a quarter of the time after which the function is ended; the next run
goes on behind them."""


@dataclass(frozen=True)
class DelayedWork:
    """Tends the delayed work of a deployment, beside all other work of the sweeper. Any number of processes may do so
    at the same time."""

    context: Context
    faults: Faults
    memory: SweepMemory

    def tend(self, start_others: Callable[[], object] = lambda: None) -> DelayedReport:
        """Starts the wheels that should run, finishes changes that were cut off, and removes closed buckets, which may
        take a minute and a half. Returns the counts. Calls ``start_others`` once the wheels are started, or have taken
        long, whatever comes of it. A faulty bucket or change does not stop the pass."""
        report, faults = DelayedReport(), SweepFaults(self.context, self.faults)
        with ExitStack() as others:
            others.callback(start_others)
            until_ms = self.context.clock.now_ms() + _STARTING_MS
            buckets = self._buckets(faults)
            entries = self._watched(buckets, until_ms, others.close)
            report.started_wheels = start_wheels(self.context, entries, faults.whole)
        self._finish_changes(faults, 0)
        report.dropped_buckets = drop_closed(self.context, buckets, faults.whole)
        report.left = len(faults.left)
        report_left(self.context, faults.left)
        return report

    def shares(self) -> list[Share]:
        """Returns the shares of the subjects, of which each gets a sweep of its own now."""
        with self.faults.contained(self.context, "reading the number of shares"), suppress(Unavailable):
            return shares_now(self.context, self.memory.shares)
        return shares_of(min(self.memory.shares.shares, self.context.settings.sweep_shares))

    def _watched(
        self, buckets: Iterable[RegisteredBucket], until_ms: int, at_end: Callable[[], None]
    ) -> Iterator[RegisteredBucket]:
        """Yields the buckets. Calls ``at_end`` between two of them from that time on."""
        for bucket in buckets:
            if self.context.clock.now_ms() >= until_ms:
                at_end()
            yield bucket

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
        """Finishes changes for half a minute, behind those that had their turn the last time."""
        until_ms, after = self.context.clock.now_ms() + _CHANGES_MS, self.memory.turns.pop("changes", "")
        with faults.part("finishing changes of delayed messages"):
            changes = ScheduledMessages(self.context, patience_ms=0)
            reached = changes.finish_changes(faults.whole, older_ms=older_ms, after=after, until_ms=until_ms)
            if after and not reached:  # the changes before have a turn in the rest of the time
                reached = changes.finish_changes(faults.whole, older_ms=older_ms, until_ms=until_ms)
            self.memory.turns["changes"] = reached
