"""What becomes of a delayed message before its time: look it up, cancel it, move it to another time.

    table      schedule
    partition  changes/{bucket}
    sort       {row:016d}-{index:04d}
    value      PendingChange, msgpack array

The wish is written down first, then a cancel marker is appended to the schedule log in which the message waits.
Whether the cancel marker came in time the dispatch log tells, from the moment on at which no wheel can still miss it:
the owner has published a reading beyond it, or there is no owner. A message that moves is then handed over to the
schedule log of its new time. A request that was cut off is finished by whoever asks about the message, and by the
sweeper, which finds it here until it is decided:

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
from hourwheel.logs.rows import Row
from hourwheel.logs.segments import raw_messages_of
from hourwheel.ports import Key, Record, Table, items_of

State: TypeAlias = Literal["waiting", "cancelled", "dispatched", "moved"]

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(int)

CHANGES = "changes"
"""Partition of meta with the requested changes that are not decided."""

_PATIENCE_MS = 10_000
_LOOK_SECONDS = 0.05
_ABANDONED_MS = 3_600_000
_UNKNOWN = -1
_TOO_LATE = -2


class _Answer(Enum):
    """What the owner of a bucket has said of a cancel marker."""

    CERTAIN = "certain"  # no wheel sends the message any more unless the dispatch log says so already
    COMING = "coming"  # it turns, and will say how far it has read
    SILENT = "silent"  # it went without a word


class PendingChange(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """``due_ms``: the new time, of a message that is to move; None when it is to be cancelled. ``cancel marker``: the
    row of the cancel marker, or that it is not known or was refused. ``transfers``: the move while it is carried out.
    ``moved``: where the message waits then, as [bucket, row, index]. ``asked_ms``: the new time as it was asked for,
    which tells the same request when it comes again; it may be past."""

    due_ms: int | None
    state: str = "waiting"
    marker_row: int = _UNKNOWN
    transfers: tuple[Transfer, ...] = ()
    moved: tuple[str, int, int] | None = None
    asked_ms: int | None = None

    @property
    def garbage_ms(self) -> int | None:
        return None  # it goes with its bucket

    def left_with(self, transfers: tuple[Transfer, ...]) -> Self:
        if transfers:
            return msgspec.structs.replace(self, transfers=transfers, moved=_place_of(transfers[0]))
        return msgspec.structs.replace(self, transfers=(), state="moved")


def _unknown() -> NotFound:
    return NotFound(
        "scheduled-unknown",
        "nothing is known of this message any more: it was sent, cancelled or moved more than a day ago",
        field="id",
    )


def _following(change: PendingChange) -> SchedulePosition | None:
    """Where the message went, once it is there."""
    if change.state != "moved" or change.moved is None:
        return None
    name, row, index = change.moved
    return SchedulePosition(Bucket.parse(name), row, index)


def _place_of(transfer: Transfer) -> tuple[str, int, int]:
    return Bucket.of_log(transfer.log).name, transfer.row, 0


@dataclass(frozen=True)
class Scheduled:
    """What is known of a delayed message. ``place`` is where it waits, or waited last; a dispatched one has a queue
    and an offset once it stands in its subject's queue. ``moved`` is the answer to who moved it, also where it was
    dispatched at its new time since."""

    place: SchedulePosition
    state: State
    subject: str
    message_id: str
    due_ms: int
    dispatched_ms: int | None = None
    queue: int | None = None
    offset: int | None = None


@dataclass(frozen=True)
class ScheduledMessages:
    context: Context
    patience_ms: int = _PATIENCE_MS
    """How long to wait for a wheel to tell what it has read."""

    def look(self, place: SchedulePosition) -> Scheduled:
        """Finishes a change that was requested and cut off. Raises ``NotFound`` when the bucket was removed: the
        message was sent or cancelled long ago; ``Unavailable`` when its time has come and the wheel does not tell what
        became of it."""
        while True:
            held = self._slot(place).load()
            if held is not None and held.value.state == "waiting":
                held = self._looked_after(place, held)
            following = None if held is None else _following(held.value)
            if following is None:
                state: State = "waiting"
                if held is not None and held.value.state == "cancelled":
                    state = "cancelled"
                return self._told(place, state)
            place = following

    def cancel(self, place: SchedulePosition) -> Scheduled:
        """Cancels the message if it is not sent yet; the state tells. Raises ``Unavailable`` when that could not be
        found out in time: the wish stands, asked again it is answered."""
        return self._decide(place, None)

    def reschedule(self, place: SchedulePosition, asked_ms: int) -> Scheduled:
        """Moves the message to another time, to now if that is past, if it is neither sent nor cancelled; the state and
        the place tell. Asked again for the same time it is answered as before."""
        return self._decide(place, asked_ms)

    def finish_changes(self, contained: Callable[[str], AbstractContextManager[None]], *, older_ms: int = 0) -> None:
        """Finishes the changes that were requested at least ``older_ms`` ago and are not decided, each in the context
        that ``contained`` makes for its name."""
        for name, record in items_of(self.context.store, Table.META, CHANGES):
            with contained(f"the change of delayed message {name}"):
                self._finish(name, record, older_ms)

    def _finish(self, name: str, record: Record, older_ms: int) -> None:
        age_ms = self.context.clock.now_ms() - _decoder.decode(record.value)
        if 0 <= age_ms < older_ms:
            return  # most likely its caller is still at work
        bucket, _, at = name.partition(" ")
        row, _, index = at.partition("-")
        place = SchedulePosition(Bucket.parse(bucket), int(row), int(index))
        held = self._slot(place).load()
        if held is None and age_ms < _ABANDONED_MS:
            return  # it has only begun
        if held is not None:
            try:
                self._resolved(place, held)
            except Unavailable:
                return  # its wheel has not answered yet
            except NotFound:
                # Its bucket was removed while the change was requested: nothing waits there any more.
                self.context.store.delete(self._slot(place).key, expect=held.token)
        self._forget(place, record.token)

    def _looked_after(self, place: SchedulePosition, held: Versioned[PendingChange]) -> Versioned[PendingChange]:
        """The pending change, decided if it can be. Before its time an undecided message waits: nobody has to wait for
        it."""
        due_ms = self._message(place)[0].due_ms(place.index)
        due = due_ms <= self.context.clock.now_ms()
        try:
            held = replace(self, patience_ms=self.patience_ms if due else 0)._resolved(place, held)
        except Unavailable:
            if due:
                raise
            return held
        self._forget(place)
        return held

    def _decide(self, place: SchedulePosition, asked_ms: int | None) -> Scheduled:
        while True:
            record = self._slot(place)
            held = record.load()
            announced = None
            if held is None:
                told = self._told(place, "waiting")
                if told.state == "dispatched":
                    return told
                announced = self._announce(place)
                held = record.swap(None, self._requested(asked_ms)).current
                assert held is not None
            if held.value.state == "waiting":
                held = self._resolved(place, held)
                self._forget(place, announced)
            following = _following(held.value)
            if following is None:
                return self._told(place, "cancelled" if held.value.state == "cancelled" else "waiting")
            if asked_ms is not None and held.value.asked_ms == asked_ms and self._slot(following).load() is None:
                return replace(self._told(following, "waiting"), state="moved")
            place = following  # it had been moved before: the wish is for where it waits now

    def _requested(self, asked_ms: int | None) -> PendingChange:
        if asked_ms is None:
            return PendingChange(due_ms=None)
        return PendingChange(due_ms=max(asked_ms, self.context.clock.now_ms()), asked_ms=asked_ms)

    def _resolved(self, place: SchedulePosition, held: Versioned[PendingChange]) -> Versioned[PendingChange]:
        """The pending change once it is certain."""
        record = self._slot(place)
        # What another has written meanwhile may be no more than the row of its cancel marker.
        while held.value.state == "waiting" and not held.value.transfers:
            held = self._cancel_marked(place, held)
            if held.value.state == "waiting" and not held.value.transfers:
                held = self._settled(place, held)
        if held.value.transfers:
            source = self._log(place)
            done = carry_out(self.context, record, held, row_builder(self.context, source, None, strict=True))
            assert done is not None
            held = done
        return held

    def _cancel_marked(self, place: SchedulePosition, held: Versioned[PendingChange]) -> Versioned[PendingChange]:
        """The pending change with the row of its cancel marker. It is written down only where an answer has to be
        waited for: it saves those who ask again another cancel marker."""
        if held.value.marker_row != _UNKNOWN:
            return held
        entry = encode_entry(CancelMarker(place.row, place.index))
        now_ms = self.context.clock.now_ms()
        try:
            marker_row = self._log(place).append(Row(number=-1, count=0, at_ms=now_ms, expires_ms=0, meta=entry)).row
        except Sealed:
            marker_row = _TOO_LATE
        value = msgspec.structs.replace(held.value, marker_row=marker_row)
        if self._answer(place.bucket, marker_row) is _Answer.CERTAIN:
            return Versioned(value, held.token)
        return self._swapped(place, held, value)

    def _settled(self, place: SchedulePosition, held: Versioned[PendingChange]) -> Versioned[PendingChange]:
        """Waits until it is certain whether the cancel marker came in time, and writes down what follows from it."""
        due_times, _ = self._message(place)
        due_ms = due_times.due_ms(place.index)
        log = DispatchLog(self.context, place.bucket)
        if log.search(place.row, place.index, due_ms) is None:
            self._await(place, held.value.marker_row)
        if self._named(place, due_ms) is not None:
            return self._swapped(place, held, msgspec.structs.replace(held.value, state="dispatched"))
        if held.value.due_ms is None:
            return self._swapped(place, held, msgspec.structs.replace(held.value, state="cancelled"))
        due_ms = max(held.value.due_ms, self.context.clock.now_ms())
        settings = self.context.settings
        bucket = Bucket.at(due_ms, settings.bucket_minutes, place.bucket.shard % settings.shards)
        transfer = reserve(
            self.context,
            kind=MOVED,
            log=bucket.log,
            picks=((place.row, place.index),),
            expires_ms=0,
            due_times=DueTimes.of(due_times.subject, due_times.generation, due_times.member, [held.value.due_ms]),
        )
        value = msgspec.structs.replace(held.value, transfers=(transfer,), moved=_place_of(transfer))
        swapped = self._swapped(place, held, value)
        if swapped.value != value:
            release(self.context, (transfer,))
        return swapped

    def _await(self, place: SchedulePosition, marker_row: int) -> None:
        """Returns once no wheel can send the message unless the dispatch log says so already."""
        until_ms = self.context.clock.now_ms() + self.patience_ms
        called = False
        while (answer := self._answer(place.bucket, marker_row)) is not _Answer.CERTAIN:
            now_ms = self.context.clock.now_ms()
            if not called and answer is _Answer.SILENT:
                # Its owner is gone without a word: it may only be paused. The next one decides.
                order_timer(self.context, now_ms, place.bucket)
                called = True
            if now_ms >= until_ms:
                raise Unavailable("the wheel of this message's bucket does not answer: the wish stands, ask again")
            self.context.clock.sleep(_LOOK_SECONDS)

    def _answer(self, bucket: Bucket, marker_row: int) -> _Answer:
        held = owner_record(self.context, bucket).load()
        answered = held is None or held.value.left or held.value.read_below > marker_row
        if answered and marker_row != _TOO_LATE:
            return _Answer.CERTAIN
        if held is not None and held.value.alive(self.context.clock.now_ms()):
            return _Answer.COMING
        # Once it is closed nothing more is sent from it, whoever holds its lease.
        return _Answer.CERTAIN if self._closed(bucket) else _Answer.SILENT

    def _swapped(
        self, place: SchedulePosition, held: Versioned[PendingChange], value: PendingChange
    ) -> Versioned[PendingChange]:
        """The value in place of the one that was read, or what another has put there."""
        outcome = self._slot(place).swap(held.token, value)
        if outcome.current is None:
            raise _unknown()  # it went with its bucket
        return outcome.current

    def _named(self, place: SchedulePosition, due_ms: int) -> tuple[Transfer, int, int] | None:
        """The transfer that hands the message over, if there is one. Raises ``NotFound`` once its bucket is removed."""
        found = DispatchLog(self.context, place.bucket).search(place.row, place.index, due_ms)
        if found is None and due_ms <= self.context.clock.now_ms():
            # Of a bucket that is being removed the message goes before the row that names it.
            self._message(place)
        return found

    def _told(self, place: SchedulePosition, state: State) -> Scheduled:
        """What the logs say of a message that is not known to be moved."""
        due_times, message_id = self._message(place)
        due_ms = due_times.due_ms(place.index)
        known = Scheduled(place, state, due_times.subject, message_id, due_ms)
        if state == "cancelled":
            return known
        found = self._named(place, due_ms)
        if found is None:
            return known
        transfer, index, at_ms = found
        known = replace(known, state="dispatched", dispatched_ms=at_ms)
        queue = transfer.log.rpartition("/")[2]
        if not queue.isdigit() or not self._stands(transfer):
            return known
        return replace(known, queue=int(queue), offset=transfer.number + index)

    def _stands(self, transfer: Transfer) -> bool:
        """Whether its row is where it is named: a reader may have filled it meanwhile, then it gets another one."""
        log = self.context.log(transfer.log)
        row = log.get(transfer.row)
        if row is None:
            return transfer.row < log.trimmed()
        return not row.filler and row.number == transfer.number

    def _message(self, place: SchedulePosition) -> tuple[DueTimes, str]:
        row = self._log(place).get(place.row)
        if row is None or not row.meta or place.index >= row.count:
            raise _unknown()
        entry = decode_entry(row.meta)
        assert isinstance(entry, DueTimes)
        try:
            message = decode_one(raw_messages_of(row, self.context.blobs)[place.index])
        except Corrupt:
            return entry, ""  # who sends it reports it
        return entry, message.id or ""

    def _closed(self, bucket: Bucket) -> bool:
        held = bucket_record(self.context, bucket).load()
        return held is None or held.value.closed_ms != 0

    def _log(self, place: SchedulePosition) -> Log:
        return self.context.log(place.bucket.log)

    def _slot(self, place: SchedulePosition) -> CasRecord[PendingChange]:
        sort = f"{place.row:016d}-{place.index:04d}"
        return CasRecord(
            self.context.store,
            self.context.ids,
            Key(Table.SCHEDULE, f"changes/{place.bucket.name}", sort),
            PendingChange,
        )

    def _announce(self, place: SchedulePosition) -> bytes | None:
        """Has the sweeper see to the change; the token of the announcement, ours or another's."""
        record = Record(_encoder.encode(self.context.clock.now_ms()), self.context.ids.token())
        refused = self.context.store.put(self._change_key(place), record, expect=None)
        if refused is None:
            return record.token
        return None if refused.current is None else refused.current.token

    def _forget(self, place: SchedulePosition, token: bytes | None = None) -> None:
        """Removes the announcement of a change that is decided."""
        key = self._change_key(place)
        if token is None:
            record = self.context.store.get(key)
            token = None if record is None else record.token
        if token is not None:
            self.context.store.delete(key, expect=token)

    def _change_key(self, place: SchedulePosition) -> Key:
        return Key(Table.META, CHANGES, f"{place.bucket.name} {place.row}-{place.index}")
