"""Maintains buckets for the sweeper: starts the wheels that should run and do not, and removes each bucket a day after
it was closed."""

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import TypeAlias

from hourwheel.buckets.buckets import (
    LEAD_MS,
    Bucket,
    BucketRecord,
    ReportUnreadable,
    bucket_record,
    order_timer,
    stored_buckets,
)
from hourwheel.buckets.lease import START_MS, WheelOwner, lacks_wheel, owner_record
from hourwheel.buckets.starts import COARSE_MS, RELAY_MS, keep_listening
from hourwheel.context import Context
from hourwheel.delay.pending_changes import CHANGES
from hourwheel.errors import Corrupt
from hourwheel.faults import Contained
from hourwheel.logs.cas import Versioned
from hourwheel.logs.rows import from_record
from hourwheel.ports.storage import REMOVE_MANY, Key, Record, Table, transactional
from hourwheel.retention.kinds import DISPATCHES, MESSAGES
from hourwheel.retention.watermarks import removable_below

_DAY_MS = 86_400_000  # a closed bucket stays this long, so that late questions about its messages have an answer
_LONGEST_MS = 3_600_000  # the longest bucket that can be set
_PAGE = 200
_OVERDUE_MS = 5_000
_REMOVING_MS = 50_000
"""Closed buckets are removed for at most this long, in a run that comes each minute; the next one continues."""
_TURN_MS = 2_000
"""One bucket is removed for this long before the next one has its turn: their rows are different partitions of the
table, each with a throughput of its own."""

RegisteredBucket: TypeAlias = tuple[Bucket, Versioned[BucketRecord]]

_ALL = "\U0010ffff"  # sorts behind every row number


def buckets_due_soon(context: Context, unreadable: ReportUnreadable | None = None) -> list[RegisteredBucket]:
    """Returns the buckets that are over, open, or about to begin. Passes records that cannot be decoded to
    ``unreadable``; without it raises their error."""
    # A bucket that begins later may contain messages that are due now: they came too late for their own bucket.
    before_ms = context.clock.now_ms() + LEAD_MS + _LONGEST_MS
    # May be out of date: a bucket that is missed is found a minute later, and a write to an old record is refused.
    return list(stored_buckets(context, before_ms=before_ms, consistent=False, unreadable=unreadable))


def start_wheels(
    context: Context, entries: Iterable[RegisteredBucket], contained: Contained = lambda what: nullcontext()
) -> int:
    """Orders a wheel for each of these buckets that should have one and has none, and closes those that are over and
    have nothing left. Keeps the reading of the queue of precise timers on while a start is near. Records how long the
    oldest message may have waited for a wheel. Works on each bucket in the context manager that ``contained`` returns.
    Returns the number of wheels."""
    started, overdue_ms, near = 0, 0, False
    for bucket, record in entries:
        if record.value.closed_ms:
            continue
        is_known = False
        with contained(f"starting the wheel of bucket {bucket.name}"):
            current = owner_record(context, bucket).load()
            owner = None if current is None else current.value
            now_ms = context.clock.now_ms()
            near, is_known = near or start_is_near(owner, bucket, now_ms), True
            overdue_ms = max(overdue_ms, now_ms - waiting_since(owner, bucket, now_ms, _lead_ms(context)))
            if lacks_wheel(owner, bucket, now_ms) and not _close_drained(context, bucket, record, owner, now_ms):
                order_timer(context, now_ms, bucket)
                started += 1
        near = near or not is_known
    # Shorter delays are those of a wheel that is about to start.
    if overdue_ms >= _OVERDUE_MS:
        context.meter.record("OverdueDelayedSeconds", overdue_ms / 1_000, unit="Seconds")
    with contained("switching the reading of precise timers"):
        keep_listening(context, near)
    return started


def waiting_since(owner: WheelOwner | None, bucket: Bucket, now_ms: int, lead_ms: int) -> int:
    """Returns the earliest time at which a message of the open bucket may have been due that still waits: ``now_ms`` if
    a wheel turns, or comes in time. ``lead_ms``: a wheel is started this long before its next message is due."""
    if owner is None:
        return min(bucket.start_ms, now_ms)  # no wheel has ever come
    if owner.alive(now_ms):
        return min(bucket.end_ms, now_ms)  # a wheel that has messages left after the end of its bucket is behind
    if not owner.left:
        return min(owner.until_ms, now_ms)
    # 0: its server stopped it, and starts it again.
    dues = [owner.wakes_ms + lead_ms] if 0 < owner.wakes_ms < bucket.end_ms else []
    dues += [owner.minute_ms + lead_ms + COARSE_MS] if owner.minute_ms else []
    return min([*dues, now_ms])


