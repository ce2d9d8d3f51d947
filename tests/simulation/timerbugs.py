"""Plants bugs of wheels that are started by precise timers: the real code with one clause left out."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec

from hourwheel.buckets import lease
from hourwheel.buckets.buckets import Bucket
from hourwheel.buckets.lease import WheelOwner
from hourwheel.context import Context
from hourwheel.delay import maintenance
from hourwheel.delay import wheel as wheels
from hourwheel.delay.ownership import Ownership
from hourwheel.delay.timing import DueGroup, TimingWheel
from hourwheel.delay.wheel_steps import NextStarts, next_starts
from tests.simulation.bugs import Bug, registrar
from tests.simulation.draws import delayed, precisely, prompt
from tests.simulation.faults import Faults
from tests.simulation.plan import Plan

TIMED: list[Bug] = []
planted = registrar(TIMED)


def _in_time(plan: Plan) -> Plan:
    """Returns a plan without faults but timers that never fire: messages must arrive in time all the same."""
    plan = prompt(delayed(plan, Random(plan.seed)), Random(plan.seed))
    assert plan.delays is not None
    delays = replace(plan.delays, share=0.7, tick_ms=500, cancellers=plan.seed % 3)
    return precisely(replace(plan, faults=Faults(forget=0.2), consumers=1, calls=2_500, delays=delays))


def _by_the_minute(plan: Plan) -> Plan:
    """Returns a plan as ``_in_time`` does, with messages that may come a minute late."""
    plan = _in_time(plan)
    assert plan.delays is not None
    return replace(plan, delays=replace(plan.delays, minute=0.8))


def _at_the_end_of_a_bucket(plan: Plan) -> Plan:
    """Returns a plan in which wheels have left and nothing is left when their bucket ends, and producers stall."""
    plan = delayed(plan, Random(plan.seed))
    assert plan.delays is not None
    delays = replace(
        plan.delays,
        bucket_minutes=5,
        shards=1,
        share=1.0,
        reach_ms=5_000,
        batches=20,
        patience=0.3,
        tick_ms=500,
        pace=10,
    )
    return precisely(
        replace(
            plan,
            transactional=False,
            trims=False,
            faults=Faults(pause=0.05),
            long_pauses=True,
            skew_ms=0,
            producers=3,
            consumers=1,
            sweepers=2,
            start_ms=240_000,
            calls=1_500,
            delays=replace(delays, prompt=False),
        )
    )


@planted(sharpen=_in_time)
def a_wheel_leaves_without_a_start_though_messages_wait() -> Iterator[None]:
    def at_the_end(*, end_ms: int, **_: Any) -> NextStarts:
        return NextStarts(end_ms, 0)

    with patch.object(wheels, "next_starts", at_the_end):
        yield


@planted(sharpen=_in_time)
def a_start_that_did_not_come_is_not_missed() -> Iterator[None]:
    def lacks_wheel(owner: WheelOwner | None, *what: Any) -> bool:
        return not (owner is not None and owner.left) and real(owner, *what)

    real = maintenance.lacks_wheel
    with patch.object(maintenance, "lacks_wheel", lacks_wheel):
        yield


@planted(sharpen=_in_time)
def a_process_relies_on_a_start_that_comes_too_late() -> Iterator[None]:
    def ensure_start(context: Context, bucket: Bucket, *what: Any, **more: Any) -> None:
        if bucket.name not in context.hints.wakes_ms:
            real(context, bucket, *what, **more)

    real = lease._ensure_start
    with patch.object(lease, "_ensure_start", ensure_start):
        yield


@planted(sharpen=_in_time)
def an_earlier_message_leaves_the_recorded_start_as_it_is() -> Iterator[None]:
    def planned_start(owner: WheelOwner | None, *what: Any, **more: Any) -> WheelOwner | None:
        return real(owner, *what, **more) if owner is None else None

    real = lease.planned_start
    with patch.object(lease, "planned_start", planned_start):
        yield


@planted(sharpen=_in_time)
def a_wheel_sleeps_past_its_next_message() -> Iterator[None]:
    def late(*, due_ms: int | None, **what: Any) -> NextStarts:
        return next_starts(due_ms=None if due_ms is None else due_ms + 120_000, **what)

    with patch.object(wheels, "next_starts", late):
        yield


@planted(sharpen=_at_the_end_of_a_bucket)
def a_wheel_says_that_nothing_is_left_though_messages_wait() -> Iterator[None]:
    def leave(self: Ownership, read_below: int, **what: Any) -> None:
        real(self, read_below, **{**what, "drained": True})

    real = Ownership.leave
    with patch.object(Ownership, "leave", leave):
        yield


@planted(sharpen=_by_the_minute)
def a_wheel_leaves_without_a_coarse_start_though_messages_wait() -> Iterator[None]:
    def without(**what: Any) -> NextStarts:
        return next_starts(**{**what, "minute_due_ms": None})

    with patch.object(wheels, "next_starts", without):
        yield


@planted(sharpen=_by_the_minute)
def a_coarse_start_that_did_not_come_is_not_missed() -> Iterator[None]:
    def lacks_wheel(owner: WheelOwner | None, *what: Any) -> bool:
        return real(owner and msgspec.structs.replace(owner, minute_ms=0), *what)

    real = maintenance.lacks_wheel
    with patch.object(maintenance, "lacks_wheel", lacks_wheel):
        yield


@planted(sharpen=_by_the_minute)
def a_wheel_takes_what_is_due_within_the_minute() -> Iterator[None]:
    def take(self: TimingWheel, now_ms: int) -> list[DueGroup]:
        return real(self, now_ms + 60_000)

    real = TimingWheel.take
    with patch.object(TimingWheel, "take", take):
        yield


@planted(sharpen=_by_the_minute)
def a_precise_message_relies_on_a_coarse_start() -> Iterator[None]:
    def planned_start(
        owner: WheelOwner | None, bucket: Bucket, need_ms: int, *what: Any, **more: Any
    ) -> WheelOwner | None:
        if owner is not None and 0 < owner.minute_ms <= need_ms:
            return None
        return real(owner, bucket, need_ms, *what, **more)

    real = lease.planned_start
    with patch.object(lease, "planned_start", planned_start):
        yield
