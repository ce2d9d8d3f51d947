"""A pull of an ordered group that finishes a part of a queue goes on with the next part at once."""

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import Filled, Sealed
from hourwheel.logs.log import Reservation
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, Settlement
from hourwheel.ports.storage import CellStorage
from tests.support import AT_ONCE, Bench, CallByCall

CELLS = ("", "two")


@pytest.fixture(params=["call by call", "transactions"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """Returns a bench with messages of one key in four parts of a queue, one in each."""
    stores = [CallByCall(MemoryStore()) if request.param == "call by call" else MemoryStore() for _ in CELLS]
    bench = Bench(
        stores[0],
        settings=Settings(retry=AT_ONCE, registry_seconds=0),
        cells={"two": CellStorage(stores[1], MemoryBlobs())},
    )
    bench.deployment.cells.add("two")
    bench.deployment.groups.put("orders", "billing", ordered=True)
    for number in range(4):
        bench.deployment.produce("orders", [NewMessage(body=f"a{number}", key="a")])
        bench.deployment.routes.move("orders", 0, CELLS[1 - number % 2] or "home")
    return bench


def test_each_pull_that_settles_the_last_message_of_a_part_gets_the_next_part(bench: Bench) -> None:
    bodies: list[str | None] = []
    settlements: list[Settlement] = []
    while pulls := bench.deployment.pull("orders", "billing", PullRequest(consumer="c1", settle=settlements)).pulls:
        bodies += [message.body for pull in pulls for message in pull.messages]
        settlements = [Settlement(receipt=pull.receipt) for pull in pulls]
    assert bodies == ["a0", "a1", "a2", "a3"]


def test_a_pull_that_settles_only_some_of_a_part_does_not_look_again(bench: Bench) -> None:
    (pull,) = bench.pull()
    request = PullRequest(consumer="c1", settle=[Settlement(receipt=pull.receipt, extend_seconds=60)])
    assert bench.deployment.pull("orders", "billing", request).pulls == []
    assert bench.bodies() == []


@pytest.fixture(params=["call by call", "transactions"])
def cut_off(request: pytest.FixtureRequest) -> tuple[Bench, Reservation]:
    """A producer took a row for two messages, and the queue moved before the row was stored."""
    store = CallByCall(MemoryStore()) if request.param == "call by call" else MemoryStore()
    cells = {"two": CellStorage(MemoryStore(), MemoryBlobs())}
    bench = Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=0), cells=cells)
    bench.deployment.cells.add("two")
    bench.deployment.groups.put("orders", "billing", ordered=True)
    bench.send("first", key="a")
    reservation = bench.deployment.context.log("orders~1/0").reserve(2)
    bench.deployment.routes.move("orders", 0, "two")
    bench.send("next", key="a")
    return bench, reservation


def handled(bench: Bench) -> list[str | None]:
    """Pulls once, acknowledges the messages and returns them."""
    pulls = bench.pull()
    for pull in pulls:
        bench.settle(pull)
    return [message.body for pull in pulls for message in pull.messages]


def test_a_row_at_the_end_of_a_part_whose_writer_died_holds_up_the_next_part_for_a_second(
    cut_off: tuple[Bench, Reservation],
) -> None:
    bench, _ = cut_off
    assert [handled(bench), handled(bench)] == [["first"], []]
    bench.clock.pass_time(0.9)
    assert handled(bench) == []
    bench.clock.pass_time(0.1)
    assert handled(bench) == []
    assert handled(bench) == ["next"]


def test_a_part_without_any_stored_row_holds_up_the_next_part_for_a_second(cut_off: tuple[Bench, Reservation]) -> None:
    bench, _ = cut_off
    bench.deployment.context.log("two:orders~1/0.1").reserve(2)
    assert handled(bench) == ["first"]
    bench.deployment.routes.move("orders", 0, "home")
    bench.send("last", key="a")
    bodies: list[str | None] = []
    for _ in range(8):
        bodies += handled(bench)
        bench.clock.pass_time(1)
    assert bodies == ["next", "last"]


def test_a_writer_that_is_slower_than_that_appends_its_messages_behind_the_move(
    cut_off: tuple[Bench, Reservation],
) -> None:
    bench, reservation = cut_off
    late = bench.deployment.context.log(reservation.log)
    (_, row), *_ = late.read(0, 1, consistent=True)
    assert [handled(bench), handled(bench)] == [["first"], []]
    bench.clock.pass_time(1)
    assert handled(bench) == []
    with pytest.raises(Filled):
        late.put(reservation, row, bench.deployment.context.ids.token())
    with pytest.raises(Sealed):
        late.reserve(1)
    assert handled(bench) == ["next"]


def test_a_row_that_is_stored_in_time_is_served_before_the_next_part(cut_off: tuple[Bench, Reservation]) -> None:
    bench, reservation = cut_off
    late = bench.deployment.context.log(reservation.log)
    (_, row), *_ = late.read(0, 1, consistent=True)
    assert [handled(bench), handled(bench)] == [["first"], []]
    bench.clock.pass_time(0.5)
    assert late.put(reservation, row, bench.deployment.context.ids.token())
    bench.clock.pass_time(1)
    assert handled(bench) == ["first"]
    assert handled(bench) == ["next"]
