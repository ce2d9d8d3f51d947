"""The overview counts messages, not the gap of offsets that a lost part leaves."""

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.cells.requests import shown_route
from hourwheel.context import Settings
from hourwheel.model.overview import GroupOverviewPage, SubjectOverview
from hourwheel.model.routes import LOST_GAP, Mapping, Route, counted
from hourwheel.operations.overview import OverviewRequest
from hourwheel.ports.storage import CellStorage
from tests.failing import FAILURES
from tests.support import AT_ONCE, Bench
from tests.unit.delay.test_cells_out_of_reach import ALL, Outage


@pytest.fixture(params=FAILURES)
def fast(request: pytest.FixtureRequest) -> Outage:
    return Outage(FAILURES[request.param])


@pytest.fixture
def bench(fast: Outage) -> Bench:
    """Returns a bench whose subject ``far`` has a message in a closed part in the home cell, and two in its open part
    in cell fast."""
    cells = {"fast": CellStorage(fast, MemoryBlobs()), "spare": CellStorage(MemoryStore(), MemoryBlobs())}
    bench = Bench(settings=Settings(retry=AT_ONCE, registry_seconds=0), cells=cells)
    for cell in cells:
        bench.deployment.cells.add(cell)
    bench.deployment.subjects.put("far")
    bench.deployment.groups.put("far", "billing")
    bench.send("old", subject="far")
    bench.deployment.routes.move("far", 0, "fast")
    bench.send("lost", "lost too", subject="far")
    return bench


def give_up(bench: Bench, fast: Outage) -> None:
    fast.down = ALL
    bench.deployment.cells.set_state("fast", "offline")
    bench.deployment.cells.remove("fast", lost=True)


def subject_of(bench: Bench) -> SubjectOverview:
    bench.clock.pass_time(60)
    (subject,) = bench.deployment.overview.page(OverviewRequest()).subjects
    return subject


def groups_of(bench: Bench) -> GroupOverviewPage:
    return bench.deployment.overview.groups("far", "", 10)


def test_a_queue_with_a_lost_part_keeps_the_messages_of_its_other_parts(bench: Bench, fast: Outage) -> None:
    give_up(bench, fast)
    bench.send("new", subject="far")
    (queue,) = groups_of(bench).queues
    assert (queue.start, queue.end, queue.messages) == (0, 1 + LOST_GAP + 1, 2)
    assert queue.bytes is not None
    assert queue.bytes < 1_000


def test_a_queue_that_lost_a_closed_part_does_not_count_its_messages(bench: Bench, fast: Outage) -> None:
    bench.deployment.routes.move("far", 0, "spare")
    bench.send("new", subject="far")
    assert [queue.messages for queue in groups_of(bench).queues] == [4]
    give_up(bench, fast)
    assert [queue.messages for queue in groups_of(bench).queues] == [2]


def test_the_numbers_from_which_rates_are_computed_do_not_jump(bench: Bench, fast: Outage) -> None:
    assert (subject_of(bench).end, subject_of(bench).settled) == (3, 0)
    give_up(bench, fast)
    assert subject_of(bench).end == 1
    bench.send("new", subject="far")
    assert subject_of(bench).end == 2
    while pulls := bench.pull(subject="far", group="billing"):
        for pull in pulls:
            bench.settle(pull, subject="far", group="billing")
    assert (subject_of(bench).settled, groups_of(bench).groups[0].settled) == (2, 2)


def test_a_group_that_has_not_read_the_messages_of_the_new_part_is_not_at_its_end(bench: Bench, fast: Outage) -> None:
    bench.take(subject="far", group="billing")
    give_up(bench, fast)
    bench.send("new", subject="far")
    (group,) = groups_of(bench).groups
    assert (group.waiting, group.settled) == (1, 1)


def test_offsets_behind_two_lost_parts_count_the_messages_that_are_left() -> None:
    first = Mapping(end=7, state="read_only")
    lost = Mapping(start=7, end=7 + LOST_GAP, state="lost", part=1)
    again = Mapping(start=7 + LOST_GAP, end=10 + LOST_GAP, state="read_only", part=2)
    anew = Mapping(start=10 + LOST_GAP, end=10 + 2 * LOST_GAP, state="lost", part=3)
    route = Route((first, lost, again, anew, Mapping(start=10 + 2 * LOST_GAP, part=4)), 5)
    end = 12 + 2 * LOST_GAP
    assert (counted(end), route.messages(0, end), route.messages(5, end), route.messages(end, end)) == (12, 12, 7, 0)


def test_the_route_says_that_nobody_knows_the_end_of_a_part_that_took_messages(bench: Bench, fast: Outage) -> None:
    give_up(bench, fast)
    (queue,) = shown_route(bench.deployment.subjects.get("far")).queues
    shown = [(each.start, each.end, each.state) for each in queue.mappings]
    assert shown == [(0, 1, "read_only"), (1, None, "lost"), (1 + LOST_GAP, None, "normal")]
