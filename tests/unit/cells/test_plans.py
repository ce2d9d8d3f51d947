"""Plans of routes decide without a store which queue goes to which cell."""

from collections import Counter

import msgspec
import pytest

from hourwheel.cells.move_steps import stay
from hourwheel.cells.plans import plan_drain, plan_move, plan_queues, plan_spread
from hourwheel.errors import Conflict, NotFound
from hourwheel.model.log_names import HOME
from hourwheel.model.routes import Mapping, MoveTarget, Route, RouteChange, continued
from hourwheel.model.subjects import Subject


def subject_in(*cells: str) -> Subject:
    """Returns a subject of which each queue is in one of these cells."""
    routes = tuple(Route((Mapping(cell=cell),)) for cell in cells)
    return Subject(name="orders", generation=1, queues=len(cells), retention_seconds=60, created_ms=0, routes=routes)


def cells_after(subject: Subject, change: RouteChange | None) -> list[str]:
    cells = [route.last.cell for route in subject.all_routes()]
    for target in () if change is None else change.targets:
        cells[target.queue] = target.cell
    return cells


# Plans


def test_a_move_names_a_new_part_in_the_cell() -> None:
    change = plan_move(1, "fast")(subject_in(HOME, HOME))
    assert change == RouteChange((MoveTarget(1, "fast", 1, 1),), 2)


def test_a_subject_without_routes_is_moved_from_the_home_cell() -> None:
    plain = msgspec.structs.replace(subject_in(HOME), routes=())
    change = plan_move(0, "fast")(plain)
    assert change is not None
    assert cells_after(plain, change) == ["fast"]


@pytest.mark.parametrize("queue", [-1, 2])
def test_a_queue_that_the_subject_does_not_have_cannot_move(queue: int) -> None:
    with pytest.raises(NotFound, match="has 2 queues, numbered from 0"):
        plan_move(queue, "fast")(subject_in(HOME, HOME))


def test_a_queue_does_not_move_to_the_cell_in_which_it_is() -> None:
    with pytest.raises(Conflict, match="queue 0 of 'orders' is in cell 'home' already"):
        plan_move(0, HOME)(subject_in(HOME, "fast"))


def test_more_queues_continue_each_old_queue_in_its_own_cell() -> None:
    subject = subject_in(HOME, "fast")
    change = plan_queues(4)(subject)
    assert change is not None
    assert (change.queues, cells_after(subject, change)) == (4, [HOME, "fast"])
    assert [target.queue for target in change.targets] == [0, 1]


def test_the_number_of_queues_that_a_subject_has_needs_no_change() -> None:
    assert plan_queues(2)(subject_in(HOME, HOME)) is None


def test_a_subject_cannot_have_fewer_queues() -> None:
    with pytest.raises(Conflict, match="has 2 queues and cannot have fewer"):
        plan_queues(1)(subject_in(HOME, HOME))


def test_a_spread_gives_each_cell_as_many_queues() -> None:
    subject = subject_in(HOME, HOME, HOME, HOME, HOME, HOME)
    after = cells_after(subject, plan_spread([HOME, "fast", "old"])(subject))
    assert Counter(after) == {HOME: 2, "fast": 2, "old": 2}


def test_a_spread_moves_no_queue_more_than_it_has_to() -> None:
    subject = subject_in("fast", HOME, "fast", "fast")
    change = plan_spread([HOME, "fast"])(subject)
    assert change is not None
    assert [(target.queue, target.cell) for target in change.targets] == [(3, HOME)]


def test_the_queue_that_is_left_over_stays_in_the_cell_with_the_most() -> None:
    assert plan_spread(["fast", HOME])(subject_in(HOME, HOME, "fast")) is None


def test_a_spread_moves_queues_out_of_cells_that_it_does_not_name() -> None:
    subject = subject_in("old", HOME)
    assert cells_after(subject, plan_spread([HOME, "fast"])(subject)) == ["fast", HOME]


def test_a_drain_fills_the_cells_with_the_fewest_queues_first() -> None:
    subject = subject_in("old", HOME, "old", HOME, "fast")
    after = cells_after(subject, plan_drain("old", [HOME, "fast"])(subject))
    assert after == ["fast", HOME, HOME, HOME, "fast"]


def test_a_drain_of_a_cell_without_queues_changes_nothing() -> None:
    assert plan_drain("old", [HOME])(subject_in(HOME)) is None


# Routes


def moved(route: Route, target: MoveTarget, end: int, *, rows: int = 5) -> Route:
    return route.continued(target, end, rows=rows, epoch=1, era=0)


def test_the_offsets_of_a_moved_queue_go_on_without_a_gap() -> None:
    route = moved(Route(), Route().target(0, "fast"), 101)
    closed, last = route.mappings
    assert (closed.end, closed.state, closed.rows) == (101, "read_only", 5)
    assert (last.start, last.end, last.cell, last.part) == (101, None, "fast", 1)


def test_a_log_without_rows_expires_as_soon_as_it_is_closed() -> None:
    route = moved(Route(), Route().target(0, "fast"), 0, rows=0)
    assert route.mappings[0].state == "expired"
    assert route.readable == route.mappings[1:]


def test_a_queue_that_comes_back_uses_its_expired_part_in_the_next_generation() -> None:
    away = moved(Route(), Route().target(0, "fast"), 101)
    gone = away.expired(away.mappings[0])
    back = gone.target(0, HOME)
    assert (back.part, back.part_generation) == (0, 2)
    route = moved(gone, back, 150)
    assert [(mapping.cell, mapping.part, mapping.part_generation) for mapping in route.mappings] == [
        ("fast", 1, 1),
        (HOME, 0, 2),
    ]


def test_a_queue_that_comes_back_before_its_part_has_expired_gets_a_new_part() -> None:
    away = moved(Route(), Route().target(0, "fast"), 101)
    assert away.target(0, HOME).part == 2


def test_the_name_of_a_target_that_was_given_up_is_not_used_again() -> None:
    given_up = Route().target(0, "fast")
    after = Route().spent(given_up)
    assert after.last == Route().last
    assert after.target(0, "fast").part == given_up.part + 1


def test_an_expired_part_that_a_withdrawn_change_has_begun_is_used_in_a_later_generation() -> None:
    away = moved(Route(), Route().target(0, "fast"), 101)
    gone = away.expired(away.mappings[0])
    assert gone.spent(gone.target(0, HOME)).target(0, HOME).part_generation == 3


def test_a_move_begins_no_era_and_more_queues_do() -> None:
    subject = subject_in(HOME, HOME)
    ends = {0: (10, 1), 1: (20, 2)}
    one_moved = plan_move(0, "fast")(subject)
    assert one_moved is not None
    assert {route.last.era for route in continued(subject.all_routes(), one_moved, ends, epoch=1)} == {0}
    more = continued(subject.all_routes(), stay(subject, [0, 1], 3), ends, epoch=1)
    assert [(route.last.era, route.last.start) for route in more] == [(1, 10), (1, 20), (1, 0)]
