"""Reads the schedule log and the dispatch log of one bucket: which of its messages wait."""

from array import array
from dataclasses import dataclass, field

from hourwheel.buckets.buckets import Bucket
from hourwheel.context import Context
from hourwheel.delay.outgoing_batches import DAMAGED
from hourwheel.delay.ownership import Dispatched, DispatchLog, Ownership
from hourwheel.delay.timing import pack
from hourwheel.delay.waiting_messages import WaitingMessages
from hourwheel.errors import Corrupt
from hourwheel.faults import unreadable
from hourwheel.handover.handover import Transfer
from hourwheel.logs.entries import CancelMarker, decode_entry
from hourwheel.logs.rows import Row

_RENEWAL_ROWS = 1_000  # a check of the clock for each row would cost more than it saves
_TAIL_ROWS = 1_000
_TAIL_BYTES = 2 << 20
"""A turn reads at most this much before it hands over what is due: 10 ms of work."""


@dataclass
class BucketReader:
    """Reads both logs of a bucket, each on from where it has ended before. For one thread."""

    context: Context
    bucket: Bucket
    ownership: Ownership
    waiting: WaitingMessages
    next_row: int = 0
    """The first row of the schedule log that is not read."""
    next_dispatch_row: int = 0
    """The first row of the dispatch log that is not read."""
    last_ms: int = 0
    """The time of the last row of the dispatch log."""
    unfinished: tuple[Transfer, ...] = ()
    """The transfers that the last row of the dispatch log names, whose rows may be missing."""
    has_unreadable: bool = False
    """Whether a row or a message cannot be read."""
    unanswered: bool = False
    """Whether a cancel marker was read and not published: its caller may wait for that."""
    _is_new: bool = True
    _handed_over: "array[int]" = field(default_factory=lambda: array("q"))

    def __post_init__(self) -> None:
        self._log = self.context.log(self.bucket.log)
        self._dispatched = DispatchLog(self.context, self.bucket)

    def read_dispatched(self) -> None:
        """Reads the dispatch log to its end: the messages that it names are not handed over again."""
        fresh = array("q")
        for row_no, dispatched in self._dispatched.rows(self.next_dispatch_row):
            self.next_dispatch_row, self.last_ms = row_no + 1, dispatched.at_ms
            for transfer in self._newly_named(dispatched):
                fresh.extend(pack(*pick) for pick in transfer.picks)
            # Publishes no row: the former owner is not fenced off, and may still miss the rows read here.
            self.renew_if_due(0)
        if not self._is_new:
            for packed in fresh:
                self.waiting.discard(packed)
        elif fresh:
            self._handed_over = array("q", sorted([*self._handed_over, *fresh]))

    def _newly_named(self, dispatched: Dispatched) -> list[Transfer]:
        """Notes the transfers of a dispatch row. Returns those that the row before did not name: while a log is out of
        reach, each row names its open transfers again."""
        before = {transfer.token for transfer in self.unfinished}
        self.unfinished = dispatched.transfers or self.unfinished
        damaged = any(transfer.kind == DAMAGED for transfer in dispatched.transfers)
        self.has_unreadable = self.has_unreadable or damaged
        return [transfer for transfer in dispatched.transfers if transfer.token not in before]

    def read(self) -> None:
        """Reads the schedule log to its end."""
        self._is_new = False
        for row_no, row in self._log.rows(self.next_row):
            self._take_row(row_no, row)
            if self.next_row % _RENEWAL_ROWS == 0:
                self.renew_if_due(self.next_row)

    def read_tail(self) -> bool:
        """Reads the next rows of the schedule log, and returns whether that were all: due messages do not wait until
        many rows are read."""
        rows = size = 0
        for row_no, row in self._log.rows(self.next_row):
            self._take_row(row_no, row)
            rows, size = rows + 1, size + len(row.block)
            if rows >= _TAIL_ROWS or size >= _TAIL_BYTES:
                return False
        return True

    def renew_if_due(self, read_below: int) -> None:
        """Renews the lease if the wheel has it and it is due for renewal: reading may take long."""
        if self.ownership.held and self.ownership.due_for_renewal():
            self.ownership.keep(read_below)

    def _take_row(self, row_no: int, row: Row) -> None:
        self._note_entry(row_no, row)
        self.next_row = row_no + 1

    def _note_entry(self, row_no: int, row: Row) -> None:
        if not row.meta:
            return
        try:
            entry = decode_entry(row.meta)
        except Corrupt as error:
            unreadable(self.context, self._log.name, row_no, row.count, error)
            self.has_unreadable = True
            return
        # A marker for a message that was handed over already changes nothing: the dispatch log decides.
        if isinstance(entry, CancelMarker):
            self.waiting.discard(pack(entry.row_no, entry.index))
            self.unanswered = True
            return
        self.waiting.add(row_no, row.count, entry, self._handed_over)
