"""A move that meets a cell which is full, fails or does not answer leaves no queue behind that takes no messages: at
whichever call the cell fails, with whichever error, and though the process that moves ends there."""

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.context import Settings
from hourwheel.deployment.deployment import Deployment
from hourwheel.errors import Broken, CellFull, CellUnavailable, MovePending, Unavailable
from hourwheel.model.messages import NewMessage
from hourwheel.ports.storage import CellStorage
from tests.failing import FAILURES, FailingStore, FailingTransactions
from tests.support import AT_ONCE, Bench
from tests.unit.cells.scenes import with_a_queue_in_each_cell

CALLS = range(4)
"""More calls than a move makes of the cell to which it leads, or which it leaves."""

STORES = {"call by call": FailingStore, "transactions": FailingTransactions}


@pytest.fixture(params=STORES)
def fast(request: pytest.FixtureRequest) -> FailingStore:
    return STORES[request.param]()


@pytest.fixture
def bench(fast: FailingStore) -> Bench:
    """Returns a bench with a queue in each of the cells home, ``fast`` and ``old``."""
    return with_a_queue_in_each_cell(Settings(retry=AT_ONCE, registry_seconds=60), fast)


@pytest.fixture(params=FAILURES)
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def send(deployment: Deployment, body: str, queue: int) -> int | None:
    return deployment.produce("orders", [NewMessage(body=body, queue=queue)])[0].offset


def refusal(call: Callable[[], object]) -> CellUnavailable | None:
    """Returns the error of a call that a cell holds up; None if it succeeds."""
    try:
        call()
    except CellUnavailable as error:
        return error
    return None


def cells(bench: Bench) -> list[str]:
    return [queue.mappings[-1].cell for queue in bench.deployment.routes.show("orders").queues]


def check_offsets(bench: Bench, queue: int) -> None:
    """Checks that the parts of a queue follow one another."""
    parts = bench.deployment.routes.show("orders").queues[queue].mappings
    assert all(before.end == after.start for before, after in pairwise(parts))


@pytest.mark.parametrize("after", CALLS)
def test_the_producers_of_a_queue_go_on_while_the_target_of_its_move_is_out_of_reach(
    bench: Bench, fast: FailingStore, how: str, after: int
) -> None:
    assert send(bench.deployment, "a", 0) == 0
    fast.fail(how, after)
    error = refusal(lambda: bench.deployment.routes.move("orders", 0, "fast"))
    if error is None:
        assert cells(bench) == ["fast", "fast", "old"], "the cell failed after all calls of the move"
    else:
        assert str(error).endswith("queue 0 stays where it is")
        assert isinstance(error, CellFull) == (how == "full")
        assert cells(bench) == ["home", "fast", "old"]
        assert [send(bench.deployment, "b", 0), send(bench.another_process(), "c", 0)] == [1, 2]
    assert [queue.moving_to for queue in bench.deployment.routes.show("orders").queues] == [None] * 3
    fast.recover()
    deployment = bench.another_process()
    if cells(bench)[0] == "home":
        deployment.routes.move("orders", 0, "fast")
    assert send(deployment, "d", 0) in (1, 3)
    check_offsets(bench, 0)


class Ended(BaseException):
    """Ends the process that moves."""


