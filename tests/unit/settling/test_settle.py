"""Messages are pulled, settled and retried, and leases end, as the protocol says."""

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import NotFound, Rejected, Unavailable
from hourwheel.model.fields import MAX_LEASE_SECONDS
from hourwheel.model.pulls import PullRequest, Settlement
from hourwheel.ports.storage import Key, Table
from tests.support import AT_ONCE, Bench, CallByCall


def test_a_message_goes_to_one_consumer_of_each_group(bench: Bench) -> None:
    bench.send("a", "b", "c")
    assert bench.bodies(2) == ["a", "b"]
    assert bench.bodies(2) == ["c"]
    assert bench.bodies(2) == []
    assert bench.bodies(group="audit") == ["a", "b", "c"]


def test_a_pull_may_end_in_the_middle_of_a_batch_and_span_batches(bench: Bench) -> None:
    bench.send("a", "b", "c")
    bench.send("d", "e")
    assert [bench.bodies(2) for _ in range(3)] == [["a", "b"], ["c", "d"], ["e"]]


def test_a_settled_pull_stays_settled(bench: Bench) -> None:
    bench.send("a")
    (pull,) = bench.pull()
    assert bench.settle(pull) == "settled"
    bench.clock.pass_time(3_600)
    bench.deployment.sweeper.sweep()
    assert bench.bodies() == []


def test_a_receipt_settles_no_other_claim_of_the_same_row(bench: Bench) -> None:
    bench.send("a")
    (lost,) = bench.pull()
    key = Key(Table.PULL, "billing~1@orders~1/0", f"{0:016d}")
    record = bench.store.get(key)
    assert record is not None
    bench.store.delete(key, expect=record.token)
    other = Bench(bench.store, bench.blobs, bench.clock)
    (pull,) = other.pull()
    assert bench.settle(lost) == "stale"
    assert other.settle(pull, retry=[0]) == "settled"
    assert other.bodies() == ["a"]


def test_settling_again_the_same_way_is_settled_and_another_way_is_stale(bench: Bench) -> None:
    bench.send("a", "b")
    (pull,) = bench.pull()
    assert bench.settle(pull, retry=[1]) == "settled"
    assert bench.settle(pull, retry=[1]) == "settled"
    assert bench.settle(pull) == "stale"
    assert bench.settle(pull, extend_seconds=5) == "stale"
    assert bench.bodies() == ["b"]


def test_acknowledging_again_is_settled_also_after_the_rest_of_the_pull_was_settled(bench: Bench) -> None:
    bench.send("a", "b", "c")
    (pull,) = bench.pull()
    assert bench.settle(pull, ack=[0]) == "open"
    assert bench.settle(pull, ack=[], retry=[2]) == "open"
    assert bench.settle(pull, ack=[1]) == "settled"
    assert bench.settle(pull, ack=[0]) == "settled"
    assert bench.settle(pull, ack=[0, 2]) == "stale"
    assert bench.bodies() == ["c"]


def test_acknowledging_again_is_open_after_the_lease_of_the_rest_has_ended(bench: Bench) -> None:
    bench.send("a", "b", "c")
    (pull,) = bench.pull()
    assert bench.settle(pull, ack=[0]) == "open"
    assert bench.settle(pull, ack=[1]) == "open"
    bench.clock.pass_time(3_600)
    bench.deployment.sweeper.sweep()
    assert bench.settle(pull, ack=[0]) == "open"
    assert bench.settle(pull, ack=[2]) == "stale"
    assert bench.bodies() == ["c"]


def test_acknowledging_a_message_that_was_retried_is_stale_while_the_pull_is_open(bench: Bench) -> None:
    bench.send("a", "b")
    (pull,) = bench.pull()
    assert bench.settle(pull, ack=[], retry=[0]) == "open"
    assert bench.settle(pull, ack=[0]) == "stale"
    assert bench.settle(pull, ack=[1]) == "settled"
    assert bench.bodies() == ["a"]


def test_a_retry_comes_back_to_its_group_alone_with_one_attempt_more(bench: Bench) -> None:
    accepted = bench.send("a", "b")
    bench.take(group="audit")
    (pull,) = bench.pull()
    bench.settle(pull, retry=[1])
    (again,) = bench.take()
    assert (again.body, again.attempt, again.id, again.offset) == ("b", 2, accepted[1].id, 1)
    assert bench.take(group="audit") == []


