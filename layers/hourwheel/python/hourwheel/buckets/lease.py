"""Leases the wheel of a bucket to one owner, and says when the wheel turns next.

    table      meta
    partition  wheels
    sort       {bucket}
    value      WheelOwner, msgpack array

The lease only keeps wheels out of each other's way; ``delay/ownership.py`` fences them.
"""

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from hourwheel.buckets.buckets import LEAD_MS, Bucket, order_timer
from hourwheel.buckets.starts import COARSE_MS
from hourwheel.context import Context
from hourwheel.errors import Unavailable
from hourwheel.logs.cas import CasRecord, value_of
from hourwheel.ports.storage import Key, Table, items_of

LEASE_MS = 30_000  # a wheel renews its lease every 12 s
START_MS = 2_000
"""Where timers are precise, a wheel starts this long before its next message is due: the start of a function takes most
of a second, and the wheel reads the bucket. So does a coarse start for messages that may be a minute late: it comes up
to ``COARSE_MS`` after its second."""

_RECENT_MS = 5_000
"""A wheel that should have started within this time may still be starting."""

_SKEW_MS = 1_000  # clocks of two functions differ by less
_REMEMBERED = 40_000  # as many as the buckets of two years
_RACES = 20  # tries to announce a start; after them a timer too many is ordered


