"""What becomes of a delayed message before its time: look it up, cancel it, move it to another time.

    table      schedule
    partition  fates/{bucket}
    sort       {row:016d}-{index:04d}
    value      Fate, msgpack array

The wish is written down first, then a strike is appended to the schedule log in which the message waits. Whether the
strike came in time the dispatch log tells, from the moment on at which no wheel can still miss it: the owner has
published a reading beyond it, or there is no owner. A message that moves is then handed over to the schedule log of its
new time. Whoever asks again goes on where another was left; so does the sweeper with moves.

    table      meta
    partition  moves
    sort       {bucket} {row}-{index}
    value      when the move began, ms, msgpack
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Literal, Self, TypeAlias

import msgspec

from hourwheel.context import Context
from hourwheel.delay.buckets import Bucket, bucket_slot, order_timer
from hourwheel.delay.handles import Waiting
from hourwheel.delay.lease import owner_slot
from hourwheel.delay.ownership import DispatchLog
from hourwheel.errors import Corrupt, NotFound, Sealed, Unavailable
from hourwheel.logs.codec import decode_one
from hourwheel.logs.handover import Transfer, carry_out, release, reserve
from hourwheel.logs.item import Held, Slot
from hourwheel.logs.log import Log
from hourwheel.logs.notes import Plan, Strike, decode_note, encode_note
from hourwheel.logs.rows import Row
from hourwheel.logs.segments import raw_messages_of
from hourwheel.ports import Key, Record, Table, items_of
from hourwheel.queueing.moving import MOVED, target_row

State: TypeAlias = Literal["waiting", "cancelled", "dispatched"]

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(int)

_PATIENCE_MS = 10_000
_LOOK_SECONDS = 0.05
_ABANDONED_MS = 3_600_000
_UNKNOWN = -1
_TOO_LATE = -2


class Fate(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """``due_ms``: the new time, of a message that is to move; None when it is to be cancelled. ``strike``: the row of
    the strike, or that it is not known or was refused. ``transfers``: the move while it is carried out. ``moved``:
    where the message waits then, as [bucket, row, index]."""

    due_ms: int | None
    state: str = "waiting"
    strike: int = _UNKNOWN
    transfers: tuple[Transfer, ...] = ()
    moved: tuple[str, int, int] | None = None

    @property
    def garbage_ms(self) -> int | None:
        return None  # it goes with its bucket

    def left_with(self, transfers: tuple[Transfer, ...]) -> Self:
        if transfers:
            return msgspec.structs.replace(self, transfers=transfers, moved=_place_of(transfers[0]))
        return msgspec.structs.replace(self, transfers=(), state="moved")


def _following(fate: Fate) -> Waiting | None:
    """Where the message went, once it is there."""
    if fate.state != "moved" or fate.moved is None:
        return None
    name, row, index = fate.moved
    return Waiting(Bucket.parse(name), row, index)


def _place_of(transfer: Transfer) -> tuple[str, int, int]:
    return Bucket.of_log(transfer.log).name, transfer.row, 0


@dataclass(frozen=True)
class Scheduled:
    """What is known of a delayed message. ``place`` is where it waits, or waited last; a dispatched one has a queue
    and an offset once it stands in its subject's queue."""

    place: Waiting
    state: State
    subject: str
    message_id: str
    due_ms: int
    dispatched_ms: int | None = None
    queue: int | None = None
    offset: int | None = None


