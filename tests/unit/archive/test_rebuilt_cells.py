"""A rebuild registers the cells again in which queues have parts."""

from dataclasses import replace

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.archive.archiver import Archiver, CommitLimits
from hourwheel.archive.rebuild import rebuild
from hourwheel.context import Settings
from hourwheel.errors import NotFound
from hourwheel.ports.storage import CellStorage
from tests.support import AT_ONCE, Bench


def storage() -> CellStorage:
    return CellStorage(MemoryStore(), MemoryBlobs())


@pytest.fixture
def bench() -> Bench:
    """Returns a bench whose queue 0 is in cell fast, with its first part at home; cell spare holds nothing."""
    settings = Settings(retry=AT_ONCE, registry_seconds=0, archive=True)
    bench = Bench(settings=settings, cells={"fast": storage(), "spare": storage()})
    bench.deployment.cells.add("fast")
    bench.deployment.cells.add("spare")
    bench.deployment.groups.put("orders", "billing")
    bench.send("at home")
    bench.deployment.routes.move("orders", 0, "fast")
    bench.send("away")
    return bench


@pytest.fixture
def archive(bench: Bench) -> MemoryBlobs:
    archive = MemoryBlobs()
    deployment = bench.another_process()
    Archiver(deployment.context, deployment.registry, archive, CommitLimits()).run(bench.clock.now_ms() + 600_000)
    return archive


def empty(bench: Bench, *names: str) -> Bench:
    cells = {name: storage() for name in names}
    return replace(bench, store=MemoryStore(), blobs=MemoryBlobs(), cells=cells, timers=type(bench.timers)())


def test_the_cells_of_queues_are_there_and_queues_move_between_them(bench: Bench, archive: MemoryBlobs) -> None:
    anew = empty(bench, "fast", "spare")
    rebuild(anew.deployment.context, archive)
    assert [(cell.cell, cell.state, cell.queues) for cell in anew.deployment.cells.all()] == [
        ("home", "normal", 0),
        ("fast", "normal", 1),
    ]
    anew.deployment.routes.move("orders", 0, "home")
    anew.deployment.routes.move("orders", 0, "fast")
    assert sorted(map(str, anew.bodies())) == ["at home", "away"]


@pytest.mark.parametrize("names", [(), ("spare",)])
def test_a_cell_that_was_not_named_is_told_before_anything_is_restored(
    bench: Bench, archive: MemoryBlobs, names: tuple[str, ...]
) -> None:
    anew = empty(bench, *names)
    with pytest.raises(NotFound, match=r"the archive has queues in cell fast: .* --cell fast=DIRECTORY"):
        rebuild(anew.deployment.context, archive)
    again = replace(anew, cells={"fast": storage()})
    rebuild(again.deployment.context, archive)
    assert sorted(map(str, again.bodies())) == ["at home", "away"]
