"""Ordered groups: the messages of a key are served one after the other, and a key that fails holds back itself only."""

from typing import Any

import pytest
from msgspec import UNSET

from hourwheel.errors import Conflict, Rejected
from hourwheel.model.groups import PushTarget, RetryPolicy
from hourwheel.model.lag import HeldKeys
from hourwheel.model.log_names import records_of
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import Pull, RetryLater
from hourwheel.model.targets import Outcome
from hourwheel.ordered import parked_messages
from hourwheel.ports.storage import Key, Table
from hourwheel.push.decisions import PusherEnd as Ended
from hourwheel.push.pusher import Pusher
from hourwheel.times import rfc3339
from tests.support import AT_ONCE, Bench


@pytest.fixture
def ordered(bench: Bench) -> Bench:
    return with_group(bench)


def with_group(bench: Bench, **settings: Any) -> Bench:
    bench.deployment.groups.put("orders", "billing", ordered=True, **{"retry": AT_ONCE, **settings})
    return bench


def send(bench: Bench, *names: str) -> None:
    """Sends messages of which the first letter is the key, in one batch."""
    bench.deployment.produce("orders", [NewMessage(body=name, key=name[0]) for name in names])


def one(bench: Bench, limit: int = 100, **how: Any) -> Pull:
    (pull,) = bench.pull(limit, **how)
    return pull


def bodies(pull: Pull) -> list[str | None]:
    return [message.body for message in pull.messages]


def test_a_key_in_flight_is_passed_over_and_another_key_is_served(ordered: Bench) -> None:
    send(ordered, "a1", "a2", "b1", "a3")
    first = one(ordered, 1)
    assert bodies(first) == ["a1"]
    assert ordered.bodies() == ["b1"]
    assert ordered.bodies() == []
    ordered.settle(first)
    assert ordered.bodies() == ["a2", "a3"]


def test_one_pull_may_hold_several_messages_of_a_key_in_their_order(ordered: Bench) -> None:
    send(ordered, "a1", "b1", "a2", "b2")
    assert ordered.bodies() == ["a1", "b1", "a2", "b2"]
    send(ordered, "a3", "c1")
    assert ordered.bodies() == ["c1"]


def test_a_failed_message_comes_again_before_what_follows_of_its_key(ordered: Bench) -> None:
    send(ordered, "a1", "b1", "a2", "b2")
    pull = one(ordered, 2)
    assert bodies(pull) == ["a1", "b1"]
    assert ordered.settle(pull, retry=[0]) == "settled"
    again = one(ordered)
    assert [(message.body, message.attempt) for message in again.messages] == [("a1", 2), ("a2", 1), ("b2", 1)]


def test_messages_behind_a_failed_one_in_the_same_pull_are_released_with_it(ordered: Bench) -> None:
    send(ordered, "a1", "b1", "a2", "a3")
    assert ordered.settle(one(ordered), retry=[0], dead=[3]) == "settled"
    again = one(ordered)
    assert [(message.body, message.attempt) for message in again.messages] == [("a1", 2), ("a2", 1), ("a3", 1)]


def test_a_key_waits_for_its_retry_and_no_other_key_does(bench: Bench) -> None:
    ordered = with_group(bench, retry=RetryPolicy(first_seconds=60))
    send(ordered, "a1", "a2", "b1")
    ordered.settle(one(ordered, 1), retry=[0])
    others = one(ordered)
    assert bodies(others) == ["b1"]
    ordered.settle(others)
    send(ordered, "a3", "c1")
    others = one(ordered)
    assert bodies(others) == ["c1"]
    ordered.settle(others)
    ordered.clock.pass_time(59)
    assert ordered.bodies() == []
    ordered.clock.pass_time(1)
    assert ordered.bodies() == ["a1", "a2", "a3"]


def test_a_consumer_may_choose_the_delay(ordered: Bench) -> None:
    send(ordered, "a1", "a2")
    ordered.settle(one(ordered, 1), retry=[RetryLater(index=0, delay="10m")])
    ordered.clock.pass_time(599)
    assert ordered.bodies() == []
    ordered.clock.pass_time(1)
    assert ordered.bodies() == ["a1", "a2"]


def test_a_released_message_comes_again_at_its_place_with_the_same_attempt(ordered: Bench) -> None:
    send(ordered, "a1", "a2")
    ordered.settle(one(ordered, 1), release=[0])
    assert [(message.body, message.attempt) for message in ordered.take()] == [("a1", 1), ("a2", 1)]


