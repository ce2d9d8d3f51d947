"""Plants bugs that show only with stored batches that cannot be read, or with large ones."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec

from hourwheel.context import Context
from hourwheel.model.messages import Message
from hourwheel.pull_log.claiming.claims import Claim, ClaimRequest, ClaimResult
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import UNREADABLE
from hourwheel.pulling import answers
from tests.simulation.bugs import Bug, registrar
from tests.simulation.draws import damaged, enlarged
from tests.simulation.faults import NONE
from tests.simulation.plan import Plan

SPOILT: list[Bug] = []
planted = registrar(SPOILT)


def _damaged(plan: Plan) -> Plan:
    return damaged(replace(plan, faults=NONE, calls=350))


@planted(sharpen=_damaged)
def an_unreadable_batch_takes_its_neighbours_along() -> Iterator[None]:
    def exclude(context: Context, log: PullLog, claim: Claim, counts: tuple[int, ...]) -> None:
        value = msgspec.structs.replace(claim.pull_row.value, counts=(0,) * len(counts))
        closed = value.closed(UNREADABLE, context.clock.now_ms())
        log.record(claim.row_no).swap(claim.pull_row, closed, expires_ms=closed.garbage_ms)

    with patch.object(answers, "exclude_unreadable", exclude):
        yield


@planted(sharpen=_damaged)
def the_messages_behind_an_unreadable_batch_get_its_indexes() -> Iterator[None]:
    def exclude(context: Context, log: PullLog, claim: Claim, counts: tuple[int, ...]) -> Any:
        return claim.pull_row

    with patch.object(answers, "exclude_unreadable", exclude):
        yield


def _large(plan: Plan) -> Plan:
    return replace(enlarged(plan, Random(plan.seed)), answer_bytes=1_300)


@planted(sharpen=_large)
def a_message_that_is_larger_than_an_answer_is_never_claimed() -> Iterator[None]:
    def claim(self: PullLog, request: ClaimRequest) -> ClaimResult:
        return real(self, request._replace(strict_bytes=True))

    real = PullLog.claim
    with patch.object(PullLog, "claim", claim):
        yield


@planted(sharpen=_large)
def the_rest_of_a_large_batch_begins_at_its_start() -> Iterator[None]:
    def read(context: Context, log: PullLog, claim: Claim) -> tuple[tuple[int, ...], list[Message]]:
        (row_no, row), value = claim.rows[0], claim.pull_row.value
        if row.large_batch is not None:
            first = msgspec.structs.replace(value.first, row_no=row_no, index=0)
            value = msgspec.structs.replace(value, first=first)
        return real(context, log, replace(claim, pull_row=replace(claim.pull_row, value=value)))

    real = answers.read_claim
    with patch.object(answers, "read_claim", read):
        yield
