"""Routing: one rule for the queue of every message, sent at once or delayed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest

from hourwheel.buckets.buckets import Bucket
from hourwheel.errors import TooLarge
from hourwheel.model.due import dues_of
from hourwheel.model.fields import MAX_DELAY_MS
from hourwheel.model.messages import NewMessage
from hourwheel.model.subjects import Subject
from hourwheel.producing.routing import Batch, BatchPart, RoutingInputs, delayed_batch, queue_of, shard_of
from tests.support import NOON_MS, Bench

HOUR_MS = 3_600_000
INPUTS = RoutingInputs(batch="first", queues={"orders": 8}, at_ms=NOON_MS, cut=(60, 4))


def subject(name: str = "orders") -> Subject:
    return Subject(name=name, generation=1, queues=1, retention_seconds=60, created_ms=0)


def batch(*messages: NewMessage) -> Batch:
    return Batch({"orders": subject()}, {"orders": range(len(messages))}, messages, dues_of(messages))


def queues(parts: Sequence[BatchPart]) -> Mapping[int | None, Sequence[int]]:
    return {part.queue: list(part.indexes) for part in parts if part.bucket is None}


def test_messages_of_one_key_share_a_queue_whatever_batch_they_came_with() -> None:
    for key in map(str, range(50)):
        assert len({queue_of(key, name, 8) for name in ("first", "second", delayed_batch("schedule/a", 3))}) == 1


def _vectors() -> list[tuple[str, str, int, list[int]]]:
    """Returns the test vectors of the API: a key, its bytes, its CRC-32, and its queue of 2, 3, 4 and 64."""
    page = (Path(__file__).parents[3] / "docs/api/sending.md").read_text()
    table = page.partition("## The queue of a key")[2].partition("\n## ")[0]
    rows = [
        [cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| `")
    ]
    return [(key, encoded, int(crc), list(map(int, queues))) for key, encoded, crc, *queues in rows]


def test_the_queue_of_a_key_is_that_of_the_documented_vectors() -> None:
    vectors = _vectors()
    assert len(vectors) >= 5
    for key, encoded, crc, queues in vectors:
        assert key.encode().hex(" ") == encoded
        assert crc32(key.encode()) == crc
        assert [queue_of(key, "batch", many) for many in (2, 3, 4, 64)] == queues


def test_messages_of_one_batch_without_a_key_share_a_queue() -> None:
    parts = batch(*(NewMessage(body=str(n), id=f"own-{n}") for n in range(20))).split(INPUTS, 100)
    assert list(queues(parts).values()) == [list(range(20))]


def test_batches_without_keys_spread_over_all_queues() -> None:
    for many in (8, 64):
        counts = Counter(queue_of(None, f"019ac5b2c1d{n:03x}", many) for n in range(100 * many))
        assert sorted(counts) == list(range(many))
        assert max(counts.values()) < 200


def test_delayed_batches_of_one_bucket_spread_over_all_queues() -> None:
    for many in (8, 64):
        rows = (delayed_batch("schedule/1763640000000-60/000", row_no) for row_no in range(100 * many))
        counts = Counter(queue_of(None, row, many) for row in rows)
        assert sorted(counts) == list(range(many))
        assert max(counts.values()) < 200


def test_keys_spread_over_all_queues() -> None:
    counts = Counter(queue_of(f"customer-{n}", "batch", 8) for n in range(800))
    assert sorted(counts) == list(range(8))
    assert max(counts.values()) < 200


def test_a_subject_with_one_queue_needs_no_choice() -> None:
    assert queue_of("key", "batch", 1) == queue_of(None, "batch", 1) == shard_of("batch", 1) == 0


def test_a_batch_is_divided_by_key_in_the_order_of_the_queues_and_keeps_its_order_in_each() -> None:
    messages = [NewMessage(body=str(n), key=None if n % 3 == 0 else f"k{n % 4}") for n in range(24)]
    parts = batch(*messages).split(INPUTS, 100)
    assert [part.queue for part in parts] == sorted(queues(parts))
    for part in parts:
        assert list(part.indexes) == sorted(part.indexes)
        assert [part.messages[at].body for at in range(len(part.indexes))] == [str(index) for index in part.indexes]
    unkeyed = {part.queue for part in parts for index in part.indexes if index % 3 == 0}
    assert len(unkeyed) == 1


def test_the_same_inputs_give_the_same_parts() -> None:
    messages = [NewMessage(body=str(n), key=str(n), delay=n * 100 or None) for n in range(12)]
    assert batch(*messages).split(INPUTS, 100) == batch(*messages).split(INPUTS, 100)


def test_the_number_of_queues_is_that_of_the_inputs_and_not_that_of_today() -> None:
    messages = [NewMessage(body=str(n), key=str(n)) for n in range(12)]
    parts = batch(*messages).split(replace(INPUTS, queues={"orders": 1}), 100)
    assert queues(parts) == {0: list(range(12))}


def test_delayed_messages_go_to_one_bucket_for_each_hour_before_those_that_are_sent_at_once() -> None:
    delays = [None, 90, 2 * 3_600, 95, "3h"]
    parts = batch(*(NewMessage(body=str(n), delay=delay) for n, delay in enumerate(delays))).split(INPUTS, 100)
    shard = shard_of("first", 4)
    assert [(part.bucket, list(part.indexes)) for part in parts] == [
        (Bucket(NOON_MS, 60, shard), [1, 3]),
        (Bucket(NOON_MS + 2 * HOUR_MS, 60, shard), [2]),
        (Bucket(NOON_MS + 3 * HOUR_MS, 60, shard), [4]),
        (None, [0]),
    ]
    assert list(parts[0].dues) == [NOON_MS + 90_000, NOON_MS + 95_000]
    assert all(message.delay is None for part in parts for message in part.messages)


def test_a_message_whose_time_has_come_is_sent_at_once() -> None:
    parts = batch(NewMessage(body="a", delay=0), NewMessage(body="b", deliver_at="2020-01-01T00:00:00Z")).split(
        INPUTS, 100
    )
    assert [(part.bucket, list(part.indexes)) for part in parts] == [(None, [0, 1])]


def test_a_delay_beyond_two_years_becomes_two_years() -> None:
    (part,) = batch(NewMessage(body="a", delay="900d")).split(INPUTS, 100)
    assert list(part.dues) == [NOON_MS + MAX_DELAY_MS]


def test_a_batch_that_falls_due_in_too_many_buckets_is_refused() -> None:
    messages = [NewMessage(body=str(n), delay=n * 3_600) for n in range(1, 5)]
    assert len(batch(*messages).split(INPUTS, 4)) == 4
    with pytest.raises(TooLarge, match="at most 3 different spans of 60 minutes, these fall due in 4"):
        batch(*messages).split(INPUTS, 3)


def test_each_subject_of_a_batch_is_divided_by_itself() -> None:
    messages = [NewMessage(body=str(n)) for n in range(4)]
    both = Batch({"a": subject("a"), "b": subject("b")}, {"a": [0, 2], "b": [1, 3]}, messages, {})
    parts = both.split(replace(INPUTS, queues={"a": 8, "b": 1}), 100)
    assert [(part.subject.name, list(part.indexes)) for part in parts] == [("a", [0, 2]), ("b", [1, 3])]


def sent_delayed(bench: Bench, *messages: NewMessage) -> list[tuple[str | None, int]]:
    """Lets the messages fall due, pulls them, and returns their bodies and queues."""
    bench.deployment.subjects.put("orders", queues=8)
    bench.deployment.groups.put("orders", "billing")
    bench.deployment.produce("orders", list(messages))
    bench.turn(20)
    return [(one.body, one.queue) for one in bench.take()]


def test_delayed_messages_of_one_request_without_a_key_arrive_in_one_queue_in_one_row(bench: Bench) -> None:
    found = sent_delayed(bench, *(NewMessage(body=str(n), id=f"own-{n}", delay=10) for n in range(20)))
    assert [body for body, _ in found] == [str(n) for n in range(20)]
    (queue,) = {queue for _, queue in found}
    assert bench.store.counter(f"orders~1/{queue}").rows == 1


def test_a_delayed_message_arrives_in_the_queue_of_its_key(bench: Bench) -> None:
    delayed = dict(sent_delayed(bench, *(NewMessage(body=key, key=key, delay=10) for key in "abcdef")))
    accepted = bench.deployment.produce("orders", [NewMessage(body=key, key=key) for key in "abcdef"])
    assert delayed == {key: one.queue for key, one in zip("abcdef", accepted, strict=True)}