def test_when_a_lease_ends_its_messages_come_again_one_by_one_in_the_order_of_their_keys(bench: Bench) -> None:
    ordered = with_group(bench, retry_percent=100)
    send(ordered, "a1", "b1", "a2")
    one(ordered, lease=10)
    ordered.clock.pass_time(10)
    send(ordered, "c1")
    first, second, third = one(ordered), one(ordered), one(ordered)
    assert [bodies(pull) for pull in (first, second, third)] == [["a1"], ["b1"], ["c1"]]
    assert ordered.pull() == []
    ordered.settle(first)
    (behind,) = one(ordered).messages
    assert (behind.body, behind.attempt) == ("a2", 1)


def test_a_partly_settled_pull_keeps_its_keys_busy_until_all_of_theirs_is_settled(ordered: Bench) -> None:
    send(ordered, "a1", "a2", "b1")
    pull = one(ordered)
    send(ordered, "a3", "b2")
    assert ordered.settle(pull, ack=[0, 2]) == "open"
    assert ordered.bodies() == ["b2"]
    assert ordered.settle(pull, ack=[1]) == "settled"
    assert ordered.bodies() == ["a3"]


def test_a_retry_of_a_later_message_waits_for_the_earlier_one_of_its_key(ordered: Bench) -> None:
    send(ordered, "a1", "a2")
    pull = one(ordered)
    assert ordered.settle(pull, ack=[], retry=[1]) == "open"
    assert ordered.bodies() == []
    assert ordered.settle(pull, ack=[], retry=[0]) == "settled"
    assert [(message.body, message.attempt) for message in ordered.take()] == [("a1", 2), ("a2", 2)]


@pytest.mark.parametrize("fails", ["retry", "release"])
@pytest.mark.parametrize("how", [{"ack": [1]}, {"ack": [1, 2]}, {"ack": [], "dead": [1]}, {"ack": [2], "dead": [1]}])
def test_a_settlement_of_a_message_that_was_released_with_another_one_is_stale(
    ordered: Bench, fails: str, how: dict[str, list[int]]
) -> None:
    send(ordered, "a1", "a2", "b1", "c1")
    pull = one(ordered)
    assert ordered.settle(pull, **{"ack": [], fails: [0]}) == "open"
    assert ordered.settle(pull, ack=[2]) == "open"
    assert ordered.settle(pull, **how) == "stale"
    assert ordered.settle(pull, ack=[2]) == "open"
    assert ordered.settle(pull, **{"ack": [], fails: [0, 1]}) == "open", "both come again, as this settlement asks"
    assert ordered.settle(pull, ack=[3]) == "settled"
    assert ordered.bodies() == ["a1", "a2"]
    assert ordered.deployment.dead_letters("orders", "billing").page(after=None, limit=10).messages == []


def test_a_settlement_that_released_a_message_itself_gets_the_same_answer_again(ordered: Bench) -> None:
    send(ordered, "a1", "a2", "b1", "c1")
    pull = one(ordered)
    for how in ({"ack": [1], "retry": [0]}, {"ack": [2]}, {"ack": [1], "retry": [0]}):
        assert ordered.settle(pull, **how) == "open"


def test_after_its_last_attempt_a_message_is_a_dead_letter_and_its_key_goes_on(bench: Bench) -> None:
    ordered = with_group(bench, max_attempts=2)
    send(ordered, "a1", "a2")
    for _ in range(2):
        pull = one(ordered, 1)
        ordered.settle(pull, retry=[0])
    (letter,) = ordered.deployment.dead_letters("orders", "billing").page(after=None, limit=10).messages
    assert (letter.body, letter.attempt, letter.reason) == ("a1", 2, "attempts")
    assert ordered.bodies() == ["a2"]


def test_a_message_without_a_key_has_no_order_to_keep(ordered: Bench) -> None:
    ordered.send("x", "y", "z")
    first = one(ordered, 1)
    assert ordered.bodies(1) == ["y"]
    ordered.settle(first, retry=[0])
    assert ordered.bodies() == ["x", "z"]


