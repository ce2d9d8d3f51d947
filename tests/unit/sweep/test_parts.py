"""A closed part of a queue expires only when no group has a lease there."""

from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.context import Settings
from hourwheel.ports.storage import CellStorage, Record, Table
from hourwheel.registry.records import FIRST_GROUP, partition_of
from tests.support import AT_ONCE, Bench


class OutOfDate(MemoryStore):
    """A store whose eventually consistent reads do not show the groups yet."""

    def scan(self, table: Table, partition: str, **how: Any) -> list[tuple[str, Record]]:
        found = super().scan(table, partition, **how)
        if table is Table.META and partition == partition_of("orders") and not how.get("consistent", True):
            return [(sort, record) for sort, record in found if sort < FIRST_GROUP]
        return found


@pytest.fixture
def bench() -> Bench:
    """Returns a bench with a lease in a closed part whose rows have expired."""
    cells = {"two": CellStorage(MemoryStore(), MemoryBlobs())}
    bench = Bench(OutOfDate(), settings=Settings(retry=AT_ONCE, registry_seconds=0), cells=cells)
    bench.deployment.cells.add("two")
    bench.deployment.subjects.put("orders", retention_seconds=60)
    bench.send("a")
    bench.deployment.groups.put("orders", "billing")
    bench.deployment.routes.move("orders", 0, "two")
    return bench


def pull_rows(bench: Bench) -> list[tuple[str, Record]]:
    return bench.store.scan(Table.PULL, "billing~1@orders~1/0", limit=10)


def parts(bench: Bench) -> list[str]:
    return [name for _, name in bench.deployment.registry.subject("orders").parts(0)]


def test_a_sweep_that_reads_an_old_list_of_groups_keeps_a_part_with_a_lease(bench: Bench) -> None:
    (pull,) = bench.pull(lease=300)
    bench.clock.pass_time(120)
    bench.deployment.sweeper.sweep()
    assert parts(bench) == ["orders~1/0", "two:orders~1/0.1"]
    assert bench.settle(pull) == "settled"
    bench.deployment.sweeper.sweep()
    assert (parts(bench), pull_rows(bench)) == (["two:orders~1/0.1"], [])
