"""The answer to a settlement whose pull row need not change, decided without a store."""

import msgspec
import pytest

from hourwheel.model.pulls import Settled, Settlement
from hourwheel.pull_log.parsed_settlements import parse_settlement
from hourwheel.pull_log.records import CLOSED, CLOSING, EXPIRED, OPEN, SETTLED, Position, PullRow
from hourwheel.settling.settle import answer_without_change

CLAIM = b"c" * 16
ROW = PullRow(
    consumer="c1",
    first=Position(0),
    counts=(3,),
    end=Position(1),
    end_seq=3,
    claim=CLAIM,
    claimed_ms=0,
    lease_until_ms=30_000,
)
ACK = parse_settlement(Settlement(receipt="r", ack=[0, 1]), 3)
EXTEND = parse_settlement(Settlement(receipt="r", extend_seconds=60), 3)


def answer(row: PullRow, decision: object = ACK, claim: bytes = CLAIM) -> Settled | None:
    return answer_without_change(row, claim, decision)


def after_ack(**changes: object) -> PullRow:
    return msgspec.structs.replace(ROW, last=ACK.mark, settled=ACK.named, **changes)


def test_an_open_pull_has_to_change() -> None:
    assert answer(ROW) is None
    assert answer(ROW, EXTEND) is None


@pytest.mark.parametrize("decision", [ACK, EXTEND])
def test_a_receipt_of_another_claim_is_stale(decision: object) -> None:
    assert answer(ROW, decision, claim=b"d" * 16) == Settled("stale")


@pytest.mark.parametrize(
    ("row", "status"),
    [
        (after_ack(), "open"),
        (after_ack(state=CLOSING, outcome=SETTLED), "settled"),
        (after_ack(state=CLOSED, outcome=SETTLED), "settled"),
        (after_ack(state=CLOSED, outcome=EXPIRED), "open"),
    ],
)
def test_a_settlement_whose_answer_was_lost_gets_it_again_also_when_the_lease_has_ended(
    row: PullRow, status: str
) -> None:
    assert answer(row) == Settled(status)


@pytest.mark.parametrize("decision", [ACK, EXTEND])
@pytest.mark.parametrize("outcome", [SETTLED, EXPIRED])
def test_a_pull_that_was_settled_otherwise_or_whose_lease_ended_is_stale(decision: object, outcome: int) -> None:
    assert answer(msgspec.structs.replace(ROW, state=CLOSED, outcome=outcome), decision) == Settled("stale")


def test_messages_that_are_settled_already_need_no_change() -> None:
    row = msgspec.structs.replace(ROW, settled=frozenset({0, 1}), last=b"another")
    assert answer(row) == Settled("open")
    assert answer(row, EXTEND) is None
    assert row.state == OPEN
