"""Dry runs of moves and drains, and refusals of moves, while a cell is out of reach."""

import pytest

from hourwheel.context import Settings
from hourwheel.errors import CellUnavailable, Conflict, MovePending, Unavailable
from tests.support import AT_ONCE, Bench
from tests.unit.cells.scenes import with_a_queue_in_each_cell
from tests.unit.delay.test_cells_out_of_reach import ALL, Outage

BOTH = pytest.mark.parametrize("dry_run", [True, False])


@pytest.fixture
def bench() -> Bench:
    """Returns a bench with a subject that has a queue in each of the cells home, ``fast`` and ``old``."""
    return with_a_queue_in_each_cell(Settings(retry=AT_ONCE, registry_seconds=0), Outage())


def break_down(bench: Bench) -> None:
    """Lets every call of the cell ``fast`` fail from now on."""
    store = bench.cells["fast"].store
    assert isinstance(store, Outage)
    store.down = ALL
    bench.deployment = bench.another_process()


def test_a_dry_run_says_whether_the_move_is_pending_or_would_be(bench: Bench) -> None:
    break_down(bench)
    with pytest.raises(MovePending, match="move of queue 1 of 'orders' to cell 'home' would be pending until the cell"):
        bench.deployment.routes.move("orders", 1, "home", dry_run=True)
    with pytest.raises(MovePending, match="the addition of queues to 'orders' would be pending until the cell answers"):
        bench.deployment.routes.add_queues("orders", 4, dry_run=True)
    for dry_run in (False, True, False):
        with pytest.raises(MovePending, match=r"is pending, .* hourwheel queue withdraw orders 1 withdraws it"):
            bench.deployment.routes.move("orders", 1, "home", dry_run=dry_run)


@BOTH
def test_a_move_elsewhere_of_a_queue_with_a_pending_move_says_how_to_withdraw_that(bench: Bench, dry_run: bool) -> None:
    break_down(bench)
    with pytest.raises(Unavailable):
        bench.deployment.routes.move("orders", 1, "home")
    with pytest.raises(Conflict, match=r"has a pending move to cell 'home': .*hourwheel queue withdraw orders 1\)"):
        bench.deployment.routes.move("orders", 1, "old", dry_run=dry_run)


@BOTH
def test_a_move_to_a_cell_that_does_not_answer_is_refused_with_the_reason(bench: Bench, dry_run: bool) -> None:
    break_down(bench)
    with pytest.raises(CellUnavailable) as refused:
        bench.deployment.routes.move("orders", 0, "fast", dry_run=dry_run)
    assert str(refused.value) == "the storage of cell fast does not answer; queue 0 stays where it is"
    bench.cells.pop("old")
    with pytest.raises(CellUnavailable, match="cell old is not known here; queue 0 stays where it is"):
        bench.another_process().routes.move("orders", 0, "old", dry_run=dry_run)


def test_a_dry_run_of_a_drain_shows_pending_moves_of_other_queues(bench: Bench) -> None:
    break_down(bench)
    with pytest.raises(Unavailable):
        bench.deployment.routes.move("orders", 1, "home")
    (foreseen,) = bench.deployment.cells.drain("old", dry_run=True).moved
    assert [queue.moving_to for queue in foreseen.after.queues] == [None, "home", None]
    (step,) = bench.deployment.cells.drain("old").moved
    assert step.after == foreseen.after
