"""Looks up, cancels and reschedules messages that are still delayed.

    1  store the change
    2  append a cancel marker to the schedule log in which the message waits
    3  wait until every wheel must see the marker
    4  search the dispatch log for the message, and store the decision
    5  for a move: hand the message over to the schedule log of its new time

Step 3 is over once the bucket's owner has published that it read beyond the marker, or when the bucket has no owner.
From then on the dispatch log decides: the marker came too late if the log names the message, and in time if it does
not.

If a change is cut off, the next caller who asks about the message finishes it, or the sweeper does.
``pending_changes.py`` draws the records.
"""

import sys
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, TypeAlias

import msgspec

from hourwheel.buckets.buckets import Bucket, bucket_record, order_timer
from hourwheel.buckets.lease import owner_record
from hourwheel.buckets.scheduled_ids import SchedulePosition
from hourwheel.context import Context
from hourwheel.delay.ownership import DispatchLog
from hourwheel.delay.pending_changes import (
    NO_MARKER,
    TOO_LATE,
    ListedChange,
    PendingChange,
    PendingChanges,
    position_in,
    unknown_message,
)
from hourwheel.errors import ChangePending, Corrupt, NotFound, Sealed, Unavailable
from hourwheel.faults import Contained
from hourwheel.handover.copies import MOVED, RowMaker
from hourwheel.handover.handover import Transfer, carry_out, release, reserve
from hourwheel.logs.cas import Versioned
from hourwheel.logs.codec import decode_one
from hourwheel.logs.entries import CancelMarker, DueTimes, decode_entry, encode_entry
from hourwheel.logs.large_batches import raw_messages_of
from hourwheel.logs.log import Log
from hourwheel.logs.rows import filler
from hourwheel.model.log_names import LogName

State: TypeAlias = Literal["waiting", "cancelled", "dispatched", "moved"]

_PATIENCE_MS = 10_000  # a wheel that turns answers within a tick; beyond this the caller asks again
_LOOK_SECONDS = 0.05  # a tenth of a tick of a wheel on Lambda
_ABANDONED_MS = 3_600_000  # a listed change whose record is not stored by then never will be: its caller is dead


