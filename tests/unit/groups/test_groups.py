"""A group begins where its settings say, moves where a seek says, counts its lag, and lets rows behind it be
trimmed."""

from typing import Any

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.errors import Rejected
from hourwheel.groups.seeks import offsets
from hourwheel.model.messages import NewMessage
from hourwheel.ports.storage import Key, Record, Table
from hourwheel.pull_log.log_rows import checkpoint_key
from hourwheel.pull_log.records import SETTLED_KEPT_MS
from hourwheel.times import rfc3339
from tests.support import NOON_MS, Bench, CallByCall


def test_a_new_group_starts_at_the_earliest_message_or_at_the_latest(bench: Bench) -> None:
    bench.send("a")
    bench.deployment.groups.put("orders", "late", start="latest")
    bench.send("b")
    assert bench.bodies(group="early") == ["a", "b"]
    assert bench.bodies(group="late") == ["b"]


def test_a_group_at_the_latest_message_knows_the_queues_that_were_added_a_moment_ago(bench: Bench) -> None:
    stale = Bench(bench.store, bench.blobs, bench.clock)
    stale.send("a")
    bench.deployment.subjects.put("orders", queues=2)
    for number in range(8):
        bench.deployment.produce("orders", [NewMessage(body="b", key=str(number))])
    stale.deployment.groups.put("orders", "late", start="latest")
    assert bench.bodies(group="late") == []


def test_seek_goes_to_start_end_time_and_offset(bench: Bench) -> None:
    for number in range(5):
        bench.send(f"{number}a", f"{number}b")
        bench.clock.pass_time(10)
    seeks = {
        "start": lambda: offsets(bench.deployment.seeks().seek("orders", "billing", to="start")),
        "end": lambda: offsets(bench.deployment.seeks().seek("orders", "billing", to="end")),
        "offset 3": lambda: offsets(bench.deployment.seeks().seek_offset("orders", "billing", 0, 3)),
        "offset 10": lambda: offsets(bench.deployment.seeks().seek_offset("orders", "billing", 0, 10)),
        "20 s": lambda: offsets(bench.deployment.seeks().seek_time("orders", "billing", NOON_MS + 20_000)),
        "15 s": lambda: offsets(bench.deployment.seeks().seek_time("orders", "billing", NOON_MS + 15_000)),
        "long ago": lambda: offsets(bench.deployment.seeks().seek_time("orders", "billing", 0)),
        "later": lambda: offsets(bench.deployment.seeks().seek_time("orders", "billing", NOON_MS + 90_000)),
    }
    bench.take()
    found = {name: (seek(), bench.bodies(1)) for name, seek in seeks.items()}
    assert found == {
        "start": ({0: 0}, ["0a"]),
        "end": ({0: 10}, []),
        "offset 3": ({0: 3}, ["1b"]),
        "offset 10": ({0: 10}, []),
        "20 s": ({0: 4}, ["2a"]),
        "15 s": ({0: 4}, ["2a"]),
        "long ago": ({0: 0}, ["0a"]),
        "later": ({0: 10}, []),
    }


def test_the_first_message_after_a_seek_to_the_end_is_delivered(bench: Bench) -> None:
    bench.send("a")
    bench.deployment.groups.put("orders", "billing")
    bench.deployment.seeks().seek("orders", "billing", to="end")
    bench.send("b")
    assert bench.bodies() == ["b"]


def test_a_seek_to_the_start_does_not_pass_a_row_that_is_on_its_way(bench: Bench) -> None:
    bench.send("a")
    (pull,) = bench.pull()
    bench.settle(pull)
    log = bench.deployment.context.log("orders~1/0")
    first = log.get(0)
    assert first is not None
    bench.clock.pass_time(first.expires_ms / 1_000)
    bench.deployment.sweeper.sweep()
    slow = log.reserve(1)
    bench.send("c")
    bench.deployment.seeks().seek("orders", "billing", to="start")
    now_ms = bench.clock.now_ms()
    log.put(slow, msgspec.structs.replace(first, at_ms=now_ms, expires_ms=now_ms + 60_000), b"t" * 16)
    assert bench.bodies() == ["a", "c"]


