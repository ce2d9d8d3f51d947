"""Maintains buckets for the sweeper: starts the wheels that should run and do not, and removes each bucket a day after
it was closed."""

from collections.abc import Iterable
from typing import TypeAlias

from hourwheel.buckets.buckets import LEAD_MS, Bucket, BucketRecord, bucket_record, buckets, order_timer
from hourwheel.buckets.lease import WheelOwner, lacks_wheel, owner_record
from hourwheel.buckets.starts import COARSE_MS, RELAY_MS, keep_listening
from hourwheel.context import Context
from hourwheel.delay.pending_changes import CHANGES
from hourwheel.errors import Corrupt
from hourwheel.logs.rows import from_record
from hourwheel.ports import Key, Table, items_of, transactional
from hourwheel.retention.kinds import DISPATCHES, MESSAGES
from hourwheel.retention.watermarks import removable_below

_DAY_MS = 86_400_000  # a closed bucket stays this long, so that late questions about its messages have an answer
_LONGEST_MS = 3_600_000  # the longest bucket that can be set
_PAGE = 200
_REMOVING_MS = 30_000
"""A sweep removes closed buckets for at most this long; the next sweep continues."""

RegisteredBucket: TypeAlias = tuple[Bucket, BucketRecord]

_ALL = "\U0010ffff"


def buckets_due_soon(context: Context) -> list[RegisteredBucket]:
    """Returns the buckets that are over, open, or about to begin."""
    # A bucket that begins later may contain messages that are due now: they came too late for their own bucket.
    return list(buckets(context, before_ms=context.clock.now_ms() + LEAD_MS + _LONGEST_MS))


def start_wheels(context: Context, entries: Iterable[RegisteredBucket]) -> int:
    """Orders a wheel for each of these buckets that should have one and has none, and closes those that are over and
    have nothing left. Has the queue of precise timers read while a start is near. Returns the number of wheels."""
    started, near = 0, False
    for bucket, record in entries:
        if record.closed_ms:
            continue
        current = owner_record(context, bucket).load()
        owner = None if current is None else current.value
        now_ms = context.clock.now_ms()
        near = near or start_is_near(owner, bucket, now_ms)
        if lacks_wheel(owner, bucket, now_ms) and not _close_drained(context, bucket, owner, now_ms):
            order_timer(context, now_ms, bucket)
            started += 1
    keep_listening(context, near)
    return started


def start_is_near(owner: WheelOwner | None, bucket: Bucket, now_ms: int) -> bool:
    """Returns whether a precise start of the wheel is soon to come, or may be ordered by a wheel that turns."""
    if owner is None:
        return False
    if owner.alive(now_ms):
        return True
    # No timer is ordered for the end of the bucket.
    return now_ms - COARSE_MS < owner.wakes_ms <= now_ms + RELAY_MS and owner.wakes_ms < bucket.end_ms


def _close_drained(context: Context, bucket: Bucket, owner: WheelOwner | None, now_ms: int) -> bool:
    """Closes a bucket that is over and has nothing left, without a wheel: seals its schedule log, and compares its end
    with what the last owner has read. Returns False if a wheel has to look. Two writes."""
    if owner is None or not owner.drained or now_ms < bucket.end_ms:
        return False
    # A producer that was given a row before the seal has raised the end; one that comes later goes to the next bucket.
    if context.log(bucket.log).seal().rows != owner.read_below:
        return False
    record = bucket_record(context, bucket)
    current = record.load()
    if current is not None and not current.value.closed_ms:
        record.swap(current.token, BucketRecord(closed_ms=now_ms))
    return True


def drop_closed(context: Context, entries: Iterable[RegisteredBucket]) -> int:
    """Removes those of these buckets that were closed at least a day ago. Returns how many were removed completely."""
    now_ms = context.clock.now_ms()
    over = [bucket for bucket, record in entries if record.closed_ms and record.closed_ms + _DAY_MS <= now_ms]
    return sum(_drop(context, bucket, now_ms + _REMOVING_MS) for bucket in over)


def _drop(context: Context, bucket: Bucket, until_ms: int) -> bool:
    """Removes a bucket, unless a change of one of its messages is undecided or its logs are not archived. Returns
    whether the bucket is removed. Removes the bucket's own record last, so that the next sweep removes what a crash
    leaves."""
    changes = context.store.scan(Table.META, CHANGES, start=bucket.name, limit=1)
    if changes and changes[0][0].startswith(f"{bucket.name} "):
        return False
    if not _archived(context, bucket):
        return False
    # The dispatch log is removed last: a message that is still found, and is not named there, was not handed over.
    partitions = (
        (Table.SCHEDULE, bucket.log),
        (Table.SCHEDULE, f"changes/{bucket.name}"),
        (Table.DISPATCH, bucket.name),
    )
    # Before the rows, which say that there are objects.
    if _may_have_objects(context, bucket):
        for key in context.blobs.list(f"scheduled/{bucket.name}/"):
            context.blobs.delete(key)
    if not all(_clear(context, table, partition, until_ms) for table, partition in partitions):
        return False
    for owned in (owner_record(context, bucket), bucket_record(context, bucket)):
        record = context.store.get(owned.key)
        if record is not None:
            context.store.delete(owned.key, expect=record.token)
    return True


def _may_have_objects(context: Context, bucket: Bucket) -> bool:
    """Returns whether large batches of the bucket may lie in objects: one of its rows names one, cannot be read, or was
    filled as its writer had died. On S3 a list of the objects costs five dollars a million, and most buckets have none.
    It leaves the object of a writer that died before it was given a row."""
    if transactional(context.store):
        return True  # one machine, where a list costs nothing
    try:
        rows = (from_record(record) for _, record in items_of(context.store, Table.SCHEDULE, bucket.log, page=_PAGE))
        return any(row.large_batch is not None or (row.filler and not row.meta) for row in rows)
    except Corrupt:
        return True


def _archived(context: Context, bucket: Bucket) -> bool:
    """Returns whether the archive contains every row of the bucket's logs, or archives none of them. Reads nothing
    where there is no archive."""
    if not context.settings.archive:
        return True
    scheduled = context.log(bucket.log).totals().rows
    last = context.store.scan(Table.DISPATCH, bucket.name, limit=1, reverse=True)
    dispatched = int(last[0][0]) + 1 if last else 0
    return (
        removable_below(context, MESSAGES, bucket.log, scheduled) == scheduled
        and removable_below(context, DISPATCHES, bucket.name, dispatched) == dispatched
    )


def _clear(context: Context, table: Table, partition: str, until_ms: int) -> bool:
    """Removes the items of a partition until the time is over. Returns whether all of them are removed."""
    context.store.trim(table, partition, below=_ALL)
    while context.clock.now_ms() < until_ms:
        # A store that trims by expiry times keeps these items, because they have none.
        items = context.store.scan(table, partition, limit=_PAGE)
        for sort, record in items:
            context.store.delete(Key(table, partition, sort), expect=record.token)
        if len(items) < _PAGE:
            return True
    return False
