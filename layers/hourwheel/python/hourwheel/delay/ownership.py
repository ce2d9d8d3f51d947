"""Gives one wheel at a time the right to append to the dispatch log of a bucket.

    table      dispatch
    partition  {bucket}
    sort       {row:016d}
    value      Dispatched, msgpack array

The lease only keeps wheels from working on one bucket at once. The fence is the dispatch log: each owner appends at a
fixed next row by a conditional put, and a new owner begins with an empty row of its own. A former owner that was only
paused then finds its next row taken.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import msgspec

from hourwheel.buckets.buckets import Bucket
from hourwheel.buckets.lease import LEASE_MS, WheelOwner, owner_record
from hourwheel.context import Context
from hourwheel.errors import UNDECODABLE, Corrupt, HourwheelError
from hourwheel.handover.handover import Transfer
from hourwheel.logs.cas import Versioned
from hourwheel.logs.rows import sort_of
from hourwheel.ports.storage import Key, Record, Table, items_of

RENEW_MS = 12_000  # leaves 18 s of the lease to repeat a renewal that failed
_PAGE = 64
_DRAINED_KEPT_MS = 3 * 86_400_000  # longer than it takes until the sweeper has closed the bucket, and removed it


class Fenced(HourwheelError):
    """Says that another wheel owns the bucket now: this one stops (protocol)."""


class Dispatched(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The transfers of one step; none in the first row of an owner. ``at_ms`` never falls from row to row, and no row
    names a message that is due later than its ``at_ms``."""

    owner: str
    at_ms: int
    transfers: tuple[Transfer, ...] = ()

    @property
    def picks(self) -> set[tuple[int, int]]:
        """The messages that the transfers name, as (row, index)."""
        return {pick for transfer in self.transfers for pick in transfer.picks}


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Dispatched)


def put_dispatched(context: Context, bucket: str, row_no: int, row: Dispatched, token: bytes) -> bool:
    """Puts a row of the dispatch log; returns whether the log has it, also from an earlier try with this token. False:
    another row has its number."""
    record = Record(_encoder.encode(row), token)
    # The fence: two wheels that both believe they own the bucket want the same row, and one of them gets it.
    refused = context.store.put(Key(Table.DISPATCH, bucket, sort_of(row_no)), record, expect=None)
    return refused is None or (refused.current is not None and refused.current.token == token)


@dataclass(frozen=True)
class DispatchLog:
    """Reads the dispatch log of a bucket."""

    context: Context
    bucket: Bucket

    def rows(self, start: int = 0) -> Iterator[tuple[int, Dispatched]]:
        """Yields the rows from ``start`` on with their numbers, including rows that are appended meanwhile."""
        items = items_of(self.context.store, Table.DISPATCH, self.bucket.name, start=sort_of(start), page=_PAGE)
        return ((int(sort), opened(record)) for sort, record in items)

    def search(self, row_no: int, index: int, due_ms: int) -> tuple[Transfer, int, int] | None:
        """Returns the transfer that names the message, the message's index in it, and the time of its row; None if no
        transfer does. A transfer that had to be reserved again is named twice: the last one counts."""
        result = None
        for _, dispatched in self.rows(self._first_since(due_ms)):
            for transfer in dispatched.transfers:
                # No early return: a transfer that was reserved again is named again further on.
                if (row_no, index) in transfer.picks:
                    result = transfer, transfer.picks.index((row_no, index)), dispatched.at_ms
        return result

    def last_ms(self) -> int:
        """Returns the time of the last row; 0 if there is none. One read."""
        last = self.context.store.scan(Table.DISPATCH, self.bucket.name, limit=1, reverse=True)
        return opened(last[0][1]).at_ms if last else 0

    def picks_since(self, at_ms: int, most_rows: int) -> tuple[set[tuple[int, int]], bool]:
        """Returns the messages, as (row, index), that the first ``most_rows`` rows of this time or later name, and
        whether there are no more rows."""
        rows = list(islice(self.rows(self._first_since(at_ms)), most_rows))
        picks = {pick for _, row in rows for pick in row.picks}
        return picks, len(rows) < most_rows

    def _first_since(self, at_ms: int) -> int:
        last = self.context.store.scan(Table.DISPATCH, self.bucket.name, limit=1, reverse=True)
        # Halving works because the times of dispatch rows never fall, whatever the clocks do: see ``time``.
        low, high = 0, int(last[0][0]) + 1 if last else 0
        while low < high:
            middle = (low + high) // 2
            record = self.context.store.get(Key(Table.DISPATCH, self.bucket.name, sort_of(middle)))
            if record is None or opened(record).at_ms < at_ms:
                low = middle + 1
            else:
                high = middle
        return low


def opened(record: Record) -> Dispatched:
    try:
        return _decoder.decode(record.value)
    except UNDECODABLE as error:
        raise Corrupt(f"not a row of a dispatch log: {error}") from error


