"""A pull of an ordered group that finishes a part of a queue goes on with the next part at once."""

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.context import Settings
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, Settlement
from hourwheel.ports import CellStorage
from tests.support import AT_ONCE, Bench, CallByCall

CELLS = ("", "two")


@pytest.fixture(params=["call by call", "transactions"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """Messages of one key lie in four parts of a queue, one in each."""
    stores = [CallByCall(MemoryStore()) if request.param == "call by call" else MemoryStore() for _ in CELLS]
    bench = Bench(
        stores[0],
        settings=Settings(retry=AT_ONCE, registry_seconds=0),
        cells={"two": CellStorage(stores[1], MemoryBlobs())},
    )
    bench.cell.cells.add("two")
    bench.cell.put_group("orders", "billing", ordered=True)
    for number in range(4):
        bench.cell.produce("orders", [NewMessage(body=f"a{number}", key="a")])
        bench.cell.routes.move("orders", 0, CELLS[1 - number % 2] or "home")
    return bench


def test_each_pull_that_settles_the_last_message_of_a_part_gets_the_next_part(bench: Bench) -> None:
    bodies: list[str | None] = []
    settlements: list[Settlement] = []
    while pulls := bench.cell.pull("orders", "billing", PullRequest(consumer="c1", settle=settlements)).pulls:
        bodies += [message.body for pull in pulls for message in pull.messages]
        settlements = [Settlement(receipt=pull.receipt) for pull in pulls]
    assert bodies == ["a0", "a1", "a2", "a3"]


def test_a_pull_that_settles_only_some_of_a_part_does_not_look_again(bench: Bench) -> None:
    (pull,) = bench.pull()
    request = PullRequest(consumer="c1", settle=[Settlement(receipt=pull.receipt, extend_seconds=60)])
    assert bench.cell.pull("orders", "billing", request).pulls == []
    assert bench.bodies() == []
