"""Groups with settings of their own get equal messages on every store."""

import pytest

from hourwheel.context import Settings
from hourwheel.model import NewMessage, Pulled, PullRequest, Settlement, TagFilter
from hourwheel.ports import Store
from tests.support import AT_ONCE, Bench

pytestmark = pytest.mark.parametrize(
    "store", ["memory", "sqlite", "dynamodb on moto", "dynamodb on ministack"], indirect=True
)


@pytest.fixture
def bench(store: Store) -> Bench:
    return Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=0))


def pulled(bench: Bench, subject: str, group: str, consumer: str = "c1") -> list[Pulled]:
    return bench.cell.pull(subject, group, PullRequest(consumer=consumer)).pulls


def bodies(pulls: list[Pulled]) -> list[str | None]:
    return [message.body for pull in pulls for message in pull.messages]


def test_a_filter_hands_out_its_matches_and_a_retry_brings_back_the_right_one(bench: Bench, partition: str) -> None:
    bench.cell.put_group(partition, "g", filter=TagFilter(tags_any=("eu",)))
    for number in range(3):
        tagged = [NewMessage(body=f"{number}-{at}", tags=["eu" if at == 2 else "us"]) for at in range(4)]
        bench.cell.produce(partition, tagged)
    (pull,) = pulled(bench, partition, "g")
    assert bodies([pull]) == ["0-2", "1-2", "2-2"]
    settled = bench.cell.settle(partition, "g", [Settlement(receipt=pull.receipt, retry=[1])])
    assert [one.status for one in settled] == ["settled"]
    again = pulled(bench, partition, "g")
    assert [(message.body, message.attempt, message.offset) for message in again[0].messages] == [("1-2", 2, 6)]


def test_each_consumer_of_a_broadcast_group_gets_every_message_and_its_own_retries(
    bench: Bench, partition: str
) -> None:
    bench.cell.put_group(partition, "g", broadcast=True)
    bench.cell.produce(partition, [NewMessage(body="a"), NewMessage(body="b")])
    (mine,) = pulled(bench, partition, "g", "hall")
    (theirs,) = pulled(bench, partition, "g", "lobby")
    assert (bodies([mine]), bodies([theirs])) == (["a", "b"], ["a", "b"])
    settlements = [Settlement(receipt=mine.receipt, retry=[1]), Settlement(receipt=theirs.receipt)]
    assert [one.status for one in bench.cell.settle(partition, "g", settlements)] == ["settled", "settled"]
    assert bodies(pulled(bench, partition, "g", "lobby")) == []
    assert bodies(pulled(bench, partition, "g", "hall")) == ["b"]
    bench.cell.delete_group(partition, "g")
    subject = bench.cell.registry.subject(partition)
    assert [group for group in bench.cell.registry.all_groups(subject) if not group.erased] == []