class Ownership:
    """The right of ``owner`` to hand messages over from one bucket. For one thread."""

    def __init__(self, context: Context, bucket: Bucket, owner: str, *, leaves_ms: int = 0) -> None:
        self._context = context
        self._bucket = bucket
        self._owner = owner
        self._leaves_ms = leaves_ms
        self._held: Versioned[WheelOwner] | None = None
        self._announced_ms = 0
        self._next = 0
        self._last_ms = 0

    def take(self) -> bool:
        """Takes the lease; returns False while another owner's lease is valid. Former owners can still append until
        ``fence``."""
        record = owner_record(self._context, self._bucket)
        current = record.load()
        while True:
            now_ms = self._context.clock.now_ms()
            # The lease only avoids work done twice. A paused owner may outlive its lease: the fence stops it.
            if current is not None and current.value.owner != self._owner and current.value.alive(now_ms):
                return False
            if current is not None and self._context.precise_timers is not None:
                self._announced_ms = current.value.wakes_ms
            stored, current = record.swap(current, self._owner_now(0))
            if stored:
                self._held = current
                return True

    def fence(self, start: int, last_ms: int) -> None:
        """Puts an empty row at ``start``, where the dispatch log ended when the caller read it; its last row was
        written at ``last_ms``. Former owners are fenced off then. Raises ``Fenced`` when another wheel appended
        first."""
        self._next, self._last_ms = start, last_ms
        self.append(self._context, ())

    def append(self, context: Context, transfers: tuple[Transfer, ...]) -> None:
        """Appends the transfers of a step, before their rows are put. Raises ``Fenced``."""
        at_ms = self.time()
        row = Dispatched(owner=self._owner, at_ms=at_ms, transfers=transfers)
        # Write-once: of two wheels one gets this row, and the other learns here that it was replaced.
        if not put_dispatched(context, self._bucket.name, self._next, row, context.ids.token()):
            raise Fenced(self._bucket.name)
        # A transaction may run more than once: the row counts once the transaction is over.
        context.afterwards(lambda _: self._appended(at_ms))

    def pass_to(self, now_ms: int) -> None:
        """Gives every later row a time of at least ``now_ms``."""
        self._last_ms = max(self._last_ms, now_ms)

    def time(self) -> int:
        """Returns the time for the next row: now, or the time of the last row if the clock was set back."""
        return max(self._context.clock.now_ms(), self._last_ms)

    def _appended(self, at_ms: int) -> None:
        self._next += 1
        self._last_ms = at_ms

    @property
    def held(self) -> bool:
        """Whether the lease was taken."""
        return self._held is not None

    @property
    def renewal_ms(self) -> int:
        """When the lease is due for renewal."""
        assert self._held is not None
        return self._held.value.until_ms - LEASE_MS + RENEW_MS

    def due_for_renewal(self) -> bool:
        return self.renewal_ms <= self._context.clock.now_ms()

    def keep(self, read_below: int) -> None:
        """Renews the lease, and publishes that the schedule log was read below row ``read_below``. Raises ``Fenced``.
        One write."""
        self._swap(self._owner_now(read_below))

    @property
    def announced_ms(self) -> int:
        """The start that was recorded when this owner took the lease; 0 if there was none. While it is still to come,
        producers that know of it rely on it: the owner must not leave with a later one."""
        return self._announced_ms

    def leave(self, read_below: int, *, wakes_ms: int, minute_ms: int = 0, drained: bool = False) -> None:
        """Gives the lease back, and publishes when the bucket needs a wheel again (``wakes_ms``, ``minute_ms``), and
        with ``drained`` that nothing below ``read_below`` is left to hand over. Raises ``Fenced``."""
        # Most often this is the last write of the record: on DynamoDB it expires, which costs less than its deletion.
        # A bucket without the record gets another wheel, which finds nothing left.
        expires_ms = self._bucket.end_ms + _DRAINED_KEPT_MS if drained else None
        owner = WheelOwner(
            owner=self._owner,
            until_ms=0,
            read_below=read_below,
            wakes_ms=wakes_ms,
            minute_ms=minute_ms,
            drained=drained,
        )
        self._swap(owner, expires_ms)

    def _owner_now(self, read_below: int) -> WheelOwner:
        until_ms = self._context.clock.now_ms() + LEASE_MS
        return WheelOwner(
            owner=self._owner,
            until_ms=until_ms,
            read_below=read_below,
            wakes_ms=self._announced_ms,
            leaves_ms=self._leaves_ms,
        )

    def _swap(self, value: WheelOwner, expires_ms: int | None = None) -> None:
        assert self._held is not None
        # Guarded by the token of this lease: an owner that was replaced learns of it at its next renewal at the latest.
        outcome = owner_record(self._context, self._bucket).swap(self._held, value, expires_ms=expires_ms)
        if not outcome.stored or outcome.current is None:
            raise Fenced(self._bucket.name)
        self._held = outcome.current
