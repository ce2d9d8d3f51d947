"""Reads the rows of a schedule log, and keeps their messages that are due next. The messages of a row fall due in
several steps, and decoding a row costs as much as handing a hundred messages over.

A cache of whole rows found none of them once more than 48 MB of messages waited. With 50,000 messages due each second
it took 74 us of CPU to hand a message over, and takes 9.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from hourwheel.buckets.buckets import Bucket
from hourwheel.context import Context
from hourwheel.errors import Corrupt
from hourwheel.faults import unreadable
from hourwheel.logs.entries import DueTimes, decode_entry
from hourwheel.logs.large_batches import raw_messages_of
from hourwheel.logs.rows import Row
from hourwheel.ports.storage import GET_MANY
from hourwheel.times import rfc3339

_CACHE_BYTES = 48 << 20  # an eighth of the memory that a wheel has on AWS by default
_MESSAGE_OVERHEAD = 240  # bytes of the Python objects of one message
_ROW_OVERHEAD = 1_000  # bytes of the Python objects of one row
_READ_COST = 4_096  # a row of a thousand messages takes 0.65 ms to read and decode, a row of one 0.017 ms
_PAGE_BYTES = 4 << 20  # read in one call: more would be read again, as a step stops after it has decoded this much
_DENSE = 4  # reading up to this many rows too much is cheaper than another call


class ScheduleRow:
    """The messages of a row that are due next, still encoded.

    ``messages`` are the due times (Unix milliseconds) and the bytes of messages by their index; no bytes if the row
    cannot be read. ``destination`` says where they go; its due times are not used."""

    __slots__ = ("destination", "messages", "sent_at", "size")

    def __init__(self, destination: DueTimes, sent_at: str) -> None:
        self.destination = destination
        self.sent_at = sent_at
        self.messages: dict[int, tuple[int, bytes]] = {}
        self.size = _ROW_OVERHEAD

    def has(self, indexes: Iterable[int]) -> bool:
        return all(index in self.messages for index in indexes)

    def keep(self, messages: dict[int, tuple[int, bytes]]) -> None:
        self.messages = messages
        self.size = _ROW_OVERHEAD + sum(len(encoded) for _, encoded in messages.values())
        self.size += _MESSAGE_OVERHEAD * len(messages)


class ScheduleRowCache:
    """The messages of a schedule log that are due next, up to 48 MB of memory. For one thread.

    Rows that are in use at the same time share the memory. A row that is decoded keeps its next messages, as many as
    fit into its share, and is decoded again only when they are handed over.
    """

    def __init__(self, context: Context, bucket: Bucket) -> None:
        self._context = context
        self._log = context.log(bucket.log)
        self._rows: OrderedDict[int, ScheduleRow] = OrderedDict()
        self._size = 0
        self._page = GET_MANY
        """The number of rows that are read in one call, by the size of those read before."""
        self.decoded_bytes = 0
        """What was decoded so far, and ``_READ_COST`` for each row."""

    @property
    def size(self) -> int:
        """The bytes of memory that the kept messages take."""
        return self._size

    def rows(self, indexes: Mapping[int, Sequence[int]]) -> Iterator[tuple[int, ScheduleRow]]:
        """Yields the rows with these numbers in the given order, each with its messages at these indexes. Reads
        those that are not cached in few calls, and drops the least recently used rows when the cache is full."""
        numbers = list(indexes)
        share = _CACHE_BYTES // max(1, len(numbers), len(self._rows))
        end = 0
        while end < len(numbers):
            page = numbers[end : end + self._page]
            end += len(page)
            read = self._read(sorted(row_no for row_no in page if self._cached(row_no, indexes[row_no]) is None))
            for row_no in page:
                cached = self._cached(row_no, indexes[row_no])
                if cached is None:
                    # The read above may be out of date and miss the row: ``get`` is up to date.
                    row = read.get(row_no) or self._log.get(row_no)
                    assert row is not None
                    cached = self._keep(row_no, row, indexes[row_no], share)
                else:
                    self._rows.move_to_end(row_no)
                yield row_no, cached

    def drop(self, picks: Iterable[tuple[int, int]]) -> None:
        """Drops messages that are handed over, by row and index."""
        for row_no, index in picks:
            cached = self._rows.get(row_no)
            dropped = None if cached is None else cached.messages.pop(index, None)
            if cached is not None and dropped is not None:
                freed = len(dropped[1]) + _MESSAGE_OVERHEAD
                cached.size -= freed
                self._size -= freed
                if not cached.messages:
                    self._size -= self._rows.pop(row_no).size

    def _cached(self, row_no: int, indexes: Sequence[int]) -> ScheduleRow | None:
        cached = self._rows.get(row_no)
        return cached if cached is not None and cached.has(indexes) else None

    def _read(self, numbers: Sequence[int]) -> dict[int, Row]:
        """Reads rows: neighbours as a range, single ones together in one call."""
        read: dict[int, Row] = {}
        scattered: list[int] = []
        for run in _runs(numbers):
            if len(run) > 1:
                read |= self._log.read(run[0], run[-1] - run[0] + 1)
            else:
                scattered += run
        read |= self._log.get_many(scattered) if scattered else {}
        if read:
            size = sum(row.raw_bytes for row in read.values()) // len(read)
            self._page = min(GET_MANY, max(1, _PAGE_BYTES // max(1, size)))
        return read

    def _keep(self, row_no: int, row: Row, indexes: Sequence[int], share: int) -> ScheduleRow:
        cached = self._decoded(row_no, row, indexes, share)
        former = self._rows.pop(row_no, None)
        self._size += cached.size - (0 if former is None else former.size)
        self._rows[row_no] = cached
        while self._size > _CACHE_BYTES and len(self._rows) > 1:
            self._size -= self._rows.popitem(last=False)[1].size
        return cached

    def _decoded(self, row_no: int, row: Row, indexes: Sequence[int], share: int) -> ScheduleRow:
        """Decodes a row, and returns its messages at these indexes and those that are due next."""
        entry = decode_entry(row.meta)
        assert isinstance(entry, DueTimes)
        self.decoded_bytes += row.raw_bytes + _READ_COST
        raw: Sequence[bytes | msgspec.Raw] = [b""] * row.count
        try:
            raw = raw_messages_of(row, self._context.blobs)
        except Corrupt as error:
            unreadable(self._context, self._log.name, row_no, row.count, error)
        destination = msgspec.structs.replace(entry, after_ms=())
        cached = ScheduleRow(destination, rfc3339(row.at_ms))
        # Rows that were decoded in one step run out of messages in different ones.
        share = share * (4 + row_no % 5) // 8
        most = share * row.count // (row.raw_bytes + _MESSAGE_OVERHEAD * row.count)
        # Zeros for each message where all are due at one time: the entry then lists none.
        first_ms, after_ms = entry.first_ms, entry.after_ms or bytes(row.count)
        # The bytes are copied: a part of the row's payload would keep all of it in memory.
        cached.keep(
            {i: (first_ms + after_ms[i], bytes(raw[i])) for i in (*indexes, *_next_due(after_ms, indexes, most))}
        )
        return cached


def _next_due(after_ms: Sequence[int], indexes: Sequence[int], most: int) -> list[int]:
    """Returns the indexes of the messages of a row that are due no earlier than those at ``indexes``, in the order in
    which they are due: at most this many."""
    latest_ms = max([after_ms[index] for index in indexes])
    following = [i for i, after in enumerate(after_ms) if after >= latest_ms]
    if len(following) > most:
        following.sort(key=after_ms.__getitem__)
        del following[most:]
    return following


def _runs(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yields ascending numbers in slices; within a slice each number is at most ``_DENSE`` above the one before."""
    start = 0
    for end in range(1, len(numbers) + 1):
        far = end == len(numbers) or numbers[end] - numbers[end - 1] > _DENSE
        if far:
            yield numbers[start:end]
            start = end
