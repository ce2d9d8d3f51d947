"""Groups with settings of their own get equal messages on every store."""

import pytest

from hourwheel.context import Settings
from hourwheel.groups.peek import PeekStart
from hourwheel.model.groups import TagFilter
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import Pull, PullRequest, Settlement
from hourwheel.ports.storage import Store
from hourwheel.trace.messages import SearchSpan
from tests.support import AT_ONCE, Bench

pytestmark = [
    pytest.mark.parametrize("store", ["memory", "sqlite", "dynamodb on moto", "dynamodb on ministack"], indirect=True),
    pytest.mark.parametrize("pages", ["usual", "small"], indirect=True),
    pytest.mark.usefixtures("pages"),
]


@pytest.fixture
def bench(store: Store) -> Bench:
    return Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=0))


def pulled(bench: Bench, subject: str, group: str, consumer: str = "c1") -> list[Pull]:
    return bench.deployment.pull(subject, group, PullRequest(consumer=consumer)).pulls


def bodies(pulls: list[Pull]) -> list[str | None]:
    return [message.body for pull in pulls for message in pull.messages]


def test_a_filter_hands_out_its_matches_and_a_retry_brings_back_the_right_one(bench: Bench, partition: str) -> None:
    bench.deployment.groups.put(partition, "g", filter=TagFilter(tags_any=("eu",)))
    for number in range(3):
        tagged = [NewMessage(body=f"{number}-{at}", tags=["eu" if at == 2 else "us"]) for at in range(4)]
        bench.deployment.produce(partition, tagged)
    (pull,) = pulled(bench, partition, "g")
    assert bodies([pull]) == ["0-2", "1-2", "2-2"]
    settled = bench.deployment.settle(partition, "g", [Settlement(receipt=pull.receipt, retry=[1])])
    assert [one.status for one in settled] == ["settled"]
    again = pulled(bench, partition, "g")
    assert [(message.body, message.attempt, message.offset) for message in again[0].messages] == [("1-2", 2, 6)]


def test_each_consumer_of_a_broadcast_group_gets_every_message_and_its_own_retries(
    bench: Bench, partition: str
) -> None:
    bench.deployment.groups.put(partition, "g", broadcast=True)
    bench.deployment.produce(partition, [NewMessage(body="a"), NewMessage(body="b")])
    (mine,) = pulled(bench, partition, "g", "hall")
    (theirs,) = pulled(bench, partition, "g", "lobby")
    assert (bodies([mine]), bodies([theirs])) == (["a", "b"], ["a", "b"])
    settlements = [Settlement(receipt=mine.receipt, retry=[1]), Settlement(receipt=theirs.receipt)]
    assert [one.status for one in bench.deployment.settle(partition, "g", settlements)] == ["settled", "settled"]
    assert bodies(pulled(bench, partition, "g", "lobby")) == []
    assert bodies(pulled(bench, partition, "g", "hall")) == ["b"]
    bench.deployment.groups.delete(partition, "g")
    subject = bench.deployment.registry.subject(partition)
    assert [group for group in bench.deployment.registry.all_groups(subject) if not group.erased] == []


def test_a_paused_group_gets_no_messages_until_it_is_resumed(bench: Bench, partition: str) -> None:
    bench.deployment.groups.put(partition, "g")
    bench.deployment.produce(partition, [NewMessage(body="a")])
    for pause in (
        bench.deployment.subjects.pause,
        lambda name, paused: bench.deployment.groups.pause(name, "g", paused=paused),
    ):
        pause(partition, paused=True)
        assert pulled(bench, partition, "g") == []
        pause(partition, paused=False)
    assert bodies(pulled(bench, partition, "g")) == ["a"]


def test_limits_hold_for_all_processes_over_retries_and_queues(bench: Bench, partition: str) -> None:
    bench.deployment.subjects.put(partition, queues=2)
    bench.deployment.groups.put(partition, "g", max_in_flight=3, messages_per_second=1_000)
    for key in "abcdefgh":
        bench.deployment.produce(partition, [NewMessage(body=key, key=key)])
    first = pulled(bench, partition, "g")
    assert len(bodies(first)) == 3
    bench.deployment.settle(partition, "g", [Settlement(receipt=pull.receipt, retry=[0]) for pull in first])
    other = bench.another_process()
    result = other.pull(partition, "g", PullRequest(consumer="c2"))
    assert len(bodies(result.pulls)) == 3
    assert pulled(bench, partition, "g") == []
    bench.deployment.groups.put(partition, "g", max_in_flight=0)
    assert len(bodies(pulled(bench, partition, "g"))) == 8 - 3 - (3 - len(first))


def test_a_queue_is_looked_at_and_a_message_traced(bench: Bench, partition: str) -> None:
    bench.deployment.produce(partition, [NewMessage(body=body) for body in "abc"])
    (pull,) = pulled(bench, partition, "g")
    bench.deployment.settle(partition, "g", [Settlement(receipt=pull.receipt, retry=[1], dead=[2])])
    (pull,) = pulled(bench, partition, "g")
    bench.deployment.settle(partition, "g", [Settlement(receipt=pull.receipt)])
    assert [
        message.body for message in bench.deployment.messages.peek(partition, 0, PeekStart(newest=True), 2).messages
    ] == ["c", "b"]
    states = []
    for offset in range(3):
        (trace,) = bench.deployment.messages.trace(partition, f"0:{offset}", SearchSpan(), "g").messages
        (group,) = trace.groups
        states.append((group.state, [event.event for event in group.events]))
    assert states == [
        ("acknowledged", ["pulled", "acknowledged"]),
        ("acknowledged", ["pulled", "retried", "pulled", "acknowledged"]),
        ("dead", ["pulled", "dead"]),
    ]