def test_a_seek_beyond_the_end_or_to_an_unknown_queue_is_refused(bench: Bench) -> None:
    bench.send("a")
    bench.pull()
    with pytest.raises(Rejected, match="beyond"):
        bench.deployment.seeks().seek_offset("orders", "billing", 0, 2)
    with pytest.raises(Rejected, match="1 queue"):
        bench.deployment.seeks().seek_offset("orders", "billing", 1, 0)


def test_lag_counts_what_waits_flies_retries_and_is_dead(bench: Bench) -> None:
    bench.send("a", "b", "c", "d", "e")
    (pull,) = bench.pull(3)
    lag = bench.deployment.groups.lag("orders", "billing")
    assert (lag.waiting, lag.in_flight, lag.retrying, lag.dead) == (2, 3, 0, 0)
    assert lag.oldest_at == "2025-11-20T12:00:00.000Z"
    bench.settle(pull, ack=[0], retry=[1], dead=[2])
    lag = bench.another_process().groups.lag("orders", "billing")
    assert (lag.waiting, lag.in_flight, lag.retrying, lag.dead) == (2, 0, 1, 1)
    (queue,) = lag.queues
    assert (queue.offset, queue.end, queue.waiting) == (3, 5, 2)
    for one in bench.pull():
        bench.settle(one)
    lag = bench.deployment.groups.lag("orders", "billing")
    assert (lag.waiting, lag.in_flight, lag.retrying, lag.dead, lag.oldest_at) == (0, 0, 0, 1, None)


