"""Changes: looks up, cancels and reschedules messages that are still delayed.

    table      schedule
    partition  changes/{bucket}
    sort       {row:016d}-{index:04d}
    value      PendingChange, msgpack array

A request first stores its change, then appends a cancel marker to the schedule log in which the message waits. Once no
wheel can miss the marker any more, the dispatch log says whether the marker came in time: it names the message, or it
never will. No wheel can miss the marker once the owner has published that it read beyond the marker, or while there is
no owner. A message that moves is then handed over to the schedule log of its new time. A change that was cut off is
finished by the next caller who asks about the message, or by the sweeper, which finds it here until it is decided:

    table      meta
    partition  changes
    sort       {bucket} {row}-{index}
    value      when the change was requested, ms, msgpack
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, Self, TypeAlias

import msgspec

from hourwheel.buckets.buckets import Bucket, bucket_record, order_timer
from hourwheel.buckets.lease import owner_record
from hourwheel.buckets.scheduled_ids import SchedulePosition
from hourwheel.context import Context
from hourwheel.delay.ownership import DispatchLog
from hourwheel.errors import Corrupt, NotFound, Sealed, Unavailable
from hourwheel.handover.copies import MOVED, row_builder
from hourwheel.handover.handover import Transfer, carry_out, release, reserve
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.logs.codec import decode_one
from hourwheel.logs.entries import CancelMarker, DueTimes, decode_entry, encode_entry
from hourwheel.logs.log import Log
from hourwheel.logs.rows import filler
from hourwheel.logs.segments import raw_messages_of
from hourwheel.ports import Key, Record, Table, items_of

State: TypeAlias = Literal["waiting", "cancelled", "dispatched", "moved"]

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(int)

CHANGES = "changes"
"""The partition of the meta table that lists the changes that are not decided."""

_PATIENCE_MS = 10_000  # a wheel that turns answers within a tick; beyond this the caller asks again
_LOOK_SECONDS = 0.05
_ABANDONED_MS = 3_600_000  # a listed change whose record is not stored by then never will be: its caller is dead
_UNKNOWN = -1
_TOO_LATE = -2


class _Answer(Enum):
    """What the owner of a bucket says about a cancel marker."""

    CERTAIN = "certain"  # no wheel will send the message, unless the dispatch log names it already
    COMING = "coming"  # the owner's lease is valid: it will publish how far it has read
    SILENT = "silent"  # the owner's lease is over, and it has not published that it read the marker


class PendingChange(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A requested change of one delayed message.

    ``due_ms`` is the new due time of a message that moves; None of one that is cancelled. ``marker_row`` is the row of
    the cancel marker, ``_UNKNOWN`` before there is one, ``_TOO_LATE`` when the log refused it. ``transfers`` names the
    move while it is carried out, ``moved`` the new position as [bucket, row, index]. ``asked_ms`` is the new time as
    the caller asked for it, which may be past: by it a repeated request is recognised.
    """

    due_ms: int | None
    state: str = "waiting"
    marker_row: int = _UNKNOWN
    transfers: tuple[Transfer, ...] = ()
    moved: tuple[str, int, int] | None = None
    asked_ms: int | None = None

    @property
    def garbage_ms(self) -> int | None:
        return None  # removed together with its bucket

    def left_with(self, transfers: tuple[Transfer, ...]) -> Self:
        if transfers:
            return msgspec.structs.replace(self, transfers=transfers, moved=_position_of(transfers[0]))
        return msgspec.structs.replace(self, transfers=(), state="moved")


def _unknown() -> NotFound:
    return NotFound(
        "scheduled-unknown",
        "this message is no longer known: it was sent, cancelled or moved more than a day ago",
        field="id",
    )


def _following(change: PendingChange) -> SchedulePosition | None:
    """Returns the new position of a message once it has moved there; None before."""
    if change.state != "moved" or change.moved is None:
        return None
    name, row_no, index = change.moved
    return SchedulePosition(Bucket.parse(name), row_no, index)


def _position_of(transfer: Transfer) -> tuple[str, int, int]:
    return Bucket.of_log(transfer.log).name, transfer.row_no, 0


@dataclass(frozen=True)
class Scheduled:
    """A delayed message and its state. ``position`` is its position in a schedule log, or its last one. A dispatched
    message has a queue and an offset once its subject's queue contains it. The state ``moved`` answers the request that
    moved the message, even if the message was dispatched since."""

    position: SchedulePosition
    state: State
    subject: str
    message_id: str
    due_ms: int
    dispatched_ms: int | None = None
    queue: int | None = None
    offset: int | None = None


