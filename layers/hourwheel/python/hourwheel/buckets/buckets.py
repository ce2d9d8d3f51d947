"""The first wheel: buckets of the time at which messages fall due, each with a schedule log.

    table      meta
    partition  buckets
    sort       {bucket}      {start:013d}-{minutes:02d}/{shard:03d}: its start in Unix milliseconds, its length
    value      BucketRecord, msgpack array

The first message of a bucket registers it and orders one timer. A bucket is removed when it is closed, never by age.
"""

import logging
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from hourwheel.context import Context
from hourwheel.errors import Broken, Sealed, Unavailable
from hourwheel.lognames import LogName, is_schedule
from hourwheel.logs.cas import CasRecord
from hourwheel.logs.log import Reservation
from hourwheel.ports import Key, Table, items_of

LEAD_MS = 90_000
"""A wheel is started so long before the first message of its bucket may be due: timers come up to a minute late, and
reading the bucket takes a while."""

_logger = logging.getLogger("hourwheel")
_MINUTE_MS = 60_000
_KNOWN = 40_000
_PAGE = 500
_FEW = 40
_NAME = re.compile(r"(\d{13})-(\d{2})/(\d{3})")


class Bucket(NamedTuple):
    """The messages that fall due from ``start_ms`` on, in one of the shards."""

    start_ms: int
    minutes: int
    shard: int = 0

    @property
    def end_ms(self) -> int:
        return self.start_ms + self.minutes * _MINUTE_MS

    @property
    def following(self) -> "Bucket":
        return self._replace(start_ms=self.end_ms)

    @property
    def name(self) -> str:
        return f"{self.start_ms:013d}-{self.minutes:02d}/{self.shard:03d}"

    @property
    def log(self) -> str:
        """Its schedule log."""
        return str(LogName.of_schedule(self.name))

    @classmethod
    def parse(cls, name: str) -> "Bucket":
        found = _NAME.fullmatch(name)
        if found is None:
            raise ValueError(f"{name!r} is not the name of a bucket")
        return cls(int(found[1]), int(found[2]), int(found[3]))

    @classmethod
    def of_log(cls, log: str) -> "Bucket":
        return cls.parse(LogName.parse(log).bucket)

    @classmethod
    def at(cls, due_ms: int, minutes: int, shard: int = 0) -> "Bucket":
        length = minutes * _MINUTE_MS
        return cls(due_ms // length * length, minutes, shard)


class BucketRecord(msgspec.Struct, array_like=True, frozen=True):
    """``closed_ms``: since when everything of the bucket is handed over or cancelled; 0 while it is not."""

    closed_ms: int = 0


def bucket_record(context: Context, bucket: Bucket) -> CasRecord[BucketRecord]:
    return CasRecord(context.store, context.ids, Key(Table.META, "buckets", bucket.name), BucketRecord)


def register(context: Context, bucket: Bucket) -> None:
    """Makes the bucket known and has its wheel started in time; where its time has come already, who stores something
    there does so (see ``expect``). Where a crash comes between the two, the sweeper sees to it. Costs nothing in a
    process that has seen it registered before."""
    if bucket.name in context.buckets:
        return
    record = bucket_record(context, bucket)
    if record.load() is None and record.swap(None, BucketRecord()).stored:
        # Once it is certain: a wheel that starts before would find no bucket.
        context.afterwards(lambda outside: _order_first_timer(outside, bucket))
    context.afterwards(lambda outside: _remember(outside.buckets, bucket.name))


def _order_first_timer(context: Context, bucket: Bucket) -> None:
    if bucket.start_ms - LEAD_MS > context.clock.now_ms():
        order_timer(context, bucket.start_ms - LEAD_MS, bucket)


def order_timer(context: Context, when_ms: int, bucket: Bucket) -> None:
    """Has the bucket's wheel started at that time. Never fails: what was stored is stored, and the sweeper starts what
    should turn and does not."""
    try:
        context.timers.at(when_ms, bucket.name)
    except (Unavailable, Broken) as error:
        context.meter.record("WakesMissed", 1)
        if isinstance(error, Broken):
            _logger.error("no timer could be ordered for bucket %s: %s", bucket.name, error)


def _remember(known: set[str], name: str) -> None:
    if len(known) >= _KNOWN:
        known.clear()
    known.add(name)


def reserve_in(context: Context, log: str, count: int) -> tuple[str, Reservation]:
    """A row of the log; where that is the schedule log of a bucket which is over, of the next one. And of which log."""
    if not is_schedule(log):
        return log, context.log(log).reserve(count)
    bucket, reservation = reserve_open(context, Bucket.of_log(log), count)
    return bucket.log, reservation


def reserve_open(context: Context, bucket: Bucket, count: int) -> tuple[Bucket, Reservation]:
    """A row of the bucket's schedule log, or of the first one after it that is not sealed: what comes too late for its
    bucket is at once due in the next."""
    while True:
        register(context, bucket)
        try:
            return bucket, context.log(bucket.log).reserve(count)
        except Sealed:
            bucket = bucket.following


def buckets(context: Context, *, before_ms: int | None = None) -> Iterator[tuple[Bucket, BucketRecord]]:
    """The registered buckets that start before that time, in order; closed ones for a day."""
    # Those of two years may follow: most often the first few are all that is wanted.
    page = _PAGE if before_ms is None else _FEW
    for name, record in items_of(context.store, Table.META, "buckets", page=page):
        bucket = Bucket.parse(name)
        if before_ms is not None and bucket.start_ms >= before_ms:
            return
        held = bucket_record(context, bucket).opened(record)
        assert held is not None
        yield bucket, held.value
