"""Who turns the wheel of a bucket, and when it is turned next.

    table      meta
    partition  wheels
    sort       {bucket}
    value      Owner, msgpack array

The lease only keeps wheels out of each other's way: see ``ownership.py`` for what fences them.
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
_RACES = 20


class Owner(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """``until_ms``: end of the lease; 0 when the owner has left of its own accord, all that it did being certain.
    ``read_below``: it has read the schedule log up to this row, and does not send what a row before it cancel markers.
    ``wakes_ms``: when the bucket is looked at again after the owner has left. ``leaves_ms``: when it is going to leave
    (0: it does not know)."""

    owner: str
    until_ms: int
    read_below: int = 0
    wakes_ms: int = 0
    leaves_ms: int = 0

    @property
    def left(self) -> bool:
        return self.until_ms == 0

    def alive(self, now_ms: int) -> bool:
        # A lease of hours was given by a clock that has been set back since.
        return now_ms < self.until_ms <= now_ms + 4 * LEASE_MS


def owner_record(context: Context, bucket: Bucket) -> CasRecord[Owner]:
    return CasRecord(context.store, context.ids, Key(Table.META, "wheels", bucket.name), Owner)


def ensure_wheel_by(context: Context, bucket: Bucket, due_ms: int) -> None:
    """Has a wheel running when a message that was stored in the bucket is due; once that is certain, where it may be
    taken back. One read where the bucket's own timer has run already, else none. Where no timer can be ordered the
    sweeper sees to it: the message is safe."""
    context.afterwards(lambda outside: _ensure_wheel_by(outside, bucket, due_ms))


def _ensure_wheel_by(context: Context, bucket: Bucket, due_ms: int) -> None:
    try:
        wakes_ms = _announced(context, bucket, due_ms)
    except Unavailable:
        wakes_ms = due_ms - LEAD_MS  # perhaps one too many
    if wakes_ms is not None:
        order_timer(context, wakes_ms, bucket)


def _announced(context: Context, bucket: Bucket, due_ms: int) -> int | None:
    """When to start a wheel, if none will be there by itself; the bucket's record says so then, to those who come after
    us and to the sweeper."""
    now_ms = context.clock.now_ms()
    if bucket.start_ms <= due_ms and bucket.start_ms - LEAD_MS > now_ms:
        return None  # its timer comes in time
    record = owner_record(context, bucket)
    held = record.load()
    for _ in range(_RACES):
        owner = None if held is None else held.value
        wakes_ms = max(due_ms - LEAD_MS, now_ms)
        if owner is None:
            if bucket.start_ms - LEAD_MS <= now_ms:
                wakes_ms = now_ms  # its own timer may have been lost, and others wait for it
        elif owner.alive(now_ms) or (owner.left and now_ms - _RECENT_MS < owner.wakes_ms <= wakes_ms):
            return None
        elif not owner.left:
            return now_ms  # it went without a word
        elif owner.wakes_ms <= now_ms:
            wakes_ms = now_ms  # it should have been there: the record must not hide that
        ours = Owner(owner="", until_ms=0, wakes_ms=wakes_ms)
        stored, held = record.swap(None if held is None else held.token, ours)
        if stored:
            return wakes_ms
    return now_ms


def needs_wheel(context: Context, bucket: Bucket) -> bool:
    """Whether a wheel should be running for an open bucket, and none is."""
    held = owner_record(context, bucket).load()
    now_ms = context.clock.now_ms()
    if held is None:
        return bucket.start_ms - LEAD_MS <= now_ms
    owner = held.value
    return owner.wakes_ms <= now_ms - _RECENT_MS if owner.left else not owner.alive(now_ms)


def expire_all(context: Context, living: Collection[str] = ()) -> None:
    """Ends the leases of all owners but those that live. Safe at any time, as owners are fenced otherwise; sensible
    only where the others are gone."""
    for name, record in items_of(context.store, Table.META, "wheels"):
        bucket = Bucket.parse(name)
        held = owner_record(context, bucket).opened(record)
        if held is not None and not held.value.left and held.value.owner not in living:
            owner_record(context, bucket).swap(held.token, msgspec.structs.replace(held.value, until_ms=1))
