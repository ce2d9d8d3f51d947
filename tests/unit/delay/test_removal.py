"""Closed buckets are removed many rows at a time, in turns, and as fast as lonely messages come."""

from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.buckets.buckets import Bucket, BucketRecord, bucket_record
from hourwheel.delay.maintenance import buckets_due_soon, drop_closed
from hourwheel.ports.storage import Key, Record, Refused, Table
from tests.support import Bench, CallByCall

CALL_SECONDS = 0.005
DAY_MS = 86_400_000
ROWS_A_SECOND = 1_000
"""Each lonely message is a row of its schedule log, and most are a row of the dispatch log."""


class SlowCalls(CallByCall):
    """Takes five milliseconds for each call that removes."""

    bench: Bench | None = None

    def _wait(self) -> None:
        if self.bench is not None:
            self.bench.clock.ms += round(CALL_SECONDS * 1_000)

    def delete(self, key: Key, *, expect: bytes) -> Refused | None:
        self._wait()
        return super().delete(key, expect=expect)

    def remove_many(self, table: Table, partition: str, sorts: Any) -> None:
        self._wait()
        super().remove_many(table, partition, sorts)

    def scan(self, table: Table, partition: str, **how: Any) -> list[tuple[str, Record]]:
        self._wait()
        return super().scan(table, partition, **how)


@pytest.fixture
def bench() -> Bench:
    store = SlowCalls(MemoryStore())
    store.bench = bench = Bench(store)
    return bench


def closed(bench: Bench, rows: int, shard: int) -> Bucket:
    """Makes a bucket of this many rows in both logs that was closed two days ago."""
    now_ms = bench.clock.now_ms()
    bucket = Bucket.at(now_ms - 2 * DAY_MS, 60, shard)
    context = bench.deployment.context
    assert bucket_record(context, bucket).swap(None, BucketRecord(closed_ms=now_ms - 2 * DAY_MS)).stored
    for table, partition in ((Table.SCHEDULE, bucket.log), (Table.DISPATCH, bucket.name)):
        for number in range(rows):
            record = Record(b"\x90", number.to_bytes(16, "big"))
            assert bench.store.put(Key(table, partition, f"{number:016d}"), record, expect=None) is None
    return bucket


def left(bench: Bench, bucket: Bucket) -> int:
    logs = ((Table.SCHEDULE, bucket.log), (Table.DISPATCH, bucket.name))
    return sum(len(bench.store.scan(table, partition, limit=1_000_000)) for table, partition in logs)


def drop(bench: Bench) -> int:
    context = bench.deployment.context
    return drop_closed(context, buckets_due_soon(context))


def test_a_minute_of_lonely_messages_is_removed_within_a_minute(bench: Bench) -> None:
    shards = [closed(bench, 60 * ROWS_A_SECOND // 4, shard) for shard in range(4)]
    began_ms = bench.clock.now_ms()
    assert drop(bench) == len(shards)
    assert bench.clock.now_ms() - began_ms <= 60_000
    assert [left(bench, bucket) for bucket in shards] == [0] * len(shards)


def test_buckets_are_removed_in_turns_within_the_time_of_a_run(bench: Bench) -> None:
    large, small = closed(bench, 130_000, 0), closed(bench, 10, 1)
    began_ms = bench.clock.now_ms()
    assert drop(bench) == 1
    assert 49_000 <= bench.clock.now_ms() - began_ms <= 51_000
    assert left(bench, small) == 0
    assert 0 < left(bench, large) < 260_000
    while not drop(bench):
        pass
    assert left(bench, large) == 0