@dataclass(frozen=True)
class Fates:
    context: Context
    patience_ms: int = _PATIENCE_MS
    """How long to wait for a wheel to tell what it has read."""

    def look(self, place: Waiting) -> Scheduled:
        """Raises ``NotFound`` when its bucket was removed: it was sent or cancelled long ago."""
        while True:
            held = self._slot(place).load()
            following = None if held is None else _following(held.value)
            if following is None:
                state: State = "waiting"
                if held is not None and held.value.state == "cancelled":
                    state = "cancelled"
                return self._told(place, state)
            place = following

    def cancel(self, place: Waiting) -> Scheduled:
        """Cancels the message if it is not sent yet; the state tells. Raises ``Unavailable`` when that could not be
        found out in time: the wish stands, asked again it is answered."""
        return self._decide(place, None)

    def reschedule(self, place: Waiting, due_ms: int) -> Scheduled:
        """Moves the message to another time if it is neither sent nor cancelled; the state and the place tell."""
        return self._decide(place, due_ms)

    def finish_moves(self, contained: Callable[[str], AbstractContextManager[None]]) -> None:
        """Carries out moves that were left behind, each in the context that ``contained`` makes for its name."""
        for name, record in items_of(self.context.store, Table.META, "moves"):
            with contained(f"the move of {name}"):
                self._finish_move(name, record)

    def _finish_move(self, name: str, record: Record) -> None:
        bucket, _, at = name.partition(" ")
        row, _, index = at.partition("-")
        place = Waiting(Bucket.parse(bucket), int(row), int(index))
        held = self._slot(place).load()
        if held is None and self.context.clock.now_ms() < _decoder.decode(record.value) + _ABANDONED_MS:
            return  # it has only begun
        if held is not None:
            try:
                self._resolved(place, held)
            except Unavailable:
                return  # its wheel has not answered yet
        self.context.store.delete(Key(Table.META, "moves", name), expect=record.token)

    def _decide(self, place: Waiting, due_ms: int | None) -> Scheduled:
        while True:
            slot = self._slot(place)
            held = slot.load()
            if held is None:
                told = self._told(place, "waiting")
                if told.state == "dispatched":
                    return told
                if due_ms is not None:
                    self._announce_move(place)
                held = slot.swap(None, Fate(due_ms=due_ms)).held
                assert held is not None
            held = self._resolved(place, held)
            following = _following(held.value)
            if following is None:
                return self._told(place, "cancelled" if held.value.state == "cancelled" else "waiting")
            if due_ms is not None and held.value.due_ms == due_ms and self._slot(following).load() is None:
                self._forget_move(place)
                return self._told(following, "waiting")
            place = following  # it had been moved before: the wish is for where it waits now

    def _resolved(self, place: Waiting, held: Held[Fate]) -> Held[Fate]:
        """The fate once it is certain."""
        slot = self._slot(place)
        if held.value.state != "waiting":
            return held
        if not held.value.transfers:
            held = self._struck(place, held)
            if held.value.state == "waiting" and not held.value.transfers:
                held = self._settled(place, held)
        if held.value.transfers:
            source = self._log(place)
            done = carry_out(self.context, slot, held, target_row(self.context, source, None, strict=True))
            assert done is not None
            held = done
        return held

    def _struck(self, place: Waiting, held: Held[Fate]) -> Held[Fate]:
        """The fate with the row of its strike."""
        if held.value.strike != _UNKNOWN:
            return held
        note = encode_note(Strike(place.row, place.index))
        now_ms = self.context.clock.now_ms()
        try:
            strike = self._log(place).append(Row(number=-1, count=0, at_ms=now_ms, expires_ms=0, note=note)).row
        except Sealed:
            strike = _TOO_LATE
        return self._swapped(place, held, msgspec.structs.replace(held.value, strike=strike))

    def _settled(self, place: Waiting, held: Held[Fate]) -> Held[Fate]:
        """Waits until it is certain whether the strike came in time, and writes down what follows from it."""
        plan, _ = self._message(place)
        due_ms = plan.due_ms(place.index)
        log = DispatchLog(self.context, place.bucket)
        if log.search(place.row, place.index, due_ms) is None:
            self._await(place, held.value.strike)
        if log.search(place.row, place.index, due_ms) is not None:
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
            plan=Plan.of(plan.subject, plan.generation, plan.member, [held.value.due_ms]),
        )
        value = msgspec.structs.replace(held.value, transfers=(transfer,), moved=_place_of(transfer))
        swapped = self._swapped(place, held, value)
        if swapped.value != value:
            release(self.context, (transfer,))
        return swapped

    def _await(self, place: Waiting, strike: int) -> None:
        """Returns once no wheel can send the message unless the dispatch log says so already."""
        until_ms = self.context.clock.now_ms() + self.patience_ms
        called = False
        while True:
            held = owner_slot(self.context, place.bucket).load()
            now_ms = self.context.clock.now_ms()
            answered = held is None or held.value.left or held.value.read_below > strike
            if answered and strike != _TOO_LATE:
                return
            alive = held is not None and held.value.alive(now_ms)
            if not alive and self._closed(place.bucket):
                return  # nothing more is sent from it, whoever holds its lease
            if not called and not alive:
                # Its owner is gone without a word: it may only be paused. The next one decides.
                order_timer(self.context, now_ms, place.bucket)
                called = True
            if now_ms > until_ms:
                raise Unavailable("the wheel of this message's bucket does not answer: the wish stands, ask again")
            self.context.clock.sleep(_LOOK_SECONDS)

    def _swapped(self, place: Waiting, held: Held[Fate], value: Fate) -> Held[Fate]:
        """The value in place of the one that was read, or what another has put there."""
        outcome = self._slot(place).swap(held.token, value)
        assert outcome.held is not None
        return outcome.held

    def _told(self, place: Waiting, state: State) -> Scheduled:
        """What the logs say of a message that is not known to be moved."""
        plan, message_id = self._message(place)
        due_ms = plan.due_ms(place.index)
        known = Scheduled(place, state, plan.subject, message_id, due_ms)
        if state == "cancelled":
            return known
        found = DispatchLog(self.context, place.bucket).search(place.row, place.index, due_ms)
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

    def _message(self, place: Waiting) -> tuple[Plan, str]:
        row = self._log(place).get(place.row)
        if row is None or not row.note or place.index >= row.count:
            raise NotFound(
                "scheduled-unknown",
                "nothing is known of this message any more: it was sent, cancelled or moved more than a day ago",
                field="id",
            )
        note = decode_note(row.note)
        assert isinstance(note, Plan)
        try:
            message = decode_one(raw_messages_of(row, self.context.blobs)[place.index])
        except Corrupt:
            return note, ""  # who sends it reports it
        return note, message.id or ""

    def _closed(self, bucket: Bucket) -> bool:
        held = bucket_slot(self.context, bucket).load()
        return held is None or held.value.closed_ms != 0

    def _log(self, place: Waiting) -> Log:
        return self.context.log(place.bucket.log)

    def _slot(self, place: Waiting) -> Slot[Fate]:
        sort = f"{place.row:016d}-{place.index:04d}"
        return Slot(self.context.store, self.context.ids, Key(Table.SCHEDULE, f"fates/{place.bucket.name}", sort), Fate)

    def _announce_move(self, place: Waiting) -> None:
        record = Record(_encoder.encode(self.context.clock.now_ms()), self.context.ids.token())
        # Refused: another has announced it.
        self.context.store.put(self._move_key(place), record, expect=None)

    def _forget_move(self, place: Waiting) -> None:
        key = self._move_key(place)
        record = self.context.store.get(key)
        if record is not None:
            self.context.store.delete(key, expect=record.token)

    def _move_key(self, place: Waiting) -> Key:
        return Key(Table.META, "moves", f"{place.bucket.name} {place.row}-{place.index}")
