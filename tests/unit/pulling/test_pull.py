"""A pull covers the right rows, ends in the right place, and wakes the right other pulls."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import Unavailable
from hourwheel.logs.rows import Row, row_key, to_record
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, Settlement, SettleRequest
from hourwheel.ports.storage import Counter, Record, Table
from hourwheel.pull_log.claiming.claim_range import EMPTY_ROWS
from hourwheel.pull_log.open_logs import pull_logs
from hourwheel.pull_log.records import SETTLED_KEPT_MS
from hourwheel.wire.answer_size import PULL_BYTES
from tests.support import AT_ONCE, Bench, CallByCall, NoWakeups

MEGABYTE = random.Random(1).randbytes(500_000).hex()


def expired_rows(bench: Bench, number: int) -> None:
    """Stores this many rows that have expired, behind one that has not."""
    bench.deployment.groups.put("orders", "billing")
    bench.send("kept")
    bench.deployment.subjects.put("orders", retention_seconds=60)
    for _ in range(number):
        bench.send("short")
    bench.clock.pass_time(61)


def test_a_pull_that_covers_many_empty_rows_has_a_receipt_that_can_be_settled(bench: Bench) -> None:
    expired_rows(bench, 3 * EMPTY_ROWS)
    bench.send("new")
    first, second = bench.pull(), bench.pull()
    assert [one.body for pull in first + second for one in pull.messages] == ["kept", "new"]
    for (pull,) in (first, second):
        request = msgspec.json.encode({"settle": [{"receipt": pull.receipt}]})
        assert msgspec.json.decode(request, type=SettleRequest).settle[0].receipt == pull.receipt
        assert bench.settle(pull) == "settled"


def test_expired_rows_are_passed_over_once() -> None:
    store = CallByCall(MemoryStore())
    bench = Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=0))
    bench.send("first")
    (pull,) = bench.pull()
    bench.settle(pull)
    expired_rows(bench, 3 * EMPTY_ROWS)
    assert bench.bodies(1) == ["kept"]
    assert bench.bodies() == []
    store.calls.clear()
    assert bench.bodies() == []
    assert len(store.calls) < 30
    assert store.writes == []


def test_a_pull_that_ends_at_its_bytes_announces_that_there_may_be_more(bench: Bench) -> None:
    bench.send(MEGABYTE, MEGABYTE, MEGABYTE)
    bench.send(MEGABYTE, MEGABYTE, MEGABYTE)
    bench.wakeups.announced.clear()
    assert len(bench.take()) == 3
    assert bench.wakeups.announced == [("orders", "billing")]
    assert len(bench.take()) == 3
    assert bench.wakeups.announced == [("orders", "billing")]


def test_a_pull_of_several_queues_stays_within_its_bytes(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", queues=4)
    for number in range(8):
        bench.deployment.produce("orders", [NewMessage(body=MEGABYTE, key=str(number)) for _ in range(3)])
    sizes = []
    while found := bench.take():
        sizes.append(sum(len(one.body or "") for one in found))
    assert (max(sizes) <= PULL_BYTES, sum(sizes)) == (True, 24 * len(MEGABYTE))


def turns(bench: Bench, pulls: int, *, settles: bool) -> list[int | str]:
    """Returns the queues of pulls of single messages, one after the other, from queues that always have some."""
    bench.deployment.subjects.put("orders", queues=4)
    for number in range(40):
        bench.deployment.produce("orders", [NewMessage(body="x", key=str(number)) for _ in range(pulls)])
    queues: list[int | str] = []
    settled: list[Settlement] | None = None
    for _ in range(pulls):
        request = PullRequest(consumer="c1", max_messages=1, settle=settled)
        (pulled,) = bench.deployment.pull("orders", "billing", request).pulls
        queues.append(pulled.queue)
        settled = [Settlement(receipt=pulled.receipt)] if settles else None
    return queues


def test_a_pull_looks_mostly_into_the_queue_that_it_settles_and_into_all_in_the_end(bench: Bench) -> None:
    queues = turns(bench, 200, settles=True)
    stayed = sum(before == after for before, after in pairwise(queues)) / len(queues)
    assert stayed == pytest.approx(7 / 8 + 1 / 8 / 4, abs=0.08)
    assert set(queues) == {0, 1, 2, 3}


def test_a_pull_that_settles_nothing_begins_at_a_random_queue(bench: Bench) -> None:
    queues = turns(bench, 200, settles=False)
    stayed = sum(before == after for before, after in pairwise(queues)) / len(queues)
    assert stayed == pytest.approx(1 / 4, abs=0.1)


@dataclass
class OneWait(NoWakeups):
    """The first wait ends at once, as if it was woken."""

    waits: list[str] = field(default_factory=list)

    def wait(self, subject: str, group: str, *, since: int, tries: int, seconds: float) -> bool:
        self.waits.append(group)
        return len(self.waits) == 1


def test_a_pull_that_fails_when_it_was_woken_lets_another_one_look() -> None:
    store, wakeups = CallByCall(MemoryStore()), OneWait()
    bench = Bench(store, wakeups=wakeups, settings=Settings(retry=AT_ONCE, registry_seconds=0))
    bench.pull()
    counters = store.counters

    def failing(names: Sequence[str], *, consistent: bool = False) -> dict[str, Counter]:
        if wakeups.waits:
            raise Unavailable("busy")
        return counters(names, consistent=consistent)

    store.counters = failing
    with pytest.raises(Unavailable):
        bench.deployment.pull("orders", "billing", PullRequest(consumer="c1", wait_seconds=5))
    assert wakeups.announced == [("orders", "billing")]


class SweptBetween(CallByCall):
    """A sweeper of another process works between two of our calls: before the n-th read of the pull log's end."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.store)
        self.bench, self.swept = bench, False

    def scan(self, table: Table, partition: str, **how: Any) -> list[tuple[str, Record]]:
        if table is Table.PULL and how.get("reverse") and not self.swept:
            self.swept = True
            self.bench.another_process().sweeper.sweep()
        return super().scan(table, partition, **how)


