"""A settlement of an ordered pull decides about each message without a store."""

from typing import Any

import pytest

from hourwheel.model.group_settings import WhenDead
from hourwheel.model.groups import Group, RetryPolicy
from hourwheel.model.pulls import RetryLater, Settlement
from hourwheel.ordered.settle import OrderedOutcome, settle_in_order
from hourwheel.pull_log.ordered_rows import STOPPED_MS, Order, OrderedRow, bits
from hourwheel.pull_log.parsed_settlements import parse_settlement
from hourwheel.pull_log.records import Position

NOW_MS = 1_000_000
POLICY = RetryPolicy(first_seconds=5, factor=2)
A, B = b"aaaaaa", b"bbbbbb"


def pull_of(*keys: bytes, settled: frozenset[int] = frozenset(), attempt: int = 1) -> OrderedRow:
    """Returns a pull that handed out one parked message of the first key, and one covered message of each other key."""
    order = Order(digests=b"".join(keys), taken=bits(range(len(keys) - 1), len(keys) - 1), parked=((0, 4, attempt),))
    return OrderedRow(
        consumer="c1",
        first=Position(2),
        counts=(len(keys) - 1,),
        end=Position(3),
        end_seq=9,
        claim=b"c" * 16,
        claimed_ms=0,
        lease_until_ms=30_000,
        settled=settled,
        order=order,
    )


def group(*, most: int = 3, when_dead: WhenDead = "continue") -> Group:
    return Group(
        subject="orders",
        subject_generation=1,
        name="ledger",
        generation=1,
        start="earliest",
        max_attempts=most,
        created_ms=0,
        ordered=True,
        when_dead=when_dead,
    )


def settle(row: OrderedRow, owner: Group | None = None, **lists: Any) -> OrderedOutcome:
    asked = parse_settlement(Settlement(receipt="r", **lists), row.size)
    return settle_in_order(row, asked, owner or group(), POLICY, NOW_MS)


def test_acknowledged_messages_leave_nothing_behind() -> None:
    assert settle(pull_of(A, B, A)) == OrderedOutcome()


def test_a_retried_message_is_parked_for_its_next_attempt_and_later_ones_of_its_key_are_released() -> None:
    assert settle(pull_of(A, B, A), retry=[0]).failed == [(0, 2, NOW_MS + 5_000), (2, 1, NOW_MS)]


def test_messages_before_the_failed_one_and_of_other_keys_stay_acknowledged() -> None:
    assert settle(pull_of(A, B, A), retry=[2]).failed == [(2, 2, NOW_MS + 5_000)]


def test_later_messages_of_the_key_are_released_although_the_settlement_does_not_name_them() -> None:
    assert settle(pull_of(A, B, A), ack=[], retry=[0]).failed == [(0, 2, NOW_MS + 5_000), (2, 1, NOW_MS)]
    assert settle(pull_of(A, A, B, A), ack=[1], release=[0]).failed == [(0, 1, NOW_MS), (1, 1, NOW_MS), (3, 1, NOW_MS)]
    assert settle(pull_of(A, A, A), ack=[0], retry=[1]).failed == [(1, 2, NOW_MS + 5_000), (2, 1, NOW_MS)]
    assert settle(pull_of(A, A, settled=frozenset({1})), ack=[], retry=[0]).failed == [(0, 2, NOW_MS + 5_000)]


def test_a_message_that_becomes_a_dead_letter_leaves_unnamed_ones_of_its_key_leased() -> None:
    assert settle(pull_of(A, A), ack=[], dead=[0]) == OrderedOutcome(rejected=[0])


def test_the_wait_of_the_policy_grows_with_the_attempt() -> None:
    assert settle(pull_of(A, B, attempt=2), retry=[0]).failed == [(0, 3, NOW_MS + 10_000)]


def test_a_delay_of_the_settlement_counts_instead_of_the_policy() -> None:
    later = [RetryLater(index=0, delay="10m")]
    assert settle(pull_of(A, B), retry=later).failed == [(0, 2, NOW_MS + 600_000)]


def test_a_released_message_keeps_its_attempt_and_can_be_pulled_at_once() -> None:
    assert settle(pull_of(A, B, attempt=2), release=[0]).failed == [(0, 2, NOW_MS)]


def test_a_message_becomes_a_dead_letter_after_its_last_attempt_and_its_key_goes_on() -> None:
    outcome = settle(pull_of(A, B, A, attempt=3), retry=[0])
    assert (outcome.spent, outcome.rejected, outcome.failed) == ([0], [], [])


def test_a_rejected_message_becomes_a_dead_letter_and_its_key_goes_on() -> None:
    outcome = settle(pull_of(A, B, A), dead=[0])
    assert (outcome.spent, outcome.rejected, outcome.failed) == ([], [0], [])


@pytest.mark.parametrize("lists", [{"dead": [0]}, {"retry": [0]}], ids=["rejected", "after its last attempt"])
def test_a_key_that_stops_keeps_the_message_at_its_place_and_those_behind_it_untried(lists: dict[str, Any]) -> None:
    outcome = settle(pull_of(A, B, A, attempt=3), group(when_dead="stop"), **lists)
    assert outcome.failed == [(0, 3, STOPPED_MS), (2, 1, NOW_MS)]
    assert (outcome.spent, outcome.rejected) == ([], [])


def test_messages_that_were_settled_before_are_not_decided_again() -> None:
    assert settle(pull_of(A, B, settled=frozenset({0})), retry=[0, 1]).failed == [(1, 2, NOW_MS + 5_000)]


def test_messages_that_the_settlement_does_not_name_stay_leased_before_a_failed_one_and_in_other_keys() -> None:
    assert settle(pull_of(A, B, A), ack=[], retry=[2]).failed == [(2, 2, NOW_MS + 5_000)]
