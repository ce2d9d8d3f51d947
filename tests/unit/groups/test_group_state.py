"""The API shows the work of a group in detail: retries by attempt, open leases, and the reasons of its dead letters."""

import pytest

from hourwheel.dead_letters.dead import DeadFilter
from hourwheel.groups.state import dead_reasons
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.overview import OpenLeases, RetryCounts
from hourwheel.model.pulls import PullRequest, Rejection, RetryLater
from hourwheel.times import rfc3339
from tests.support import NOON_MS, Bench


def retries(bench: Bench, group: str = "billing") -> RetryCounts:
    return bench.deployment.groups.state("orders", group).retries(
        bench.deployment.pending_counts, bench.deployment.opener
    )


def attempts(bench: Bench, group: str = "billing") -> dict[int, tuple[int, int]]:
    return {each.attempt: (each.retrying, each.backing_off) for each in retries(bench, group).attempts}


def leases(bench: Bench, group: str = "billing") -> OpenLeases:
    return bench.deployment.groups.state("orders", group).leases(bench.deployment.leases)


def retried(bench: Bench, *indexes: int, group: str = "billing") -> None:
    (pull,) = bench.pull(group=group)
    bench.settle(pull, group=group, retry=list(indexes))


def test_retries_are_counted_by_their_next_attempt(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", retry=RetryPolicy(delays_seconds=(0, 7_200)))
    bench.send("a", "b", "c")
    assert attempts(bench) == {}
    retried(bench, 0, 1)
    assert attempts(bench) == {2: (2, 0)}
    (pull,) = bench.pull(1)
    assert attempts(bench) == {2: (1, 0)}
    bench.settle(pull, retry=[0])
    assert attempts(bench) == {2: (1, 0), 3: (0, 1)}
    assert [each.messages for each in retries(bench).attempts] == [1, 1]
    bench.turn(3 * 3_600)
    assert attempts(bench) == {2: (1, 0), 3: (1, 0)}
    assert retries(bench).complete


def test_retries_of_one_group_are_not_those_of_another(bench: Bench) -> None:
    for group in ("billing", "mail"):
        bench.deployment.groups.put("orders", group, retry=RetryPolicy(delays_seconds=(60,)))
    bench.send("a", "b")
    retried(bench, 0, 1)
    retried(bench, 0, group="mail")
    bench.send_later("later", delay="1m")
    assert (attempts(bench), attempts(bench, "mail")) == ({2: (0, 2)}, {2: (0, 1)})


def test_a_retry_that_has_been_handed_over_is_counted_once(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", retry=RetryPolicy(delays_seconds=(60,)))
    bench.send("a", "b")
    (pull,) = bench.pull()
    bench.settle(pull, retry=[RetryLater(index=0, delay="1m"), RetryLater(index=1, delay="50m")])
    assert attempts(bench) == {2: (0, 2)}
    bench.turn(120)
    assert attempts(bench) == {2: (1, 1)}


def test_failed_messages_of_an_ordered_group_are_counted_at_their_place(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "ledger", ordered=True, retry=RetryPolicy(delays_seconds=(60,)))
    for key in "kl":
        bench.send("1", "2", key=key)
    retried(bench, 0, group="ledger")
    assert attempts(bench, "ledger") == {2: (0, 1)}
    bench.clock.pass_time(61)
    assert attempts(bench, "ledger") == {2: (1, 0)}


def test_a_count_of_retries_ends_at_its_limit(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", retry=RetryPolicy(delays_seconds=(7_200,)))
    for _ in range(501):
        bench.send("a")
        retried(bench, 0)
    counts = retries(bench)
    assert ([each.messages for each in counts.attempts], counts.complete) == ([500], False)


def test_a_count_of_retries_that_can_be_pulled_ends_at_its_limit(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", retry=RetryPolicy(delays_seconds=(0,)))
    for _ in range(501):
        bench.send("a")
        bench.pull(1)
    bench.clock.pass_time(31)
    bench.deployment.sweeper.sweep()
    counts = retries(bench)
    assert ([each.messages for each in counts.attempts], counts.complete) == ([500], False)


def test_leases_come_in_the_order_of_their_ends(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", retry=RetryPolicy(delays_seconds=(0,)), retry_percent=100)
    bench.send(*"abcdef")
    retried(bench, 0)
    for consumer, count, seconds in (("slow", 1, 300), ("fast", 1, 60)):
        bench.send("g", "h")
        request = PullRequest(consumer=consumer, max_messages=count, lease_seconds=seconds)
        bench.deployment.pull("orders", "billing", request)
    bench.send("i")
    found = leases(bench)
    assert [(each.consumer, each.queue, each.offset, each.messages) for each in found.leases] == [
        ("fast", 0, 6, 1),
        ("slow", None, None, 1),
    ]
    assert [each.lease_until for each in found.leases] == [rfc3339(NOON_MS + 60_000), rfc3339(NOON_MS + 300_000)]
    assert found.complete


def test_a_lease_counts_the_messages_that_are_not_settled_and_ends_with_the_last(bench: Bench) -> None:
    bench.send("a", "b", "c")
    (pull,) = bench.pull()
    bench.settle(pull, ack=[0])
    assert [each.messages for each in leases(bench).leases] == [2]
    bench.settle(pull)
    assert leases(bench).leases == []


def test_the_first_hundred_leases_are_listed(bench: Bench) -> None:
    for _ in range(101):
        bench.send("a")
        bench.pull(1)
    found = leases(bench)
    assert (len(found.leases), found.complete) == (100, False)


def test_leases_of_a_broadcast_group_are_those_of_all_consumers(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "screens", broadcast=True)
    bench.send("a")
    for consumer in ("hall", "desk"):
        bench.deployment.pull("orders", "screens", PullRequest(consumer=consumer))
    assert sorted(each.consumer for each in leases(bench, "screens").leases) == ["desk", "hall"]


def bury(bench: Bench, *details: str | None, group: str = "billing") -> None:
    """Rejects a message for each of the details."""
    bench.send(*["x"] * len(details))
    (pull,) = bench.pull(1_000, group=group)
    bench.settle(
        pull,
        group=group,
        dead=[Rejection(index=index, detail=detail) if detail else index for index, detail in enumerate(details)],
    )


def test_dead_letters_are_counted_by_reason_and_detail(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", max_attempts=1)
    bury(bench, "empty", None, "empty")
    bench.clock.pass_time(60)
    bury(bench, "empty")
    bench.send("y")
    retried(bench, 0)
    found = dead_reasons(bench.deployment.dead_letters("orders", "billing").alive())
    assert [(each.reason, each.detail, each.messages) for each in found.reasons] == [
        ("rejected", "empty", 3),
        ("attempts", None, 1),
        ("rejected", None, 1),
    ]
    first = found.reasons[0]
    assert (first.first_at, first.last_at) == (rfc3339(NOON_MS), rfc3339(NOON_MS + 60_000))
    assert (found.others, found.complete) == (0, True)


def test_reasons_beyond_the_hundred_most_frequent_are_counted_together(bench: Bench) -> None:
    bury(bench, *[f"order {number}" for number in range(102)], *["order 7"] * 2)
    found = dead_reasons(bench.deployment.dead_letters("orders", "billing").alive())
    assert (len(found.reasons), found.others, found.reasons[0].detail) == (100, 2, "order 7")


def test_the_oldest_dead_letters_are_counted_up_to_a_limit(bench: Bench) -> None:
    for _ in range(6):
        bury(bench, *[None] * 1_000)
    found = dead_reasons(bench.deployment.dead_letters("orders", "billing").alive())
    assert (found.reasons[0].messages, found.complete) == (5_000, False)


def test_a_list_of_dead_letters_takes_a_filter(bench: Bench) -> None:
    bury(bench, "empty", None, "late", "empty")
    listed = bench.deployment.dead_letters("orders", "billing").page(
        after=None, limit=1, which=DeadFilter("rejected", "empty")
    )
    assert ([each.dead_id for each in listed.messages], listed.next) == (["0-0"], "0-0")
    rest = bench.deployment.dead_letters("orders", "billing").page(
        after="0-0", limit=10, which=DeadFilter("rejected", "empty")
    )
    assert ([each.dead_id for each in rest.messages], rest.next) == (["0-3"], None)
    assert (
        bench.deployment.dead_letters("orders", "billing")
        .page(after=None, limit=10, which=DeadFilter("attempts"))
        .messages
        == []
    )


def test_a_filter_that_takes_few_goes_on_with_the_next_page(bench: Bench) -> None:
    for _ in range(2):
        bury(bench, *["empty"] * 1_000)
    bury(bench, "late")
    page = bench.deployment.dead_letters("orders", "billing").page(
        after=None, limit=10, which=DeadFilter("rejected", "late")
    )
    assert (page.messages, page.next) == ([], "1-999")
    page = bench.deployment.dead_letters("orders", "billing").page(
        after=page.next, limit=10, which=DeadFilter("rejected", "late")
    )
    assert ([each.dead_id for each in page.messages], page.next) == (["2-0"], None)


@pytest.mark.parametrize("verb", ["redrive", "drop"])
def test_dead_letters_of_one_reason_are_redriven_or_dropped(bench: Bench, verb: str) -> None:
    bury(bench, "empty", None, "late", "empty")
    chosen = bench.deployment.dead_letters("orders", "billing").positions(DeadFilter("rejected", "empty"))
    assert (
        getattr(bench.deployment.dead_letters("orders", "billing"), verb)(lambda position, died_ms: position in chosen)
        == 2
    )
    left = bench.deployment.dead_letters("orders", "billing").page(after=None, limit=10).messages
    assert [each.detail for each in left] == [None, "late"]


def test_a_filter_reaches_the_dead_letters_of_each_consumer_of_a_broadcast_group(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "screens", broadcast=True)
    bench.send("a", "b")
    for consumer in ("hall", "desk"):
        (pull,) = bench.deployment.pull("orders", "screens", PullRequest(consumer=consumer)).pulls
        bench.settle(
            pull, group="screens", dead=[Rejection(index=0, detail="empty"), Rejection(index=1, detail=consumer)]
        )
    empty = DeadFilter("rejected", "empty")
    page = bench.deployment.dead_letters("orders", "screens").page(after=None, limit=1, which=empty)
    assert ([each.dead_id for each in page.messages], page.next) == (["desk:0-0"], "desk:0-0")
    page = bench.deployment.dead_letters("orders", "screens").page(after=page.next, limit=5, which=empty)
    assert ([each.dead_id for each in page.messages], page.next) == (["hall:0-0"], None)
    chosen = bench.deployment.dead_letters("orders", "screens").positions(empty)
    assert bench.deployment.dead_letters("orders", "screens").drop(lambda position, died_ms: position in chosen) == 2
    found = dead_reasons(bench.deployment.dead_letters("orders", "screens").alive())
    assert sorted((each.detail or "", each.messages) for each in found.reasons) == [("desk", 1), ("hall", 1)]


def test_a_filter_that_takes_few_goes_on_within_the_same_consumer(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "screens", broadcast=True)
    for _ in range(2):
        bench.send(*["x"] * 1_000)
        request = PullRequest(consumer="hall", max_messages=1_000)
        (pull,) = bench.deployment.pull("orders", "screens", request).pulls
        bench.settle(pull, group="screens", dead=list(range(1_000)))
    page = bench.deployment.dead_letters("orders", "screens").page(after=None, limit=5, which=DeadFilter("attempts"))
    assert (page.messages, page.next) == ([], "hall:1-999")
    page = bench.deployment.dead_letters("orders", "screens").page(
        after=page.next, limit=5, which=DeadFilter("attempts")
    )
    assert (page.messages, page.next) == ([], None)