class EndingStore(FailingStore):
    """A store whose caller ends at a call, after which the store fails."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: str = ""

    def check(self, *, writes: bool) -> None:
        if self.ends and self._left <= 0:
            self.fail(self.ends)
            self.ends = ""
            raise Ended
        self._left -= 1
        super().check(writes=writes)


@pytest.mark.parametrize("after", CALLS)
def test_a_process_that_ends_within_a_move_leaves_a_queue_that_takes_messages(how: str, after: int) -> None:
    fast = EndingStore()
    bench = with_a_queue_in_each_cell(Settings(retry=AT_ONCE, registry_seconds=0), fast)
    fast.ends, fast._left = how, after
    try:
        bench.deployment.routes.move("orders", 0, "fast")
    except Ended:
        assert [send(bench.another_process(), body, 0) for body in "ab"] == [0, 1]
        assert cells(bench) == ["home", "fast", "old"]
    else:
        assert cells(bench)[0] == "fast"
    check_offsets(bench, 0)


@pytest.mark.parametrize("after", CALLS)
def test_a_queue_that_leaves_a_failing_cell_goes_on_as_soon_as_it_can(
    bench: Bench, fast: FailingStore, how: str, after: int
) -> None:
    assert send(bench.deployment, "a", 1) == 0
    fast.fail(how, after)
    try:
        bench.deployment.routes.move("orders", 1, "home")
    except MovePending:
        assert cells(bench) == ["home", "fast", "old"]
        with pytest.raises(Unavailable):
            send(bench.deployment, "b", 1)
        fast.recover()
        bench.another_process().sweeper.sweep()
    assert cells(bench) == ["home", "home", "old"]
    assert send(bench.another_process(), "c", 1) == 1
    check_offsets(bench, 1)


@pytest.mark.parametrize("after", range(5))
def test_an_addition_of_queues_stops_no_queue_of_another_cell(
    bench: Bench, fast: FailingStore, how: str, after: int
) -> None:
    fast.fail(how, after)
    error = refusal(lambda: bench.deployment.routes.add_queues("orders", 4))
    assert error is None or "the addition of queues to 'orders' is pending" in str(error)
    sent = [send(process, "m", queue) for queue in (0, 2) for process in (bench.deployment, bench.another_process())]
    assert sent == [0, 1, 0, 1]
    fast.recover()
    bench.another_process().sweeper.sweep()
    assert len(cells(bench)) == 4
    for queue in range(3):
        check_offsets(bench, queue)
    assert send(bench.another_process(), "m", 1) == 0


def test_a_log_that_is_sealed_in_a_cell_that_is_full_goes_on_in_the_home_cell() -> None:
    fast = FailingTransactions()  # a producer meets the seal before it finds no room
    bench = with_a_queue_in_each_cell(Settings(retry=AT_ONCE, registry_seconds=60), fast)
    send(bench.deployment, "a", 1)
    bench.deployment.context.log(bench.deployment.subjects.get("orders").log(1)).seal()
    fast.fail("full")
    assert [send(bench.another_process(), body, 1) for body in "bc"] == [1, 2]
    assert cells(bench) == ["home", "home", "old"]
    check_offsets(bench, 1)


def test_a_drain_moves_queues_to_a_cell_that_has_room(bench: Bench, fast: FailingStore) -> None:
    fast.fail("full")
    foreseen = bench.deployment.cells.drain("old", dry_run=True)
    result = bench.deployment.cells.drain("old")
    assert (result.unmoved, foreseen.unmoved) == ([], [])
    assert cells(bench) == ["home", "fast", "home"]


@pytest.mark.parametrize("target", ["home", "fast"])
@pytest.mark.parametrize("after", range(12))
def test_a_move_that_the_home_cell_interrupts_is_carried_out_once_it_answers(how: str, after: int, target: str) -> None:
    home = FailingStore()
    cells = {"fast": CellStorage(MemoryStore(), MemoryBlobs())}
    bench = Bench(home, cells=cells, settings=Settings(retry=AT_ONCE, registry_seconds=0))
    bench.deployment.subjects.put("orders")
    bench.deployment.cells.add("fast")
    if target == "home":
        bench.deployment.routes.move("orders", 0, "fast")
    home.fail(how, after)
    with suppress(Unavailable, Broken):
        bench.deployment.routes.move("orders", 0, target)
    home.recover()
    assert send(bench.another_process(), "a", 0) == 0
    bench.another_process().sweeper.sweep()
    (route,) = bench.deployment.routes.show("orders").queues
    assert route.moving_to is None
    assert send(bench.another_process(), "b", 0) == 1
