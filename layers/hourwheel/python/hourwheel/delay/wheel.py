"""Turns the wheel of one bucket: takes the lease, reads the schedule log, and hands over due messages, tick by tick; or
without ticks, each message at its millisecond.

Each turn first reads the tail of the schedule log, so that it sees each message and cancel stored before. Without ticks
the wheel sleeps between two turns until its next message is due. A message stored meanwhile that is due sooner wakes
it, and so does a cancel. A wheel keeps nothing that the schedule and dispatch logs do not contain: where it ends,
another wheel reads them and continues.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from hourwheel.buckets.buckets import Bucket, BucketRecord, bucket_record, order_timer
from hourwheel.buckets.lease import owner_record
from hourwheel.buckets.starts import shortest_rest_ms
from hourwheel.context import Context
from hourwheel.delay import dispatch
from hourwheel.delay.bucket_reader import BucketReader
from hourwheel.delay.dispatch import Dispatcher
from hourwheel.delay.held_batches import HeldBatches
from hourwheel.delay.outgoing_batches import OutgoingBatches
from hourwheel.delay.ownership import Fenced, Ownership
from hourwheel.delay.schedule_rows import ScheduleRowCache
from hourwheel.delay.waiting_messages import WaitingMessages
from hourwheel.delay.wheel_steps import (
    LOOK_MS,
    PREPARE_MS,
    RELAY_MS,
    SETTLED_MS,
    NextStarts,
    WheelState,
    WheelStep,
    may_sleep,
    next_starts,
    next_turn_ms,
    rest_for_ms,
    step_before_hand_over,
    step_of_closing,
    step_of_relay,
    wake_time_ms,
)
from hourwheel.reach.pauses import Pauses
from hourwheel.registry.registry import Registry

_FENCES = 20  # a former owner that keeps appending is alive: it keeps the bucket
_PREPARED = 1_000  # messages that are read before they are due; they lie in as many rows at most
_DAMAGE_KEPT_MS = 30 * 86_400_000  # operators have 30 days to repair damaged messages, as with dead letters


class WheelEnd(StrEnum):
    """Why a wheel stopped turning."""

    CLOSED = "closed"  # every message of the bucket is handed over or cancelled
    ASLEEP = "asleep"  # nothing is due soon: a timer wakes it
    BUSY = "busy"  # another wheel has the bucket
    LEFT = "left"  # its time is over: it has called its successor
    STOPPED = "stopped"  # its caller stopped it


Pause = Callable[[float], bool]
"""Waits this number of seconds (0: not at all); returns False when the wheel has to stop. Where wheels have no ticks,
it returns sooner if a message that was announced since the pause before falls due, or if a cancel marker was
announced."""


@dataclass
class Wheel:
    """Hands over the messages of one bucket. For one thread. ``owner`` is the unique name of the process or thread that
    turns the wheel, ``leaves_ms`` the time at which the wheel has to leave (0: never)."""

    context: Context
    registry: Registry
    bucket: Bucket
    owner: str
    leaves_ms: int = 0
    _must_read: int = 0
    """Nothing is handed over until the schedule log is read up to this row."""
    _state: WheelState = WheelState.NEW
    _opened_ms: int = 0
    _sealed_ms: int = 0
    _end: int = 0
    """Where the schedule log ends, once it is sealed."""
    _taken: int = 0
    """The number of messages that the last turn took, at ``_taken_ms``."""
    _taken_ms: int = 0
    _opening_ms: int = 0
    """How long it took to open the bucket."""
    _busy_turns: int = 0
    """The number of turns since the opening that read a row or took a message, the last one at ``_busy_ms``."""
    _busy_ms: int = 0
    _prepared_count: int = 0
    """The number of messages that were read before they are due, since the last turn with work."""
    _called: bool = False
    """Whether its successor has been called."""

    def __post_init__(self) -> None:
        self._log = self.context.log(self.bucket.log)
        self._ownership = Ownership(self.context, self.bucket, self.owner, leaves_ms=self.leaves_ms)
        self._held = HeldBatches(Pauses(self.context, "delayed messages", holds_logs=True))
        precise_starts = self.context.precise_timers is not None
        self._waiting = WaitingMessages(self.context.settings.tick_ms, precise_starts, self._held)
        self._reader = BucketReader(self.context, self.bucket, self._ownership, self._waiting)
        batches = OutgoingBatches(self.registry, self.bucket.log, ScheduleRowCache(self.context, self.bucket))
        self._dispatcher = Dispatcher(self.context, self.registry, self._ownership, batches, self._held)

    @property
    def waiting(self) -> int:
        """The number of messages in the wheel; cancelled ones count until their turn comes."""
        return self._waiting.waiting

    def run(self, pause: Pause) -> WheelEnd:
        """Turns until there is nothing to do or ``pause`` returns False, and returns why the wheel ended. Raises the
        errors of the store, and then keeps the lease until it runs out, because the last call may still take effect."""
        # A timer or a sweep may come late: a closed bucket needs no wheel, and a new lease would only delay its
        # removal.
        current = bucket_record(self.context, self.bucket).load()
        if current is None or current.value.closed_ms:
            return WheelEnd.CLOSED
        try:
            ended = self._take(pause)
            if ended is not None:
                return ended
            self.open()
            while True:
                ended = self.turn(pause)
                if ended is not None:
                    return ended
                if not pause(self._prepared(self._until_next_turn()) / 1_000):
                    return self._stop()
        except Fenced:
            return WheelEnd.BUSY

    def open(self) -> None:
        """Fences the former owner off, finishes the transfers of its last dispatch row, and reads the bucket. Raises
        ``Fenced``."""
        began_ms = self.context.clock.now_ms()
        for _ in range(_FENCES):
            self._reader.read_dispatched()
            try:
                self._ownership.fence(self._reader.next_dispatch_row, self._reader.last_ms)
                break
            except Fenced:
                continue  # the former owner has appended another row
        else:
            raise Fenced(self.bucket.name)
        self._state = WheelState.CATCHING_UP
        # The former owner may have died between a dispatch row and its puts. Those before the last row were finished by
        # it.
        self._dispatcher.finish(self._reader.unfinished)
        # A cancel marker may be behind a row that is not stored yet, and its caller, who found no owner, relies on it.
        self._must_read = self._log.totals().rows
        self._reader.read()
        # Published only after the fence: a caller that cancels relies on it that no former owner sends the message.
        # Without a marker nobody waits: one that comes later is read by a turn.
        self._publish_if_due()
        self._opened_ms = self.context.clock.now_ms()
        self._opening_ms = max(0, self._opened_ms - began_ms)

    def turn(self, pause: Pause = lambda seconds: True) -> WheelEnd | None:
        """Makes one turn: hands over the messages that are due, step by step. Returns why the wheel ended, or None
        while there is more to do. Raises ``Fenced``. If ``pause`` stops the wheel between two steps of a turn, the next
        owner hands over the rest."""
        while self._step():
            self._reader.renew_if_due(self._reader.next_row)
            ended = self._relay(self.context.clock.now_ms())
            if ended is not None:
                return ended
            # Between two steps, so that a stop never falls between a dispatch row and its puts.
            if not pause(0):
                return self._stop()
        if self._state is WheelState.CATCHING_UP:
            return None
        # The steps took time: the bucket may have ended meanwhile.
        now_ms = self.context.clock.now_ms()
        if now_ms >= self.bucket.end_ms:
            return self._close(now_ms)
        return self._rest(now_ms) or self._relay(now_ms)

    def _step(self) -> bool:
        """Reads the tail of the schedule log, and hands over a slice of the due messages of each destination. Returns
        whether there is more to do now. What falls due during a step has its turn in the next one."""
        known_row = self._reader.next_row
        is_read = self._read_tail()
        self._publish_if_due()
        now_ms = self.context.clock.now_ms()
        step = step_before_hand_over(
            read_below=self._reader.next_row, must_read=self._must_read, opened_ms=self._opened_ms, now_ms=now_ms
        )
        if step is not WheelStep.HAND_OVER:
            self._fill_if(step, self._must_read)
            return False
        if self._state is WheelState.CATCHING_UP:
            self._state = WheelState.TURNING
        # The messages were due at this time: their dispatch row must not be earlier, even if the clock is set back now.
        self._ownership.pass_to(now_ms)
        # Hand-overs that a cell interrupted come first: the rows of the messages below are reserved behind theirs.
        self._dispatcher.put_open()
        self._waiting.fall_due(now_ms)
        taken = self._hand_over(now_ms)
        self._taken, self._taken_ms = taken, now_ms
        self._note_work(taken > 0 or self._reader.next_row > known_row, now_ms)
        return (self._held.has_room and self._waiting.due.ready(now_ms)) or not is_read

    def _hand_over(self, now_ms: int) -> int:
        """Hands over the next slices of the due messages in one step. Returns the number of messages in them."""
        due = self._waiting.due
        self._held.queued = due.logs()
        slices = due.slices(dispatch.STEP_PICKS, now_ms) if self._held.has_room else []
        if not slices:
            return 0
        due.put_back(slices, self._dispatcher.hand_over(slices))
        self._waiting.keep_held()
        return sum(len(positions) for _, positions in slices)

    def _publish_if_due(self) -> None:
        """Publishes how far the schedule log is read, and renews the lease."""
        # A caller waits for the answer to its cancel: it gets the answer when the reading is published, not at the next
        # renewal.
        if self._reader.unanswered or self._ownership.due_for_renewal():
            self._ownership.keep(self._reader.next_row)
            self._reader.unanswered = False

    def _read_tail(self) -> bool:
        """Reads on in the schedule log, but not again in the first turn if ``open`` has read it. The wheel has had the
        lease since then, so the caller of a marker that was stored meanwhile waits for the wheel's answer. Returns
        whether the log is read to its end."""
        if self._state is not WheelState.CATCHING_UP:
            return self._reader.read_tail()
        if self._reader.next_row < self._must_read:
            self._reader.read()
        return True

    def _note_work(self, busy: bool, now_ms: int) -> None:
        if busy:
            self._busy_turns, self._busy_ms = self._busy_turns + 1, now_ms
            self._prepared_count = 0

    def _take(self, pause: Pause) -> WheelEnd | None:
        """Takes the lease, and waits for an owner that is about to leave. Returns why the wheel ends without the lease,
        or None with the lease."""
        while not self._ownership.take():
            current = owner_record(self.context, self.bucket).load()
            now_ms = self.context.clock.now_ms()
            leaving = current is not None and 0 < current.value.leaves_ms <= now_ms + 2 * RELAY_MS
            if not leaving or current is None or now_ms > current.value.leaves_ms + RELAY_MS:
                return WheelEnd.BUSY
            if self._state is WheelState.NEW:
                # The rows read now need not be read once the wheel has the bucket.
                self._reader.read_dispatched()
                self._reader.read()
                self._state = WheelState.FOLLOWING
            if not pause((self.context.settings.tick_ms or LOOK_MS) / 1_000):
                return WheelEnd.STOPPED
        return None

    def _until_next_turn(self) -> int:
        """Returns the milliseconds until the next tick, or without ticks until the wheel has something to do."""
        tick_ms, now_ms = self.context.settings.tick_ms, self.context.clock.now_ms()
        if tick_ms:
            return tick_ms - now_ms % tick_ms
        if self._state is not WheelState.TURNING:
            return LOOK_MS
        others = (
            self._ownership.renewal_ms,
            self.bucket.end_ms,
            *self._relay_times(),
            *self._held.retry_times(),
            *self._waiting.due.rest_times(),
        )
        turn_ms = next_turn_ms(
            now_ms=now_ms,
            taken=self._taken,
            taken_ms=self._taken_ms,
            next_due_ms=self._waiting.next_ms(),
            settled_ms=self._opened_ms + SETTLED_MS,
            others=others,
        )
        if turn_ms - now_ms > LOOK_MS and self._log.totals().rows > self._reader.next_row:
            # A row is on its way, and its writer announces it. If the writer has died, rows behind it wait for a look.
            return LOOK_MS
        return turn_ms - now_ms

    def _prepared(self, rest_ms: int) -> int:
        """Reads the messages that are due next, if a wheel without ticks rests long enough; returns the rest that is
        left: 0 if it has more to read, because what was announced meanwhile comes first. With ticks it reads nothing
        more than each tick needs: on AWS reads are billed."""
        if rest_ms < PREPARE_MS or self.context.settings.tick_ms or self._state is not WheelState.TURNING:
            return rest_ms
        began_ms = self.context.clock.now_ms()
        upcoming, before = self._waiting.upcoming(_PREPARED), self._prepared_count
        self._prepared_count = self._dispatcher.prepare(upcoming)
        if before < self._prepared_count < len(upcoming):
            return 0
        return max(0, rest_ms - max(0, self.context.clock.now_ms() - began_ms))

    def _relay_times(self) -> tuple[int, ...]:
        """Returns when the wheel calls its successor, or leaves; nothing if it never leaves."""
        if not self.leaves_ms:
            return ()
        return (self.leaves_ms if self._called else self.leaves_ms - RELAY_MS,)

    def _rest(self, now_ms: int) -> WheelEnd | None:
        """Leaves the bucket when nothing is due soon; returns None otherwise.

        The order of the steps loses no message: the timer is ordered before the wheel leaves. A look at the counter
        after that sees every row given out before, also those not stored yet. A producer that stores a row later sees
        that the wheel has left, and starts one.
        """
        if self.context.precise_timers is not None:
            return self._rest_between_starts(now_ms)
        wakes_ms = wake_time_ms(self._waiting.next_ms(), self.bucket.end_ms)
        if self._waiting.is_held_up or not may_sleep(wakes_ms=wakes_ms, opened_ms=self._opened_ms, now_ms=now_ms):
            return None
        order_timer(self.context, wakes_ms, self.bucket)
        self._leave(wakes_ms)
        return self._look_behind()

    def _rest_between_starts(self, now_ms: int) -> WheelEnd | None:
        """Leaves the bucket as ``_rest`` does, where timers are precise: for a shorter time, and without a start at the
        end of the bucket, which the sweeper closes."""
        rest_ms = rest_for_ms(
            opening_ms=self._opening_ms, busy_turns=self._busy_turns, busy_ms=self._busy_ms, now_ms=now_ms
        )
        if self._waiting.is_held_up or rest_ms is None:
            return None
        starts = next_starts(
            due_ms=self._waiting.next_ms(),
            minute_due_ms=self._waiting.next_minute_ms(),
            end_ms=self.bucket.end_ms,
            announced_ms=self._ownership.announced_ms,
            now_ms=now_ms,
        )
        # Nothing is started at the end of the bucket: the sweeper comes.
        only_closes = starts.first_ms == self.bucket.end_ms
        drained = not self.waiting and not self._reader.has_unreadable
        wait_ms, precise_ms = starts.first_ms - now_ms, starts.wakes_ms - now_ms
        if starts.wakes_ms < self.bucket.end_ms:
            # Ordered at once, a precise start would call the next wheel now, also if a coarse one comes before it.
            rest_ms = shortest_rest_ms(self.context, precise_ms, rest_ms)
            if precise_ms <= rest_ms:
                return None
        if wait_ms <= rest_ms and not (only_closes and drained):
            return None
        self._order(starts)
        self._ownership.leave(
            self._reader.next_row, wakes_ms=starts.wakes_ms, minute_ms=starts.minute_ms, drained=drained
        )
        return self._look_behind()

    def _order(self, starts: NextStarts) -> None:
        if starts.minute_ms:
            order_timer(self.context, starts.minute_ms, self.bucket, minute=True)
        if starts.wakes_ms < self.bucket.end_ms:
            order_timer(self.context, starts.wakes_ms, self.bucket)

    def _look_behind(self) -> WheelEnd:
        """Orders another wheel at once if a row was given out that this one, which has left, has not read."""
        if self._log.totals().rows > self._reader.next_row:
            now_ms = self.context.clock.now_ms()
            self._leave(now_ms)  # so that the sweeper starts a wheel if this timer is lost
            order_timer(self.context, now_ms, self.bucket)
        return WheelEnd.ASLEEP

    def _relay(self, now_ms: int) -> WheelEnd | None:
        step = step_of_relay(called=self._called, leaves_ms=self.leaves_ms, now_ms=now_ms)
        if step is WheelStep.WAIT:
            return None
        if not self._called:
            order_timer(self.context, now_ms, self.bucket)
            self._called = True
        if step is WheelStep.CALL:
            return None
        self._leave(now_ms)
        return WheelEnd.LEFT

    def _stop(self) -> WheelEnd:
        # A start that is overdue: the sweeper starts another wheel.
        self._leave(0)
        return WheelEnd.STOPPED

    def _leave(self, wakes_ms: int) -> None:
        self._ownership.leave(self._reader.next_row, wakes_ms=wakes_ms)

    def _close(self, now_ms: int) -> WheelEnd | None:
        """Seals the schedule log. Closes the bucket once every row given out is stored or filled, and every message is
        handed over or cancelled; returns None before."""
        step = self._step_of_closing(now_ms)
        if step is WheelStep.SEAL:
            self._state, self._sealed_ms, self._end = WheelState.CLOSING, now_ms, self._log.seal().rows
            step = self._step_of_closing(now_ms)
        if step is not WheelStep.CLOSE:
            self._fill_if(step, self._end)
            return None  # the next tick reads, and hands over, the rest
        kept_ms = now_ms + _DAMAGE_KEPT_MS if self._reader.has_unreadable else now_ms
        record = bucket_record(self.context, self.bucket)
        current = record.load()
        if current is not None and not current.value.closed_ms:
            record.swap(current, BucketRecord(closed_ms=kept_ms))
        self._leave(0)
        return WheelEnd.CLOSED

    def _step_of_closing(self, now_ms: int) -> WheelStep:
        return step_of_closing(
            self._state,
            read_below=self._reader.next_row,
            end=self._end,
            sealed_ms=self._sealed_ms,
            waiting=self.waiting + len(self._held.open),
            now_ms=now_ms,
        )

    def _fill_if(self, step: WheelStep, below: int) -> None:
        if step is WheelStep.FILL:
            self._log.fill(self._reader.next_row, below)