def _lead_ms(context: Context) -> int:
    return LEAD_MS if context.precise_timers is None else START_MS


def start_is_near(owner: WheelOwner | None, bucket: Bucket, now_ms: int) -> bool:
    """Returns whether a precise start of the wheel is soon to come, or may be ordered by a wheel that turns."""
    if owner is None:
        return False
    if owner.alive(now_ms):
        return True
    # No timer is ordered for the end of the bucket.
    return now_ms - COARSE_MS < owner.wakes_ms <= now_ms + RELAY_MS and owner.wakes_ms < bucket.end_ms


def _close_drained(
    context: Context, bucket: Bucket, current: Versioned[BucketRecord], owner: WheelOwner | None, now_ms: int
) -> bool:
    """Closes a bucket that is over and has nothing left, without a wheel: seals its schedule log, and compares its end
    with what the last owner has read. Returns False if a wheel has to look. Two writes."""
    if owner is None or not owner.drained or now_ms < bucket.end_ms:
        return False
    # A producer that was given a row before the seal has raised the end; one that comes later goes to the next bucket.
    if context.log(bucket.log).seal().rows != owner.read_below:
        return False
    # Refused: a wheel has closed the bucket meanwhile.
    bucket_record(context, bucket).swap(current, BucketRecord(closed_ms=now_ms))
    return True


def drop_closed(
    context: Context, entries: Iterable[RegisteredBucket], contained: Contained = lambda what: nullcontext()
) -> int:
    """Removes the buckets of the list that were closed at least a day ago, each in the context manager that
    ``contained`` returns. Returns how many were removed completely."""
    now_ms = context.clock.now_ms()
    over = [
        (bucket, current)
        for bucket, current in entries
        if current.value.closed_ms and current.value.closed_ms + _DAY_MS <= now_ms
    ]
    dropped, turns, until_ms = 0, deque(over), now_ms + _REMOVING_MS
    while turns and context.clock.now_ms() < until_ms:
        bucket, current = turns.popleft()
        is_left = False
        with contained(f"removing bucket {bucket.name}"):
            turn_ms = min(until_ms, context.clock.now_ms() + _TURN_MS)
            is_dropped = _drop(context, bucket, current, turn_ms)
            dropped += is_dropped
            # A bucket that waits for the archive, or for a change, has no second turn.
            is_left = not is_dropped and context.clock.now_ms() >= turn_ms
        if is_left:
            turns.append((bucket, current))
    return dropped


def _drop(context: Context, bucket: Bucket, current: Versioned[BucketRecord], until_ms: int) -> bool:
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
    if transactional(context.store):
        _delete_objects(context, bucket)  # one machine, where a list costs nothing
    if not all(_clear(context, bucket, table, partition, until_ms) for table, partition in partitions):
        return False
    owner = owner_record(context, bucket).key
    owned = context.store.get(owner)
    # DynamoDB removes a record that expires at no cost.
    if owned is not None and (owned.expires_ms is None or transactional(context.store)):
        context.store.delete(owner, expect=owned.token)
    context.store.delete(bucket_record(context, bucket).key, expect=current.token)
    return True


def _delete_objects(context: Context, bucket: Bucket) -> None:
    for key in context.blobs.list(f"scheduled/{bucket.name}/"):
        context.blobs.delete(key)


def _may_have_objects(records: Iterable[Record]) -> bool:
    """Returns whether large batches may lie in objects: one of these rows of a schedule log names one, cannot be read,
    or was filled as its writer had died. On S3 a list of the objects costs five dollars a million, and most buckets
    have none. It leaves the object of a writer that died before it was given a row."""
    try:
        rows = map(from_record, records)
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


def _remove(context: Context, table: Table, partition: str, items: Sequence[tuple[str, Record]]) -> None:
    """Removes these items: rows of the bucket's logs, which nobody writes any more, many in one request."""
    if partition.startswith("changes/"):
        for sort, record in items:
            context.store.delete(Key(table, partition, sort), expect=record.token)
        return
    for start in range(0, len(items), REMOVE_MANY):
        context.store.remove_many(table, partition, [sort for sort, _ in items[start : start + REMOVE_MANY]])


def _clear(context: Context, bucket: Bucket, table: Table, partition: str, until_ms: int) -> bool:
    """Removes the items of a partition until the time is over, and before rows that may name objects the objects.
    Returns whether all items are removed."""
    if transactional(context.store):
        context.store.trim(table, partition, below=_ALL)
    while context.clock.now_ms() < until_ms:
        items = context.store.scan(table, partition, limit=_PAGE)
        if partition == bucket.log and _may_have_objects(record for _, record in items):
            _delete_objects(context, bucket)
        _remove(context, table, partition, items)
        if len(items) < _PAGE:
            return True
    return False
