"""Plants bugs of messages that are claimed ahead: the real code with one clause left out."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec

from hourwheel.pull_log import pull_log
from hourwheel.pull_log.claiming import ahead
from hourwheel.pull_log.claiming.claim_range import ClaimRange
from hourwheel.pull_log.claiming.others import Others
from hourwheel.pull_log.parsed_settlements import ParsedSettlement
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import OPEN, PullRow
from hourwheel.settling.settle import Settler
from tests.simulation.bugs import Bug, registrar
from tests.simulation.crowds import with_crowd
from tests.simulation.faults import Faults
from tests.simulation.growthbugs import uncompared
from tests.simulation.plan import Plan

AHEAD: list[Bug] = []
planted = registrar(AHEAD)


def _crowded(plan: Plan) -> Plan:
    plan = with_crowd(replace(plan, alone_pulls=3, grows_ms=2_000), Random(plan.seed))
    return replace(
        plan,
        transactional=False,
        faults=Faults(crash=0.01, pause=0.03),
        producers=1,
        moves=("seek",),
        broadcast_seconds=0,
        groups=("a",),
        subjects=("s",),
        cells=0,
        archivists=0,
        calls=1_200,
        lease_seconds=5,
        max_attempts=16,
        retention_seconds=259_200,
        quiet_days=False,
        skew_ms=0,
        delays=None,
    )


@planted(sharpen=_crowded)
def the_next_row_begins_at_the_messages_that_are_kept() -> Iterator[None]:
    def keep_ahead(taken: ClaimRange, *rest: Any) -> None:
        end, end_seq = taken.end, taken.end_seq
        real(taken, *rest)
        taken.end, taken.end_seq = end, end_seq

    real = ahead.keep_ahead
    with patch.object(pull_log, "keep_ahead", keep_ahead):
        yield


@planted(sharpen=_crowded)
def kept_messages_are_taken_without_a_look_at_the_token() -> Iterator[None]:
    with uncompared(lambda row: row.base):
        yield


@planted(sharpen=_crowded)
def a_settlement_acknowledges_the_kept_messages_too() -> Iterator[None]:
    def settled_row(self: Settler, row: PullRow, parsed: ParsedSettlement, outcome: int) -> PullRow:
        return real(self, row, replace(parsed, named=parsed.named | row.kept), outcome)

    real = Settler._settled_row
    with patch.object(Settler, "_settled_row", settled_row):
        yield


@planted(sharpen=_crowded)
def the_kept_messages_are_released_and_go_on_to_be_kept() -> Iterator[None]:
    def settled_row(self: Settler, row: PullRow, parsed: ParsedSettlement, outcome: int) -> PullRow:
        after = real(self, row, parsed, outcome)
        return after if after.state != OPEN else msgspec.structs.replace(after, settled=after.settled - row.kept)

    real = Settler._settled_row
    with patch.object(Settler, "_settled_row", settled_row):
        yield


@planted(sharpen=_crowded)
def the_own_rows_of_a_consumer_count_as_rows_of_others() -> Iterator[None]:
    def joined(self: Others, rows: Iterable[PullRow], consumer: str) -> Others:
        return real(self, rows, f"not {consumer}")

    real = Others.joined
    with patch.object(Others, "joined", joined):
        yield


@planted(sharpen=_crowded)
def rows_before_the_one_that_is_settled_are_not_looked_at() -> Iterator[None]:
    with patch.object(PullLog, "_holds_before", lambda self, before, request, tail: False):
        yield
