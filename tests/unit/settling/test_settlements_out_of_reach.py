"""A receipt whose cell is out of reach, or was given up, holds up no other receipt and no pull."""

from collections.abc import Callable
from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.deployment.deployment import Deployment
from hourwheel.errors import ReceiptsUnavailable, Throttled
from hourwheel.model.pulls import Pull, PullRequest, Settlement
from hourwheel.ports.storage import CellStorage, Store
from tests.failing import FAILURES
from tests.support import Bench, CallByCall
from tests.unit.delay.test_cells_out_of_reach import ALL, Outage
from tests.unit.pulling.test_cells_out_of_reach import moved, send

LATER = 7  # seconds: a cell that did not answer is left alone until then


@pytest.fixture(params=FAILURES)
def away(request: pytest.FixtureRequest) -> Outage:
    return Outage(FAILURES[request.param])


@pytest.fixture(
    params=[
        pytest.param((home, options), id=f"{name} {kind}")
        for name, home in (("at once", MemoryStore), ("call by call", lambda: CallByCall(MemoryStore())))
        for kind, options in (("unordered", {}), ("ordered", {"ordered": True}), ("limited", {"max_in_flight": 9}))
    ]
)
def bench(request: pytest.FixtureRequest, away: Outage) -> Bench:
    """Returns a subject of two queues, of which the first is in cell away, with a message in each."""
    home: Callable[[], Store]
    home, options = request.param
    bench = moved(home(), CellStorage(away, MemoryBlobs()), **options)
    send(bench, "there", 0)
    send(bench, "here", 1)
    return bench


def leased(bench: Bench) -> list[Pull]:
    """Returns a pull of the cell that will be out of reach, and one of the home cell."""
    pulls: dict[str | None, Pull] = {}
    while len(pulls) < 2:
        pulls |= {pull.messages[0].body: pull for pull in bench.pull()}
    return [pulls["there"], pulls["here"]]


def settle(deployment: Deployment, pulls: list[Pull], **how: Any) -> list[str]:
    settlements = [Settlement(receipt=pull.receipt, **how) for pull in pulls]
    return [settled.status for settled in deployment.settle("orders", "billing", settlements)]


def pull_and_settle(deployment: Deployment, pulls: list[Pull]) -> tuple[list[str | None], list[str]]:
    settlements = [Settlement(receipt=pull.receipt) for pull in pulls]
    result = deployment.pull("orders", "billing", PullRequest(consumer="c", settle=settlements))
    bodies = [message.body for pull in result.pulls for message in pull.messages]
    return bodies, [settled.status for settled in result.settled or ()]


def give_up(bench: Bench, away: Outage) -> None:
    away.down = ALL
    bench.deployment.cells.set_state("away", "offline")
    bench.deployment.cells.remove("away", lost=True)


def test_the_receipts_of_other_cells_are_settled(bench: Bench, away: Outage) -> None:
    pulls = leased(bench)
    away.down = ALL
    assert settle(bench.deployment, pulls) == ["unavailable", "settled"]
    with pytest.raises(
        ReceiptsUnavailable, match=r"^the (storage|volume) of cell away (does not answer|fails|is full)$"
    ):
        settle(bench.deployment, pulls[:1])
    away.down = frozenset()
    bench.clock.pass_time(LATER)
    assert settle(bench.deployment, pulls) == ["settled", "settled"]
    assert bench.bodies() == []


def test_a_pull_goes_on(bench: Bench, away: Outage) -> None:
    pulls = leased(bench)
    away.down = ALL
    send(bench, "new", 1)
    assert pull_and_settle(bench.deployment, pulls) == (["new"], ["unavailable", "settled"])
    send(bench, "newer", 1)
    assert pull_and_settle(bench.deployment, pulls[:1]) == (["newer"], ["unavailable"])
    away.down = frozenset()
    bench.clock.pass_time(LATER)
    assert pull_and_settle(bench.deployment, pulls[:1]) == ([], ["settled"])


def test_a_paused_group_settles(bench: Bench, away: Outage) -> None:
    pulls = leased(bench)
    bench.deployment.groups.pause("orders", "billing", paused=True)
    away.down = ALL
    assert pull_and_settle(bench.deployment, pulls) == ([], ["unavailable", "settled"])


@pytest.mark.parametrize("how", [{"retry": [0]}, {"dead": [0]}, {"release": [0]}, {"extend_seconds": 40}], ids=str)
def test_other_settlements_can_be_repeated_too(bench: Bench, away: Outage, how: dict[str, Any]) -> None:
    done = "extended" if "extend_seconds" in how else "settled"
    pulls = leased(bench)
    away.down = ALL
    assert settle(bench.deployment, pulls, **how) == ["unavailable", done]
    away.down = frozenset()
    bench.clock.pass_time(LATER)
    assert settle(bench.deployment, pulls, **how) == [done, done]


