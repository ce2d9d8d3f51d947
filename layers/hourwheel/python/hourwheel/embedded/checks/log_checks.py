"""Checks the rows of logs: their counters, their order, their messages and objects."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from hourwheel.embedded.checks.report import Findings
from hourwheel.errors import Corrupt
from hourwheel.logs.large_batches import messages_of
from hourwheel.logs.log import Log
from hourwheel.logs.rows import Row
from hourwheel.ports.storage import Blobs, Counter

_PAGE = 200
_RESTORE = "restore a backup, or rebuild the directory from its archive"
_RAISED = "no server may write before the counter is above the row: restore a backup, or rebuild the directory"
_LEFT_OUT = "consumers leave its messages out; hourwheel pipeline run repair restores them from an archive"


@dataclass
class LogCheck:
    """Checks logs of one store. ``now_ms``: rows that have expired by then may lack their objects."""

    findings: Findings
    blobs: Blobs
    now_ms: int
    named: set[str] = field(default_factory=set)
    """The objects that rows name."""

    def check(self, log: Log) -> None:
        totals, trimmed = log.totals(), log.trimmed()
        self.findings.report.logs += 1
        following, seq, stored = trimmed, 0, 0
        for row_no, row in self._rows(log):
            if row_no >= totals.rows:
                self.findings.add(f"row {row_no} of {log.name} is above its counter, {totals.rows}", _RAISED)
            if row_no >= trimmed:
                stored += 1
                following = max(following, row_no + 1)
            if isinstance(row, Corrupt):
                self.findings.add(f"row {row_no} of {log.name} cannot be read: {row}", _RESTORE)
            elif not row.filler:
                seq = self._check_batch(log, row_no, row, seq, totals)
        self.findings.report.rows += stored
        self.findings.report.holes += max(0, totals.rows - trimmed - stored)

    def _check_batch(self, log: Log, row_no: int, row: Row, seq: int, totals: Counter) -> int:
        """Checks a row of messages, whose first sequence must not be below ``seq``. Returns the sequence behind it."""
        end = row.first_seq + row.count
        self.findings.report.messages += row.count
        if row.first_seq < seq:
            self.findings.add(f"row {row_no} of {log.name} begins at {row.first_seq}, before {seq}", _RESTORE)
        if end > totals.numbers:
            self.findings.add(f"row {row_no} of {log.name} ends above its counter, {totals.numbers}", _RAISED)
        if row.large_batch is not None:
            self.named.add(row.large_batch.key)
        try:
            messages_of(row, self.blobs)
        except Corrupt as error:
            if row.live(self.now_ms):
                self.findings.add(f"the messages of row {row_no} of {log.name} cannot be read: {error}", _LEFT_OUT)
        return max(seq, end)

    @staticmethod
    def _rows(log: Log) -> Iterator[tuple[int, Row | Corrupt]]:
        start = 0
        while page := log.stored_page(start, _PAGE):
            yield from page
            start = page[-1][0] + 1
