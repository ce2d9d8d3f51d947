"""Leases the wheel of a bucket to one owner, and says when the wheel turns next.

    table      meta
    partition  wheels
    sort       {bucket}
    value      Owner, msgpack array

The lease only keeps wheels out of each other's way; ``delay/ownership.py`` fences them.
"""

from collections.abc import Collection

import msgspec

from hourwheel.buckets.buckets import LEAD_MS, Bucket, order_timer
from hourwheel.context import Context
from hourwheel.errors import Unavailable
from hourwheel.logs.cas import CasRecord
from hourwheel.ports import Key, Table, items_of

LEASE_MS = 30_000
_RECENT_MS = 5_000
"""A wheel that should have started within this time may still be starting."""

_RACES = 20  # tries to announce a start; after them a timer too many is ordered


class Owner(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The owner of a wheel. ``until_ms``: end of the lease; 0 once the owner has left after all its writes were
    certain. ``read_below``: the owner has read the schedule log below this row, and sends no message that a cancel
    marker below this row names. ``wakes_ms``: the next start of the wheel after the owner has left. ``leaves_ms``: the
    time at which the owner is going to leave (0: not known yet)."""

    owner: str
    until_ms: int
    read_below: int = 0
    wakes_ms: int = 0
    leaves_ms: int = 0

    @property
    def left(self) -> bool:
        return self.until_ms == 0

    def alive(self, now_ms: int) -> bool:
        # A lease of hours comes from a clock that was set back since.
        return now_ms < self.until_ms <= now_ms + 4 * LEASE_MS


def owner_record(context: Context, bucket: Bucket) -> CasRecord[Owner]:
    return CasRecord(context.store, context.ids, Key(Table.META, "wheels", bucket.name), Owner)


def ensure_wheel_by(context: Context, bucket: Bucket, due_ms: int) -> None:
    """Ensures that a wheel runs when a message that the caller stores in the bucket is due, and wakes one that sleeps.
    Within a transaction it acts after the commit. One read if the bucket's own timer has run already, else none. If no
    timer can be ordered, the message is safe and the sweeper starts the wheel."""
    context.afterwards(lambda outside: _ensure_wheel_by(outside, bucket, due_ms))


def _ensure_wheel_by(context: Context, bucket: Bucket, due_ms: int) -> None:
    # First, as a sleeping wheel of this process needs no timer. An announcement is a hint: it may be lost.
    context.wheel_wakeups.announce(bucket.name, due_ms)
    try:
        wakes_ms = _announced(context, bucket, due_ms)
    except Unavailable:
        wakes_ms = due_ms - LEAD_MS  # a timer too many does no harm
    if wakes_ms is not None:
        order_timer(context, wakes_ms, bucket)


def _announced(context: Context, bucket: Bucket, due_ms: int) -> int | None:
    """Returns when a wheel has to start, and stores that time in the owner's record for later callers and the sweeper.
    Returns None if a wheel will run without a new timer."""
    now_ms = context.clock.now_ms()
    if bucket.start_ms <= due_ms and bucket.start_ms - LEAD_MS > now_ms:
        return None  # the timer of the bucket comes in time
    record = owner_record(context, bucket)
    current = record.load()
    for _ in range(_RACES):
        owner = None if current is None else current.value
        wakes_ms = max(due_ms - LEAD_MS, now_ms)
        if owner is None:
            if bucket.start_ms - LEAD_MS <= now_ms:
                wakes_ms = now_ms  # the timer of the bucket may be lost, and other messages wait for the wheel
        elif owner.alive(now_ms) or (owner.left and now_ms - _RECENT_MS < owner.wakes_ms <= wakes_ms):
            return None
        elif not owner.left:
            return now_ms  # the owner died: its lease is over, and it has not left
        elif owner.wakes_ms <= now_ms:
            wakes_ms = now_ms  # the wheel is overdue: the record must not hide that
        # The record then reads as that of an owner that left: no wheel is replaced by it, as its lease is over.
        announcement = Owner(owner="", until_ms=0, wakes_ms=wakes_ms)
        stored, current = record.swap(None if current is None else current.token, announcement)
        # Stored before the timer is ordered: if the order is lost, the sweeper sees the time and starts the wheel.
        if stored:
            return wakes_ms
    return now_ms


def needs_wheel(context: Context, bucket: Bucket) -> bool:
    """Returns whether a wheel should run for an open bucket, and none does."""
    current = owner_record(context, bucket).load()
    now_ms = context.clock.now_ms()
    if current is None:
        return bucket.start_ms - LEAD_MS <= now_ms
    owner = current.value
    # A timer that has just fired gets some time before the sweeper starts a second wheel.
    return owner.wakes_ms <= now_ms - _RECENT_MS if owner.left else not owner.alive(now_ms)


def expire_wheel_leases(context: Context, living: Collection[str] = ()) -> None:
    """Ends the leases of all owners that are not in ``living``. Safe at any time, as the leases are not what fences
    owners; useful only if the other owners are dead."""
    for name, record in items_of(context.store, Table.META, "wheels"):
        bucket = Bucket.parse(name)
        current = owner_record(context, bucket).opened(record)
        if current is not None and not current.value.left and current.value.owner not in living:
            owner_record(context, bucket).swap(current.token, msgspec.structs.replace(current.value, until_ms=1))
