"""Work on the logs of several cells goes on without those that are out of reach, and collects their names."""

from collections.abc import Callable

import pytest

from hourwheel.errors import (
    Broken,
    CellFull,
    CellUnavailable,
    HourwheelError,
    ReceiptsUnavailable,
    StorageFull,
    Unavailable,
)
from hourwheel.reach.outages import Outages, all_reached, raise_fault, reached
from hourwheel.reach.storages import at_home, by_storage

HOME, NEAR, FAR = "orders~1/0", "near:orders~1/1.1", "far:orders~1/2.1"
OUTAGES = {
    "away": CellUnavailable("cell far does not answer"),
    "full": CellFull("the volume of cell far is full"),
    "broken": CellUnavailable("the storage of cell far fails", is_logged=True),
    "given up": CellUnavailable("cell far was given up: what it held is lost", is_lasting=True),
}


@pytest.fixture(params=OUTAGES)
def outage(request: pytest.FixtureRequest) -> CellUnavailable:
    return OUTAGES[request.param]


def failing(error: Exception) -> Callable[[str], str]:
    """Returns work that fails for the log in cell far."""

    def work(log: str) -> str:
        if log == FAR:
            raise error
        return log

    return work


def test_work_without_its_cell_has_the_other_result(outage: CellUnavailable) -> None:
    work = failing(outage)
    assert reached(lambda: work(NEAR), None) == NEAR
    assert reached(lambda: work(FAR), None) is None


def test_work_for_many_logs_has_the_results_of_those_that_can_be_reached(outage: CellUnavailable) -> None:
    assert all_reached(failing(outage), [HOME, FAR, NEAR]) == [HOME, NEAR]


def test_the_cells_out_of_reach_are_collected_by_name(outage: CellUnavailable) -> None:
    outages, done, work = Outages(), [], failing(outage)
    for log in (HOME, FAR, NEAR):
        with outages.noted(log):
            done.append(work(log))
    assert done == [HOME, NEAR]
    assert outages.names == ["far"]
    assert outages.has(FAR)
    assert not outages.has(NEAR)
    assert outages.names_of([HOME, NEAR]) == []
    outages.add([NEAR])
    assert outages.names == ["far", "near"]


@pytest.mark.parametrize("error", [Unavailable("the store does not answer"), StorageFull("full"), Broken("broken")])
def test_errors_of_the_whole_store_pass_through(error: HourwheelError) -> None:
    work, outages = failing(error), Outages()
    with pytest.raises(type(error)):
        reached(lambda: work(FAR), None)
    with pytest.raises(type(error)):
        all_reached(work, [FAR])
    with pytest.raises(type(error)), outages.noted(FAR):
        work(FAR)
    assert outages.names == []


def test_an_outage_that_is_seen_is_noted_and_raised(outage: CellUnavailable) -> None:
    outages = Outages()
    with pytest.raises(CellUnavailable), outages.seen(FAR):
        raise outage
    assert outages.names == ["far"]


def test_a_request_that_needs_all_cells_is_refused_with_their_names() -> None:
    outages = Outages()
    outages.check("nothing was moved")
    outages.add([FAR, NEAR])
    with pytest.raises(CellUnavailable, match="cell far, near cannot be reached, so nothing was moved"):
        outages.check("nothing was moved")


def test_the_last_outage_is_raised_with_its_facts(outage: CellUnavailable) -> None:
    outages = Outages()
    with outages.noted(FAR):
        raise outage
    with pytest.raises(type(outage)) as last:
        outages.raise_last()
    assert last.value is outage
    with pytest.raises(ReceiptsUnavailable, match=str(outage)) as recast:
        outages.raise_as(ReceiptsUnavailable)
    assert (recast.value.is_logged, recast.value.is_lasting) == (outage.is_logged, outage.is_lasting)


def test_of_several_errors_that_of_the_home_cell_is_raised(outage: CellUnavailable) -> None:
    raise_fault([])
    raise_fault([outage, outage])
    with pytest.raises(StorageFull):
        raise_fault([outage, StorageFull("full")])


def test_logs_are_grouped_by_their_storage() -> None:
    assert by_storage([HOME, FAR, "orders~1/retry/billing~1", NEAR]) == [
        [HOME, "orders~1/retry/billing~1"],
        [FAR],
        [NEAR],
    ]
    assert by_storage([]) == []
    assert at_home(HOME)
    assert not at_home(FAR)
