"""Goes through the subjects of a share, from the position at which the sweep before stopped."""

from collections.abc import Iterator
from dataclasses import dataclass

from hourwheel.context import Context
from hourwheel.errors import HourwheelError
from hourwheel.registry.subject_list import ListedSubject, SubjectList
from hourwheel.sweep.batches import BatchSweep
from hourwheel.sweep.faults import SweepFaults
from hourwheel.sweep.position import StoredPosition, SweepPosition
from hourwheel.sweep.report import SweepReport
from hourwheel.sweep.shares import Share

_AT_ONCE = 16
"""Subjects that are tended together where several calls are made at the same time: as many as there are threads. The
process that follows a death tends them one after the other."""


@dataclass
class SweepPass:
    """Tends the subjects of a share, until the time of the sweep is over."""

    sweep: BatchSweep
    share: Share
    until_ms: int
    _passed: int = 0
    """The number of entries of the list that this pass has read, those of other shares included."""

    @property
    def _listed(self) -> SubjectList:
        return self.sweep.looks.registry.listed

    @property
    def _context(self) -> Context:
        return self.sweep.looks.context

    @property
    def _faults(self) -> SweepFaults:
        return self.sweep.looks.faults

    @property
    def _report(self) -> SweepReport:
        return self.sweep.looks.report

    def go_on(self) -> SweepPosition:
        """Tends subjects from the stored position on, one at least, and stores the position. Reports whether the sweep
        came to the end of the subjects, or its time did. Returns how far the round is."""
        stored = StoredPosition(self._context, self.sweep.looks.memory, self.share)
        began = SweepPosition("", self._context.clock.now_ms())
        with self._faults.whole("reading the position of the sweep"):
            began = stored.load()
        reached = began
        with self._faults.whole("reading the subjects"):
            for batch in self._batches(began.after, stored):
                batch_began_ms = self._context.clock.now_ms()
                reached = self._tend(stored, reached, batch)
                if self._is_over(batch_began_ms, batch):
                    self._report.is_cut_off = True
                    break
            else:
                self._report.is_complete = True
        with self._faults.whole("dividing the list of subjects"):
            self._listed.divide(self._passed)
        with self._faults.whole("storing the position of the sweep"):
            if self._report.is_complete:
                stored.complete()
            elif reached is began:
                stored.forget()  # the list cannot be read from there on: the subjects before have their turn
            else:
                stored.stop(reached)
        return reached

    def _tend(self, stored: StoredPosition, reached: SweepPosition, batch: list[ListedSubject]) -> SweepPosition:
        """Tends the subjects, and returns the position behind them."""
        with self._faults.whole("storing how far the sweep is"):
            stored.pass_on(reached, [entry.name for entry in batch])
        busy, unknown = reached.busy - self._report.busy, reached.unknown - self._report.unknown
        self.sweep.tend(batch)
        return SweepPosition(
            after=batch[-1].name,
            began_ms=reached.began_ms,
            busy=busy + self._report.busy,
            unknown=unknown + self._report.unknown,
        )

    def _is_over(self, batch_began_ms: int, batch: list[ListedSubject]) -> bool:
        """Returns whether the time is over, or too short for several subjects that take somewhat longer than the last
        ones."""
        now_ms = self._context.clock.now_ms()
        next_ms = (now_ms - batch_began_ms) * 5 // 4 if len(batch) > 1 else 0
        return now_ms >= self.until_ms or now_ms + next_ms > self.until_ms

    def _batches(self, after: str, stored: StoredPosition) -> Iterator[list[ListedSubject]]:
        """Yields the entries of the share behind the name ``after``, those together that are tended together."""
        batch: list[ListedSubject] = []
        try:
            for entry in self._entries(after):
                batch.append(entry)
                if len(batch) >= (1 if stored.follows_death or self._context.threads == 1 else _AT_ONCE):
                    yield batch
                    batch = []
        except HourwheelError:
            if batch:
                yield batch  # those before the place where the list cannot be read
            raise
        if batch:
            yield batch

    def _entries(self, after: str) -> Iterator[ListedSubject]:
        """Yields the entries of the share behind the name ``after``, and counts those of all shares. The list may be
        out of date: the next sweep finds what this one misses."""
        for entry in self._listed.entries(after, consistent=False):
            self._passed += 1
            if self.share.has(entry.name):
                yield entry
