"""Divides the subjects of a deployment among the sweeps of a minute, by a hash of their names.

    table      meta
    partition  sweep
    sort       shares
    value      ShareCount, msgpack array

A deployment has one share while few of its subjects are busy: those where messages came or were taken since the last
look, or wait or are leased. The sweep of the first share counts them, and stores the number of shares from the next
minute on. Idle subjects do not count: their looks become rare in one process, and hardly so in many that share them.
The record is only a hint: with any number of shares each subject is in one of them, and a share whose number is new
begins with its first subject.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

import msgspec

from hourwheel.context import Context
from hourwheel.errors import Corrupt
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.ports.storage import Key, Table
from hourwheel.times import within

_BUSY = 160
"""The busy subjects of a share. A process that has not swept them before takes some 30 s for as many with three groups,
with the memory of a default deployment."""

_READ_MS = 300_000
"""A process that knows of one share reads the number again after this long: $0.0005 a month for an idle deployment."""


class Share(NamedTuple):
    """One of ``of`` shares. Each subject is in exactly one of them."""

    number: int = 0
    of: int = 1

    @property
    def is_first(self) -> bool:
        """Whether the sweep of this share also does what is done once for the deployment."""
        return self.number == 0

    @property
    def name(self) -> str:
        return "" if self.of == 1 else f" {self.number}/{self.of}"

    def has(self, subject: str) -> bool:
        return self.of == 1 or crc32(subject.encode()) % self.of == self.number


WHOLE = Share()


def share_of(event: Mapping[str, object]) -> Share:
    """Returns the share that an event names with ``share`` and ``shares``; all subjects for one that names none. Raises
    ``ValueError``."""
    number, of = event.get("share", 0), event.get("shares", 1)
    if not (isinstance(number, int) and isinstance(of, int) and 0 <= number < of):
        raise ValueError(f"there is no share {number!r} of {of!r}")
    return Share(number, of)


class ShareCount(msgspec.Struct, array_like=True, frozen=True):
    """The number of shares since ``at_ms``."""

    shares: int
    at_ms: int


@dataclass
class ShareMemory:
    """Remembers the number of shares that a process has read, and when."""

    shares: int = 1
    read_ms: int = 0


def needed_shares(share: Share, busy: int, unknown: int, *, is_cut_off: bool, most: int) -> int:
    """Returns how many shares are wanted: a power of two, at most ``most``. The round of this one so far had ``busy``
    subjects, and ``unknown`` ones at which a process looked for the first time. A sweep that was cut off by its time
    wants four times the shares at least, unless first looks took the time, which more processes would only repeat. The
    number falls by half once a share has a quarter of the subjects that it may have, so that it does not swing."""
    needed = 1 << max(0, -(-busy * share.of // _BUSY) - 1).bit_length()
    if is_cut_off:
        needed = max(needed, share.of if busy < unknown else 4 * share.of)
    elif needed < share.of:
        needed = share.of // 2 if 4 * (busy + unknown) <= _BUSY else share.of
    return min(needed, most)


def store_shares(context: Context, shares: int) -> None:
    """Stores the number of shares of the next sweeps, unless it is stored."""
    record = _record(context)
    stored = context.store.get(record.key)
    if stored is None and shares == 1:
        return
    count = ShareCount(shares, context.clock.now_ms())
    try:
        current = record.opened(stored)
    except Corrupt:
        assert stored is not None
        record.swap(Versioned(count, stored.token), count)  # a damaged record is replaced
        return
    if current is None or current.value.shares != shares:
        # A refused swap needs no repeat: another sweep of the first share has stored what it found.
        record.swap(current, count)


def shares_now(context: Context, memory: ShareMemory) -> list[Share]:
    """Returns the shares of which each gets a sweep now. Half a read unit, in five minutes if there is one share."""
    most, now_ms = context.settings.sweep_shares, context.clock.now_ms()
    if most > 1 and not (memory.shares == 1 and within(memory.read_ms, now_ms, _READ_MS)):
        current = _record(context).load(consistent=False)
        memory.shares, memory.read_ms = 1 if current is None else max(1, current.value.shares), now_ms
    return shares_of(min(memory.shares, most))


def shares_of(count: int) -> list[Share]:
    return [Share(number, count) for number in range(count)]


def _record(context: Context) -> CasRecord[ShareCount]:
    return CasRecord(context.store, context.ids, Key(Table.META, "sweep", "shares"), ShareCount)
