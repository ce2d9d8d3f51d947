"""The list of consumers shows their last pulls and their leases; the leases of a consumer that left end."""

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.model.pulls import Pull, PullRequest, Settlement
from tests.support import AT_ONCE, Bench, CallByCall


def pull(bench: Bench, consumer: str, limit: int = 100, lease: int = 30) -> list[Pull]:
    request = PullRequest(consumer=consumer, max_messages=limit, lease_seconds=lease)
    return bench.deployment.pull("orders", "billing", request).pulls


def held(bench: Bench) -> list[tuple[str, int, int]]:
    return [
        (state.consumer, state.in_flight, state.leases)
        for state in bench.deployment.groups.consumers("orders", "billing").consumers
    ]


def bodies(pulls: list[Pull]) -> list[str | None]:
    return [message.body for one in pulls for message in one.messages]


def test_each_consumer_is_listed_with_what_it_holds(bench: Bench) -> None:
    bench.send("a", "b", "c", "d")
    (first,) = pull(bench, "host-1", 2)
    pull(bench, "host-2", 1)
    pull(bench, "host-2", 1)
    pull(bench, "host-3")
    assert held(bench) == [("host-1", 2, 1), ("host-2", 2, 2), ("host-3", 0, 0)]
    bench.deployment.settle("orders", "billing", [Settlement(receipt=first.receipt, ack=[0])])
    assert held(bench)[0] == ("host-1", 1, 1)


def test_another_process_knows_the_consumers_that_pulled_messages(bench: Bench) -> None:
    bench.send("a")
    began_ms = bench.clock.now_ms()
    (first,) = pull(bench, "host-1")
    bench.settle(first)
    bench.clock.pass_time(5)
    bench.send("b")
    pull(bench, "host-1", lease=60)
    pull(bench, "host-2")
    bench.deployment = bench.another_process()
    (state,) = bench.deployment.groups.consumers("orders", "billing").consumers
    assert (state.consumer, state.since_ms, state.pulled_ms) == ("host-1", began_ms, began_ms + 5_000)
    assert (state.in_flight, state.lease_until_ms) == (1, began_ms + 65_000)


def test_a_consumer_that_pulls_in_vain_is_forgotten_after_ten_minutes(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing")
    pull(bench, "host-1")
    assert held(bench) == [("host-1", 0, 0)]
    bench.clock.pass_time(601)
    assert held(bench) == []


def test_consumers_that_leave_give_their_messages_back_at_once_with_the_same_attempt(bench: Bench) -> None:
    bench.send("a", "b", "c")
    (mine,) = pull(bench, "host-1", 2)
    pull(bench, "host-2")
    bench.deployment.settle("orders", "billing", [Settlement(receipt=mine.receipt, ack=[0])])
    assert bench.deployment.groups.leave("orders", "billing", "host-1").messages == 1
    assert held(bench) == [("host-1", 0, 0), ("host-2", 1, 1)]
    (again,) = pull(bench, "host-3")
    assert [(message.body, message.attempt) for message in again.messages] == [("b", 1)]


def test_what_a_consumer_settles_after_it_left_is_stale(bench: Bench) -> None:
    bench.send("a")
    (mine,) = pull(bench, "host-1")
    bench.deployment.groups.leave("orders", "billing", "host-1")
    assert bench.settle(mine) == "stale"
    assert bench.deployment.groups.leave("orders", "billing", "host-1").messages == 0
    assert bodies(pull(bench, "host-2")) == ["a"]


def test_retries_that_a_consumer_holds_are_given_back_too(bench: Bench) -> None:
    bench.send("a")
    (first,) = pull(bench, "host-1")
    bench.settle(first, retry=[0])
    assert bodies(pull(bench, "host-1")) == ["a"]
    assert bench.deployment.groups.leave("orders", "billing", "host-1").messages == 1
    (again,) = pull(bench, "host-2")
    assert [(message.body, message.attempt) for message in again.messages] == [("a", 2)]


def test_consumers_of_a_broadcast_group_are_listed_and_leave(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", broadcast=True)
    bench.send("a")
    pull(bench, "hall")
    pull(bench, "lobby")
    bench.deployment = bench.another_process()
    assert held(bench) == [("hall", 1, 1), ("lobby", 1, 1)]
    assert bench.deployment.groups.leave("orders", "billing", "hall").messages == 1
    assert (bodies(pull(bench, "lobby")), bodies(pull(bench, "hall"))) == ([], ["a"])


def test_a_pull_writes_nothing_so_that_its_consumer_is_seen() -> None:
    store = CallByCall(MemoryStore())
    bench = Bench(store, settings=Settings(retry=AT_ONCE))
    bench.deployment.prepare()
    bench.deployment.groups.put("orders", "billing")
    pull(bench, "host-1")
    store.calls.clear()
    for _ in range(100):
        bench.clock.pass_time(60)
        pull(bench, "host-1")
    assert store.writes == []


def test_a_new_group_does_not_list_the_consumers_of_a_deleted_one_of_its_name(bench: Bench) -> None:
    bench.send("a")
    for delete in (
        lambda: bench.deployment.groups.delete("orders", "billing"),
        lambda: bench.deployment.subjects.delete("orders"),
    ):
        bench.pull()
        assert bench.deployment.groups.consumers("orders", "billing").consumers
        delete()
        bench.deployment.groups.put("orders", "billing")
        assert bench.deployment.groups.consumers("orders", "billing").consumers == []
