"""Moves messages from a source record into target logs exactly once.

    1  reserve a row in the target
    2  write the reservation into the source's own record, conditionally
    3  put the target row
    4  mark the source done

Every process that finds a record after step 2 repeats the steps 3 and 4. If a reader has filled the reserved row
meanwhile, the process reserves another row and swaps it into the record, so that all processes that carry the record
out agree on the row.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import ClassVar, Protocol, Self, TypeVar

import msgspec

from hourwheel.buckets.buckets import Bucket, reserve_in
from hourwheel.buckets.lease import ensure_wheel_by
from hourwheel.context import Context
from hourwheel.errors import Filled
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.logs.entries import DueTimes
from hourwheel.logs.log import Reservation
from hourwheel.logs.rows import Row, filler
from hourwheel.reach.outages import reached


class Transfer(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A reservation in a target log, as its source remembers it.

    ``picks`` are the [row_no, index] positions of the messages in the source log. ``kind`` is one of the kinds in
    ``copies.py``. ``due_times`` is their entry if the target is a schedule log. ``details`` says of each message why it
    is retried or was given up, or is empty. ``suspects``: the copies are suspects, because the lease of the messages
    ended. The transfer fixes time and expiry of the row, so that every process puts
    the same row.
    """

    NAMED_BY: ClassVar[int] = 4  # its row

    kind: str
    log: str
    row_no: int
    first_seq: int
    token: bytes
    at_ms: int
    expires_ms: int
    picks: tuple[tuple[int, int], ...]
    due_times: DueTimes | None = None
    details: tuple[str | None, ...] = ()
    suspects: bool = False

    @property
    def reservation(self) -> Reservation:
        return Reservation(self.log, self.row_no, self.first_seq)

    def due_times_of(self, picks: Iterable[tuple[int, int]], kept_until_ms: int) -> DueTimes | None:
        """Returns the due times of only the messages at these positions; None if the target is no schedule log.
        ``kept_until_ms``: when the last of their rows expires; their copies in a group are kept as long."""
        if self.due_times is None:
            return None
        indexes = {pick: index for index, pick in enumerate(self.picks)}
        due_times = self.due_times.only(indexes[pick] for pick in picks)
        if due_times.member is None:
            return due_times
        return msgspec.structs.replace(due_times, kept_until_ms=max(due_times.kept_until_ms, kept_until_ms))

    def moved_to(self, reservation: Reservation) -> Self:
        return msgspec.structs.replace(
            self, log=reservation.log, row_no=reservation.row_no, first_seq=reservation.first_seq
        )


class TransferSource(Protocol):
    """A record that contains its open transfers."""

    @property
    def transfers(self) -> tuple[Transfer, ...]: ...

    @property
    def garbage_ms(self) -> int | None:
        """The time from which on the store may remove the record; None: never."""
        ...

    def left_with(self, transfers: tuple[Transfer, ...]) -> Self:
        """Returns the record with only these transfers left."""
        ...


S = TypeVar("S", bound=TransferSource)


def reserve(
    context: Context,
    *,
    kind: str,
    log: str,
    picks: tuple[tuple[int, int], ...],
    expires_ms: int,
    due_times: DueTimes | None = None,
    details: tuple[str | None, ...] = (),
    suspects: bool = False,
) -> Transfer:
    """Step 1: reserves a row for the messages at ``picks``. One write."""
    reservation = reserve_in(context, log, len(picks))
    return Transfer(
        kind=kind,
        log=reservation.log,
        row_no=reservation.row_no,
        first_seq=reservation.first_seq,
        token=context.ids.token(),
        at_ms=context.clock.now_ms(),
        expires_ms=expires_ms,
        picks=picks,
        due_times=due_times,
        details=details,
        suspects=suspects,
    )


def release(context: Context, transfers: Iterable[Transfer]) -> None:
    """Fills reservations that no record names, so that no reader has to wait for them."""
    for transfer in transfers:
        spare = filler(transfer.at_ms, transfer.expires_ms)
        reached(partial(_abandon, context, transfer.reservation, spare), None)  # if not now, a reader fills it


def _abandon(context: Context, reservation: Reservation, spare: Row) -> None:
    context.log(reservation.log).abandon(reservation, spare)


def put_row(context: Context, transfer: Transfer, row: Callable[[Transfer], Row]) -> Transfer | None:
    """Step 3: puts the row. Returns None once the row is stored; otherwise the transfer with a new reservation, which
    the caller has to record."""
    log = context.log(transfer.log)
    try:
        # Under the token of the record: a repeat after a crash recognises the row, and stores it once.
        log.put(transfer.reservation, row(transfer), transfer.token)
    except Filled:
        # This process was slower than a reader's patience. No reader has seen the messages: they go to another row.
        return transfer.moved_to(reserve_in(context, transfer.log, len(transfer.picks)))
    # Only now: before its row is stored, a wheel that is woken for the message would find nothing.
    if transfer.due_times is not None:
        due_times = transfer.due_times
        ensure_wheel_by(context, Bucket.of_log(transfer.log), due_times.first_ms, minute=due_times.minute)
    return None


def carry_out(
    context: Context, record: CasRecord[S], loaded: Versioned[S], row: Callable[[Transfer], Row]
) -> Versioned[S] | None:
    """Repeats steps 3 and 4 until the record contains no transfer; returns the record (None: it was removed)."""
    current: Versioned[S] | None = loaded
    while current is not None and current.value.transfers:
        unfinished = [put_row(context, transfer, row) for transfer in current.value.transfers]
        # A transfer with a new reservation stays in the record, and is put in the next round.
        value = current.value.left_with(tuple(transfer for transfer in unfinished if transfer is not None))
        current = record.swap(current, value, expires_ms=value.garbage_ms).current
    return current
