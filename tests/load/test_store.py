"""The metered store counts as DynamoDB bills, and refuses as DynamoDB does."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from bench.cost.meter import item_bytes
from hourwheel.adapters.aws.dynamodb import DynamoStore
from hourwheel.errors import Throttled
from hourwheel.ports.storage import Key, Record, Table
from tests.load.machine import START_MS, Machine
from tests.load.store import MeteredStore, record_bytes
from tests.load.throughput import READ, WRITE, Doubling, Throughput, Throughputs

KEY = Key(Table.PULL, "partition", "sort")


class Caught:
    """A client of DynamoDB that keeps the item of a put."""

    def put_item(self, **request: Any) -> None:
        self.item = request["Item"]


@pytest.fixture
def machine() -> Machine:
    return Machine(1)


@pytest.fixture
def store(machine: Machine) -> MeteredStore:
    return MeteredStore(machine, Throughputs(lambda: machine.now, machine.rng.random), Counter())


def in_task(machine: Machine, work: Callable[[], object], seconds: float = 60) -> None:
    machine.spawn(work)
    machine.run(seconds)


@pytest.mark.parametrize("expires_ms", [None, 1_800_000_000_123])
def test_a_record_is_as_large_as_the_item_that_the_adapter_stores(expires_ms: int | None) -> None:
    client: Any = Caught()
    record = Record(b"v" * 500, b"t" * 16, expires_ms)
    DynamoStore(client, prefix="p").put(KEY, record, expect=None)
    assert record_bytes(KEY, record) == item_bytes(client.item)


def test_writes_and_reads_are_counted_by_the_size_of_the_item(machine: Machine, store: MeteredStore) -> None:
    def work() -> None:
        store.put(KEY, Record(b"x" * 3_000, b"1" * 16), expect=None)
        assert store.put(KEY, Record(b"y", b"2" * 16), expect=None) is not None
        store.get(KEY)
        store.get(KEY, consistent=False)
        store.scan(Table.PULL, "partition", limit=1)
        store.add("c", rows=1, numbers=1)
        store.counters(["c", "d"])

    in_task(machine, work)
    assert store.units["pull", WRITE] == 3 + 3, "a refused put is billed by the larger item"
    assert store.units["pull", READ] == 1 + 0.5 + 1
    assert (store.units["counters", WRITE], store.units["counters", READ]) == (1, 1)
    assert store.lost == {"pull": 1}


def test_a_call_takes_effect_after_its_latency(machine: Machine, store: MeteredStore) -> None:
    took: list[float] = []

    def work() -> None:
        for _ in range(500):
            began = machine.now
            store.get(KEY)
            took.append(machine.now - began)

    in_task(machine, work)
    took.sort()
    assert took[250] == pytest.approx(4.5, rel=0.1)
    assert took[495] == pytest.approx(10, rel=0.25)


def test_outside_of_a_task_nothing_takes_time_or_units(machine: Machine, store: MeteredStore) -> None:
    store.put(KEY, Record(b"x", b"1" * 16), expect=None)
    assert store.get(KEY) is not None
    assert (machine.now, store.units) == (START_MS, {})


def test_a_partition_refuses_what_exceeds_its_units(machine: Machine, store: MeteredStore) -> None:
    refused: list[str] = []

    def work() -> None:
        for number in range(300):
            try:
                store.put(Key(Table.PULL, "partition", str(number)), Record(b"x" * 9_990, b"1" * 16), expect=None)
            except Throttled as error:
                refused.append(str(error))

    in_task(machine, work, 1)
    # The units of the first second, those that came in it, and the debt of one item.
    assert 2_000 <= store.units["pull", WRITE] <= 2_000 + 10 + 1_000
    assert refused
    assert store.put(Key(Table.PULL, "another", "0"), Record(b"x", b"1" * 16), expect=None) is None


def test_unused_units_are_kept_for_the_burst() -> None:
    limit = Throughput(rate=100, now=0, burst_seconds=300)
    assert limit.admits(400_000, 0)
    limit.use(29_999)
    assert limit.admits(400_000, 0)
    limit.use(2)
    assert not limit.admits(400_000, 0)
    assert limit.admits(400_020, 0)


@pytest.mark.parametrize("factor", [5, 20])
def test_beside_others_a_request_gets_its_share(machine: Machine, factor: int) -> None:
    limit = Throughput(rate=1_000, now=0, offered=1_000.0 * factor)
    limit.admits(10_000, 0)
    admitted = sum(limit.admits(10_000 + at, machine.rng.random()) for at in range(5_000))
    assert admitted / 5_000 == pytest.approx(1 / factor, rel=0.2)


def test_a_table_serves_twice_its_use_half_an_hour_later() -> None:
    table = Doubling(rate=4_000, now=0)
    for second in range(1_801):
        assert table.admits(second * 1_000, 0)
        table.use(3_500)
    assert table.rate == pytest.approx(7_000, rel=0.01)
    for second in range(1_801, 20_000):
        table.admits(second * 1_000, 0)
        table.use(table.rate)
    assert table.rate == 40_000, "the quota"


def test_keys_beyond_the_units_are_read_when_there_are_some(machine: Machine, store: MeteredStore) -> None:
    names = [f"c{number}" for number in range(100)]
    limit = machine.now

    def work() -> None:
        store.counters(names)

    in_task(machine, work)
    assert limit < machine.now
    assert store.units["counters", READ] == 50
