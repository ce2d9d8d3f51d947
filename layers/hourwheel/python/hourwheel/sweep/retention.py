"""Keeps the logs of a sweep in order: extends the expiry of unarchived rows, and trims rows that have expired."""

import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hourwheel.context import Context
from hourwheel.faults import Contained
from hourwheel.logs.log import Log
from hourwheel.ports.machine import Clock
from hourwheel.retention.extend_ttl import extend_ttl
from hourwheel.retention.kinds import MESSAGES
from hourwheel.retention.watermarks import removable_below
from hourwheel.sweep.decisions import LostRow, expired_below
from hourwheel.sweep.faults import SweepFaults
from hourwheel.sweep.memory import SweepMemory
from hourwheel.times import within

_PAGE = 64  # with rows of up to 12 KB (``inline_bytes``), below the 1 MB of a query of DynamoDB
_NO_END = sys.maxsize

_EXTEND_MS = 6 * 3_600_000
"""The pause between two passes through a log that extend the expiry of unarchived rows: they live a day longer than
their retention."""

_LIVE_MS = 3_600_000
"""A damaged record may tell an expiry that is far away: a log is looked at each hour, at half a read unit."""

_EXTENDING_MS = 15_000
"""While subjects wait, a sweep extends for at most this long, a third of its time; the rest of its time after them."""


@dataclass
class ExpiryTurns:
    """The turns of logs in one sweep, whose expiry is extended. Thread-safe: turns at the same time take the time of
    one."""

    clock: Clock
    left_ms: int = _EXTENDING_MS
    waiting: list[tuple[str, str]] = field(default_factory=list)
    """The logs that had no turn for lack of time, by kind and name."""
    unfinished: list[tuple[str, str]] = field(default_factory=list)
    """The logs whose pass was not complete at the end of their turn."""
    _under_way: int = 0
    """The number of turns that have begun and not ended."""
    _counted_ms: int = 0
    """The time up to which ``left_ms`` counts the turns under way."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def turn(self) -> Iterator[int]:
        """Counts the time of a turn. Yields the time at which it has to end."""
        now_ms = self.clock.now_ms()
        until_ms = now_ms + self._change(now_ms, 1)
        try:
            yield until_ms
        finally:
            self._change(self.clock.now_ms(), -1)

    def _change(self, now_ms: int, under_way: int) -> int:
        """Changes the number of turns under way. Returns the time that is left."""
        with self._lock:
            if self._under_way:
                self.left_ms -= max(0, now_ms - self._counted_ms)
            self._under_way += under_way
            self._counted_ms = now_ms
            return self.left_ms


@dataclass(frozen=True)
class LogRetention:
    """Extends and trims the logs of one sweep. For one thread, but ``turns``, which the threads of the sweep share."""

    context: Context
    faults: SweepFaults
    memory: SweepMemory
    turns: ExpiryTurns

    @classmethod
    def begun(cls, context: Context, faults: SweepFaults, memory: SweepMemory) -> "LogRetention":
        return cls(context, faults, memory, ExpiryTurns(context.clock))

    def extend(self, kind: str, log: str) -> bool:
        """Extends the expiry of the log's unarchived rows, with a pause between two passes. Returns whether no pass is
        under way."""
        now_ms = self.context.clock.now_ms()
        if not self.context.settings.archive or within(self.memory.extended_ms.get(log, 0), now_ms, _EXTEND_MS):
            return True
        if self.turns.left_ms <= 0:
            self.turns.waiting.append((kind, log))
            return False
        with self.turns.turn() as until_ms:
            complete = self._extend(kind, log, until_ms, self.faults.part)
        if complete is False:
            self.turns.unfinished.append((kind, log))
        return complete is True

    def extend_all(self, logs: Iterable[tuple[str, str]]) -> bool:
        """Extends these logs, by kind and name. Returns whether no pass is under way in any of them."""
        complete = [self.extend(kind, log) for kind, log in logs]
        return all(complete)

    def extend_further(self, until_ms: int) -> None:
        """Gives the logs that had no turn, and then those whose pass is not complete, one turn after the other until
        that time."""
        turns = deque([*self.turns.waiting, *self.turns.unfinished])
        while turns and self.context.clock.now_ms() < until_ms:
            kind, log = turns.popleft()
            if self._extend(kind, log, until_ms, self.faults.whole) is False:
                turns.append((kind, log))

    def trim(self, log: Log) -> list[LostRow]:
        """Moves the trim mark past the rows that have expired, and returns those among them that have messages. Returns
        none if another sweeper was faster, which counts them. Reads nothing before the first row expires."""
        with self.faults.part(f"trimming {log.name}"):
            if self._is_live(log):
                return []
            mark = log.clear()
            expired, below = self._expired(log, mark.row_no)
            if below > mark.row_no and log.trim(below, mark):
                return [row for row in expired if row.row_no < below]
        return []

    def _extend(self, kind: str, log: str, until_ms: int, contained: Contained) -> bool | None:
        """Extends the log's rows until that time, in the context manager that ``contained`` returns. Returns whether
        the pass is complete; None after a fault."""
        complete = None
        with contained(f"keeping {log} for the archive"):
            complete = extend_ttl(self.context, kind, log, until_ms)
        if complete:
            self.memory.extended_ms[log] = self.context.clock.now_ms()
        return complete

    def _expired(self, log: Log, below: int) -> tuple[list[LostRow], int]:
        """Returns the rows with messages that have expired from the row ``below`` on, and the row below which all may
        be trimmed."""
        expired: list[LostRow] = []
        page, end = 1, _NO_END  # most often the first row is live: its neighbours need not be read
        while below < end:
            rows = log.read(below, page, consistent=True)
            below, live = expired_below(rows, below, self.context.clock.now_ms())
            expired += (LostRow(row_no, row.count) for row_no, row in rows if row_no < below and not row.filler)
            if live or len(rows) < page:
                break
            # Read only where a row has expired: most sweeps trim nothing.
            if page == 1:
                page, end = _PAGE, removable_below(self.context, MESSAGES, log.name, _NO_END)
        return expired, min(below, end)

    def _is_live(self, log: Log) -> bool:
        """Returns whether no stored row of the log has expired. One read, and none for an hour while the first row is
        live."""
        now_ms, live_ms = self.context.clock.now_ms(), self.memory.live_ms
        if live_ms.get(log.name, 0) > now_ms:
            return True
        oldest = log.oldest()
        if oldest is not None and oldest.expires_ms > now_ms:
            live_ms[log.name] = min(oldest.expires_ms, now_ms + _LIVE_MS)
        return oldest is None or oldest.expires_ms > now_ms
