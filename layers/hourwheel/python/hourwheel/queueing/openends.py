"""Fills rows at the end of a log that were given out and never stored.

A reader fills a hole once a later row stands behind it. At the end of a log no row does: until the next batch comes,
the row would count as waiting, and each pull would look for it.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple

from hourwheel.logs.log import Log
from hourwheel.ports import Counter

_STILL_MS = 60_000
"""Far longer than a producer takes from its reservation to its row. A slower one finds the filler, and appends anew."""

_TRUSTED_MS = 12 * 3_600_000
"""Rows at the end may expire, and the store remove them, before older ones that are retained for longer."""


class LogEnd(NamedTuple):
    """A log, the totals that a look has read, and how long its rows are retained."""

    log: Log
    totals: Counter
    retention_ms: int


class _Seen(NamedTuple):
    rows: int
    at_ms: int
    complete_ms: int = 0
    """When nothing was missing; 0: not known yet."""


@dataclass
class OpenEnds:
    """The counters that this process has seen, by subject and log. Losing them delays filling by a minute."""

    _seen: dict[str, dict[str, _Seen]] = field(default_factory=dict)

    def fill(self, subject: str, ends: Iterable[LogEnd], contained: AbstractContextManager[None]) -> None:
        """Fills what is missing at the ends of those logs of the subject whose counters stand where an earlier look, at
        least a minute ago, has seen them. Costs no read where a counter moved, one where it has come to rest, and one
        twice a day where it rests."""
        before, after = self._seen.pop(subject, {}), dict[str, _Seen]()
        with contained:
            for end in ends:
                if end.totals.rows and not end.totals.sealed:
                    after[end.log.name] = _looked(end, before.get(end.log.name))
        self._seen[subject] = after

    def forget(self, subject: str) -> None:
        self._seen.pop(subject, None)


def _looked(end: LogEnd, seen: _Seen | None) -> _Seen:
    now_ms = end.log.clock.now_ms()
    if seen is None or seen.rows != end.totals.rows or now_ms < seen.at_ms:
        return _Seen(end.totals.rows, now_ms)
    if now_ms - seen.at_ms < _STILL_MS or 0 <= now_ms - seen.complete_ms < _TRUSTED_MS:
        return seen
    complete = end.log.fill_end(end.totals.rows, now_ms + end.retention_ms)
    return seen._replace(complete_ms=now_ms if complete else 0)
