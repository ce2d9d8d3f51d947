"""Plants bugs of pull rows that grow: the real code with one clause left out."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import msgspec

from hourwheel.context import Context
from hourwheel.logs.cas import CasRecord, CasResult, Versioned
from hourwheel.model.pulls import Settlement
from hourwheel.pull_log import pull_log
from hourwheel.pull_log.claiming import growth
from hourwheel.pull_log.claiming.claims import Claim
from hourwheel.pull_log.parsed_settlements import ParsedSettlement, parse_settlement
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import Position, PullRow
from hourwheel.pulling import answers
from hourwheel.settling import settlements
from hourwheel.settling.lease_watch import LeaseWatch
from tests.simulation.bugs import Bug, registrar
from tests.simulation.draws import damaged
from tests.simulation.faults import NONE, Faults
from tests.simulation.plan import Plan

GROWN: list[Bug] = []
planted = registrar(GROWN)


def _steady(plan: Plan) -> Plan:
    return replace(
        plan,
        transactional=False,
        faults=Faults(crash=0.01, pause=0.03),
        producers=2,
        consumers=2,
        sweepers=1,
        operators=1,
        moves=("seek",),
        groups=("a",),
        subjects=("s",),
        queues=1,
        calls=900,
        lease_seconds=5,
        max_attempts=16,
        retention_seconds=259_200,
        quiet_days=False,
        steady=0.8,
        alone_pulls=1,
        grows_ms=60_000,
        skew_ms=0,
    )


def _alone(plan: Plan) -> Plan:
    return replace(_steady(plan), consumers=1, operators=0, moves=(), faults=Faults(lose=0.05))


def _checkpointed(plan: Plan) -> Plan:
    """Sharpens a plan: rows are closed and checkpoints saved."""
    return replace(_steady(plan), sweepers=2, operators=0, moves=(), consumers=2, calls=1_500)


class _Careless(PullLog):
    def end_growth(self, row_no: int, seen: Versioned[PullRow]) -> CasResult[PullRow]:
        return CasResult(True, Versioned(seen.value.final(), seen.token))


@contextmanager
def _growth_goes_on_in(method: str) -> Iterator[None]:
    """Has this method of a pull log put a row behind one whose end is not final."""

    def calling(self: PullLog, *arguments: Any) -> Any:
        # Not a patch around the call: other actors run within it.
        careless = object.__new__(_Careless)
        careless.__dict__.update(self.__dict__)
        return real(careless, *arguments)

    real = getattr(PullLog, method)
    with patch.object(PullLog, method, calling):
        yield


@planted(sharpen=_steady)
def a_claim_does_not_end_the_growth_of_the_row_before_it() -> Iterator[None]:
    with _growth_goes_on_in("claim"):
        yield


@planted(sharpen=_steady)
def a_seek_does_not_end_the_growth_of_the_row_before_it() -> Iterator[None]:
    with _growth_goes_on_in("seek"):
        yield


@contextmanager
def uncompared(concerns: Callable[[PullRow], object]) -> Iterator[None]:
    """Lets claims that go on in such a row overwrite whatever the row has become."""

    def swap(self: CasRecord[Any], before: Versioned[Any] | None, value: Any, **rest: Any) -> CasResult[Any]:
        goes_on = before is not None and isinstance(value, PullRow) and rest.get("token") == value.claim
        if goes_on and concerns(value):
            current = self.store.get(self.key)
            before = None if current is None else Versioned(value, current.token)
        return real(self, before, value, **rest)

    real = CasRecord.swap
    with patch.object(CasRecord, "swap", swap):
        yield


@planted(sharpen=_steady)
def a_growth_does_not_compare_the_token() -> Iterator[None]:
    with uncompared(lambda row: True):
        yield


@planted(sharpen=_steady)
def a_growth_keeps_the_mark_of_the_settlement() -> Iterator[None]:
    def grown(row: PullRow, *claim: Any) -> PullRow:
        acknowledged = parse_settlement(Settlement(receipt=""), row.size)
        return msgspec.structs.replace(real(row, *claim), last=acknowledged.mark)

    real = growth.grown
    with patch.object(pull_log, "grown", grown):
        yield


@planted(sharpen=_alone)
def a_receipt_counts_from_the_start_of_its_row() -> Iterator[None]:
    def parsed(settlement: Settlement, size: int, base: int = 0) -> ParsedSettlement:
        return parse_settlement(settlement, size)

    with patch.object(settlements, "parse_settlement", parsed):
        yield


@planted(sharpen=_checkpointed)
def a_look_passes_a_row_that_still_grows() -> Iterator[None]:
    def record(self: Any, row_no: int, row: PullRow) -> None:
        real(self, row_no, row)
        self.scanned = self.tail

    real = LeaseWatch.record
    with patch.object(LeaseWatch, "record", record):
        yield


@planted(sharpen=_steady)
def a_row_grows_although_its_claim_ends_within_a_batch() -> Iterator[None]:
    def may_grow(claimed: PullRow, *settlement: Any) -> bool:
        return real(msgspec.structs.replace(claimed, end=Position(claimed.end.row_no)), *settlement)

    real = growth.may_grow
    with patch.object(pull_log, "may_grow", may_grow):
        yield


def _unreadable(plan: Plan) -> Plan:
    return damaged(replace(_alone(plan), faults=NONE))


@planted(sharpen=_unreadable)
def a_row_that_grew_hands_nothing_out_if_one_of_its_batches_cannot_be_read() -> Iterator[None]:
    def exclude(context: Context, log: PullLog, claim: Claim, counts: tuple[int, ...]) -> Versioned[PullRow] | None:
        changed = real(context, log, claim, counts)
        return None if claim.pull_row.value.base else changed

    real = answers.exclude_unreadable
    with patch.object(answers, "exclude_unreadable", exclude):
        yield
