"""Where each source log ended when a group found nothing more there: a pull looks only where something came since.

A pull reads the counters of all its logs at once, eventually consistent, and looks at those that have given out a row
beyond the end that is remembered. A counter may be out of date: a later look sees the row. A row may be given out and
not stored yet: the end stays before it, and the log is looked at until the row is there or filled. A seek, which no
counter tells of, is counted in the group's record (``Group.seeks``).
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from hourwheel.model import Group
from hourwheel.ports import Counter
from hourwheel.queueing.pulllog import PullLog

_TRUSTED_MS = 300_000
"""An end is forgotten after this long: a seek that was cut off before the group's record was changed is seen then."""


class _End(NamedTuple):
    row: int
    seeks: int
    at_ms: int


@dataclass
class SourceEnds:
    """The ends that this process has seen, by pull log. Hints: losing one costs reads. Thread-safe."""

    _ends: dict[str, _End] = field(default_factory=dict)

    def moved(self, log: PullLog, group: Group, totals: Counter) -> bool:
        """Whether there may be something for the group in the log, given the totals of the log's counter."""
        end = self._ends.get(log.partition)
        if end is None or end.seeks != group.seeks:
            return totals.rows > 0
        age_ms = log.context.clock.now_ms() - end.at_ms
        return totals.rows > (end.row if 0 <= age_ms < _TRUSTED_MS else 0)

    def remember(self, log: PullLog, group: Group, row: int) -> None:
        """No row below ``row`` has anything for the group, and the leases of all that was claimed are known. ``group``
        is the record as it was read before the log was looked at."""
        self._ends[log.partition] = _End(row, group.seeks, log.context.clock.now_ms())
