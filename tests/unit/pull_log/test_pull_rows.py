"""A pull row names its messages, and the store may remove it only once they are settled."""

import msgspec
import pytest

from hourwheel.handover.handover import Transfer
from hourwheel.logs.index_sets import pack, set_of
from hourwheel.pull_log.ordered_rows import Order, OrderedRow, bits
from hourwheel.pull_log.records import CLOSED, CLOSING, OPEN, SETTLED, SETTLED_KEPT_MS, Position, PullRow

FIELDS = {
    "consumer": "c1",
    "end": Position(9),
    "end_seq": 90,
    "claim": b"c" * 16,
    "claimed_ms": 0,
    "lease_until_ms": 30_000,
}
A, B, C = b"aaaaaa", b"bbbbbb", b"cccccc"


def row(first: Position, *counts: int, **fields: object) -> PullRow:
    return PullRow(first=first, counts=counts, **FIELDS, **fields)


def transfer(token: bytes) -> Transfer:
    return Transfer(
        kind="retry",
        log="orders~1/retry/billing~1",
        row_no=3,
        first_seq=30,
        token=token,
        at_ms=5,
        expires_ms=9,
        picks=((4, 0),),
    )


def test_a_pull_begins_in_the_middle_of_its_first_row() -> None:
    assert row(Position(4, 2), 2, 1).positions() == [Position(4, 2), Position(4, 3), Position(5, 0)]


def test_a_pull_passes_over_rows_without_messages() -> None:
    assert row(Position(4), 1, 0, 2).positions() == [Position(4, 0), Position(6, 0), Position(6, 1)]


def test_a_pull_of_a_filtered_group_names_the_messages_that_it_takes() -> None:
    picks = (pack(set_of([1, 5])), None, pack(set_of([0])))
    filtered = row(Position(4, 1), 2, 0, 1, picks=picks)
    assert filtered.positions() == [Position(4, 1), Position(4, 5), Position(6, 0)]
    assert filtered.size == 3


def test_unsettled_messages_are_those_that_no_settlement_has_named() -> None:
    assert row(Position(4), 4, settled=frozenset({0, 2})).unsettled() == [1, 3]


def test_only_a_closed_row_may_be_removed_and_only_days_later() -> None:
    closed = row(Position(4), 1).closed(SETTLED, 7_000)
    assert (closed.state, closed.garbage_ms) == (CLOSED, 7_000 + SETTLED_KEPT_MS)
    assert row(Position(4), 1).garbage_ms is None
    assert msgspec.structs.replace(closed, state=CLOSING).garbage_ms is None


def test_a_row_closes_when_its_last_transfer_is_done_and_remembers_where_the_messages_went() -> None:
    closing = row(Position(4), 2, state=CLOSING, transfers=(transfer(b"1"), transfer(b"2")))
    half = closing.left_with((transfer(b"2"),))
    assert (half.state, len(half.transfers), len(half.moved)) == (CLOSING, 1, 1)
    done = half.left_with(())
    assert (done.state, [(moved.log, moved.row_no, moved.picks) for moved in done.moved]) == (
        CLOSED,
        [("orders~1/retry/billing~1", 3, ((4, 0),))] * 2,
    )


def test_an_open_row_stays_open_when_its_transfers_are_done() -> None:
    assert row(Position(4), 2, state=OPEN, transfers=(transfer(b"1"),)).left_with(()).state == OPEN


# Ordered groups


def ordered(first: Position, *counts: int, order: Order | None, **fields: object) -> OrderedRow:
    return OrderedRow(first=first, counts=counts, order=order, **FIELDS, **fields)


def test_an_ordered_pull_hands_out_parked_messages_first_and_parks_what_it_does_not_take() -> None:
    order = Order(digests=A + B + C + B, taken=bits([0, 2], 3), parked=((1, 4, 2),))
    row = ordered(Position(3, 1), 2, 1, order=order)
    taken, divided = row.messages(), row.divided()
    assert [(digest, parked.row_no, parked.in_row, parked.attempt) for digest, parked in taken] == [
        (A, 1, 4, 2),
        (B, 3, 1, 1),
        (B, 4, 0, 1),
    ]
    assert [(digest, parked.position) for digest, parked in divided.parks] == [(C, Position(3, 2))]
    assert divided.parked == taken[:1]
    assert divided.taken == {A, B}


def test_the_size_of_an_ordered_pull_counts_what_it_hands_out() -> None:
    order = Order(digests=A + B + C, taken=bits([1], 2), parked=((0, 0, 1),))
    assert ordered(Position(3), 2, order=order).size == 2
    assert ordered(Position(3), order=None).size == 0


@pytest.mark.parametrize(("taken", "covered"), [([], 0), ([0], 1), ([7, 8], 9), ([0, 15], 16)])
def test_a_bit_for_each_covered_message_takes_no_more_bytes_than_it_needs(taken: list[int], covered: int) -> None:
    stored = bits(taken, covered)
    assert len(stored) == -(-covered // 8)
    assert [number for number in range(covered) if stored[number >> 3] >> (number & 7) & 1] == taken


def test_a_message_is_decided_once_it_is_settled_or_its_row_is_not_open() -> None:
    order = Order(digests=A + B, taken=bits([0, 1], 2))
    half = ordered(Position(3), 2, order=order, settled=frozenset({0}))
    assert (half.decided(0), half.decided(1)) == (True, False)
    assert msgspec.structs.replace(half, state=CLOSING).decided(1)
