"""A process that knows few of a group's pull rows finds the end, however far behind it is."""

from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.ports.storage import Record, Table
from tests.support import AT_ONCE, Bench, CallByCall

ROWS = 250
"""More pull rows than two pages of the longest scan, and more than a claim loses races."""


class Endless(BaseException):
    """Says that a call reads on and on. No code of the queue catches it, so a test fails instead of waiting."""


class BoundedStore(CallByCall):
    """A store that ends a call which reads more pages of pull rows than ``pages``."""

    pages = 1 << 30

    def scan(self, table: Table, partition: str, **how: Any) -> list[tuple[str, Record]]:
        if table is Table.PULL:
            self.pages -= 1
        if self.pages < 0:
            raise Endless(f"the call reads {partition} without an end")
        return super().scan(table, partition, **how)


@pytest.mark.parametrize("ordered", [False, True], ids=["plain", "ordered"])
@pytest.mark.parametrize("settled", [False, True], ids=["leased", "settled"])
def test_a_process_that_is_hundreds_of_pull_rows_behind_gets_the_next_message(*, ordered: bool, settled: bool) -> None:
    store = BoundedStore(MemoryStore())
    bench = Bench(store, settings=Settings(retry=AT_ONCE))
    bench.deployment.groups.put("orders", "billing", ordered=ordered, max_in_flight=0)
    behind = bench.another_process()
    bench.send("first", key="first")
    bench.deployment, ahead = behind, bench.deployment
    (pull,) = bench.pull()  # this process remembers the rows of now
    bench.settle(pull)
    bench.deployment = ahead
    for number in range(ROWS):
        bench.send(str(number), key=str(number))
        (pull,) = bench.pull(lease=600)
        if settled:
            assert bench.settle(pull) == "settled"
    bench.send("last", key="last")
    bench.deployment = behind
    store.pages = 50
    assert bench.bodies() == ["last"]
    assert bench.bodies() == []