def test_another_process_knows_what_is_parked_and_what_is_busy(ordered: Bench) -> None:
    send(ordered, "a1", "a2", "b1", "a3", "c1")
    first = one(ordered, 1)
    assert ordered.bodies(1) == ["b1"]
    ordered.deployment = ordered.another_process()
    assert ordered.bodies() == ["c1"]
    ordered.deployment = ordered.another_process()
    ordered.settle(first, retry=[0])
    ordered.deployment = ordered.another_process()
    assert ordered.bodies(2) == ["a1", "a2"]


def test_a_process_that_begins_at_a_snapshot_knows_what_is_parked(bench: Bench) -> None:
    ordered = with_group(bench, retry_percent=100)
    send(ordered, "a1", "a2", "b1", "b2")
    first = one(ordered, 1)
    second = one(ordered, 1)
    assert bodies(second) == ["b1"]
    ordered.settle(second, retry=[RetryLater(index=0, delay="10m")])
    ordered.settle(first, extend_seconds=600)
    ordered.clock.pass_time(61)
    ordered.deployment.sweeper.sweep()
    key = Key(Table.PULL, "billing~1@orders~1/0", f"{1:016d}")
    settled = ordered.store.get(key)
    assert settled is not None
    ordered.store.delete(key, expect=settled.token)  # as the store does some days later
    ordered.deployment = ordered.another_process()
    assert ordered.bodies() == []
    ordered.clock.pass_time(540)
    served = []
    while pulls := ordered.pull():
        served += [bodies(pull) for pull in pulls]
        ordered.settle(pulls[0])
    assert served == [["a1"], ["a2", "b1", "b2"]]


