"""Plants bugs again that the simulator found in the library: undoes their fixes one by one.

A seed is no lasting regression test, because every change of the simulator gives it another meaning. A test that undoes
the fix, and finds the bug again, is one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec

from hourwheel.context import Context
from hourwheel.dead_letters.dead import DeadLetters
from hourwheel.delay.changes import ScheduledMessages
from hourwheel.delay.wheel import Wheel, WheelEnd
from hourwheel.errors import Corrupt, Unavailable
from hourwheel.groups import progress
from hourwheel.groups.progress import SeekTarget
from hourwheel.handover import copies
from hourwheel.handover.copies import with_position
from hourwheel.logs.cas import Versioned
from hourwheel.logs.large_batches import messages_of
from hourwheel.logs.log import Log, Reservation
from hourwheel.logs.rows import Row
from hourwheel.model.groups import Group
from hourwheel.model.messages import Message
from hourwheel.model.pulls import Settled
from hourwheel.model.subjects import Subject
from hourwheel.producing.batch_writer import BatchWriter
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import EXPIRED, Position, PullRow
from hourwheel.registry.records import group_record, subject_record
from hourwheel.registry.registry import Registry
from hourwheel.settling import settle
from hourwheel.settling.settle import Settler
from hourwheel.sweep import erasure
from hourwheel.sweep.erasure import LogErasure
from hourwheel.trace import history
from hourwheel.trace.claims import Claims, claims_of
from tests.simulation.bugs import Bug, registrar
from tests.simulation.draws import delayed
from tests.simulation.faults import Faults
from tests.simulation.plan import Plan

FOUND: list[Bug] = []
planted = registrar(FOUND)


@planted(lambda plan: "seek" in plan.moves)
def a_seek_to_the_start_passes_a_row_on_its_way() -> Iterator[None]:
    def to_start(log: PullLog) -> SeekTarget:
        first = log.source.first()
        return SeekTarget(Position(first[0] if first else log.source.trimmed()), 0)

    with patch("hourwheel.groups.progress.to_start", to_start):
        yield


def _seeks_beside_slow_producers(plan: Plan) -> Plan:
    return replace(plan, transactional=False, moves=("seek",), operators=3, faults=Faults(pause=0.05), calls=400)


@planted(sharpen=_seeks_beside_slow_producers)
def a_seek_by_time_or_offset_that_meets_an_open_row_goes_to_the_end() -> Iterator[None]:
    def search(log: Log, reached: Any) -> tuple[int, Row | None]:
        number, row = real(log, reached)
        return (number, row) if row else (log.totals().rows, None)

    real = progress._search
    with patch.object(progress, "_search", search):
        yield


def _short_retention(plan: Plan) -> Plan:
    return replace(
        plan,
        transactional=False,
        trims=True,
        retention_seconds=60,
        faults=Faults(pause=0.04),
        long_pauses=True,
        skew_ms=0,
        calls=500,
        sweepers=2,
        consumers=3,
        lease_seconds=5,
        quiet_days=False,
    )


@planted(sharpen=_short_retention)
def a_lease_outlives_its_messages_and_cannot_be_ended() -> Iterator[None]:
    def fetch(
        context: Context, source: Log, queue: int | None, picks: Iterable[tuple[int, int]], **_: bool
    ) -> list[tuple[tuple[int, int], Message]]:
        found = []
        for number, index in picks:
            row = source.get(number)
            if row is None:
                raise Corrupt(f"row {number} of {source.name} is gone")
            found.append(((number, index), with_position(row, messages_of(row, context.blobs), queue)[index]))
        return found

    with patch.object(copies, "read_messages", fetch), patch.object(settle, "read_messages", fetch):
        yield


@planted(lambda plan: "delete-group" in plan.moves)
def a_deleted_group_makes_settling_fail() -> Iterator[None]:
    with patch.object(Settler, "apply", Settler._apply_parsed):
        yield


@planted(lambda plan: "delete-group" in plan.moves)
def a_deleted_group_makes_the_sweep_fail() -> Iterator[None]:
    def take_over(self: Settler, number: int, current: Versioned[PullRow]) -> bool:
        return self.context.atomically(lambda context: self.on(context).expire(number, current))

    with patch.object(Settler, "take_over", take_over), patch.object(DeadLetters, "sweep", DeadLetters._sweep):
        yield


def _leases_that_end_during_an_answer(plan: Plan) -> Plan:
    return replace(
        plan,
        transactional=False,
        faults=Faults(pause=0.08, lose=0.1),
        long_pauses=True,
        latency_ms=80,
        consumers=3,
        sweepers=2,
        operators=0,
        lease_seconds=1,
        max_attempts=16,
        groups=("a",),
        calls=350,
        quiet_days=False,
    )


@planted(sharpen=_leases_that_end_during_an_answer)
def a_settlement_that_was_made_is_answered_stale() -> Iterator[None]:
    def settled(self: Settler, number: int, *settlement: Any) -> Settled:
        answer = real(self, number, *settlement)
        current = self.log.record(number).load()
        return Settled("stale") if current is not None and current.value.outcome == EXPIRED else answer

    real = Settler.apply
    with patch.object(Settler, "apply", settled):
        yield


@planted(lambda plan: plan.keyed > 0 and plan.long_pauses and plan.retention_seconds == 60)
def a_keyed_batch_past_its_retention_is_answered_unstored() -> Iterator[None]:
    def put(self: Log, reservation: Reservation, row: Row, token: bytes) -> None:
        if row.expires_ms > self.clock.now_ms():
            real(self, reservation, row, token)

    real = Log.put
    with patch.object(Log, "put", put):
        yield


@planted(lambda plan: plan.spanning and "delete-subject" in plan.moves)
def a_batch_over_subjects_is_stored_again_when_one_is_deleted() -> Iterator[None]:
    def store(self: Any) -> Any:
        inputs = self._inputs()
        parts = self._split(inputs)
        rows = self._rows(parts, inputs.at_ms, inputs.batch)
        reservations = [self.context.log(part.log).append(row) for part, row in zip(parts, rows, strict=True)]
        return self._stored(inputs.batch, parts, reservations)

    with patch.object(BatchWriter, "store", store):
        yield


def _cut_off_batches_beside_deletions(plan: Plan) -> Plan:
    return replace(
        plan,
        faults=Faults(crash=0.03, pause=0.03, lose=0.03),
        latency_ms=20,
        registry_seconds=2.0,
        moves=("delete-subject",),
        operators=2,
        producers=3,
        keyed=1.0,
        resends=True,
        spanning=True,
        calls=500,
        quiet_days=False,
    )


@planted(sharpen=_cut_off_batches_beside_deletions)
def a_key_of_a_deleted_subject_puts_rows_in_the_new_one() -> Iterator[None]:
    with patch.object(BatchWriter, "_generations", {}):
        yield


def _deletions_beside_old_caches(plan: Plan) -> Plan:
    return replace(
        plan,
        transactional=False,
        faults=Faults(pause=0.05, crash=0.01),
        latency_ms=20,
        registry_seconds=10.0,
        moves=("delete-subject",),
        operators=2,
        producers=2,
        consumers=3,
        subjects=("s",),
        spanning=False,
        calls=700,
        quiet_days=False,
    )


@planted(sharpen=_deletions_beside_old_caches)
def a_process_that_knows_the_old_subject_replaces_a_group_of_the_new_one() -> Iterator[None]:
    def change_group(self: Registry, subject: Subject, name: str, change: Any, **rest: Any) -> Group:
        try:
            return real(self, subject, name, change, **rest)
        except Unavailable:
            record = group_record(self.context, subject.name, name)
            current = record.load()
            if current is None or current.value.subject_generation <= subject.generation:
                raise
            fresh = msgspec.structs.replace(
                current.value, subject_generation=subject.generation, generation=current.value.generation + 1
            )
            record.swap(current, fresh)
            return fresh

    def group(self: Registry, subject: Subject, name: str, **rest: Any) -> Group:
        try:
            return real_group(self, subject, name, **rest)
        except Unavailable:
            return self.change_group(subject, name, lambda group: group)

    real, real_group = Registry.change_group, Registry.group
    with patch.object(Registry, "change_group", change_group), patch.object(Registry, "group", group):
        yield


@planted(lambda plan: "delete-subject" in plan.moves)
def a_subject_is_made_again_while_the_old_one_takes_messages() -> Iterator[None]:
    def erase(self: Registry, tombstone: Subject) -> None:
        if not tombstone.erased:
            erasure.erase_subject(self.context, tombstone, self._of_generation(tombstone))
            self._erased(subject_record(self.context, tombstone.name), tombstone)

    with (
        patch.object(LogErasure, "erase_subject", lambda *_: None),
        patch.object(Registry, "erase_subject", erase),
    ):
        yield


@planted(lambda plan: plan.quiet_days)
def a_pull_is_held_for_days() -> Iterator[None]:
    def extended(self: Settler, row: PullRow, seconds: int) -> PullRow:
        return msgspec.structs.replace(row, lease_until_ms=self.context.clock.now_ms() + seconds * 1_000)

    with patch.object(Settler, "_extended", extended):
        yield


def _delayed_messages(plan: Plan) -> Plan:
    plan = delayed(plan, Random(plan.seed))
    assert plan.delays is not None
    return replace(
        plan,
        transactional=False,
        faults=Faults(crash=0.01, lose=0.1, late=0.04, pause=0.02),
        calls=900,
        delays=replace(
            plan.delays,
            share=1.0,
            shards=1,
            reach_ms=20_000,
            batches=4,
            wheels=3,
            leaves_seconds=0,
            cancellers=2,
            patience=0.4,
            pace=10,
            prompt=False,
        ),
    )


def _short_turns_and_lost_numbers(plan: Plan) -> Plan:
    plan = _delayed_messages(plan)
    assert plan.delays is not None
    faults = Faults(crash=0.02, lose=0.25)
    return replace(plan, faults=faults, skew_ms=4_000, delays=replace(plan.delays, leaves_seconds=5, cancellers=3))


@planted(sharpen=_short_turns_and_lost_numbers)
def a_new_wheel_stops_reading_at_a_hole_before_the_strike() -> Iterator[None]:
    def turn(self: Wheel, *pause: Any) -> WheelEnd | None:
        self._must_read = 0
        return real(self, *pause)

    real = Wheel.turn
    with patch.object(Wheel, "turn", turn):
        yield


@planted(sharpen=_delayed_messages)
def a_position_is_told_before_its_row_stands() -> Iterator[None]:
    with patch.object(ScheduledMessages, "_row_is_stored", lambda *_: True):
        yield


def _owners_that_crash_when_all_is_done(plan: Plan) -> Plan:
    plan = _delayed_messages(plan)
    assert plan.delays is not None
    return replace(plan, faults=Faults(crash=0.04), delays=replace(plan.delays, leaves_seconds=5, cancellers=3))


@planted(sharpen=_owners_that_crash_when_all_is_done)
def a_move_waits_for_the_owner_of_a_closed_bucket() -> Iterator[None]:
    with patch.object(ScheduledMessages, "_is_closed", lambda *_: False):
        yield


def _days_after_the_pulls(plan: Plan) -> Plan:
    plan = replace(plan, transactional=False, trims=True, quiet_days=True, retention_seconds=30 * 86_400)
    return replace(plan, sweepers=max(1, plan.sweepers), moves=("seek",), operators=1)


@planted(sharpen=_days_after_the_pulls)
def a_trace_is_complete_though_pull_rows_were_removed() -> Iterator[None]:
    def claims(log: PullLog, position: Position) -> Claims:
        return claims_of(log, position)._replace(complete=True)

    with patch.object(history, "claims_of", claims):
        yield
