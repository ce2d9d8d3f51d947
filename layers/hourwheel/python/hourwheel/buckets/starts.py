"""Chooses how a wheel is started at a time: at once, by a precise timer, or by a timer that may be a minute late.

    table      meta
    partition  timers
    sort       listening
    value      ReadingPromise, msgpack array

Where wheels run in the process itself there are no precise timers, and every start is left to ``Timers``. On AWS the
queue of precise timers is read only while timers are out, because reading it costs money. The sweeper switches the
reading on and off, and promises in the record above until when it stays on.
"""

from enum import Enum

import msgspec

from hourwheel.context import Context
from hourwheel.logs.cas import CasRecord
from hourwheel.ports.storage import Key, Table
from hourwheel.ports.timers import PRECISE_SECONDS

SOON_MS = 5_000
"""A start within this time is ordered at once: another timer saves less than it costs."""

SWITCH_MS = 180_000
"""The time within which the sweeper, which comes each minute, has seen a start and switched on the reading of the queue
of precise timers. A change of the mapping takes a minute or two."""

COARSE_MS = 60_000
"""The longest delay of a start by ``Timers``."""

RELAY_MS = SWITCH_MS + COARSE_MS
"""A timer for a time beyond the reach of precise timers fires this long before it, and orders a precise one."""

KEPT_MS = 300_000
"""The sweeper promises for this long that the queue is read."""

# The sweeper comes each minute, a little earlier or later: it renews a promise that is older than half a minute.
_RENEW_MS = 30_000
_SPARE_MS = 2_000  # between a decision to leave and the order of the next start
_TRUST_MS = 10_000  # a process reads the promise at most this often


class StartKind(Enum):
    AT_ONCE = "at once"
    PRECISE = "precise"
    RELAYED = "relayed"  # a coarse timer orders the precise one


class ReadingPromise(msgspec.Struct, array_like=True, frozen=True):
    """Says that the queue of precise timers is read until ``until_ms``."""

    until_ms: int = 0


def start_kind(wait_ms: int, listening_ms: int) -> StartKind:
    """Returns how a start in ``wait_ms`` is ordered, if the queue of precise timers is certainly read
    for ``listening_ms`` more."""
    if wait_ms <= SOON_MS:
        return StartKind.AT_ONCE
    if wait_ms > PRECISE_SECONDS * 1_000:
        return StartKind.RELAYED
    return StartKind.PRECISE if wait_ms >= SWITCH_MS or wait_ms <= listening_ms else StartKind.AT_ONCE


def order_start(context: Context, when_ms: int, bucket: str, *, minute: bool = False) -> None:
    """Orders a start of the bucket's wheel at that time. ``minute``: the start may be a minute late. Raises
    ``Unavailable`` and ``Broken``."""
    precise = context.precise_timers
    if precise is None or minute:
        context.timers.at(when_ms, bucket)
        return
    now_ms = context.clock.now_ms()
    wait_ms = when_ms - now_ms
    match start_kind(wait_ms, _listening_ms(context, wait_ms)):
        case StartKind.AT_ONCE:
            context.timers.at(now_ms, bucket)
        case StartKind.PRECISE:
            precise.after(wait_ms // 1_000, bucket, when_ms)
        case StartKind.RELAYED:
            precise.relay(when_ms - RELAY_MS, bucket, when_ms)


def shortest_rest_ms(context: Context, wait_ms: int, rest_ms: int) -> int:
    """Returns the shortest time for which a wheel may leave that is needed again in ``wait_ms``: ``rest_ms``, or the
    time below which a start would be ordered at once."""
    # The start is ordered a little later, when less time is left.
    if wait_ms <= rest_ms or wait_ms >= SWITCH_MS + _SPARE_MS:
        return rest_ms
    return rest_ms if wait_ms + _SPARE_MS <= _listening_ms(context, wait_ms) else SWITCH_MS + _SPARE_MS


def keep_listening(context: Context, near: bool) -> None:
    """Switches the reading of the queue of precise timers on if a start is ``near``, and promises how long it stays on.
    Switches it off if no start is near and the promise is over. One read, and one write a minute while a start is near;
    nothing once this process has seen that the queue is not read."""
    precise = context.precise_timers
    hints = context.hints
    if precise is None or (not near and hints.off):
        return
    record = _record(context)
    current = record.load()
    now_ms = context.clock.now_ms()
    until_ms = 0 if current is None else current.value.until_ms
    if near:
        hints.off = False
        # Promised only when it is on: until then each start that is soon to come is ordered at once.
        if precise.listen(True) and until_ms < now_ms + KEPT_MS - _RENEW_MS:
            record.swap(current, ReadingPromise(now_ms + KEPT_MS))
    elif until_ms <= now_ms:
        precise.listen(False)
        hints.off = True


def _listening_ms(context: Context, wait_ms: int) -> int:
    """Returns for how long the queue is certainly read; 0, without reading the promise, where that decides nothing."""
    if context.precise_timers is None or not SOON_MS < wait_ms < SWITCH_MS + _SPARE_MS:
        return 0
    hints, now_ms = context.hints, context.clock.now_ms()
    if not now_ms - _TRUST_MS < hints.read_ms <= now_ms:
        current = _record(context).load()
        hints.read_ms, hints.until_ms = now_ms, 0 if current is None else current.value.until_ms
    return hints.until_ms - now_ms


def _record(context: Context) -> CasRecord[ReadingPromise]:
    return CasRecord(context.store, context.ids, Key(Table.META, "timers", "listening"), ReadingPromise)
