"""Fills rows at the end of a log that were given out and never stored.

A reader fills a hole once a later row is stored. At the end of a log there is no later row: until the next batch comes,
the missing row would count as waiting, and every pull would look for it.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple

from hourwheel.logs.log import Log
from hourwheel.ports.storage import Counter
from hourwheel.registry.removed_names import RemovedNames, drop_keys

_STILL_MS = 60_000
"""Far longer than a producer takes from its reservation to its row. A slower producer finds the filler, and appends its
row again."""

_TRUSTED_MS = 12 * 3_600_000
"""An end without holes is checked again after this long: rows there may expire, and be removed by the store, before
older rows with a longer retention."""


class LogEnd(NamedTuple):
    """A log, the totals that a sweep has read from its counter, and the retention of its rows."""

    log: Log
    totals: Counter
    retention_ms: int


class _Seen(NamedTuple):
    rows: int
    at_ms: int
    complete_ms: int = 0
    """The time of the last look that found no row missing; 0: none has yet."""


@dataclass
class OpenEnds:
    """Remembers the counters that this process has seen, by subject and log. A process that loses them fills rows a
    minute later."""

    _seen: dict[str, dict[str, _Seen]] = field(default_factory=dict)

    def fill(self, subject: str, ends: Iterable[LogEnd], contained: AbstractContextManager[None]) -> None:
        """Fills the missing rows at the end of each log whose counter has not changed for at least a minute.

        Costs no read for a log whose counter changed, one when the counter has come to rest, and one twice a day while
        it rests. Errors go to ``contained``.
        """
        before, after = self._seen.pop(subject, {}), dict[str, _Seen]()
        with contained:
            for end in ends:
                if end.totals.rows:
                    after[end.log.name] = _looked(end, before.get(end.log.name))
        self._seen[subject] = after

    def drop(self, deleted: RemovedNames) -> None:
        """Drops the ends of deleted subjects."""
        drop_keys(self._seen, [subject for subject in list(self._seen) if deleted.has_subject(subject)])


def _looked(end: LogEnd, seen: _Seen | None) -> _Seen:
    now_ms = end.log.clock.now_ms()
    if seen is None or seen.rows != end.totals.rows or now_ms < seen.at_ms:
        return _Seen(end.totals.rows, now_ms)
    if now_ms - seen.at_ms < _STILL_MS or 0 <= now_ms - seen.complete_ms < _TRUSTED_MS:
        return seen
    complete = end.log.fill_end(end.totals.rows, now_ms + end.retention_ms)
    return seen._replace(complete_ms=now_ms if complete else 0)
