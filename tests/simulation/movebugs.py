"""Plants bugs of moves between cells."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

from hourwheel.cells import cell_storage, move_steps, moves, withdrawals
from hourwheel.context import Context
from hourwheel.delay.dispatch import Dispatcher
from hourwheel.delay.held_batches import HeldBatches
from hourwheel.errors import NoAccess, Unavailable
from hourwheel.logs.cas import CasRecord, CasResult, Versioned
from hourwheel.logs.log import Log
from hourwheel.model.pulls import Settled
from hourwheel.model.routes import MoveTarget, Route, RouteChange
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Counter
from hourwheel.reach.pauses import Pauses
from hourwheel.registry.records import subject_record
from hourwheel.settling.settlements import Settlements
from tests.simulation.bugs import Bug, registrar
from tests.simulation.draws import delayed, with_cells, with_outages
from tests.simulation.faults import Faults
from tests.simulation.plan import Plan

MOVED: list[Bug] = []
planted = registrar(MOVED)


def _moving(plan: Plan) -> Plan:
    return with_cells(plan, 2)


@planted(sharpen=_moving)
def the_new_mapping_begins_before_the_seal_is_exact() -> Iterator[None]:
    def seal(self: Log) -> Counter:
        before = self.totals()
        real(self)
        return before

    real = Log.seal
    with patch.object(Log, "seal", seal):
        yield


@planted(sharpen=_moving)
def the_old_log_is_not_sealed() -> Iterator[None]:
    with patch.object(Log, "seal", Log.totals):
        yield


@planted(sharpen=_moving)
def the_counter_of_the_new_log_is_not_raised() -> Iterator[None]:
    with patch.object(Log, "begin", lambda self, first_seq: self.totals()):
        yield


def _settling_beside_outages(plan: Plan) -> Plan:
    plan = with_outages(_moving(plan))
    return replace(plan, moves=("move", "move", "outage", "outage"), operators=3, consumers=3, faults=Faults())


@planted(sharpen=_settling_beside_outages)
def settlements_in_a_cell_that_is_out_of_reach_are_answered_settled() -> Iterator[None]:
    with patch.object(Settlements, "unreached", lambda *arguments: [Settled("settled") for _ in arguments[2]]):
        yield


@planted(sharpen=_moving)
def the_epoch_goes_back() -> Iterator[None]:
    def carried_out(
        context: Context, subject: Subject, change: RouteChange
    ) -> tuple[Subject | None, Unavailable | None]:
        after, held_up = real(context, subject, change)
        if after is not None and subject.epoch:
            after = moves.msgspec.structs.replace(after, epoch=subject.epoch - 1)
        return after, held_up

    real = moves.carried_out
    with patch.object(moves, "carried_out", carried_out):
        yield


@planted(sharpen=_moving)
def a_new_log_takes_the_name_of_one_that_was_used() -> Iterator[None]:
    def target(self: Route, queue: int, cell: str) -> MoveTarget:
        return MoveTarget(queue, cell, 1, 1)

    with patch.object(Route, "target", target):
        yield


def _withdrawing(plan: Plan) -> Plan:
    moves = ("move", "move", "outage", "withdraw", "withdraw")
    return replace(with_outages(with_cells(plan, 2)), moves=moves, operators=3, faults=Faults(crash=0.02))


@planted(sharpen=_withdrawing)
def a_withdrawal_overwrites_a_move_that_was_carried_out() -> Iterator[None]:
    class Overwriting(CasRecord[Subject]):
        def swap(self, before: Versioned[Subject] | None, value: Subject, **_: Any) -> CasResult[Subject]:
            current = self.load()
            return super().swap(current, value)

    def record(context: Context, name: str) -> CasRecord[Subject]:
        real = subject_record(context, name)
        return Overwriting(real.store, real.ids, real.key, real.kind)

    with patch.object(withdrawals, "subject_record", record):
        yield


def _delayed_and_out_of_reach(plan: Plan) -> Plan:
    plan = with_outages(with_cells(delayed(plan, Random(plan.seed)), 1))
    assert plan.delays is not None
    delays = replace(
        plan.delays, share=1.0, shards=1, reach_ms=20_000, batches=4, wheels=3, leaves_seconds=5, prompt=False
    )
    moves = ("move", "move", "outage")
    # No consumers: see ``with_outages``.
    plan = replace(
        plan, consumers=0, transactional=False, faults=Faults(), calls=1_500, quiet_days=False, delays=delays
    )
    return replace(plan, moves=moves, operators=2, registry_seconds=0.0, start_ms=delays.bucket_minutes * 60_000 // 2)


@planted(sharpen=_delayed_and_out_of_reach)
def messages_for_a_cell_that_is_out_of_reach_are_forgotten() -> Iterator[None]:
    with patch.object(HeldBatches, "hold", lambda *_: None):
        yield


def _moving_to_full_cells(plan: Plan) -> Plan:
    moves = ("move", "move", "outage", "outage")
    plan = with_outages(with_cells(plan, 2))
    return replace(plan, moves=moves, operators=3, producers=3, faults=Faults(), subjects=("s",), spanning=False)


@planted(sharpen=_moving_to_full_cells)
def a_move_seals_before_its_target_is_proven_and_waits_for_a_full_one() -> Iterator[None]:
    def taken_over(context: Context, subject: Subject, target: MoveTarget) -> tuple[int, int]:
        context.log(subject.log_of(target.queue, target)).totals()
        end = move_steps._ended(context, subject, target)
        context.log(subject.log_of(target.queue, target)).begin(end[0])
        return end

    with patch.object(move_steps, "_taken_over", taken_over):
        yield


@planted(sharpen=_moving_to_full_cells)
def an_error_of_a_cell_that_is_full_is_taken_for_one_of_the_home_cell() -> Iterator[None]:
    with patch.object(cell_storage, "OUT_OF_REACH", (Unavailable, NoAccess)):
        yield


@planted(sharpen=_delayed_and_out_of_reach)
def a_cell_that_is_out_of_reach_ends_the_wheel() -> Iterator[None]:
    def failed(self: Pauses, log: str, error: Unavailable) -> None:
        raise error

    with patch.object(Pauses, "failed", failed):
        yield


@planted(sharpen=_delayed_and_out_of_reach)
def a_transfer_to_a_cell_that_is_out_of_reach_is_forgotten() -> Iterator[None]:
    def after(self: Dispatcher, step: Any, batches: Any) -> Any:
        step.open.clear()
        return real(self, step, batches)

    real = Dispatcher._after
    with patch.object(Dispatcher, "_after", after):
        yield
