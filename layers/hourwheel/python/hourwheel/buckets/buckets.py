"""Sorts delayed messages into buckets by the time at which they fall due. Each bucket has a schedule log.

    table      meta
    partition  buckets
    sort       {bucket}      {start:013d}-{minutes:02d}/{shard:03d}: start in Unix milliseconds, length, shard
    value      BucketRecord, msgpack array

The first message of a bucket registers the bucket and orders one timer. A bucket is removed once it is closed, never by
its age.
"""

import logging
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import msgspec

from hourwheel.buckets.starts import order_start
from hourwheel.context import Context
from hourwheel.errors import Broken, Corrupt, Sealed, Unavailable
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.logs.log import Reservation
from hourwheel.model.log_names import LogName, is_schedule
from hourwheel.ports.storage import Key, Table, items_of
from hourwheel.times import MINUTE_MS

LEAD_MS = 90_000
"""Where timers may come a minute late, a wheel starts this long before the first message of its bucket can be due: it
needs time to read the bucket."""

_logger = logging.getLogger("hourwheel")
_REMEMBERED = 40_000
"""A process remembers at most this many registered buckets: 732 days have 17,568 hours."""

_PAGE = 500  # two years of hours in 36 queries, each well below DynamoDB's 1 MB
_FIRST_BUCKETS = 40  # enough for the closed buckets of a day and the next ones, where a bucket has an hour
_NAME = re.compile(r"(\d{13})-(\d{2})/(\d{3})")


ReportUnreadable: TypeAlias = Callable[[str, Exception], None]
"""Receives the name of a record that cannot be decoded, and the error."""


class Bucket(NamedTuple):
    """A bucket of the messages that fall due within ``minutes`` from ``start_ms`` on, in one shard."""

    start_ms: int
    minutes: int
    shard: int = 0

    @property
    def end_ms(self) -> int:
        return self.start_ms + self.minutes * MINUTE_MS

    @property
    def following(self) -> "Bucket":
        return self._replace(start_ms=self.end_ms)

    @property
    def name(self) -> str:
        return f"{self.start_ms:013d}-{self.minutes:02d}/{self.shard:03d}"

    @property
    def log(self) -> str:
        """The name of the bucket's schedule log."""
        return str(LogName.of_schedule(self.name))

    @classmethod
    def parse(cls, name: str) -> "Bucket":
        """Parses the name of a bucket; raises ``ValueError`` for any other text."""
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"{name!r} is not the name of a bucket")
        return cls(int(match[1]), int(match[2]), int(match[3]))

    @classmethod
    def of_log(cls, log: str) -> "Bucket":
        return cls.parse(LogName.parse(log).bucket)

    @classmethod
    def at(cls, due_ms: int, minutes: int, shard: int = 0) -> "Bucket":
        """Returns the bucket of this length in which ``due_ms`` lies."""
        length = minutes * MINUTE_MS
        return cls(due_ms // length * length, minutes, shard)


class BucketRecord(msgspec.Struct, array_like=True, frozen=True):
    """The record of a registered bucket. ``closed_ms`` is the time at which every message of the bucket was handed over
    or cancelled; 0 before."""

    closed_ms: int = 0


def bucket_record(context: Context, bucket: Bucket) -> CasRecord[BucketRecord]:
    return CasRecord(context.store, context.ids, Key(Table.META, "buckets", bucket.name), BucketRecord)


def register(context: Context, bucket: Bucket) -> None:
    """Registers the bucket and orders a timer for its wheel. Orders none if the wheel should run already, or if timers
    are precise: then the caller that stores messages in the bucket starts it (``ensure_wheel_by``). After a crash
    between the two steps the sweeper starts the wheel. Costs nothing in a process that has registered the bucket
    before."""
    if bucket.name in context.buckets:
        return
    record = bucket_record(context, bucket)
    if record.load() is None and record.swap(None, BucketRecord()).stored:
        # After the commit: a wheel that starts earlier would find no bucket.
        context.afterwards(lambda outside: _order_first_timer(outside, bucket))
    context.afterwards(lambda outside: _remember(outside.buckets, bucket.name))


def _order_first_timer(context: Context, bucket: Bucket) -> None:
    if context.precise_timers is None and bucket.start_ms - LEAD_MS > context.clock.now_ms():
        order_timer(context, bucket.start_ms - LEAD_MS, bucket)


def order_timer(context: Context, when_ms: int, bucket: Bucket, *, minute: bool = False) -> None:
    """Orders a start of the bucket's wheel at that time; with ``minute`` it may come a minute late. Never fails, as the
    messages are stored already: if the timer is lost, the sweeper starts the wheel."""
    try:
        order_start(context, when_ms, bucket.name, minute=minute)
    except (Unavailable, Broken) as error:
        context.meter.record("WakesMissed", 1)
        if isinstance(error, Broken):
            _logger.error("no timer could be ordered for bucket %s: %s", bucket.name, error)


def _remember(names: set[str], name: str) -> None:
    if len(names) >= _REMEMBERED:
        names.clear()
    names.add(name)


def reserve_in(context: Context, log: str, count: int) -> Reservation:
    """Reserves a row of the log; if the log is the schedule log of a sealed bucket, a row of the next bucket that is
    not sealed."""
    if not is_schedule(log):
        return context.log(log).reserve(count)
    _, reservation = reserve_open(context, Bucket.of_log(log), count)
    return reservation


def reserve_open(context: Context, bucket: Bucket, count: int) -> tuple[Bucket, Reservation]:
    """Reserves a row of the bucket's schedule log, or of the first following one that is not sealed. Returns that
    bucket and the reservation. A message that is too late for its bucket is due in the next one at once."""
    while True:
        register(context, bucket)
        try:
            return bucket, context.log(bucket.log).reserve(count)
        except Sealed:
            bucket = bucket.following


def buckets(
    context: Context, *, from_ms: int = 0, before_ms: int | None = None
) -> Iterator[tuple[Bucket, BucketRecord]]:
    """Yields the registered buckets that end after ``from_ms`` and start before ``before_ms`` (None: all), in order.
    Closed buckets stay registered for a day."""
    stored = stored_buckets(context, from_ms=from_ms, before_ms=before_ms)
    return ((bucket, current.value) for bucket, current in stored)


def stored_buckets(
    context: Context,
    *,
    from_ms: int = 0,
    before_ms: int | None = None,
    consistent: bool = True,
    unreadable: ReportUnreadable | None = None,
) -> Iterator[tuple[Bucket, Versioned[BucketRecord]]]:
    """Yields what ``buckets`` does, with the token of each record. Passes records that cannot be decoded to
    ``unreadable``; without it raises their error. Without ``consistent`` it may miss recent changes."""
    # The buckets of two years may follow, and most often a caller needs only the first ones.
    page = _PAGE if before_ms is None else _FIRST_BUCKETS
    # No bucket is longer than an hour: those that begin earlier are over by then.
    start = f"{max(0, from_ms - 60 * MINUTE_MS):013d}"
    for name, record in items_of(context.store, Table.META, "buckets", start=start, page=page, consistent=consistent):
        try:
            bucket = Bucket.parse(name)
            current = bucket_record(context, bucket).opened(record)
        except (ValueError, Corrupt) as error:
            if unreadable is None:
                raise
            unreadable(name, error)
            continue
        if bucket.end_ms <= from_ms:
            continue
        if before_ms is not None and bucket.start_ms >= before_ms:
            return
        assert current is not None
        yield bucket, current
