"""Cells that share a disk take turns to get the messages that have no key."""

from collections import Counter

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.context import Settings
from hourwheel.model.log_names import cell_of
from hourwheel.model.messages import NewMessage
from hourwheel.ports.storage import CellStorage
from hourwheel.producing.idempotency import IdempotencyKey
from hourwheel.producing.routing import queue_of
from tests.support import AT_ONCE, Bench

TURN_MS = 20


@pytest.fixture
def bench() -> Bench:
    """Returns a bench whose subject has two queues in the home cell and two in another."""
    bench = Bench(
        settings=Settings(retry=AT_ONCE, cell_turn_ms=TURN_MS),
        cells={"two": CellStorage(MemoryStore(), MemoryBlobs())},
    )
    bench.cell.cells.add("two")
    bench.cell.put_subject("orders", queues=4)
    for queue in (1, 2):
        bench.cell.routes.move("orders", queue, "two")
    return bench


def queues_of_batches(bench: Bench, count: int) -> Counter[int | None]:
    return Counter(bench.send("x")[0].queue for _ in range(count))


def test_nearly_all_batches_of_one_turn_go_to_one_cell_and_its_queues_share_them(bench: Bench) -> None:
    cells = []
    for _ in range(8):
        queues = queues_of_batches(bench, 100)
        subject = bench.cell.registry.subject("orders")
        counts = Counter[str]()
        for queue, count in queues.items():
            counts[cell_of(subject.log(queue or 0))] += count
        [(cell, count)] = counts.most_common(1)
        assert count >= 95, "one batch in 512 misses the turn"
        cells.append(cell)
        bench.clock.ms += TURN_MS
    assert Counter(cells) == {cells[0]: 4, "two": 4}


def test_batches_spread_evenly_over_the_queues(bench: Bench) -> None:
    queues = Counter[int | None]()
    for _ in range(200):
        queues += queues_of_batches(bench, 10)
        bench.clock.ms += TURN_MS // 2
    assert all(400 < queues[queue] < 600 for queue in range(4))


def test_keys_and_named_queues_go_where_they_belong_in_each_turn(bench: Bench) -> None:
    for turn in range(8):
        key = f"k-{turn}"
        keyed, named = bench.cell.produce("orders", [NewMessage(body="x", key=key), NewMessage(body="x", queue=3)])
        assert (keyed.queue, named.queue) == (queue_of(key, "", 4), 3)
        bench.clock.ms += TURN_MS


def test_a_repeated_batch_keeps_its_queue_in_the_turn_of_another_cell(bench: Bench) -> None:
    for turn in range(8):
        once = IdempotencyKey(f"batch-{turn}", b"digest")
        [first] = bench.cell.produce("orders", [NewMessage(body="x")], once)
        bench.clock.ms += TURN_MS
        assert bench.cell.produce("orders", [NewMessage(body="x")], once) == [first]
