"""Groups with a tag filter get the right messages, pass the others at low cost, and settle by index."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.context import Settings
from hourwheel.logs import tags as summaries
from hourwheel.model.fields import BATCH_MESSAGES
from hourwheel.model.groups import PushTarget, TagFilter
from hourwheel.model.log_names import pull_log
from hourwheel.model.messages import NewMessage
from hourwheel.ports.storage import Key, Table
from hourwheel.pull_log.claiming.claim_range import EMPTY_BYTES, EMPTY_ROWS
from hourwheel.pull_log.claiming.selection import MOST_BODIES, PASSED_MS
from hourwheel.pull_log.open_logs import pull_logs
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import PASSED, PullRow
from hourwheel.wire.answer_size import PULL_BYTES
from tests.support import AT_ONCE, Bench, CallByCall

EU = TagFilter(tags_any=("eu",))


def send(bench: Bench, *batch: str, **how: Any) -> None:
    """Sends one batch of messages, each as its body and, behind a colon, its tags."""
    messages = []
    for text in batch:
        body, _, tags = text.partition(":")
        messages.append(NewMessage(body=body, tags=tags.split() or None, **how))
    bench.deployment.produce("orders", messages)


def queue_log(bench: Bench) -> PullLog:
    subject = bench.deployment.registry.subject("orders")
    return pull_logs(bench.deployment.context, subject, bench.deployment.registry.group(subject, "billing"))[1]


def pull_rows(bench: Bench) -> list[PullRow]:
    return [held.value for _, held in queue_log(bench).rows(0)]


@contextmanager
def no_room() -> Iterator[None]:
    """Summaries say nothing: each batch has to be read."""
    with patch.object(summaries, "_room", lambda row, log: 0):
        yield


@pytest.fixture(params=["summaries", "no room"])
def summarised(request: pytest.FixtureRequest) -> Iterator[None]:
    """Removes the summaries of tags in one of the cases: a claim must take equal messages with and without them."""
    if request.param == "summaries":
        yield
        return
    with no_room():
        yield


@pytest.mark.parametrize(
    ("wanted", "bodies"),
    [
        (TagFilter(tags_any=("eu", "uk")), ["a", "b", "d", "f"]),
        (TagFilter(tags_all=("eu", "vip")), ["b", "f"]),
        (TagFilter(tags_none=("test",)), ["a", "b", "c", "e"]),
        (TagFilter(tags_any=("eu", "us"), tags_none=("vip",)), ["a", "c", "d"]),
        (TagFilter(tags_any=("moon",)), []),
    ],
)
def test_a_group_gets_the_messages_that_its_filter_takes(
    bench: Bench, summarised: None, wanted: TagFilter, bodies: list[str]
) -> None:
    bench.deployment.groups.put("orders", "billing", filter=wanted)
    send(bench, "a:eu", "b:eu vip", "c:us", "d:uk eu test")
    send(bench, "e", "f:vip eu test")
    assert bench.bodies() == bodies


def test_settlements_name_messages_by_their_index_in_the_answer(bench: Bench, summarised: None) -> None:
    bench.deployment.groups.put("orders", "billing", filter=EU)
    send(bench, "a:us", "b:eu", "c:us", "d:eu", "e:us", "f:eu", "g:us", "h:eu")
    (pull,) = bench.pull()
    assert [(message.body, message.offset) for message in pull.messages] == [("b", 1), ("d", 3), ("f", 5), ("h", 7)]
    assert bench.settle(pull, ack=[0], retry=[1], release=[2], dead=[3]) == "settled"
    assert sorted((message.body, message.attempt, message.offset) for message in bench.take()) == [
        ("d", 2, 3),
        ("f", 1, 5),
    ]
    page = bench.deployment.dead_letters("orders", "billing").page(after=None, limit=10)
    assert [(message.body, message.offset) for message in page.messages] == [("h", 7)]


def test_an_ended_lease_retries_only_what_was_handed_out(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", filter=EU)
    send(bench, "a:us", "b:eu", "c:us", "d:eu")
    bench.pull(lease=5)
    bench.clock.pass_time(6)
    assert [(message.body, message.attempt) for message in bench.take_all()] == [("b", 1), ("d", 1)]


def test_a_claim_in_the_middle_of_a_batch_goes_on_behind_its_last_match(bench: Bench, summarised: None) -> None:
    bench.deployment.groups.put("orders", "billing", filter=EU)
    send(bench, *(f"{index}:{'eu' if index % 3 == 1 else 'us'}" for index in range(12)))
    found = [bench.take(1) for _ in range(5)]
    assert [[message.body for message in page] for page in found] == [["1"], ["4"], ["7"], ["10"], []]
    assert [[message.offset for message in page] for page in found] == [[1], [4], [7], [10], []]


def test_claims_run_over_many_rows_and_skip_those_without_a_match(bench: Bench, summarised: None) -> None:
    bench.deployment.groups.put("orders", "billing", filter=EU)
    for index in range(20):
        send(bench, f"{index}-0:us", f"{index}-1:{'eu' if index % 4 == 2 else 'us'}", f"{index}-2:us")
    (pull,) = bench.pull()
    assert [message.body for message in pull.messages] == ["2-1", "6-1", "10-1", "14-1", "18-1"]
    assert bench.settle(pull, retry=[1]) == "settled"
    assert bench.bodies() == ["6-1"]


def test_a_group_whose_filter_takes_all_stores_no_picks(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", filter=TagFilter(tags_none=("test",)))
    send(bench, "a", "b:eu")
    bench.pull()
    assert [(row.counts, row.picks) for row in pull_rows(bench)] == [((2,), ())]


def test_a_group_without_a_filter_stores_none(bench: Bench) -> None:
    send(bench, "a", "b:eu")
    bench.pull()
    assert [row.picks for row in pull_rows(bench)] == [None]


@dataclass
class CountingBlobs(MemoryBlobs):
    reads: int = 0

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        self.reads += 1
        return super().get(key, offset=offset, length=length)


def test_what_does_not_match_costs_neither_a_delivery_nor_a_read_of_its_body() -> None:
    store, blobs = CallByCall(MemoryStore()), CountingBlobs()
    bench = Bench(store, blobs, settings=Settings(retry=AT_ONCE, registry_seconds=0, inline_bytes=1_024))
    bench.deployment.groups.put("orders", "billing", filter=EU)
    for _ in range(10):
        bench.deployment.produce("orders", [NewMessage(body=f"{n:x}" * 500, tags=["us"]) for n in range(1, 15)])
    bench.deployment.prepare()
    store.calls.clear()
    assert bench.bodies() == []
    assert (blobs.reads, store.writes) == (0, [])


def test_rows_without_a_match_are_passed_in_one_write_once_they_are_many(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", filter=EU)
    for _ in range(70):
        send(bench, "a:us")
    assert bench.bodies() == []
    assert [(row.outcome, row.end.row_no) for row in pull_rows(bench)] == [(PASSED, 70)]
    assert bench.deployment.groups.lag("orders", "billing").waiting == 0


def test_a_few_rows_without_a_match_wait_a_moment_and_are_passed_then(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", filter=EU)
    send(bench, "a:us")
    assert bench.bodies() == []
    assert (pull_rows(bench), bench.deployment.groups.lag("orders", "billing").waiting) == ([], 1)
    bench.clock.pass_time(PASSED_MS / 1_000 + 1)
    assert bench.bodies() == []
    assert bench.deployment.groups.lag("orders", "billing").waiting == 0


def test_a_claim_of_batches_that_have_to_be_read_ends_after_some(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", filter=EU)
    with no_room():
        for index in range(MOST_BODIES + 5):
            send(bench, f"{index}:us")
    send(bench, "last:eu")
    assert bench.bodies() == ["last"]
    assert [row.outcome for row in pull_rows(bench)] == [PASSED, 0]


def test_a_new_filter_applies_from_the_next_claim_also_to_messages_that_wait(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", filter=EU)
    send(bench, "a:us", "b:eu")
    send(bench, "c:us")
    assert bench.bodies(1) == ["b"]
    assert bench.bodies() == []
    bench.deployment.groups.put("orders", "billing", filter=TagFilter(tags_any=("us",)))
    assert bench.bodies() == ["c"]
    send(bench, "d:eu")
    bench.deployment.groups.put("orders", "billing", filter=None)
    assert bench.bodies() == ["d"]


def test_a_change_of_other_settings_keeps_the_filter(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", filter=EU)
    assert bench.deployment.groups.put("orders", "billing", max_attempts=3).filter == EU


def test_retries_are_not_filtered_again(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", filter=EU)
    send(bench, "a:eu")
    (pull,) = bench.pull()
    bench.settle(pull, retry=[0])
    bench.deployment.groups.put("orders", "billing", filter=TagFilter(tags_any=("us",)))
    assert bench.bodies() == ["a"]


def test_a_seek_delivers_the_matches_again_and_no_others(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", filter=EU)
    send(bench, "a:us", "b:eu", "c:eu")
    assert bench.bodies() == ["b", "c"]
    bench.deployment.seeks().seek("orders", "billing", to="start")
    assert bench.bodies() == ["b", "c"]
    bench.deployment.seeks().seek_offset("orders", "billing", 0, 2)
    assert bench.bodies() == ["c"]


def test_delayed_messages_are_filtered_when_their_time_has_come(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", filter=EU)
    send(bench, "a:us", "b:eu", "c:us", delay="20m")
    bench.turn(1_500)
    assert bench.bodies() == ["b"]


def test_an_answer_of_matches_from_large_batches_stays_within_its_bytes(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", filter=EU)
    for _ in range(4):
        bench.deployment.produce(
            "orders",
            [NewMessage(body="x" * 700_000, tags=["eu" if index % 2 else "us"]) for index in range(4)],
        )
    sizes = []
    while found := bench.take():
        sizes.append(sum(len(one.body or "") for one in found))
    assert (sum(sizes), max(sizes) <= PULL_BYTES) == (8 * 700_000, True)


def test_small_matches_of_many_batches_come_in_one_pull(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", filter=EU)
    for _ in range(100):
        bench.deployment.produce(
            "orders",
            [NewMessage(body="x" * 250, tags=["us"]) for _ in range(99)] + [NewMessage(body="y" * 250, tags=["eu"])],
        )
    (pull,) = bench.pull()
    assert len(pull.messages) == 100
    assert len(pull.receipt) < 4_000


def test_a_damaged_batch_that_has_to_be_read_is_reported_and_passed(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", filter=EU)
    with no_room():
        send(bench, "a:eu")
    key = Key(Table.CONSUME, "orders~1/0", f"{0:016d}")
    held = bench.store.get(key)
    assert held is not None
    spoilt = held.value.replace(b"HWB1", b"HWB0")
    bench.store.put(key, type(held)(spoilt, held.token, held.expires_ms), expect=held.token)
    send(bench, "b:eu")
    assert bench.bodies() == ["b"]
    assert ("UnreadableMessages", 1) in bench.meter.metrics


def test_a_pusher_of_a_filtered_group_ends_where_nothing_matches(bench: Bench) -> None:
    target = PushTarget(kind="python", address="bill")
    bench.deployment.groups.put("orders", "billing", filter=EU, push=target)
    send(bench, "a:us")
    assert not queue_log(bench).has_message()
    send(bench, "b:us", "c:eu")
    assert queue_log(bench).has_message()


def test_a_receipt_of_a_claim_over_the_most_rows_can_be_settled(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", filter=EU)
    send(bench, "first:eu", "x:us")
    for _ in range(EMPTY_ROWS + 50):
        send(bench, "a:us")
    (pull,) = bench.pull()
    assert (bench.settle(pull), len(pull.receipt) < 16_384) == ("settled", True)
    assert bench.bodies() == []


def test_a_receipt_of_the_most_messages_among_the_most_rows_can_be_settled(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", filter=EU)
    others = ["x:us"] * 200
    for _ in range(BATCH_MESSAGES):
        # The index of the message takes two bytes, and its length one.
        send(bench, *others, "a:eu")
        send(bench, "b:us")
        send(bench, "c:us")
    (pull,) = bench.pull(BATCH_MESSAGES)
    assert len(pull.messages) > 900
    assert (bench.settle(pull), len(pull.receipt) < 16_384) == ("settled", True)


def test_a_claim_ends_after_some_megabytes_of_rows_that_the_filter_does_not_take(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", filter=EU)
    noise = random.Random(5)
    send(bench, "first:eu")
    for _ in range(EMPTY_BYTES // 5_000):
        send(bench, f"{noise.randbytes(5_000).hex()}:us")  # compressed, each takes the 5,000 bytes
    send(bench, "last:eu")
    assert [bench.bodies(), bench.bodies()] == [["first"], ["last"]]
    assert EMPTY_BYTES // 6_000 < len(pull_rows(bench)[0].counts) < EMPTY_ROWS
    log = queue_log(bench)
    assert pull_log(log.group.member, log.source.name) == log.partition
