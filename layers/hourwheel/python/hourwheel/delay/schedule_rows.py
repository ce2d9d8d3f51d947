"""Reads the rows of a schedule log, and keeps the most recently used ones: the messages of a row fall due in several
steps."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from hourwheel.buckets.buckets import Bucket
from hourwheel.context import Context
from hourwheel.errors import Corrupt
from hourwheel.faults import unreadable
from hourwheel.logs.entries import DueTimes, decode_entry
from hourwheel.logs.large_batches import raw_messages_of
from hourwheel.logs.rows import Row
from hourwheel.ports import GET_MANY
from hourwheel.times import rfc3339

_CACHE_BYTES = 48 << 20  # an eighth of the memory that a wheel has on AWS by default
_RAW_OVERHEAD = 120  # bytes of the Python objects of one message
_DENSE = 4  # reading up to this many rows too much is cheaper than another call


@dataclass(frozen=True)
class DecodedRow:
    """A row of the schedule log with its messages still encoded. ``raw`` is empty when they cannot be read."""

    due_times: DueTimes
    raw: Sequence[msgspec.Raw]
    size: int
    sent_at: str


class ScheduleRowCache:
    """The most recently used rows of a schedule log. For one thread."""

    def __init__(self, context: Context, bucket: Bucket) -> None:
        self._context = context
        self._log = context.log(bucket.log)
        self._rows: OrderedDict[int, DecodedRow] = OrderedDict()
        self._size = 0

    def each(self, numbers: Sequence[int]) -> Iterator[tuple[int, DecodedRow]]:
        """Yields the rows with these ascending numbers. Reads those that are not cached in few calls, and drops the
        least recently used rows when the cache is full."""
        for i in range(0, len(numbers), GET_MANY):
            some = numbers[i : i + GET_MANY]
            read = self._read([row_no for row_no in some if row_no not in self._rows])
            for row_no in some:
                page = self._rows.get(row_no)
                if page is None:
                    # The read above may be out of date and miss the row: ``get`` is up to date.
                    row = read.get(row_no) or self._log.get(row_no)
                    assert row is not None
                    page = self._keep(row_no, row)
                else:
                    self._rows.move_to_end(row_no)
                yield row_no, page

    def _read(self, numbers: Sequence[int]) -> dict[int, Row]:
        """Reads rows: neighbours as a range, single ones together in one call."""
        read: dict[int, Row] = {}
        scattered: list[int] = []
        for run in _runs(numbers):
            if len(run) > 1:
                read |= self._log.read(run[0], run[-1] - run[0] + 1)
            else:
                scattered += run
        return read | self._log.get_many(scattered) if scattered else read

    def _keep(self, row_no: int, row: Row) -> DecodedRow:
        entry = decode_entry(row.meta)
        assert isinstance(entry, DueTimes)
        try:
            raw = raw_messages_of(row, self._context.blobs)
        except Corrupt as error:
            unreadable(self._context, self._log.name, row_no, row.count, error)
            raw = []
        page = DecodedRow(entry, raw, row.raw_bytes + _RAW_OVERHEAD * row.count, rfc3339(row.at_ms))
        self._rows[row_no] = page
        self._size += page.size
        while self._size > _CACHE_BYTES and len(self._rows) > 1:
            self._size -= self._rows.popitem(last=False)[1].size
        return page


def _runs(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yields ascending numbers in slices; within a slice each number is at most ``_DENSE`` above the one before."""
    start = 0
    for end in range(1, len(numbers) + 1):
        far = end == len(numbers) or numbers[end] - numbers[end - 1] > _DENSE
        if far:
            yield numbers[start:end]
            start = end
