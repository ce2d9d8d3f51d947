"""Decides from times and row numbers what the wheel of a bucket does next. Reads and writes nothing.

NEW ──► FOLLOWING ──► CATCHING_UP ──► TURNING ──► CLOSING
 └──────────────────────▲
"""

from enum import Enum
from typing import NamedTuple

from hourwheel.buckets.buckets import LEAD_MS
from hourwheel.buckets.lease import START_MS
from hourwheel.logs.log import GRACE_MS

RELAY_MS = 45_000
"""A wheel calls its successor this long before it leaves; the successor reads the bucket meanwhile."""

LOOK_MS = 50
"""A wheel without ticks looks this often for a row that was given out and is not stored yet, and in a bucket that is
over."""

CROWD = 50
COMPANY_MS, LONGEST_COMPANY_MS = 20, 250
"""A wheel without ticks that has just handed over ``CROWD`` messages or more is busy. It takes the next messages at
least ``COMPANY_MS`` after these, and rests as long as the last step took, up to ``LONGEST_COMPANY_MS``. A step costs as
much as the messages in it; far more if it has to decode many rows of the schedule log."""

PREPARE_MS = 100
"""A wheel that has at least this long until its next turn reads the messages that are due then. Decoding rows takes 0.4
ms for each, and would make the first step after a rest late."""

SETTLED_MS = 5_000
"""A wheel turns for at least this long before it goes to sleep: most buckets get more messages at once."""


REST_MS = 10_000
"""Where timers are precise, a wheel leaves if it is not needed for this long. To start it again costs as much as to let
it turn for some 4 s; a wheel that has handed over more than once stays this long for what may follow."""

READING_SHARE = 20
"""A wheel leaves only for this many times the time that it took to open. Another one has to read the bucket again, and
a second of reading costs as much as 20 s of turning."""


class WheelState(Enum):
    NEW = "new"  # nothing is read
    FOLLOWING = "following"  # it reads both logs, while the former owner may still hand messages over
    CATCHING_UP = "catching up"  # the former owner is fenced off; rows that the wheel must read are not stored yet
    TURNING = "turning"  # it hands due messages over
    CLOSING = "closing"  # it still turns; the bucket is over, and its schedule log sealed


class WheelStep(Enum):
    HAND_OVER = "hand over"
    WAIT = "wait"  # for the next tick
    FILL = "fill"  # the missing rows, whose writers are slow or dead
    SEAL = "seal"
    CLOSE = "close"
    CALL = "call"  # the successor
    LEAVE = "leave"


def step_before_hand_over(*, read_below: int, must_read: int, opened_ms: int, now_ms: int) -> WheelStep:
    """Returns ``HAND_OVER`` once the schedule log is read up to ``must_read``; before, ``WAIT`` or ``FILL``."""
    if read_below >= must_read:
        return WheelStep.HAND_OVER
    return _step_at_hole(opened_ms, now_ms)


def step_of_relay(*, called: bool, leaves_ms: int, now_ms: int) -> WheelStep:
    """Returns the step of a wheel that has to leave at ``leaves_ms`` (0: never): ``CALL`` the successor, ``LEAVE``, or
    ``WAIT``. ``called``: the wheel has called its successor; a wheel that leaves calls first if it has not."""
    if not leaves_ms:
        return WheelStep.WAIT
    if now_ms >= leaves_ms:
        return WheelStep.LEAVE
    return WheelStep.CALL if now_ms >= leaves_ms - RELAY_MS and not called else WheelStep.WAIT


def wake_time_ms(next_due_ms: int | None, bucket_end_ms: int) -> int:
    """Returns when a sleeping wheel has to be started: before the next message is due, or to close the bucket."""
    return bucket_end_ms if next_due_ms is None else min(next_due_ms - LEAD_MS, bucket_end_ms)


def may_sleep(*, wakes_ms: int, opened_ms: int, now_ms: int) -> bool:
    return wakes_ms > now_ms + LEAD_MS and now_ms - opened_ms >= SETTLED_MS


