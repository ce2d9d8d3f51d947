"""Plants bugs of delayed messages: the real code with one clause of the protocol left out."""

from array import array
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec
from greenlet import getcurrent

from hourwheel.buckets import buckets, lease
from hourwheel.buckets.buckets import Bucket
from hourwheel.buckets.lease import owner_record
from hourwheel.context import Context
from hourwheel.delay import maintenance
from hourwheel.delay.bucket_reader import BucketReader
from hourwheel.delay.changes import ScheduledMessages
from hourwheel.delay.dispatch import Dispatcher
from hourwheel.delay.ownership import DispatchLog, Ownership
from hourwheel.delay.timing import DueGroup, TimingWheel
from hourwheel.delay.waiting_messages import WaitingMessages
from hourwheel.delay.wheel import Wheel, WheelEnd
from hourwheel.delay.wheel_steps import WheelState
from hourwheel.errors import Filled, Sealed
from hourwheel.handover import copies
from hourwheel.handover.handover import Transfer
from hourwheel.logs.entries import DueTimes as Note
from hourwheel.logs.log import Reservation
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.messages import Message
from hourwheel.ports.waking import NoWheelWakeups
from hourwheel.pull_log.parsed_settlements import ParsedSettlement
from hourwheel.settling.settle import Settler
from tests.simulation.bugs import Bug, registrar
from tests.simulation.delays import Delays
from tests.simulation.draws import delayed, prompt
from tests.simulation.faults import Faults
from tests.simulation.plan import Plan

DELAYED: list[Bug] = []
planted = registrar(DELAYED)


def waiting(**changes: Any) -> Callable[[Plan], Plan]:
    """Returns the plan with delayed messages, and with these changes of the plan or of its delays."""
    names = {field.name for field in fields(Delays)}

    def sharpen(plan: Plan) -> Plan:
        plan = delayed(plan, Random(plan.seed))
        assert plan.delays is not None
        inside = {"prompt": False} | {name: value for name, value in changes.items() if name in names}
        outside = {name: value for name, value in changes.items() if name not in names}
        plan = replace(plan, **outside, delays=replace(plan.delays, **inside))
        # An engine in the same process has no calls that land later.
        return replace(plan, faults=replace(plan.faults, late=0.0)) if plan.transactional else plan

    return sharpen


_owners_that_pause = waiting(
    transactional=False,
    trims=False,
    faults=Faults(pause=0.12),
    long_pauses=True,
    calls=900,
    skew_ms=0,
    consumers=1,
    sweepers=2,
    bucket_minutes=20,
    shards=1,
    reach_ms=20_000,
    batches=4,
    wheels=3,
    cancellers=3,
    leaves_seconds=0,
    patience=0.1,
    share=1.0,
    pace=3,
)
_owners_that_crash = waiting(
    transactional=False, trims=False, faults=Faults(crash=0.03, forget=0.1), calls=900, wheels=3
)
_cancellers_at_work = waiting(calls=900, wheels=3, cancellers=3, reach_ms=20_000, share=1.0, batches=4, pace=10)
_senders_at_the_end_of_a_bucket = waiting(
    transactional=False,
    trims=False,
    faults=Faults(pause=0.05, late=0.04),
    skew_ms=4_000,
    producers=3,
    consumers=1,
    start_ms=295_000,
    bucket_minutes=5,
    shards=1,
    share=1.0,
    reach_ms=5_000,
    batches=20,
    patience=0.6,
    calls=900,
)


@planted(sharpen=_owners_that_pause)
def a_new_owner_does_not_fence_off_the_old_one() -> Iterator[None]:
    def fence(self: Ownership, start: int, last_ms: int) -> None:
        self._next, self._last_ms = start, last_ms

    with patch.object(Ownership, "fence", fence):
        yield


@planted(sharpen=_owners_that_crash)
def a_new_owner_does_not_finish_what_the_old_one_wrote_down() -> Iterator[None]:
    with patch.object(Dispatcher, "finish", lambda *_: None):
        yield


@planted(sharpen=waiting())
def a_wheel_takes_a_slot_before_it_is_over() -> Iterator[None]:
    def take(self: TimingWheel, now_ms: int) -> list[DueGroup]:
        return real(self, now_ms + 500)

    real = TimingWheel.take
    with patch.object(TimingWheel, "take", take):
        yield


@planted(sharpen=waiting(cancellers=0, share=1.0, reach_ms=20_000, retention_seconds=259_200, quiet_days=False))
def a_wheel_forgets_one_of_the_messages_that_are_due_together() -> Iterator[None]:
    def take(self: TimingWheel, now_ms: int) -> list[DueGroup]:
        return [group._replace(positions=group.positions[:2]) for group in real(self, now_ms)]

    real = TimingWheel.take
    with patch.object(TimingWheel, "take", take):
        yield


@planted(sharpen=_cancellers_at_work)
def a_cancel_marker_is_ignored_when_its_message_is_due() -> Iterator[None]:
    with patch.object(WaitingMessages, "discard", lambda *_: None):
        yield