def test_a_seek_holds_though_the_sweeper_lets_go_of_all_rows_meanwhile() -> None:
    bench = Bench(MemoryStore(), settings=Settings(retry=AT_ONCE, registry_seconds=0))
    bench.deployment.subjects.put("orders", retention_seconds=2_592_000)
    for body in "ab":
        bench.send(body)
        for pull in bench.pull():
            bench.settle(pull)
        bench.deployment.sweeper.sweep()
    bench.clock.pass_time(SETTLED_KEPT_MS / 1_000 + 100)
    bench.send("c")
    seeking = Bench(SweptBetween(bench), bench.blobs, bench.clock, settings=Settings(retry=AT_ONCE, registry_seconds=0))
    seeking.deployment.seeks().seek("orders", "billing", to="end")
    assert bench.bodies() == []


def test_a_process_that_was_away_saves_the_place_behind_rows_that_are_gone() -> None:
    bench = Bench(MemoryStore(), settings=Settings(retry=AT_ONCE, registry_seconds=0))
    bench.deployment.subjects.put("orders", retention_seconds=2_592_000)
    away = bench.another_process()
    bench.pull()
    away.sweeper.sweep()
    for body in "abc":
        bench.send(body)
        for pull in bench.pull():
            bench.settle(pull)
    bench.clock.pass_time(SETTLED_KEPT_MS / 1_000 + 3_601)
    bench.deployment.sweeper.sweep()
    bench.send("d", "e")
    (held,) = bench.pull(1, lease=43_200)
    bench.clock.pass_time(61)
    away.sweeper.sweep()
    checkpoint = away.leases._watches["billing~1@orders~1/0"].open[3].start
    assert (checkpoint.row_no, checkpoint.position.row_no, held.messages[0].body) == (3, 3, "d")


def test_a_claim_that_ends_within_a_batch_says_at_which_offset_the_next_one_begins(bench: Bench) -> None:
    bench.send(*"abc")
    bench.send(*"defgh")
    offsets = []
    for limit in (1, 1, 3, 2, 1):
        log = pull_logs(
            bench.deployment.context,
            bench.deployment.subjects.get("orders"),
            bench.deployment.groups.put("orders", "billing"),
        )[1]
        following = log.tail().seq
        messages = bench.take(limit)
        assert messages[0].offset == following
        offsets += [message.offset for message in messages]
    assert offsets == [*range(8)]


def test_a_claim_goes_on_behind_a_row_that_was_removed_while_half_of_it_was_handed_out(bench: Bench) -> None:
    bench.send("a", "b", "c")
    assert bench.bodies(2) == ["a", "b"]
    key = row_key("orders~1/0", 0)
    record = bench.store.get(key)
    assert record is not None
    filler = Row(first_seq=-1, count=0, at_ms=bench.clock.now_ms(), expires_ms=bench.clock.now_ms() + 10**9)
    bench.store.put(key, to_record(filler, b"f" * 16, 0), expect=record.token)
    bench.send("d")
    bench.send("e")
    assert bench.bodies() == ["d", "e"]
    assert bench.bodies() == []