@dataclass(frozen=True)
class ScheduledMessages:
    """Looks up and changes delayed messages."""

    context: Context
    patience_ms: int = _PATIENCE_MS
    """How long a call waits for a wheel to publish how far it has read."""

    def look(self, position: SchedulePosition) -> Scheduled:
        """Returns the state of a message. Finishes a change of it that was cut off.

        Raises ``NotFound`` when the bucket was removed, because the message was sent or cancelled long ago, and
        ``Unavailable`` when the message is due, its change is undecided and the wheel does not answer.
        """
        while True:
            current = self._change_record(position).load()
            if current is not None and current.value.state == "waiting":
                current = self._decide_if_possible(position, current)
            following = None if current is None else _following(current.value)
            if following is None:
                state: State = "waiting"
                if current is not None and current.value.state == "cancelled":
                    state = "cancelled"
                return self._read_state(position, state)
            position = following

    def cancel(self, position: SchedulePosition) -> Scheduled:
        """Cancels the message unless it is sent already, and returns its state. Raises ``NotFound`` for a message that
        is no longer known, and ``Unavailable`` when the wheel does not answer in time: the request stays stored, and a
        repeat gets the answer."""
        return self._decide(position, None)

    def reschedule(self, position: SchedulePosition, asked_ms: int) -> Scheduled:
        """Moves the message to the time ``asked_ms``, or to now if that is past, unless it is sent or cancelled
        already. Returns its state and position; a repeat with the same time gets the same answer. Raises what
        ``cancel`` raises."""
        return self._decide(position, asked_ms)

    def finish_changes(self, contained: Callable[[str], AbstractContextManager[None]], *, older_ms: int = 0) -> None:
        """Finishes the undecided changes that were requested at least ``older_ms`` ago, each inside the context manager
        that ``contained`` returns for its name."""
        for name, record in items_of(self.context.store, Table.META, CHANGES):
            with contained(f"the change of delayed message {name}"):
                self._finish(name, record, older_ms)

    def _finish(self, name: str, record: Record, older_ms: int) -> None:
        age_ms = self.context.clock.now_ms() - _decoder.decode(record.value)
        if 0 <= age_ms < older_ms:
            return  # its caller is probably still at work
        bucket, _, numbers = name.partition(" ")
        row, _, index = numbers.partition("-")
        position = SchedulePosition(Bucket.parse(bucket), int(row), int(index))
        current = self._change_record(position).load()
        if current is None and age_ms < _ABANDONED_MS:
            return  # the change is listed, and its caller may still store it
        if current is not None:
            try:
                self._resolved(position, current)
            except Unavailable:
                return  # the wheel has not answered yet: the next sweep tries again
            except NotFound:
                # The bucket was removed while the change was being requested: the message no longer waits there.
                self.context.store.delete(self._change_record(position).key, expect=current.token)
        self._forget(position, record.token)

    def _decide_if_possible(
        self, position: SchedulePosition, current: Versioned[PendingChange]
    ) -> Versioned[PendingChange]:
        """Returns the pending change, decided if possible. Before the message is due, the answer "waiting" is true
        without a decision, so the call does not wait for the wheel."""
        due_ms = self._message(position)[0].due_ms(position.index)
        due = due_ms <= self.context.clock.now_ms()
        try:
            current = replace(self, patience_ms=self.patience_ms if due else 0)._resolved(position, current)
        except Unavailable:
            if due:
                raise
            return current
        self._forget(position)
        return current

    def _decide(self, position: SchedulePosition, asked_ms: int | None) -> Scheduled:
        while True:
            record = self._change_record(position)
            current = record.load()
            announced = None
            if current is None:
                answer = self._read_state(position, "waiting")
                if answer.state == "dispatched":
                    return answer
                announced = self._announce(position)
                current = record.swap(None, self._requested(asked_ms)).current
                assert current is not None
            if current.value.state == "waiting":
                current = self._resolved(position, current)
                self._forget(position, announced)
            following = _following(current.value)
            if following is None:
                return self._read_state(position, "cancelled" if current.value.state == "cancelled" else "waiting")
            if (
                asked_ms is not None
                and current.value.asked_ms == asked_ms
                and self._change_record(following).load() is None
            ):
                return replace(self._read_state(following, "waiting"), state="moved")
            position = following  # an earlier request moved the message: this one changes it at its new position

    def _requested(self, asked_ms: int | None) -> PendingChange:
        if asked_ms is None:
            return PendingChange(due_ms=None)
        return PendingChange(due_ms=max(asked_ms, self.context.clock.now_ms()), asked_ms=asked_ms)

    def _resolved(self, position: SchedulePosition, current: Versioned[PendingChange]) -> Versioned[PendingChange]:
        """Returns the pending change once it is decided and carried out."""
        record = self._change_record(position)
        # Another caller may have written no more than the row of its cancel marker: then the change is still undecided.
        while current.value.state == "waiting" and not current.value.transfers:
            current = self._cancel_marked(position, current)
            if current.value.state == "waiting" and not current.value.transfers:
                current = self._settled(position, current)
        if current.value.transfers:
            source = self._log(position)
            done = carry_out(self.context, record, current, row_builder(self.context, source, None, strict=True))
            assert done is not None
            current = done
        return current

    def _cancel_marked(self, position: SchedulePosition, current: Versioned[PendingChange]) -> Versioned[PendingChange]:
        """Appends the cancel marker if there is none, and returns the pending change with its row. The row is stored
        only where the answer has to be waited for: a repeated request then appends no second marker."""
        if current.value.marker_row != _UNKNOWN:
            return current
        entry = encode_entry(CancelMarker(position.row_no, position.index))
        now_ms = self.context.clock.now_ms()
        try:
            marker_row = self._log(position).append(filler(now_ms, 0, entry)).row_no
        except Sealed:
            marker_row = _TOO_LATE
        value = msgspec.structs.replace(current.value, marker_row=marker_row)
        if self._answer(position.bucket, marker_row) is _Answer.CERTAIN:
            return Versioned(value, current.token)
        return self._swapped(position, current, value)

    def _settled(self, position: SchedulePosition, current: Versioned[PendingChange]) -> Versioned[PendingChange]:
        """Waits until it is certain whether the cancel marker came in time, and stores the decision."""
        due_times, _ = self._message(position)
        due_ms = due_times.due_ms(position.index)
        log = DispatchLog(self.context, position.bucket)
        if log.search(position.row_no, position.index, due_ms) is None:
            self._await(position, current.value.marker_row)
        if self._named(position, due_ms) is not None:
            return self._swapped(position, current, msgspec.structs.replace(current.value, state="dispatched"))
        if current.value.due_ms is None:
            return self._swapped(position, current, msgspec.structs.replace(current.value, state="cancelled"))
        due_ms = max(current.value.due_ms, self.context.clock.now_ms())
        settings = self.context.settings
        bucket = Bucket.at(due_ms, settings.bucket_minutes, position.bucket.shard % settings.shards)
        transfer = reserve(
            self.context,
            kind=MOVED,
            log=bucket.log,
            picks=((position.row_no, position.index),),
            expires_ms=0,
            due_times=DueTimes.of(due_times.subject, due_times.generation, due_times.member, [current.value.due_ms]),
        )
        value = msgspec.structs.replace(current.value, transfers=(transfer,), moved=_position_of(transfer))
        swapped = self._swapped(position, current, value)
        if swapped.value != value:
            release(self.context, (transfer,))
        return swapped

    def _await(self, position: SchedulePosition, marker_row: int) -> None:
        """Returns once no wheel will send the message, unless the dispatch log names it already. Raises ``Unavailable``
        when the wheel does not answer in time."""
        until_ms = self.context.clock.now_ms() + self.patience_ms
        called = False
        while (answer := self._answer(position.bucket, marker_row)) is not _Answer.CERTAIN:
            now_ms = self.context.clock.now_ms()
            if not called and answer is _Answer.SILENT:
                # The owner's lease ran out, and the owner may only be paused: the next owner fences it off and decides.
                order_timer(self.context, now_ms, position.bucket)
                called = True
            if now_ms >= until_ms:
                raise Unavailable(
                    "the wheel of this message's bucket does not answer: the request is stored, ask again"
                )
            self.context.clock.sleep(_LOOK_SECONDS)

    def _answer(self, bucket: Bucket, marker_row: int) -> _Answer:
        owner = owner_record(self.context, bucket).load()
        answered = owner is None or owner.value.left or owner.value.read_below > marker_row
        if answered and marker_row != _TOO_LATE:
            return _Answer.CERTAIN
        if owner is not None and owner.value.alive(self.context.clock.now_ms()):
            return _Answer.COMING
        # From a closed bucket no wheel sends anything, no matter which owner has its lease.
        return _Answer.CERTAIN if self._closed(bucket) else _Answer.SILENT

    def _swapped(
        self, position: SchedulePosition, current: Versioned[PendingChange], value: PendingChange
    ) -> Versioned[PendingChange]:
        """Stores the value if nobody changed the record meanwhile; returns the record that is stored then, this value
        or another caller's."""
        outcome = self._change_record(position).swap(current.token, value)
        if outcome.current is None:
            raise _unknown()  # the record was removed with its bucket
        return outcome.current

    def _named(self, position: SchedulePosition, due_ms: int) -> tuple[Transfer, int, int] | None:
        """Returns the transfer that hands the message over, with the message's index in it and the time; None if there
        is none. Raises ``NotFound`` once the bucket is removed."""
        named = DispatchLog(self.context, position.bucket).search(position.row_no, position.index, due_ms)
        if named is None and due_ms <= self.context.clock.now_ms():
            # A bucket that is being removed loses the message before the dispatch row: a message still there was not
            # sent.
            self._message(position)
        return named

    def _read_state(self, position: SchedulePosition, state: State) -> Scheduled:
        """Returns what the logs say about a message that is not moved."""
        due_times, message_id = self._message(position)
        due_ms = due_times.due_ms(position.index)
        message = Scheduled(position, state, due_times.subject, message_id, due_ms)
        if state == "cancelled":
            return message
        named = self._named(position, due_ms)
        if named is None:
            return message
        transfer, index, at_ms = named
        message = replace(message, state="dispatched", dispatched_ms=at_ms)
        queue = transfer.log.rpartition("/")[2]
        if not queue.isdigit() or not self._stands(transfer):
            return message
        return replace(message, queue=int(queue), offset=transfer.first_seq + index)

    def _stands(self, transfer: Transfer) -> bool:
        """Returns whether the transfer's row is stored. If a reader filled that row, the wheel puts the messages into
        another one."""
        log = self.context.log(transfer.log)
        row = log.get(transfer.row_no)
        if row is None:
            return transfer.row_no < log.trimmed()
        return not row.filler and row.first_seq == transfer.first_seq

    def _message(self, position: SchedulePosition) -> tuple[DueTimes, str]:
        row = self._log(position).get(position.row_no)
        if row is None or not row.meta or position.index >= row.count:
            raise _unknown()
        entry = decode_entry(row.meta)
        assert isinstance(entry, DueTimes)
        try:
            message = decode_one(raw_messages_of(row, self.context.blobs)[position.index])
        except Corrupt:
            return entry, ""  # the wheel reports the damage when it sends the message
        return entry, message.id or ""

    def _closed(self, bucket: Bucket) -> bool:
        current = bucket_record(self.context, bucket).load()
        return current is None or current.value.closed_ms != 0

    def _log(self, position: SchedulePosition) -> Log:
        return self.context.log(position.bucket.log)

    def _change_record(self, position: SchedulePosition) -> CasRecord[PendingChange]:
        sort = f"{position.row_no:016d}-{position.index:04d}"
        return CasRecord(
            self.context.store,
            self.context.ids,
            Key(Table.SCHEDULE, f"changes/{position.bucket.name}", sort),
            PendingChange,
        )

    def _announce(self, position: SchedulePosition) -> bytes | None:
        """Lists the change for the sweeper, unless it is listed already. Returns the token of the listing."""
        record = Record(_encoder.encode(self.context.clock.now_ms()), self.context.ids.token())
        refused = self.context.store.put(self._change_key(position), record, expect=None)
        if refused is None:
            return record.token
        return None if refused.current is None else refused.current.token

    def _forget(self, position: SchedulePosition, token: bytes | None = None) -> None:
        """Removes a decided change from the sweeper's list."""
        key = self._change_key(position)
        if token is None:
            record = self.context.store.get(key)
            token = None if record is None else record.token
        if token is not None:
            self.context.store.delete(key, expect=token)

    def _change_key(self, position: SchedulePosition) -> Key:
        return Key(Table.META, CHANGES, f"{position.bucket.name} {position.row_no}-{position.index}")