@planted(sharpen=_owners_that_pause)
def a_cancel_is_answered_when_a_lease_has_merely_run_out() -> Iterator[None]:
    def wait(self: ScheduledMessages, position: Any, marker_row: int) -> None:
        current = owner_record(self.context, position.bucket).load()
        if current is None or current.value.alive(self.context.clock.now_ms()):
            real(self, position, marker_row)

    real = ScheduledMessages._await_owner
    with patch.object(ScheduledMessages, "_await_owner", wait):
        yield


@planted(sharpen=_cancellers_at_work)
def a_cancel_is_answered_without_a_second_look_at_what_was_handed_over() -> Iterator[None]:
    def settled(self: ScheduledMessages, position: Any, current: Any) -> Any:
        due_ms = self._read_message(position)[0].due_ms(position.index)
        if current.value.due_ms is not None or DispatchLog(self.context, position.bucket).search(
            *_at(position), due_ms
        ):
            return real(self, position, current)
        self._await_owner(position, current.value.marker_row)
        return self._changes.store(position, current, msgspec.structs.replace(current.value, state="cancelled"))

    real = ScheduledMessages._store_decision
    with patch.object(ScheduledMessages, "_store_decision", settled):
        yield


def _at(position: Any) -> tuple[int, int]:
    return position.row_no, position.index


@planted(sharpen=_cancellers_at_work)
def a_message_is_moved_though_it_was_handed_over() -> Iterator[None]:
    def settled(self: ScheduledMessages, position: Any, current: Any) -> Any:
        if current.value.due_ms is None:
            return real(self, position, current)
        blind.add(getcurrent())
        try:
            return real(self, position, current)
        finally:
            blind.discard(getcurrent())

    def search(self: DispatchLog, *what: Any) -> Any:
        return None if getcurrent() in blind else real_search(self, *what)

    blind: set[Any] = set()
    real, real_search = ScheduledMessages._store_decision, DispatchLog.search
    with patch.object(ScheduledMessages, "_store_decision", settled), patch.object(DispatchLog, "search", search):
        yield


@planted(sharpen=_cancellers_at_work)
def an_owner_says_that_it_has_read_more_than_it_has() -> Iterator[None]:
    def keep(self: Ownership, read_below: int) -> None:
        real(self, read_below + 1)

    real = Ownership.keep
    with patch.object(Ownership, "keep", keep):
        yield


@planted(sharpen=waiting(faults=Faults(crash=0.03), calls=900, cancellers=3, reach_ms=20_000, share=1.0))
def a_cancel_that_was_cut_off_is_left_to_its_caller() -> Iterator[None]:
    def resolved(self: ScheduledMessages, position: Any, current: Any) -> Any:
        # The sweeper does not wait for the wheel.
        return real(self, position, current) if self.patience_ms or current.value.due_ms is not None else current

    real = ScheduledMessages._finish_change
    with patch.object(ScheduledMessages, "_finish_change", resolved):
        yield


@planted(sharpen=_cancellers_at_work)
def a_cancel_does_not_wait_for_the_wheel() -> Iterator[None]:
    with patch.object(ScheduledMessages, "_await_owner", lambda *_: None):
        yield


def _promptly(plan: Plan) -> Plan:
    plan = prompt(delayed(plan, Random(plan.seed)), Random(plan.seed))
    assert plan.delays is not None
    return replace(plan, latency_ms=80, switch=0.9, consumers=1, delays=replace(plan.delays, share=0.5, cancellers=0))


@planted(sharpen=_promptly)
def a_wheel_goes_to_sleep_without_a_second_look() -> Iterator[None]:
    def leave(self: Wheel, wakes_ms: int) -> None:
        real(self, wakes_ms)
        self._reader.next_row = 1 << 50

    real = Wheel._leave
    with patch.object(Wheel, "_leave", leave):
        yield


@planted(sharpen=_promptly)
def a_producer_does_not_have_the_wheel_woken() -> Iterator[None]:
    with patch("hourwheel.producing.produce.ensure_wheel_by", lambda *_, **__: None):
        yield


def _without_ticks(plan: Plan) -> Plan:
    plan = _promptly(plan)
    assert plan.delays is not None
    return replace(plan, delays=replace(plan.delays, tick_ms=0))


@planted(sharpen=_without_ticks)
def a_wheel_sleeps_past_an_earlier_message_stored_meanwhile() -> Iterator[None]:
    def ensure_wheel_by(context: Context, bucket: Bucket, due_ms: int, **how: Any) -> None:
        real(replace(context, wheel_wakeups=NoWheelWakeups()), bucket, due_ms, **how)

    real = lease._ensure_wheel_by
    with patch.object(lease, "_ensure_wheel_by", ensure_wheel_by):
        yield


def _cancellers_beside_sleeping_wheels(plan: Plan) -> Plan:
    """Returns a plan without faults in which moves are cut off: a wheel may rest for longer than a caller waits."""
    plan = _without_ticks(plan)
    assert plan.delays is not None
    return replace(plan, sweepers=2, delays=replace(plan.delays, share=1.0, cancellers=3, patience=0.4))


