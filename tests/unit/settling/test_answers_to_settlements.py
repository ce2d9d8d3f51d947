"""The answer to a settlement whose pull row need not change, decided without a store."""

from typing import Any

import msgspec
import pytest

from hourwheel.handover.copies import RETRY
from hourwheel.model.pulls import Settled, Settlement
from hourwheel.pull_log.ordered_rows import Order, OrderedRow, bits
from hourwheel.pull_log.parsed_settlements import parse_settlement
from hourwheel.pull_log.records import CLOSED, CLOSING, EXPIRED, OPEN, PASSED, SETTLED, SOUGHT, Moved, Position, PullRow
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


def moved_to_retries(pick: tuple[int, int]) -> Moved:
    return Moved(RETRY, "orders~1/retry/billing~1", 4, 7, 20_000, (pick,))


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


@pytest.mark.parametrize("outcome", [SOUGHT, PASSED])
def test_a_pull_that_was_not_settled_by_its_consumer_is_stale(outcome: int) -> None:
    assert answer(msgspec.structs.replace(ROW, state=CLOSED, outcome=outcome)) == Settled("stale")


@pytest.mark.parametrize("outcome", [SETTLED, EXPIRED])
@pytest.mark.parametrize("lists", [{"extend_seconds": 60}, {"retry": [0]}, {"ack": [0], "dead": [1]}])
def test_a_closed_pull_does_not_tell_whether_another_settlement_was_made(lists: dict[str, Any], outcome: int) -> None:
    decision = parse_settlement(Settlement(receipt="r", **lists), 3)
    assert answer(msgspec.structs.replace(ROW, state=CLOSED, outcome=outcome), decision) == Settled("stale")


@pytest.mark.parametrize(
    ("state", "outcome", "status"),
    [(CLOSED, SETTLED, "settled"), (CLOSING, SETTLED, "settled"), (CLOSED, EXPIRED, "open")],
)
def test_a_closed_pull_tells_that_messages_were_acknowledged_which_no_other_log_took(
    state: int, outcome: int, status: str
) -> None:
    closed = msgspec.structs.replace(ROW, state=state, outcome=outcome, last=b"another")
    assert answer(closed) == Settled(status)
    assert answer(msgspec.structs.replace(closed, moved=(moved_to_retries((0, 2)),))) == Settled(status)
    assert answer(msgspec.structs.replace(closed, moved=(moved_to_retries((0, 1)),))) == Settled("stale")


def test_an_ordered_pull_tells_that_messages_were_parked_again() -> None:
    order = Order(digests=b"a" * 6 + b"b" * 6 + b"c" * 6, taken=bits(range(3), 3))
    row = OrderedRow(**msgspec.structs.asdict(ROW) | {"order": order, "state": CLOSED, "outcome": SETTLED})
    assert answer(row) == Settled("settled")
    failed = msgspec.structs.replace(order, failed=((1, 2, 9_000),))
    assert answer(msgspec.structs.replace(row, order=failed)) == Settled("stale")
    assert answer(msgspec.structs.replace(row, moved=(moved_to_retries((0, 1)),))) == Settled("stale")


def test_messages_that_are_settled_already_need_no_change() -> None:
    row = msgspec.structs.replace(ROW, settled=frozenset({0, 1}), last=b"another")
    assert answer(row) == Settled("open")
    assert answer(row, EXTEND) is None
    assert row.state == OPEN


GIVEN_BACK = [
    {"ack": [], "retry": [0]},
    {"ack": [], "release": [0]},
    {"ack": [], "dead": [0]},
    {"ack": [1], "retry": [0]},
]


@pytest.mark.parametrize("lists", GIVEN_BACK)
def test_an_acknowledged_message_cannot_be_given_back_or_rejected_any_more(lists: dict[str, Any]) -> None:
    decision = parse_settlement(Settlement(receipt="r", **lists), 3)
    row = msgspec.structs.replace(ROW, settled=frozenset({0, 1}), last=b"another")
    assert answer(row, decision) == Settled("stale")
    assert answer(msgspec.structs.replace(row, moved=(moved_to_retries((0, 0)),)), decision) == Settled("open")


@pytest.mark.parametrize("lists", GIVEN_BACK)
def test_an_acknowledged_message_of_an_ordered_group_cannot_be_given_back_either(lists: dict[str, Any]) -> None:
    decision = parse_settlement(Settlement(receipt="r", **lists), 3)
    order = Order(digests=b"a" * 6 + b"b" * 6 + b"c" * 6, taken=bits(range(3), 3))
    settled = {"order": order, "settled": frozenset({0, 1}), "last": b"another"}
    row = OrderedRow(**msgspec.structs.asdict(ROW) | settled)
    assert answer(row, decision) == Settled("stale")
    if "dead" not in lists:
        failed = msgspec.structs.replace(order, failed=((0, 2, 9_000),))
        assert answer(msgspec.structs.replace(row, order=failed), decision) == Settled("open")