def test_messages_past_their_retention_are_not_delivered_and_then_removed(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", retention_seconds=60)
    bench.send("old")
    bench.clock.pass_time(59)
    bench.send("new")
    bench.clock.pass_time(2)
    assert bench.bodies() == ["new"]
    bench.deployment.sweeper.sweep()
    assert len(bench.store.scan(Table.CONSUME, "orders~1/0", limit=9)) == 1
    assert bench.bodies(group="another") == ["new"]


def test_nothing_waits_where_all_that_waited_has_expired_and_is_removed(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", retention_seconds=60)
    bench.send("old", "old, too")
    (pull,) = bench.pull(1)
    bench.settle(pull)
    bench.clock.sleep(61)
    bench.deployment.sweeper.sweep()
    lag = bench.deployment.groups.lag("orders", "billing")
    assert (lag.waiting, lag.queues[0].offset, lag.queues[0].end) == (0, 2, 2)


def test_a_shorter_retention_removes_nothing_that_was_promised_longer(bench: Bench) -> None:
    bench.send("long")
    bench.deployment.subjects.put("orders", retention_seconds=60)
    bench.send("short")
    bench.clock.pass_time(61)
    bench.deployment.sweeper.sweep()
    assert bench.bodies() == ["long"]


def test_a_group_goes_on_from_its_checkpoint_when_its_rows_are_gone(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", retention_seconds=2_592_000)
    for body in "abc":
        bench.send(body)
        for pull in bench.pull():
            bench.settle(pull)
    bench.deployment.sweeper.sweep()
    partition = "billing~1@orders~1/0"
    rows = bench.store.scan(Table.PULL, partition, limit=9)
    assert len(rows) == 3
    assert all(record.expires_ms == NOON_MS + SETTLED_KEPT_MS for _, record in rows)
    # The engine removes expired rows late and in any order: the last ones first, say.
    bench.clock.pass_time(SETTLED_KEPT_MS / 1_000)
    for sort, record in reversed(rows[1:]):
        bench.store.delete(Key(Table.PULL, partition, sort), expect=record.token)
    bench.send("d")
    assert bench.bodies() == ["d"]


def test_old_settled_rows_are_trimmed_behind_the_checkpoint(bench: Bench) -> None:
    for body in "abc":
        bench.send(body)
        for pull in bench.pull():
            bench.settle(pull)
    bench.deployment.sweeper.sweep()
    bench.clock.pass_time(SETTLED_KEPT_MS / 1_000 + 3_601)
    bench.send("d")
    (pull,) = bench.pull()
    bench.deployment.sweeper.sweep()
    assert len(bench.store.scan(Table.PULL, "billing~1@orders~1/0", limit=9)) == 1
    assert bench.settle(pull) == "settled"


def test_an_open_pull_holds_the_checkpoint_back(bench: Bench) -> None:
    bench.send("a", "b")
    (first,) = bench.pull(1, lease=43_200)
    (second,) = bench.pull(1)
    bench.settle(second)
    bench.deployment.sweeper.sweep()
    assert bench.store.get(checkpoint_key("billing~1@orders~1/0")) is None
    bench.settle(first)
    bench.deployment.sweeper.sweep()
    assert bench.store.get(checkpoint_key("billing~1@orders~1/0")) is not None


def test_an_unknown_queue_is_a_field_that_is_invalid(bench: Bench) -> None:
    bench.send("a")
    bench.pull()
    with pytest.raises(Rejected) as refused:
        bench.deployment.seeks().seek_offset("orders", "billing", 7, 0)
    assert (refused.value.status, refused.value.slug, refused.value.field) == (400, "field-invalid", "queue")


def test_lag_knows_since_when_a_message_waits_that_only_an_up_to_date_read_shows() -> None:
    class OutOfDate(CallByCall):
        """A reading that may be out of date shows none of the rows of queues."""

        def scan(self, table: Table, partition: str, **how: Any) -> list[tuple[str, Record]]:
            if table is Table.CONSUME and not how.get("consistent", True):
                return []
            return super().scan(table, partition, **how)

    bench = Bench(OutOfDate(MemoryStore()))
    bench.deployment.groups.put("orders", "billing")
    bench.send("a")
    lag = bench.deployment.groups.lag("orders", "billing")
    assert (lag.waiting, lag.oldest_at) == (1, rfc3339(bench.clock.now_ms()))


def test_lag_behind_a_row_on_its_way_is_never_too_little(bench: Bench) -> None:
    bench.send("a")
    bench.take()
    bench.store.add("orders~1/0", rows=1, numbers=2)
    bench.send("c", "d", "e")
    (queue,) = bench.deployment.groups.lag("orders", "billing").queues
    assert (queue.waiting, queue.offset, queue.end) == (5, 1, 6)
    bench.clock.pass_time(2)
    (queue,) = bench.deployment.groups.lag("orders", "billing").queues
    assert (queue.waiting, queue.offset, queue.end) == (3, 3, 6)


def test_nothing_waits_where_all_rows_are_fillers_or_have_expired(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing")
    bench.deployment.subjects.put("orders", retention_seconds=60)
    bench.store.add("orders~1/0", rows=1, numbers=2)
    bench.send("a")
    bench.clock.pass_time(61)
    (queue,) = bench.deployment.groups.lag("orders", "billing").queues
    assert (queue.waiting, queue.offset, queue.end) == (0, 3, 3)


def test_a_claim_ends_before_rows_that_were_trimmed_while_it_read() -> None:
    class Trimmed(CallByCall):
        """Between the first page of rows and the second the older ones expire, and are swept."""

        pages = 0

        def scan(self, table: Table, partition: str, **how: Any) -> list[tuple[str, Record]]:
            if table is Table.CONSUME and partition == "orders~1/0" and how.get("limit", 0) > 1:
                self.pages += 1
                if self.pages == 2:
                    bench.clock.pass_time(61)
                    bench.another_process().sweeper.sweep()
            return super().scan(table, partition, **how)

    bench = Bench(CallByCall(MemoryStore()))
    bench.deployment.subjects.put("orders", retention_seconds=60)
    for body in "abcdef":
        bench.send(body)
    bench.deployment.subjects.put("orders", retention_seconds=3_600)
    bench.send("g")
    bench.store = Trimmed(bench.store)
    bench.deployment = bench.another_process()
    (first,) = bench.pull()
    assert [message.body for message in first.messages] == ["a", "b", "c", "d"]
    (second,) = bench.pull()
    assert bench.settle(second, retry=[0]) == "settled"
    assert bench.bodies() == ["g"]