def test_what_is_released_comes_back_untried(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", max_attempts=1)
    bench.send("a", "b")
    (pull,) = bench.pull()
    bench.settle(pull, release=[0, 1])
    (pull,) = bench.pull()
    assert [(one.body, one.attempt) for one in pull.messages] == [("a", 1), ("b", 1)]
    bench.settle(pull, ack=[], release=[0])
    assert bench.bodies() == ["a"]


def test_a_pull_serves_retries_first_in_a_group_that_wants_it(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", retry_percent=100)
    bench.send("a", "b")
    (pull,) = bench.pull(1)
    bench.settle(pull, retry=[0])
    assert bench.bodies(1) == ["a"]


def test_an_ended_lease_gives_its_messages_to_the_next_pull(bench: Bench) -> None:
    bench.send("a", "b")
    (pull,) = bench.pull(lease=30)
    bench.clock.pass_time(29)
    assert bench.bodies() == []
    bench.clock.pass_time(2)
    assert [(one.body, one.attempt) for one in bench.take_all()] == [("a", 1), ("b", 1)]
    assert bench.settle(pull) == "stale"


def test_an_ended_lease_that_nobody_took_over_can_still_be_settled(bench: Bench) -> None:
    bench.send("a")
    (pull,) = bench.pull(lease=30)
    bench.clock.pass_time(31)
    assert bench.settle(pull) == "settled"
    assert bench.bodies() == []


def test_an_extended_lease_lasts_longer(bench: Bench) -> None:
    bench.send("a")
    (pull,) = bench.pull(lease=30)
    bench.clock.pass_time(20)
    assert bench.settle(pull, extend_seconds=30) == "extended"
    bench.clock.pass_time(20)
    bench.deployment.sweeper.sweep()
    assert bench.settle(pull) == "settled"


def test_what_is_acknowledged_by_name_leaves_the_rest_leased(bench: Bench) -> None:
    bench.send("a", "b", "c")
    (pull,) = bench.pull(lease=30)
    assert bench.settle(pull, ack=[0]) == "open"
    assert bench.settle(pull, ack=[0]) == "open"
    bench.clock.pass_time(31)
    assert [message.body for message in bench.take_all()] == ["b", "c"]
    assert bench.settle(pull, ack=[1]) == "stale"


def test_settled_bit_by_bit_it_is_settled_in_the_end(bench: Bench) -> None:
    bench.send("a", "b", "c")
    (pull,) = bench.pull()
    assert bench.settle(pull, ack=[0], dead=[2]) == "open"
    assert bench.settle(pull, ack=[], retry=[1]) == "settled"
    assert bench.bodies() == ["b"]
    assert [
        one.body for one in bench.deployment.dead_letters("orders", "billing").page(after=None, limit=9).messages
    ] == ["c"]


def test_after_its_last_attempt_a_message_is_dead(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", max_attempts=3)
    bench.send("a")
    for attempt in (1, 2, 3):
        (pull,) = bench.pull()
        assert pull.messages[0].attempt == attempt
        bench.settle(pull, retry=[0])
    assert bench.pull() == []
    (dead,) = bench.deployment.dead_letters("orders", "billing").page(after=None, limit=9).messages
    assert (dead.body, dead.attempt, dead.reason) == ("a", 3, "attempts")


def test_a_poison_message_whose_leases_end_dies_too(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", max_attempts=2)
    bench.send("a")
    for _ in range(3):  # the first end of a lease counts no attempt
        assert bench.bodies(lease=10) == ["a"]
        bench.clock.pass_time(11)
    assert bench.bodies() == []
    assert len(bench.deployment.dead_letters("orders", "billing").page(after=None, limit=9).messages) == 1


def test_a_pull_carries_the_settlements_of_the_one_before(bench: Bench) -> None:
    bench.send("a", "b")
    (first,) = bench.pull(1)
    request = PullRequest(consumer="c1", settle=[Settlement(receipt=first.receipt, retry=[0])])
    result = bench.deployment.pull("orders", "billing", request)
    assert result.settled is not None
    assert [one.status for one in result.settled] == ["settled"]
    assert [one.body for pull in result.pulls for one in pull.messages] == ["a", "b"]


@pytest.mark.parametrize(
    "how", [{"retry": [2]}, {"ack": [0], "dead": [0]}, {"ack": [0], "extend_seconds": 5}, {"retry": [1, 1]}]
)
def test_settlements_that_contradict_themselves_are_refused_and_change_nothing(bench: Bench, how: dict) -> None:
    bench.send("a", "b")
    (pull,) = bench.pull()
    with pytest.raises(Rejected):
        bench.settle(pull, **how)
    assert bench.settle(pull) == "settled"


def test_a_receipt_of_another_group_or_a_made_up_one_is_refused(bench: Bench) -> None:
    bench.send("a")
    (pull,) = bench.pull()
    bench.pull(group="audit")
    with pytest.raises(Rejected, match="not issued"):
        bench.settle(pull, group="audit")
    for forged in ("x", "AAAA" * 30, pull.receipt[:-2] + "xx", "é", ""):
        with pytest.raises(Rejected):
            bench.deployment.settle("orders", "billing", [Settlement(receipt=forged)])
    assert bench.settle(pull) == "settled"


def test_one_bad_receipt_stops_the_whole_request(bench: Bench) -> None:
    bench.send("a")
    (pull,) = bench.pull(lease=30)
    with pytest.raises(Rejected):
        bench.deployment.settle("orders", "billing", [Settlement(receipt=pull.receipt), Settlement(receipt="x")])
    bench.clock.pass_time(31)
    assert bench.bodies() == ["a"]


def test_settling_for_a_group_that_is_not_there_is_not_found(bench: Bench) -> None:
    with pytest.raises(NotFound):
        bench.deployment.settle("orders", "nobody", [Settlement(receipt="x")])


def test_a_receipt_outlives_neither_its_group_nor_its_subject(bench: Bench) -> None:
    bench.send("a")
    (pull,) = bench.pull()
    bench.deployment.groups.delete("orders", "billing")
    (again,) = bench.pull()
    assert bench.settle(pull) == "stale"
    assert bench.settle(again) == "settled"


def test_a_shorter_extension_leaves_the_lease_as_it_is(bench: Bench) -> None:
    bench.send("a")
    (pull,) = bench.pull(lease=600)
    (answer,) = bench.deployment.settle("orders", "billing", [Settlement(receipt=pull.receipt, extend_seconds=1)])
    assert (answer.status, answer.lease_until) == ("extended", pull.lease_until)


def test_a_pull_is_not_extended_beyond_twelve_hours_and_then_stale(bench: Bench) -> None:
    bench.send("a")
    (pull,) = bench.pull(lease=MAX_LEASE_SECONDS)
    bench.clock.pass_time(MAX_LEASE_SECONDS - 10)
    (answer,) = bench.deployment.settle("orders", "billing", [Settlement(receipt=pull.receipt, extend_seconds=600)])
    assert (answer.status, answer.lease_until) == ("extended", pull.lease_until)
    bench.clock.pass_time(10)
    assert bench.settle(pull, extend_seconds=600) == "stale"


def test_a_retry_that_lost_its_store_half_way_does_not_wait_for_the_lease() -> None:
    store = CallByCall(MemoryStore())
    bench = Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=0))
    bench.send("a", "b")
    (pull,) = bench.pull(lease=MAX_LEASE_SECONDS)
    put = store.put

    class Cut(Exception):
        pass

    def cut(key, record, *, expect):
        if key.table is Table.CONSUME:
            raise Cut
        return put(key, record, expect=expect)

    store.put = cut
    with pytest.raises(Cut):
        bench.settle(pull, ack=[], retry=[0])
    store.put = put
    bench.wakeups.announced.clear()
    bench.deployment.sweeper.sweep()
    assert ("orders", "billing") in bench.wakeups.announced
    assert bench.bodies() == ["a"]


def test_a_process_that_knows_the_old_subject_settles_for_the_new_one() -> None:
    old = Bench(MemoryStore())
    old.send("a")
    for _ in range(2):
        old.take()
    new = Bench(old.store, old.blobs, old.clock)
    new.deployment.subjects.delete("orders")
    new.send("b", "c")
    first, second = new.pull(1) + new.pull(1)
    assert old.settle(first) == "settled"
    request = PullRequest(consumer="c1", settle=[Settlement(receipt=second.receipt)])
    assert [one.status for one in old.deployment.pull("orders", "billing", request).settled or ()] == ["settled"]


def test_a_process_that_knows_the_old_subject_and_no_group_asks_to_send_again() -> None:
    old = Bench(MemoryStore())
    old.send("a")
    new = Bench(old.store, old.blobs, old.clock)
    new.deployment.subjects.delete("orders")
    new.send("b")
    (pull,) = new.pull()
    with pytest.raises(Unavailable):
        old.settle(pull)
    assert old.settle(pull) == "settled"


def test_a_settlement_whose_answer_was_lost_is_known_again_though_the_lease_has_ended(bench: Bench) -> None:
    bench.send("a", "b")
    (pull,) = bench.pull(lease=30)
    assert bench.settle(pull, ack=[0]) == "open"
    bench.clock.pass_time(31)
    assert bench.bodies() == ["b"]
    assert bench.settle(pull, ack=[0]) == "open"
    assert bench.settle(pull, ack=[1]) == "stale"
