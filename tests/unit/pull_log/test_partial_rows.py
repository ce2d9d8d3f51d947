"""A row that is pulled in parts is read and unpacked once."""

import random
from dataclasses import dataclass, field

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import Corrupt
from hourwheel.logs.large_batches import messages_of
from hourwheel.logs.partial_rows import PartialRows
from hourwheel.logs.rows import Row
from hourwheel.model.groups import TagFilter
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest
from hourwheel.pull_log.message_blocks import messages_in
from tests.support import AT_ONCE, Bench

NOISE = random.Random(1).randbytes(2_000).hex()


@dataclass
class CountedBlobs(MemoryBlobs):
    reads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        self.reads.append(key)
        return super().get(key, offset=offset, length=length)


@pytest.fixture
def bench() -> Bench:
    return Bench(MemoryStore(), blobs=CountedBlobs(), settings=Settings(retry=AT_ONCE, inline_bytes=1_024))


def reads(bench: Bench) -> int:
    assert isinstance(bench.blobs, CountedBlobs)
    return len(bench.blobs.reads)


def pulled(bench: Bench, messages: int, group: str = "billing") -> list[str | None]:
    result = bench.deployment.pull_blocks("orders", group, PullRequest(consumer="c1", max_messages=messages))
    return [message.body for pull in result.pulls for block in pull.blocks for message in messages_in(block)]


def row_of(bench: Bench, row_no: int) -> Row:
    row = bench.deployment.context.log("orders~1/0").get(row_no)
    assert row is not None
    return row


def test_the_parts_of_a_row_read_its_object_once(bench: Bench) -> None:
    texts = [f"{number} {NOISE}" for number in range(7)]
    bench.send(*texts)
    assert [pulled(bench, 3), pulled(bench, 3), pulled(bench, 3)] == [texts[:3], texts[3:6], texts[6:]]
    assert reads(bench) == 1


def test_groups_share_what_was_read(bench: Bench) -> None:
    texts = [f"{number} {NOISE}" for number in range(4)]
    bench.send(*texts)
    assert pulled(bench, 1, "billing") == pulled(bench, 1, "mails") == texts[:1]
    assert reads(bench) == 1


def test_rows_that_are_pulled_whole_are_not_kept(bench: Bench) -> None:
    bench.send("1", "2")
    assert pulled(bench, 100) == ["1", "2"]
    assert bench.deployment.context.partial_rows == PartialRows()


def test_rows_of_which_a_filter_takes_some_messages_are_not_kept(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "rare", filter=TagFilter(tags_any=("rare",)))
    bench.deployment.produce("orders", [NewMessage(body=tag, tags=(tag,)) for tag in ("a", "rare", "b", "rare")])
    assert pulled(bench, 100, "rare") == ["rare", "rare"]
    assert bench.deployment.context.partial_rows == PartialRows()


def test_rows_of_equal_messages_are_told_apart(bench: Bench) -> None:
    bench.deployment.produce("orders", [NewMessage(body="a", id="1"), NewMessage(body="b", id="2")])
    bench.deployment.produce("orders", [NewMessage(body="c", id="1"), NewMessage(body="b", id="2")])
    assert [pulled(bench, 1) for _ in range(4)] == [["a"], ["b"], ["c"], ["b"]]


def test_a_row_that_cannot_be_read_is_read_again_and_found_repaired(bench: Bench) -> None:
    bench.send(NOISE, NOISE)
    row, rows = row_of(bench, 0), PartialRows()
    (key,) = bench.blobs.list("batches/")
    kept = bench.blobs.get(key)
    bench.blobs.delete(key)
    with pytest.raises(Corrupt, match="is missing"):
        rows.messages_of("orders~1/0", row, bench.blobs)
    bench.blobs.put(key, kept)
    assert len(rows.messages_of("orders~1/0", row, bench.blobs)) == 2


def test_what_is_kept_is_bounded(bench: Bench) -> None:
    large = random.Random(2).randbytes(200_000).hex()
    for number in range(30):
        bench.send(f"{number}", large)
    rows = PartialRows()
    for number in range(30):
        rows.messages_of("orders~1/0", row_of(bench, number), bench.blobs)
    kept = sum(len(message) for messages in rows._kept.values() for message in messages)
    assert 400_000 < kept <= 4 << 20


def test_a_row_beyond_the_bound_is_read_and_not_kept(bench: Bench) -> None:
    large = random.Random(3).randbytes(450_000).hex()
    bench.send(*[large[:900_000]] * 5)
    row, rows = row_of(bench, 0), PartialRows()
    assert row.raw_bytes > 4 << 20
    assert len(rows.messages_of("orders~1/0", row, bench.blobs)) == len(messages_of(row, bench.blobs)) == 5
    assert rows._kept == {}
