"""Remembers where each source log ended when a group had nothing left to claim, so that idle logs are not read.

A pull reads the counters of all its logs at once, eventually consistent, and looks only into logs whose counter has
given out a row beyond the remembered end. A counter may be out of date: a later look sees the row. A row may be given
out and not stored yet: the end stays before the row, and pulls look into the log until the row is stored or filled.
A seek changes no counter, and neither does a decision about a stopped key; ``Group.seeks`` in the group's record counts
them instead. ``Group.seeking_ms``, written before the rows of the seek, says that one is under way.

An end is a hint: the conditional put alone decides what is claimed. A look misses nothing for good:

- A lease that ends during a wait: an end is remembered only when each open lease is known with its time, and the log is
  read at that time. A lease that begins later needs a message behind the end.
- Messages that this request itself puts into the retry log: that log is read whatever its counter says.
- Rows that expired and were removed: the trim mark counts as an end.

One look at 64 queues was 322 requests, one after the other; it is one request. Rejected: a counter for each group, at a
write for each batch and group; a strongly consistent read at the end of each wait, at twice the price.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from hourwheel.model.groups import Group
from hourwheel.ports.storage import Counter
from hourwheel.pull_log.claiming.selection import PASSED_MS
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.registry.removed_names import RemovedNames, drop_logs

_TRUSTED_MS = 300_000
"""An end is forgotten after this long, in case it went out of date in a way that nothing shows."""


class _End(NamedTuple):
    row_no: int
    seeks: int
    at_ms: int
    trusted_ms: int
    final: bool = False


@dataclass
class SourceEnds:
    """The ends that this process has seen, by pull log. An end is a hint: losing one costs a read. Thread-safe."""

    _ends: dict[str, _End] = field(default_factory=dict)

    def drop(self, deleted: RemovedNames) -> None:
        """Drops the ends of the logs of deleted subjects and groups."""
        drop_logs(deleted, self._ends)

    def moved(self, log: PullLog, group: Group, totals: Counter) -> bool:
        """Returns whether the log may have a message for the group, given the totals of the log's counter. Reads
        nothing."""
        end = self._ends.get(log.partition)
        if end is None or end.seeks != group.seeks or group.seeking_ms:
            return totals.rows > 0
        age_ms = log.context.clock.now_ms() - end.at_ms
        return totals.rows > (end.row_no if 0 <= age_ms < end.trusted_ms else 0)

    def finished(self, log: PullLog, group: Group) -> bool:
        """Returns whether the log is sealed and has no message for the group: it need not be looked at. Reads
        nothing."""
        end = self._ends.get(log.partition)
        if end is None or not end.final or end.seeks != group.seeks or group.seeking_ms:
            return False
        return 0 <= log.context.clock.now_ms() - end.at_ms < end.trusted_ms

    def remember(
        self, log: PullLog, group: Group, row_no: int, *, unmatched: bool = False, final: bool = False
    ) -> None:
        """Remembers that no row below ``row_no`` has a message for the group. The caller has seen every lease on the
        log. ``group`` is the record as it was read before the look into the log. ``unmatched``: a later look has to
        pass over rows of which the group's filter takes nothing. ``final``: the log is sealed, and ends there."""
        trusted_ms = PASSED_MS if unmatched else _TRUSTED_MS
        self._ends[log.partition] = _End(row_no, group.seeks, log.context.clock.now_ms(), trusted_ms, final)