class OwnerAnswer(Enum):
    """The answer of a bucket's owner about a cancel marker."""

    CERTAIN = "certain"  # no wheel will send the message, unless the dispatch log names it already
    COMING = "coming"  # the owner's lease is valid: it will publish how far it has read
    SILENT = "silent"  # the owner's lease is over, and it has not published that it read the marker


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

    @property
    def _changes(self) -> PendingChanges:
        return PendingChanges(self.context)

    def look(self, position: SchedulePosition) -> Scheduled:
        """Returns the state of a message. Finishes a change of it that was cut off.

        Raises ``NotFound`` when the bucket was removed, because the message was sent or cancelled long ago, and
        ``Unavailable`` when the message is due, its change is undecided and the wheel does not answer.
        """
        while True:
            current = self._changes.record(position).load()
            if current is not None and current.value.state == "waiting":
                current = self._decide_if_possible(position, current)
            moved_to = None if current is None else current.value.new_position
            if moved_to is None:
                state: State = "waiting"
                if current is not None and current.value.state == "cancelled":
                    state = "cancelled"
                return self._read_state(position, state)
            position = moved_to

    def cancel(self, position: SchedulePosition) -> Scheduled:
        """Cancels the message unless it is sent already, and returns its state. Raises ``NotFound`` for a message that
        is no longer known, and ``Unavailable`` when the wheel does not answer in time: the request stays stored, and a
        repeat gets the answer."""
        return self._carry_out(position, None)

    def reschedule(self, position: SchedulePosition, asked_ms: int) -> Scheduled:
        """Moves the message to the time ``asked_ms``, or to now if that is past, unless it is sent or cancelled
        already. Returns its state and position; a repeat with the same time gets the same answer. Raises what
        ``cancel`` raises."""
        return self._carry_out(position, asked_ms)

    def finish_changes(
        self, contained: Contained, *, older_ms: int = 0, after: str = "", until_ms: int = sys.maxsize
    ) -> str:
        """Finishes the undecided changes that were requested at least ``older_ms`` ago, each inside the context manager
        that ``contained`` returns for its name. Goes through the list behind the name ``after`` until that time, and
        returns the name of the last change that had a turn; at the end of the list an empty text."""
        for name, record in self._changes.listed(after):
            with contained(f"the change of delayed message {name}"):
                self._finish_listed(ListedChange.of(name, record), older_ms)
            if self.context.clock.now_ms() >= until_ms:
                return name
        return ""

    def _finish_listed(self, listed: ListedChange, older_ms: int) -> None:
        age_ms = self.context.clock.now_ms() - listed.requested_ms
        if 0 <= age_ms < older_ms:
            return  # its caller is probably still at work
        record = self._changes.record(listed.position)
        current = record.load()
        if current is None and age_ms < _ABANDONED_MS:
            return  # the change is listed, and its caller may still store it
        if current is not None:
            try:
                self._finish_change(listed.position, current)
            except Unavailable:
                return  # the wheel has not answered yet: the next sweep tries again
            except NotFound:
                # The bucket was removed while the change was being requested: the message no longer waits there.
                self.context.store.delete(record.key, expect=current.token)
        self._changes.remove_from_list(listed.position, listed.token)

    def _decide_if_possible(
        self, position: SchedulePosition, current: Versioned[PendingChange]
    ) -> Versioned[PendingChange]:
        """Returns the pending change, decided if possible. Before the message is due, the answer "waiting" is true
        without a decision, so the call does not wait for the wheel."""
        due_ms = self._read_message(position)[0].due_ms(position.index)
        due = due_ms <= self.context.clock.now_ms()
        try:
            current = replace(self, patience_ms=self.patience_ms if due else 0)._finish_change(position, current)
        except Unavailable:
            if due:
                raise
            return current
        self._changes.remove_from_list(position)
        return current

    def _carry_out(self, position: SchedulePosition, asked_ms: int | None) -> Scheduled:
        """Cancels the message (None), or moves it to ``asked_ms``, and returns its state. Follows a message that was
        moved before to its new position."""
        while True:
            record = self._changes.record(position)
            current = record.load()
            listed = None
            if current is None:
                answer = self._read_state(position, "waiting")
                if answer.state == "dispatched":
                    return answer
                # Listed before the request is stored: the sweeper finishes only requests that it finds in the list.
                listed = self._changes.add_to_list(position)
                current = record.swap(None, PendingChange.requested(asked_ms, self.context.clock.now_ms())).current
                assert current is not None
            if current.value.state == "waiting":
                current = self._finish_change(position, current)
                self._changes.remove_from_list(position, listed)
            moved_to = current.value.new_position
            if moved_to is None:
                return self._read_state(position, "cancelled" if current.value.state == "cancelled" else "waiting")
            if (
                asked_ms is not None
                and current.value.asked_ms == asked_ms
                and self._changes.record(moved_to).load() is None
            ):
                return replace(self._read_state(moved_to, "waiting"), state="moved")
            position = moved_to  # an earlier request moved the message: this one changes it at its new position

    def _finish_change(self, position: SchedulePosition, current: Versioned[PendingChange]) -> Versioned[PendingChange]:
        """Returns the pending change once it is decided and carried out."""
        record = self._changes.record(position)
        # Another caller may have written no more than the row of its cancel marker: then the change is still undecided.
        while current.value.undecided:
            current = self._append_marker(position, current)
            if current.value.undecided:
                current = self._store_decision(position, current)
        if current.value.transfers:
            source = self._log(position)
            done = carry_out(self.context, record, current, RowMaker(self.context, source, None, strict=True))
            assert done is not None
            current = done
        return current

    def _append_marker(self, position: SchedulePosition, current: Versioned[PendingChange]) -> Versioned[PendingChange]:
        """Appends the cancel marker if there is none, and returns the pending change with its row. The row is stored
        only where the answer has to be waited for: a repeated request then appends no second marker."""
        if current.value.marker_row != NO_MARKER:
            return current
        entry = encode_entry(CancelMarker(position.row_no, position.index))
        now_ms = self.context.clock.now_ms()
        try:
            marker_row = self._log(position).append(filler(now_ms, 0, entry)).row_no
            # A wheel that sleeps until the message is due has to read the marker before.
            self.context.wheel_wakeups.announce(position.bucket.name, 0)
        except Sealed:
            marker_row = TOO_LATE
        value = msgspec.structs.replace(current.value, marker_row=marker_row)
        if self._ask_owner(position.bucket, marker_row) is OwnerAnswer.CERTAIN:
            return current.changed(value)
        return self._changes.store(position, current, value)

    def _store_decision(
        self, position: SchedulePosition, current: Versioned[PendingChange]
    ) -> Versioned[PendingChange]:
        """Waits until it is certain whether the cancel marker came in time, and stores the decision."""
        due_times, _ = self._read_message(position)
        due_ms = due_times.due_ms(position.index)
        log = DispatchLog(self.context, position.bucket)
        if log.search(position.row_no, position.index, due_ms) is None:
            self._await_owner(position, current.value.marker_row)
        if self._transfer_of(position, due_ms) is not None:
            return self._changes.store(position, current, msgspec.structs.replace(current.value, state="dispatched"))
        if current.value.due_ms is None:
            return self._changes.store(position, current, msgspec.structs.replace(current.value, state="cancelled"))
        due_ms = max(current.value.due_ms, self.context.clock.now_ms())
        settings = self.context.settings
        # Modulo: there may be fewer shards now than when the message was sent.
        bucket = Bucket.at(due_ms, settings.bucket_minutes, position.bucket.shard % settings.shards)
        transfer = reserve(
            self.context,
            kind=MOVED,
            log=bucket.log,
            picks=((position.row_no, position.index),),
            expires_ms=0,
            due_times=DueTimes.of(
                due_times.subject,
                due_times.generation,
                due_times.member,
                [current.value.due_ms],
                minute=due_times.minute,
                kept_until_ms=due_times.kept_until_ms,
            ),
        )
        value = msgspec.structs.replace(current.value, transfers=(transfer,), moved=position_in(transfer))
        swapped = self._changes.store(position, current, value)
        # Another caller has decided: its transfer counts, and this reservation would be a hole.
        if swapped.value != value:
            release(self.context, (transfer,))
        return swapped

    def _await_owner(self, position: SchedulePosition, marker_row: int) -> None:
        """Returns once no wheel will send the message, unless the dispatch log names it already. Raises ``Unavailable``
        when the wheel does not answer in time."""
        until_ms = self.context.clock.now_ms() + self.patience_ms
        called = False
        while (answer := self._ask_owner(position.bucket, marker_row)) is not OwnerAnswer.CERTAIN:
            now_ms = self.context.clock.now_ms()
            if not called and answer is OwnerAnswer.SILENT:
                # The owner's lease ran out, and the owner may only be paused: the next owner fences it off and decides.
                order_timer(self.context, now_ms, position.bucket)
                called = True
            if now_ms >= until_ms:
                raise ChangePending(
                    "the wheel of this message's bucket does not answer: the change is stored, send the request again"
                )
            self.context.clock.sleep(_LOOK_SECONDS)

    def _ask_owner(self, bucket: Bucket, marker_row: int) -> OwnerAnswer:
        owner = owner_record(self.context, bucket).load()
        answered = owner is None or owner.value.left or owner.value.read_below > marker_row
        if answered and marker_row != TOO_LATE:
            return OwnerAnswer.CERTAIN
        if owner is not None and owner.value.alive(self.context.clock.now_ms()):
            return OwnerAnswer.COMING
        # From a closed bucket no wheel sends anything, no matter which owner has its lease.
        return OwnerAnswer.CERTAIN if self._is_closed(bucket) else OwnerAnswer.SILENT

    def _transfer_of(self, position: SchedulePosition, due_ms: int) -> tuple[Transfer, int, int] | None:
        """Returns the transfer that hands the message over, with the message's index in it and the time; None if there
        is none. Raises ``NotFound`` once the bucket is removed."""
        named = DispatchLog(self.context, position.bucket).search(position.row_no, position.index, due_ms)
        if named is None and due_ms <= self.context.clock.now_ms():
            # A bucket that is being removed loses the message before the dispatch row: a message still there was not
            # sent.
            self._read_message(position)
        return named

    def _read_state(self, position: SchedulePosition, state: State) -> Scheduled:
        """Returns what the logs say about a message that is not moved."""
        due_times, message_id = self._read_message(position)
        due_ms = due_times.due_ms(position.index)
        message = Scheduled(position, state, due_times.subject, message_id, due_ms)
        if state == "cancelled":
            return message
        named = self._transfer_of(position, due_ms)
        if named is None:
            return message
        transfer, index, at_ms = named
        message = replace(message, state="dispatched", dispatched_ms=at_ms)
        queue = LogName.parse(transfer.log).queue if transfer.log else None
        if queue is None or not self._row_is_stored(transfer):
            return message
        return replace(message, queue=queue, offset=transfer.first_seq + index)

    def _row_is_stored(self, transfer: Transfer) -> bool:
        """Returns whether the transfer's row is stored. If a reader filled that row, the wheel puts the messages into
        another one."""
        log = self.context.log(transfer.log)
        row = log.get(transfer.row_no)
        if row is None:
            return transfer.row_no < log.trimmed()
        return not row.filler and row.first_seq == transfer.first_seq

    def _read_message(self, position: SchedulePosition) -> tuple[DueTimes, str]:
        row = self._log(position).get(position.row_no)
        if row is None or not row.meta or position.index >= row.count:
            raise unknown_message()
        entry = decode_entry(row.meta)
        assert isinstance(entry, DueTimes)
        try:
            message = decode_one(raw_messages_of(row, self.context.blobs)[position.index])
        except Corrupt:
            return entry, ""  # the wheel reports the damage when it sends the message
        return entry, message.id or ""

    def _is_closed(self, bucket: Bucket) -> bool:
        current = bucket_record(self.context, bucket).load()
        return current is None or current.value.closed_ms != 0

    def _log(self, position: SchedulePosition) -> Log:
        return self.context.log(position.bucket.log)
