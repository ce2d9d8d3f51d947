"""Searches the schedule logs for delayed messages by their id: from the moment at which they are accepted until their
bucket is removed, a day after it was closed."""

import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile, islice
from typing import NamedTuple

from hourwheel.buckets.buckets import Bucket, buckets
from hourwheel.buckets.scheduled_ids import SchedulePosition
from hourwheel.context import Context
from hourwheel.errors import Corrupt
from hourwheel.logs.entries import DueTimes, decode_entry
from hourwheel.logs.large_batches import ids_of
from hourwheel.logs.log import Log
from hourwheel.logs.rows import Row
from hourwheel.model.subjects import Subject
from hourwheel.trace.log_rows import rows_of_time

_PARTS = re.compile(r"(.+):(\d{1,16}):(\d{1,4})", re.ASCII)
_BUCKETS = 100  # a call looks into at most this many buckets: each costs a few reads


class BucketRow(NamedTuple):
    """A row of a bucket's schedule log, and the index of the message in it from which on a search goes on."""

    bucket: Bucket
    row_no: int = 0
    first_index: int = 0

    @classmethod
    def parse(cls, text: str) -> "BucketRow | None":
        """Parses ``bucket:row:index``; returns None for any other text."""
        parts = _PARTS.fullmatch(text)
        if parts is None:
            return None
        try:
            return cls(Bucket.parse(parts[1]), int(parts[2]), int(parts[3]))
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"{self.bucket.name}:{self.row_no}:{self.first_index}"


@dataclass
class ScheduleSearch:
    """A search for messages of a subject that were accepted from ``since_ms`` until before ``until_ms`` (None: now), by
    clocks that differ by up to ``skew_ms``. A call reads about ``most_rows`` rows."""

    context: Context
    subject: Subject
    message_id: str
    since_ms: int
    until_ms: int | None
    skew_ms: int
    most_rows: int

    def positions(self, start: BucketRow | None) -> Iterator[SchedulePosition | BucketRow]:
        """Yields the messages with the id from ``start`` on, and at the end where the next call has to begin, if this
        one has read as much as it may."""
        begun = list(islice(self._buckets(start), _BUCKETS + 1))
        for begin in begun[:_BUCKETS]:
            ended = yield from self._positions_in(begin)
            if ended is not None:
                yield ended
                return
        yield from begun[_BUCKETS:]

    def _buckets(self, start: BucketRow | None) -> Iterator[BucketRow]:
        """Yields where the search begins in each bucket that can have the message, from ``start`` on."""
        begin = start or BucketRow(Bucket(0, 0))
        # A message is due after it was accepted.
        following = (bucket for bucket, _ in buckets(self.context, from_ms=self.since_ms - self.skew_ms))
        for bucket in dropwhile(lambda bucket: bucket < begin.bucket, following):
            yield begin if bucket == begin.bucket else BucketRow(bucket)

    def _positions_in(self, begin: BucketRow) -> Generator[SchedulePosition, None, BucketRow | None]:
        """Yields the messages with the id in one bucket from ``begin`` on. Returns where the next call has to begin, if
        this one has read as much as it may."""
        bucket = begin.bucket
        for row_no, row in self._rows(self.context.log(bucket.log), begin.row_no):
            if self.most_rows <= 0:
                return BucketRow(bucket, row_no)
            self.most_rows -= 1
            indexes = [index for index, message_id in enumerate(self._ids(row)) if message_id == self.message_id]
            yield from (SchedulePosition(bucket, row_no, index) for index in indexes if (row_no, index) >= begin[1:])
        return None

    def _rows(self, log: Log, first: int) -> Iterator[tuple[int, Row]]:
        """Yields the readable rows of the time from ``first`` on."""
        until_ms = None if self.until_ms is None else self.until_ms + self.skew_ms
        return rows_of_time(log, first, self.since_ms - self.skew_ms, until_ms)

    def _ids(self, row: Row) -> Sequence[str]:
        """Returns the ids of the messages of a row if they wait for the queues of the subject."""
        try:
            entry = decode_entry(row.meta)
            is_of_subject = isinstance(entry, DueTimes) and (entry.subject, entry.generation, entry.member) == (
                self.subject.name,
                self.subject.generation,
                None,
            )
            return ids_of(row, self.context.blobs) if is_of_subject else ()
        except Corrupt:
            return ()  # the wheel reports the damage