def test_what_has_expired_while_it_was_parked_is_dropped(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", retention_seconds=60)
    ordered = with_group(bench)
    send(ordered, "a1", "a2")
    pull = one(ordered, 1)
    ordered.clock.pass_time(1)
    send(ordered, "a3", "b1")
    other = one(ordered)
    assert bodies(other) == ["b1"]
    ordered.settle(other)
    ordered.settle(pull, retry=[RetryLater(index=0, delay=59)])
    ordered.clock.pass_time(59)
    assert ordered.bodies() == ["a3"]


def test_a_seek_to_the_end_skips_what_was_never_handed_out(ordered: Bench) -> None:
    send(ordered, "a1", "a2", "b1")
    first = one(ordered, 1)
    assert ordered.bodies() == ["b1"]
    ordered.deployment.seeks().seek("orders", "billing", to="end")
    ordered.settle(first, retry=[0])
    assert ordered.bodies() == ["a1"]


def test_a_seek_to_the_start_hands_all_out_again_and_no_message_twice(ordered: Bench) -> None:
    send(ordered, "a1", "a2", "b1")
    first = one(ordered, 1)
    assert ordered.bodies(1) == ["b1"]
    ordered.deployment.seeks().seek("orders", "billing", to="start")
    assert ordered.bodies() == []
    ordered.settle(first, retry=[0])
    assert ordered.bodies() == ["a1", "a2"]


def test_from_a_number_of_parked_messages_on_the_queue_waits(ordered: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parked_messages, "MAX_PARKED", 2)
    send(ordered, "a1", "a2", "a3", "b1", "a4", "c1")
    first = one(ordered, 1)
    assert ordered.bodies() == ["b1"]
    assert ordered.bodies() == []
    ordered.settle(first)
    assert ordered.bodies() == ["a2", "a3", "a4", "c1"]


def test_a_group_stays_ordered_or_not(ordered: Bench) -> None:
    with pytest.raises(Conflict, match="delete the group and create it again"):
        ordered.deployment.groups.put("orders", "billing", ordered=False)
    ordered.deployment.groups.put("orders", "audit")
    with pytest.raises(Conflict, match="'audit' was created with ordered false, which cannot change"):
        ordered.deployment.groups.put("orders", "audit", ordered=True)
    with pytest.raises(Rejected, match="max_held is a setting of ordered groups"):
        ordered.deployment.groups.put("orders", "audit", max_held=5)
    assert ordered.deployment.groups.put("orders", "billing", max_held=5).ordered


def test_a_deleted_group_leaves_no_snapshot(ordered: Bench) -> None:
    send(ordered, "a1")
    one(ordered)
    ordered.deployment.groups.delete("orders", "billing")
    assert ordered.store.get(Key(Table.META, records_of("billing~1@orders~1/0"), "parked")) is None


def stopped(bench: Bench) -> Bench:
    """Returns a group in which key a has stopped with its first message, and b has not."""
    ordered = with_group(bench, max_attempts=1, when_dead="stop")
    send(ordered, "a1", "a2", "b1")
    ordered.settle(one(ordered), retry=[0])
    return ordered


def test_a_key_that_stops_waits_for_an_operator_and_the_others_go_on(bench: Bench) -> None:
    ordered = stopped(bench)
    send(ordered, "a3", "b2")
    other = one(ordered)
    assert bodies(other) == ["b2"]
    ordered.settle(other)
    ordered.clock.pass_time(86_400)
    ordered.deployment = ordered.another_process()
    assert ordered.bodies() == []
    held = ordered.deployment.groups.lag("orders", "billing").held
    assert isinstance(held, HeldKeys)
    assert (held.keys, held.parked) == (1, 3)
    assert [(key.key, key.offset, key.stopped, key.behind) for key in held.first] == [("a", 0, True, 2)]


def test_a_stopped_key_goes_on_with_another_first_attempt(bench: Bench) -> None:
    ordered = stopped(bench)
    assert ordered.deployment.groups.decide("orders", "billing", frozenset("a"), "retry") == 1
    assert [(message.body, message.attempt) for message in ordered.take()] == [("a1", 1), ("a2", 1)]


def test_a_stopped_key_goes_on_without_its_first_message(bench: Bench) -> None:
    ordered = stopped(bench)
    assert ordered.deployment.groups.decide("orders", "billing", None, "dead") == 1
    assert ordered.deployment.groups.decide("orders", "billing", None, "dead") == 0
    (letter,) = ordered.deployment.dead_letters("orders", "billing").page(after=None, limit=10).messages
    assert (letter.body, letter.attempt, letter.reason) == ("a1", 1, "attempts")
    assert ordered.bodies() == ["a2"]


def test_a_consumer_that_rejects_a_message_stops_its_key(bench: Bench) -> None:
    ordered = with_group(bench, when_dead="stop")
    send(ordered, "a1", "a2")
    ordered.settle(one(ordered), dead=[0])
    assert ordered.bodies() == []
    assert ordered.deployment.groups.lag("orders", "billing").dead == 0


def test_only_ordered_groups_have_stopped_keys(ordered: Bench) -> None:
    ordered.deployment.groups.put("orders", "audit")
    with pytest.raises(Rejected, match="is not ordered"):
        ordered.deployment.groups.decide("orders", "audit", None, "retry")


def test_the_lag_tells_the_age_of_the_oldest_parked_message_where_nothing_else_waits(bench: Bench) -> None:
    ordered = with_group(bench, max_attempts=1, when_dead="stop")
    sent_ms = ordered.clock.now_ms()
    send(ordered, "a1")
    ordered.clock.pass_time(60)
    ordered.settle(one(ordered), retry=[0])
    send(ordered, "a2", "b1")
    ordered.settle(one(ordered))
    assert ordered.deployment.groups.lag("orders", "billing").oldest_at == rfc3339(sent_ms)
    (group,) = ordered.deployment.overview.groups("orders", "", 1).groups
    assert group.oldest_at == rfc3339(sent_ms)
    ordered.deployment.groups.decide("orders", "billing", None, "dead")
    ordered.settle(one(ordered))
    assert ordered.deployment.groups.lag("orders", "billing").oldest_at is None


def test_the_lag_counts_what_is_parked_and_says_which_queue_waits(bench: Bench) -> None:
    ordered = with_group(bench, max_held=2, retry=RetryPolicy(first_seconds=60))
    send(ordered, "a1", "a2", "b1", "a3", "c1")
    ordered.settle(one(ordered, 1), retry=[0])
    (other,) = ordered.pull(1)
    assert bodies(other) == ["b1"]
    lag = ordered.deployment.groups.lag("orders", "billing")
    assert (lag.waiting, lag.in_flight, lag.retrying, lag.backing_off) == (3, 1, 0, 1)
    assert isinstance(lag.held, HeldKeys)
    assert (lag.held.keys, lag.held.parked, lag.held.full) == (1, 2, [])
    ordered.settle(other, retry=[0])
    assert ordered.bodies() == []
    lag = ordered.deployment.groups.lag("orders", "billing")
    assert (lag.waiting, lag.in_flight, lag.retrying, lag.backing_off) == (3, 0, 0, 2)
    assert isinstance(lag.held, HeldKeys)
    assert (lag.held.keys, lag.held.parked, lag.held.full) == (2, 3, [0])
    ordered.clock.pass_time(60)
    lag = ordered.deployment.groups.lag("orders", "billing")
    assert (lag.retrying, lag.backing_off) == (2, 0)


def counted(bench: Bench) -> tuple[int, int, int, int]:
    lag = bench.deployment.groups.lag("orders", "billing")
    return lag.waiting, lag.in_flight, lag.retrying, lag.backing_off


def held_offsets(bench: Bench) -> list[int]:
    held = bench.deployment.groups.lag("orders", "billing").held
    assert isinstance(held, HeldKeys)
    assert held.keys == len(held.first)
    return [each.offset for each in held.first]


def test_what_is_parked_behind_a_stopped_message_waits_and_is_no_retry(bench: Bench) -> None:
    ordered = with_group(bench, max_attempts=1, when_dead="stop")
    send(ordered, "a1", "a2", "a3")
    ordered.settle(one(ordered), retry=[0])
    assert ordered.bodies() == []
    assert counted(ordered) == (2, 0, 0, 0)
    ordered.deployment.groups.decide("orders", "billing", None, "retry")
    assert counted(ordered) == (0, 0, 3, 0)
    assert ordered.bodies() == ["a1", "a2", "a3"]


def test_what_is_parked_behind_a_message_that_backs_off_waits(bench: Bench) -> None:
    ordered = with_group(bench, retry=RetryPolicy(first_seconds=60))
    send(ordered, "a1", "a2")
    ordered.settle(one(ordered), retry=[0])
    assert counted(ordered) == (1, 0, 0, 1)
    ordered.clock.pass_time(60)
    assert counted(ordered) == (0, 0, 2, 0)


def test_a_key_is_not_held_while_its_first_message_is_in_flight_again(ordered: Bench) -> None:
    send(ordered, "a1", "a2")
    ordered.settle(one(ordered), retry=[0])
    assert held_offsets(ordered) == [0]
    again = one(ordered, 1)
    assert bodies(again) == ["a1"]
    assert held_offsets(ordered) == []
    assert counted(ordered) == (1, 1, 0, 0)
    ordered.settle(again)
    assert held_offsets(ordered) == []
    assert counted(ordered) == (0, 0, 1, 0)


def test_a_key_is_held_by_its_failed_message_and_not_by_those_released_with_it(ordered: Bench) -> None:
    send(ordered, "a1", "a2")
    ordered.settle(one(ordered), ack=[], retry=[0])
    assert held_offsets(ordered) == [0]
    assert counted(ordered) == (0, 0, 2, 0)


def test_a_released_message_holds_no_key(ordered: Bench) -> None:
    send(ordered, "a1", "a2")
    ordered.settle(one(ordered), release=[0])
    assert held_offsets(ordered) == []


def test_the_lag_of_an_unordered_group_says_nothing_of_keys(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "audit")
    assert bench.deployment.groups.lag("orders", "audit").held is UNSET


def test_a_push_takes_what_has_its_turn_and_ends_where_all_keys_are_held(bench: Bench) -> None:
    ordered = with_group(bench, retry=RetryPolicy(first_seconds=600))
    failing = {"a1"}
    ordered.targets.answer = lambda delivery: Outcome(
        failed=frozenset(index for index, message in enumerate(delivery.messages) if message.body in failing)
    )
    ordered.deployment.groups.put("orders", "billing", push=PushTarget(kind="python", address="here"))
    send(ordered, "a1", "b1", "a2")

    def push() -> Ended:
        return Pusher(ordered.deployment, ordered.targets, "orders", "billing", "one").run()

    assert push() is Ended.IDLE
    assert ordered.targets.bodies == ["a1", "b1", "a2"]
    send(ordered, "a3")
    ordered.targets.deliveries.clear()
    failing.clear()
    assert push() is Ended.IDLE
    assert ordered.targets.bodies == []
    ordered.clock.pass_time(600)
    assert push() is Ended.IDLE
    assert ordered.targets.bodies == ["a1", "a2", "a3"]


def test_a_failing_settlement_frees_the_later_messages_of_its_key_that_it_does_not_name(ordered: Bench) -> None:
    send(ordered, "a1", "a2", "b1")
    (pull,) = ordered.pull()
    assert ordered.settle(pull, ack=[], retry=[0]) == "open"
    assert ordered.bodies() == ["a1", "a2"], "at once, and not when the lease of the first pull ends"
    assert ordered.settle(pull, ack=[2]) == "settled"