class NextStarts(NamedTuple):
    """When a wheel that leaves is needed again: at ``wakes_ms``, and at ``minute_ms``, where a start may come a minute
    late (0: not before ``wakes_ms``)."""

    wakes_ms: int
    minute_ms: int

    @property
    def first_ms(self) -> int:
        return min(self.wakes_ms, self.minute_ms or self.wakes_ms)


def next_starts(
    *, due_ms: int | None, minute_due_ms: int | None, end_ms: int, announced_ms: int, now_ms: int
) -> NextStarts:
    """Returns when a wheel is needed again where timers are precise; at the end of the bucket if nothing waits.
    ``due_ms``, ``minute_due_ms``: when its next message is due, and its next one that may be a minute late.
    ``announced_ms``: a start that was recorded before. If it is still to come, producers rely on it; its timer may be
    the very one that has started this wheel early."""
    wakes_ms = end_ms if due_ms is None else min(due_ms - START_MS, end_ms)
    if now_ms < announced_ms:
        wakes_ms = min(wakes_ms, announced_ms)
    # The wheel that starts before it orders what is left.
    minute_ms = 0 if minute_due_ms is None else max(minute_due_ms - START_MS, now_ms)
    return NextStarts(wakes_ms, minute_ms if minute_ms < wakes_ms else 0)


def rest_for_ms(*, opening_ms: int, busy_turns: int, busy_ms: int, now_ms: int) -> int | None:
    """Returns the shortest time for which a wheel leaves where timers are precise; None if it stays, because it has
    handed over or read in more than one turn, the last time at ``busy_ms``."""
    if busy_turns > 1 and busy_ms <= now_ms < busy_ms + REST_MS:
        return None
    return max(REST_MS, READING_SHARE * opening_ms)


def step_of_closing(
    state: WheelState, *, read_below: int, end: int, sealed_ms: int, waiting: int, now_ms: int
) -> WheelStep:
    """Returns the step of a wheel whose bucket is over. ``end`` is the end of the sealed schedule log, ``waiting`` the
    number of messages that are not handed over."""
    if state is not WheelState.CLOSING:
        return WheelStep.SEAL
    if read_below < end:
        return _step_at_hole(sealed_ms, now_ms)
    return WheelStep.WAIT if waiting else WheelStep.CLOSE


def next_turn_ms(
    *, now_ms: int, taken: int, taken_ms: int, next_due_ms: int | None, settled_ms: int, others: tuple[int, ...]
) -> int:
    """Returns when a wheel without ticks turns again: when its next message is due, or at the first of the ``others``.

    ``taken``: the number of messages that it took last, at ``taken_ms``. At ``settled_ms`` it may go to sleep.
    """
    times = [*others]
    if next_due_ms is not None:
        times.append(max(next_due_ms, _company_ms(now_ms, taken_ms) if taken >= CROWD else 0))
    if now_ms < settled_ms:
        times.append(settled_ms)
    # A clock that was set back leaves times far ahead: a busy wheel waits for company no longer than that.
    return max(now_ms, min(times))


def _company_ms(now_ms: int, taken_ms: int) -> int:
    """Returns until when a busy wheel waits for company. It waits as long as its last step took, so that half of the
    time is left for the consumers, and for the next step to become large."""
    # A clock that was set back leaves ``taken_ms`` far ahead.
    taken_ms = min(taken_ms, now_ms)
    return max(taken_ms + COMPANY_MS, now_ms + min(now_ms - taken_ms, LONGEST_COMPANY_MS))


def _step_at_hole(since_ms: int, now_ms: int) -> WheelStep:
    """Returns ``FILL`` once the writers of missing rows, which were given out before ``since_ms``, had the grace time;
    before, ``WAIT``."""
    return WheelStep.FILL if now_ms >= since_ms + GRACE_MS else WheelStep.WAIT