@planted(sharpen=_cancellers_beside_sleeping_wheels)
def a_wheel_sleeps_past_a_cancel_marker() -> Iterator[None]:
    def append_marker(self: ScheduledMessages, *what: Any) -> Any:
        return real(replace(self, context=replace(self.context, wheel_wakeups=NoWheelWakeups())), *what)

    real = ScheduledMessages._append_marker
    with patch.object(ScheduledMessages, "_append_marker", append_marker):
        yield


@planted(sharpen=_cancellers_beside_sleeping_wheels)
def the_sweeper_leaves_a_move_that_was_cut_off_for_an_hour() -> Iterator[None]:
    def finish_changes(self: ScheduledMessages, contained: Any, **how: Any) -> str:
        return real(self, contained, **{**how, "older_ms": 3_600_000})

    real = ScheduledMessages.finish_changes
    with patch.object(ScheduledMessages, "finish_changes", finish_changes):
        yield


@planted(sharpen=_senders_at_the_end_of_a_bucket)
def a_bucket_is_closed_before_its_exact_end_is_read() -> Iterator[None]:
    def close(self: Wheel, now_ms: int) -> WheelEnd | None:
        end = self._log.totals().rows
        if self._state is WheelState.CLOSING and self._reader.next_row < end:
            self._reader.next_row = end
        return real(self, now_ms)

    real = Wheel._close
    with patch.object(Wheel, "_close", close):
        yield


@planted(sharpen=waiting(calls=600))
def a_bucket_is_removed_by_age() -> Iterator[None]:
    def drop(context: Context, *_: object) -> int:
        now_ms = context.clock.now_ms()
        entries = buckets.stored_buckets(context, before_ms=now_ms)
        over = [(bucket, current) for bucket, current in entries if bucket.end_ms + 60_000 <= now_ms]
        return sum(maintenance._drop(context, bucket, current, now_ms + 30_000) for bucket, current in over)

    with patch("hourwheel.sweep.delayed.drop_closed", drop):
        yield


@planted(sharpen=_senders_at_the_end_of_a_bucket)
def a_message_that_comes_too_late_goes_to_its_sealed_bucket() -> Iterator[None]:
    def reserve_open(context: Context, bucket: Bucket, count: int) -> tuple[Bucket, Reservation]:
        buckets.register(context, bucket)
        log = context.log(bucket.log)
        try:
            return bucket, log.reserve(count)
        except Sealed:
            total = log.totals()
            return bucket, Reservation(log.name, total.rows, total.numbers)

    with patch.object(buckets, "reserve_open", reserve_open):
        yield


@planted(sharpen=_owners_that_crash)
def a_new_owner_forgets_what_was_handed_over() -> Iterator[None]:
    def read(self: BucketReader) -> None:
        real(self)
        self._handed_over = array("q")

    real = BucketReader.read_dispatched
    with patch.object(BucketReader, "read_dispatched", read):
        yield


@planted(sharpen=_owners_that_pause)
def a_row_that_was_filled_is_not_reserved_anew() -> Iterator[None]:
    def put(self: Dispatcher, *what: Any) -> None:
        try:
            real(self, *what)
        except Filled:
            return

    real = Dispatcher._put
    with patch.object(Dispatcher, "_put", put):
        yield


@planted(sharpen=waiting(retry=RetryPolicy(first_seconds=1), calls=400))
def a_retry_goes_to_all_groups_after_its_delay() -> Iterator[None]:
    def reserve(self: Settler, *what: Any) -> Any:
        transfers = real(self, *what)
        return tuple(
            transfer
            if transfer.due_times is None
            else msgspec.structs.replace(transfer, due_times=msgspec.structs.replace(transfer.due_times, member=None))
            for transfer in transfers
        )

    real = Settler._reserve
    with patch.object(Settler, "_reserve", reserve):
        yield


@planted(sharpen=waiting(retry=RetryPolicy(first_seconds=5), calls=250))
def a_retry_is_served_at_once() -> Iterator[None]:
    def reserve(self: Settler, row: Any, parsed: ParsedSettlement) -> Any:
        return real(self, row, replace(parsed, delays_ms=dict.fromkeys(parsed.retried, 0)))

    real = Settler._reserve
    with patch.object(Settler, "_reserve", reserve):
        yield


@planted(sharpen=waiting(skew_ms=4_000, calls=900, wheels=3, leaves_seconds=5))
def the_times_of_a_dispatch_log_go_back_with_the_clock() -> Iterator[None]:
    def time(self: Ownership) -> int:
        return self._context.clock.now_ms()

    with patch.object(Ownership, "time", time):
        yield


@planted(sharpen=waiting(calls=600))
def a_message_is_due_when_the_first_of_its_batch_is() -> Iterator[None]:
    with patch.object(Note, "due_ms", lambda self, index: self.first_ms):
        yield


@planted(sharpen=waiting(own_retries=True, calls=400))
def a_lease_that_ends_forgets_what_was_said_of_the_attempt_before() -> Iterator[None]:
    def changed(message: Message, transfer: Transfer, detail: str | None) -> Message:
        return msgspec.structs.replace(real(message, transfer, detail), detail=detail)

    real = copies._changed
    with patch.object(copies, "_changed", changed):
        yield