@pytest.mark.parametrize("verb", ["put", "get", "scan"])
def test_a_cell_that_fails_amid_a_settlement_holds_up_no_other(bench: Bench, away: Outage, verb: str) -> None:
    pulls = leased(bench)
    away.down = frozenset({verb})
    first, second = settle(bench.deployment, pulls)
    assert (first in {"unavailable", "settled"}, second) == (True, "settled")
    away.down = frozenset()
    bench.clock.pass_time(LATER)
    assert settle(bench.deployment, pulls) == ["settled", "settled"]


def test_the_receipts_of_a_cell_that_was_given_up_are_stale(bench: Bench, away: Outage) -> None:
    pulls = leased(bench)
    give_up(bench, away)
    send(bench, "new", 0)
    assert pull_and_settle(bench.deployment, pulls[:1]) == (["new"], ["stale"])
    assert settle(bench.deployment, pulls[:1]) == ["stale"]
    assert settle(bench.deployment, pulls) == ["stale", "settled"]
    assert settle(bench.deployment, pulls[:1], extend_seconds=40) == ["stale"]


@pytest.mark.parametrize("lost", [False, True], ids=["out of reach", "given up"])
def test_a_process_without_the_cell_settles_the_receipts_of_other_cells(
    bench: Bench, away: Outage, *, lost: bool
) -> None:
    pulls = leased(bench)
    if lost:
        give_up(bench, away)
    bench.cells.clear()
    without = bench.another_process()
    send(bench, "new", 1)
    status = "stale" if lost else "unavailable"
    assert pull_and_settle(without, pulls[:1]) == (["new"], [status])
    assert settle(without, pulls) == [status, "settled"]
    if not lost:
        with pytest.raises(ReceiptsUnavailable, match="cell away is not opened here"):
            settle(without, pulls[:1])


def test_the_home_cell_that_does_not_answer_fails_the_whole_request(away: Outage) -> None:
    home = Outage()
    bench = moved(home, CellStorage(away, MemoryBlobs()))
    send(bench, "there", 0)
    send(bench, "here", 1)
    pulls = leased(bench)
    home.down = frozenset({"put"})
    with pytest.raises(Throttled):
        settle(bench.deployment, pulls)
    home.down = frozenset()
    assert settle(bench.deployment, pulls) == ["settled", "settled"]


def test_the_messages_of_a_cell_that_is_out_of_reach_count_as_in_flight(away: Outage) -> None:
    bench = moved(MemoryStore(), CellStorage(away, MemoryBlobs()), max_in_flight=2)
    send(bench, "there", 0)
    send(bench, "here", 1)
    pulls = leased(bench)
    send(bench, "new", 1)
    send(bench, "newer", 1)
    assert bench.bodies() == []
    away.down = ALL
    full = bench.deployment.pull("orders", "billing", PullRequest(consumer="c"))
    assert (full.pulls, full.limited_by) == ([], "max_in_flight")
    assert pull_and_settle(bench.deployment, pulls) == (["new"], ["unavailable", "settled"])
    other = bench.another_process()  # it has not seen the lease in the cell
    assert pull_and_settle(other, []) == (["newer"], [])


@pytest.mark.parametrize("options", [{"max_in_flight": 9}, {"messages_per_second": 1_000}])
def test_a_process_that_began_while_the_cell_was_out_of_reach_claims_there_afterwards(
    away: Outage, options: dict[str, int]
) -> None:
    """The rows of the pulls in the cell were removed long ago: its next row is that of the checkpoint."""
    bench = moved(MemoryStore(), CellStorage(away, MemoryBlobs()), **options)
    for number in range(3):
        send(bench, f"there {number}", 0)
        settle(bench.deployment, bench.pull())
    for _ in range(30):
        bench.clock.pass_time(43_200)
        bench.deployment.sweeper.sweep()
    away.down = ALL
    other = bench.another_process()
    send(bench, "here", 1)
    assert pull_and_settle(other, []) == (["here"], [])
    away.down = frozenset()
    bench.clock.pass_time(LATER)
    send(bench, "back", 0)
    assert pull_and_settle(other, []) == (["back"], [])


def test_a_process_without_a_cell_that_was_removed_finds_its_receipts_stale(away: Outage) -> None:
    bench = moved(MemoryStore(), CellStorage(away, MemoryBlobs()))
    send(bench, "there", 0)
    send(bench, "here", 1)
    pulls = leased(bench)
    bench.clock.pass_time(120)
    while pulled := bench.pull():
        settle(bench.deployment, pulled)
    bench.deployment.cells.drain("away")
    for _ in range(80):
        bench.clock.pass_time(43_200)
        bench.deployment.sweeper.sweep()
    assert bench.deployment.cells.remove("away").state == "removed"
    bench.cells.clear()
    assert settle(bench.another_process(), pulls) == ["stale", "stale"]
