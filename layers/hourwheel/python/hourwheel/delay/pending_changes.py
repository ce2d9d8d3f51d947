"""Stores the requested changes of delayed messages: cancels and moves.

    table      schedule
    partition  changes/{bucket}
    sort       {row:016d}-{index:04d}
    value      PendingChange, msgpack array

A change that is not decided is also listed for the sweeper, which finishes a change that was cut off:

    table      meta
    partition  changes
    sort       {bucket} {row}-{index}
    value      when the change was requested, ms, msgpack
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import msgspec

from hourwheel.buckets.buckets import Bucket
from hourwheel.buckets.scheduled_ids import SchedulePosition
from hourwheel.context import Context
from hourwheel.errors import NotFound
from hourwheel.handover.handover import Transfer
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.ports.storage import Key, Record, Table, items_of

CHANGES = "changes"
"""The partition of the meta table that lists the changes that are not decided."""

NO_MARKER = -1
TOO_LATE = -2

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(int)


def unknown_message() -> NotFound:
    """Returns the error for a message whose bucket was removed."""
    return NotFound(
        "scheduled-unknown",
        "this message is no longer known: it was sent, cancelled or moved more than a day ago",
        field="id",
    )


def position_in(transfer: Transfer) -> tuple[str, int, int]:
    """Returns the position of the only message of a transfer in its schedule log, as [bucket, row, index]."""
    return Bucket.of_log(transfer.log).name, transfer.row_no, 0


class PendingChange(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A requested change of one delayed message.

    ``due_ms`` is the new due time of a message that moves; None of one that is cancelled. ``marker_row`` is the row of
    the cancel marker, ``NO_MARKER`` before there is one, ``TOO_LATE`` when the log refused it. ``transfers`` names the
    move while it is carried out, ``moved`` the new position as [bucket, row, index]. ``asked_ms`` is the new time as
    the caller asked for it, which may be past: by it a repeated request is recognised.
    """

    due_ms: int | None
    state: str = "waiting"
    marker_row: int = NO_MARKER
    transfers: tuple[Transfer, ...] = ()
    moved: tuple[str, int, int] | None = None
    asked_ms: int | None = None

    @classmethod
    def requested(cls, asked_ms: int | None, now_ms: int) -> Self:
        """Returns the change of a request: a move to this time, or to now if it is past; None: a cancel."""
        return cls(due_ms=None) if asked_ms is None else cls(due_ms=max(asked_ms, now_ms), asked_ms=asked_ms)

    @property
    def undecided(self) -> bool:
        return self.state == "waiting" and not self.transfers

    @property
    def new_position(self) -> SchedulePosition | None:
        """The position of a message once it has moved there; None before."""
        if self.state != "moved" or self.moved is None:
            return None
        name, row_no, index = self.moved
        return SchedulePosition(Bucket.parse(name), row_no, index)

    @property
    def garbage_ms(self) -> int | None:
        return None  # removed together with its bucket

    def left_with(self, transfers: tuple[Transfer, ...]) -> Self:
        if transfers:
            return msgspec.structs.replace(self, transfers=transfers, moved=position_in(transfers[0]))
        return msgspec.structs.replace(self, transfers=(), state="moved")


class ListedChange(NamedTuple):
    """A change in the sweeper's list. ``token`` is that of the listing."""

    position: SchedulePosition
    requested_ms: int
    token: bytes

    @classmethod
    def of(cls, name: str, record: Record) -> "ListedChange":
        bucket, _, numbers = name.partition(" ")
        row, _, index = numbers.partition("-")
        position = SchedulePosition(Bucket.parse(bucket), int(row), int(index))
        return cls(position, _decoder.decode(record.value), record.token)


@dataclass(frozen=True)
class PendingChanges:
    """The records of changes, and the sweeper's list of those that are not decided."""

    context: Context

    def record(self, position: SchedulePosition) -> CasRecord[PendingChange]:
        sort = f"{position.row_no:016d}-{position.index:04d}"
        return CasRecord(
            self.context.store,
            self.context.ids,
            Key(Table.SCHEDULE, f"changes/{position.bucket.name}", sort),
            PendingChange,
        )

    def of_many(self, bucket: Bucket, picks: Sequence[tuple[int, int]]) -> dict[tuple[int, int], PendingChange]:
        """Returns the changes of messages of the bucket, by row and index: of up to ``GET_MANY`` picks. One batch of
        gets."""
        records = {pick: self.record(SchedulePosition(bucket, *pick)) for pick in picks}
        sorts = [record.key.sort for record in records.values()]
        stored = self.context.store.get_many(Table.SCHEDULE, f"changes/{bucket.name}", sorts)
        opened = ((pick, record.opened(stored.get(record.key.sort))) for pick, record in records.items())
        return {pick: current.value for pick, current in opened if current is not None}

    def store(
        self, position: SchedulePosition, current: Versioned[PendingChange], value: PendingChange
    ) -> Versioned[PendingChange]:
        """Stores the value if nobody changed the record meanwhile; returns the record that is stored then, this value
        or another caller's. Raises ``NotFound`` if the record was removed with its bucket."""
        outcome = self.record(position).swap(current, value)
        if outcome.current is None:
            raise unknown_message()
        return outcome.current

    def listed(self, after: str = "") -> Iterator[tuple[str, Record]]:
        """Yields the sweeper's list behind the name ``after``: the name and the record of each ``ListedChange``. The
        list may be out of date: the next sweep finds a change that is missed, and one that is decided stays as it
        is."""
        start = after + "\x00" if after else ""
        return items_of(self.context.store, Table.META, CHANGES, start=start, consistent=False)

    def add_to_list(self, position: SchedulePosition) -> bytes | None:
        """Lists the change for the sweeper, unless it is listed already. Returns the token of the listing."""
        record = Record(_encoder.encode(self.context.clock.now_ms()), self.context.ids.token())
        refused = self.context.store.put(self._listing(position), record, expect=None)
        if refused is None:
            return record.token
        return None if refused.current is None else refused.current.token

    def remove_from_list(self, position: SchedulePosition, token: bytes | None = None) -> None:
        """Removes a decided change from the sweeper's list."""
        key = self._listing(position)
        if token is None:
            record = self.context.store.get(key)
            token = None if record is None else record.token
        if token is not None:
            self.context.store.delete(key, expect=token)

    def _listing(self, position: SchedulePosition) -> Key:
        return Key(Table.META, CHANGES, f"{position.bucket.name} {position.row_no}-{position.index}")
