"""Pulls of queues with parts in a cell that is out of reach."""

from collections.abc import Callable

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.context import Settings
from hourwheel.ports import CellStorage, Store
from tests.support import AT_ONCE, Bench, CallByCall
from tests.unit.delay.test_cells_out_of_reach import Outage


@pytest.mark.parametrize("home", [MemoryStore, lambda: CallByCall(MemoryStore())], ids=["at once", "call by call"])
@pytest.mark.parametrize("verb", ["put", "scan"])
def test_what_was_claimed_before_a_cell_failed_is_handed_out(home: Callable[[], Store], verb: str) -> None:
    away = Outage()
    settings = Settings(retry=AT_ONCE, registry_seconds=0)
    bench = Bench(home(), settings=settings, cells={"away": CellStorage(away, MemoryBlobs())})
    bench.cell.cells.add("away")
    bench.send("one")
    bench.cell.routes.move("orders", 0, "away")
    bench.send("two")
    away.down = frozenset({verb})
    assert [(message.body, message.attempt) for message in bench.take()] == [("one", 1)]
    away.down = frozenset()
    bench.clock.pass_time(6)
    assert bench.bodies() == ["two"]