class WheelOwner(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The owner of a wheel. ``until_ms``: end of the lease; 0 once the owner has left after all its writes were
    certain. ``read_below``: the owner has read the schedule log below this row, and sends no message that a cancel
    marker below this row names. ``wakes_ms``: the next start of the wheel after the owner has left. ``leaves_ms``: the
    time at which the owner is going to leave (0: not known yet). ``minute_ms``: a start that may come a minute late (0:
    none). ``drained``: the owner has left, and every message below ``read_below`` is handed over or cancelled."""

    owner: str
    until_ms: int
    read_below: int = 0
    wakes_ms: int = 0
    leaves_ms: int = 0
    minute_ms: int = 0
    drained: bool = False

    @property
    def left(self) -> bool:
        return self.until_ms == 0

    @property
    def first_start_ms(self) -> int:
        """The first start of the wheel after the owner has left."""
        return min(self.wakes_ms, self.minute_ms or self.wakes_ms)

    def starts_by(self, need_ms: int, now_ms: int) -> bool:
        """Returns whether a wheel is to start by that time, or has just started, after the owner has left."""
        return now_ms - _RECENT_MS < self.wakes_ms <= need_ms

    def coarsely_starts_by(self, need_ms: int, now_ms: int) -> bool:
        """Returns whether a start that is to come, and may come a minute late, comes by that time nevertheless."""
        return now_ms < self.minute_ms <= need_ms - COARSE_MS

    def alive(self, now_ms: int) -> bool:
        # A lease of hours comes from a clock that was set back since.
        return now_ms < self.until_ms <= now_ms + 4 * LEASE_MS


def owner_record(context: Context, bucket: Bucket) -> CasRecord[WheelOwner]:
    return CasRecord(context.store, context.ids, Key(Table.META, "wheels", bucket.name), WheelOwner)


def ensure_wheel_by(context: Context, bucket: Bucket, due_ms: int, *, minute: bool = False) -> None:
    """Ensures that a wheel runs when a message that the caller stores in the bucket is due, or with ``minute`` within a
    minute of that, and wakes one that sleeps. Within a transaction it acts after the commit. At most one read, and one
    write if the wheel has to start earlier than before. If no timer can be ordered, the message is safe and the sweeper
    starts the wheel."""
    context.afterwards(lambda outside: _ensure_wheel_by(outside, bucket, due_ms, minute=minute))


def _ensure_wheel_by(context: Context, bucket: Bucket, due_ms: int, *, minute: bool = False) -> None:
    # First, as a sleeping wheel of this process needs no timer. An announcement is a hint: it may be lost.
    context.wheel_wakeups.announce(bucket.name, due_ms)
    if context.precise_timers is not None:
        _ensure_start(context, bucket, due_ms, minute=minute)
        return
    try:
        wakes_ms = _announced(context, bucket, due_ms)
    except Unavailable:
        wakes_ms = due_ms - LEAD_MS  # a timer too many does no harm
    if wakes_ms is not None:
        order_timer(context, wakes_ms, bucket)


def _ensure_start(context: Context, bucket: Bucket, due_ms: int, *, minute: bool) -> None:
    """Records the first start that the bucket needs, and orders it. Costs nothing where this process has recorded an
    earlier one that is still to come."""
    now_ms = context.clock.now_ms()
    need_ms = max(due_ms - START_MS, now_ms)
    wakes_ms = context.hints.wakes_ms
    # A wheel that leaves keeps a recorded start that is still to come, so the wheel that starts then reads the message.
    if now_ms + _SKEW_MS < wakes_ms.get(bucket.name, 0) <= need_ms:
        return
    try:
        planned = _plan_start(context, bucket, need_ms, minute=minute)
    except Unavailable:
        planned = PlannedStart(now_ms)  # what is recorded is not known: the wheel reads the bucket and decides
    if planned.order_ms is not None:
        order_timer(context, planned.order_ms, bucket, minute=minute)
    if planned.wakes_ms > now_ms:
        if len(wakes_ms) >= _REMEMBERED:
            wakes_ms.clear()
        wakes_ms[bucket.name] = planned.wakes_ms


class PlannedStart(NamedTuple):
    """The start that a caller orders (``order_ms``; None: it orders none), and the start by a precise timer that the
    record names (``wakes_ms``; 0: none)."""

    order_ms: int | None
    wakes_ms: int = 0


def _plan_start(context: Context, bucket: Bucket, need_ms: int, *, minute: bool) -> PlannedStart:
    record = owner_record(context, bucket)
    current = record.load()
    for _ in range(_RACES):
        now_ms = context.clock.now_ms()
        owner = value_of(current)
        planned = planned_start(owner, bucket, need_ms, now_ms, minute=minute)
        if planned is None or planned is START_NOW:
            return PlannedStart(None if planned is None else now_ms, 0 if owner is None else owner.wakes_ms)
        # Stored before the timer is ordered: if the order is lost, the sweeper sees the time and starts the wheel.
        stored, current = record.swap(current, planned)
        if stored:
            return PlannedStart(need_ms if minute else planned.wakes_ms, planned.wakes_ms)
    return PlannedStart(context.clock.now_ms())


def planned_start(
    owner: WheelOwner | None, bucket: Bucket, need_ms: int, now_ms: int, *, minute: bool
) -> WheelOwner | None:
    """Decides, where timers are precise, what a caller records that needs the wheel at ``need_ms``, or with ``minute``
    within a minute of that. Returns None if a wheel comes in time, ``START_NOW`` if the owner died, otherwise the
    record with the earlier start, which is to be ordered."""
    if owner is None:
        # Nothing else needs a wheel before the end of the bucket, at which the sweeper closes it.
        owner = WheelOwner(owner="", until_ms=0, wakes_ms=bucket.end_ms)
    if owner.alive(now_ms):
        return None
    if not owner.left:
        return START_NOW
    # No wheel starts at the end of a bucket: the record says so where nothing else needs one.
    if owner.starts_by(need_ms, now_ms) and owner.wakes_ms != bucket.end_ms:
        return None
    if minute:
        # A coarse start that was ordered clears its time when it comes; if it is lost, the sweeper sees the time.
        if 0 < owner.minute_ms <= need_ms:
            return None
        return _left_with(wakes_ms=owner.wakes_ms, minute_ms=need_ms)
    if owner.coarsely_starts_by(need_ms, now_ms):
        return None
    # An overdue start stays as it is: the record must not hide it from the sweeper.
    overdue = owner.wakes_ms <= now_ms
    return _left_with(wakes_ms=now_ms if overdue else need_ms, minute_ms=owner.minute_ms)


def _left_with(*, wakes_ms: int, minute_ms: int) -> WheelOwner:
    """Returns the record of an owner that left, with these starts: no wheel is replaced by it, as its lease is over."""
    return WheelOwner(owner="", until_ms=0, wakes_ms=wakes_ms, minute_ms=minute_ms)


START_NOW = WheelOwner(owner="", until_ms=0)
"""Stands for a start at once, which is not recorded: the lease that is over tells the sweeper the same."""


def _announced(context: Context, bucket: Bucket, due_ms: int) -> int | None:
    """Returns when a wheel has to start, and stores that time in the owner's record for later callers and the sweeper.
    Returns None if a wheel will run without a new timer."""
    now_ms = context.clock.now_ms()
    if bucket.start_ms <= due_ms and bucket.start_ms - LEAD_MS > now_ms:
        return None  # the timer of the bucket comes in time
    record = owner_record(context, bucket)
    current = record.load()
    for _ in range(_RACES):
        announcement = _announcement(value_of(current), bucket, max(due_ms - LEAD_MS, now_ms), now_ms)
        if announcement is None or announcement is START_NOW:
            return None if announcement is None else now_ms
        stored, current = record.swap(current, announcement)
        # Stored before the timer is ordered: if the order is lost, the sweeper sees the time and starts the wheel.
        if stored:
            return announcement.wakes_ms
    return now_ms


def _announcement(owner: WheelOwner | None, bucket: Bucket, need_ms: int, now_ms: int) -> WheelOwner | None:
    """Decides, where timers are not precise, what a caller records that needs the wheel at ``need_ms``. Returns None,
    ``START_NOW`` or a record as ``planned_start`` does."""
    if owner is None:
        # The timer of a bucket that has begun may be lost, and other messages wait for the wheel.
        has_begun = bucket.start_ms - LEAD_MS <= now_ms
        return _left_with(wakes_ms=now_ms if has_begun else need_ms, minute_ms=0)
    if owner.alive(now_ms):
        return None
    if not owner.left:
        return START_NOW
    if owner.starts_by(need_ms, now_ms):
        return None
    # An overdue start stays as it is: the record must not hide it from the sweeper. So does a coarse start, which was
    # ordered while timers were precise and may be lost.
    overdue = owner.wakes_ms <= now_ms
    return _left_with(wakes_ms=now_ms if overdue else need_ms, minute_ms=owner.minute_ms)


def lacks_wheel(owner: WheelOwner | None, bucket: Bucket, now_ms: int) -> bool:
    """Returns whether a wheel should run for an open bucket with this record, and none does."""
    if owner is None:
        return bucket.start_ms - LEAD_MS <= now_ms
    if not owner.left:
        return not owner.alive(now_ms)
    # A timer that has just fired gets some time before the sweeper starts a second wheel.
    late_ms = now_ms - _RECENT_MS
    return owner.wakes_ms <= late_ms or 0 < owner.minute_ms <= late_ms - COARSE_MS


def expire_wheel_leases(context: Context, living: Collection[str] = ()) -> None:
    """Ends the leases of all owners that are not in ``living``. Safe at any time, as the leases are not what fences
    owners; useful only if the other owners are dead."""
    for name, record in items_of(context.store, Table.META, "wheels"):
        bucket = Bucket.parse(name)
        current = owner_record(context, bucket).opened(record)
        if current is not None and not current.value.left and current.value.owner not in living:
            # 1 is over as well; 0 would say that the owner has left, with all its writes certain.
            owner_record(context, bucket).swap(current, msgspec.structs.replace(current.value, until_ms=1))
