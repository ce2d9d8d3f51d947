"""The simulator finds each planted bug: the real code with a clause of the protocol left out."""

from typing import Any

import pytest

from tests.simulation.aheadbugs import AHEAD
from tests.simulation.archivebugs import ARCHIVED
from tests.simulation.blockbugs import BLOCKS
from tests.simulation.broadcastbugs import BROADCAST
from tests.simulation.bugs import PLANTED, Bug
from tests.simulation.choicebugs import CHOSEN
from tests.simulation.damagebugs import SPOILT
from tests.simulation.delaybugs import DELAYED
from tests.simulation.deletionbugs import DELETED
from tests.simulation.filterbugs import FILTERED
from tests.simulation.found import FOUND
from tests.simulation.growthbugs import GROWN
from tests.simulation.herdbugs import HERDS
from tests.simulation.hurrybugs import HURRIED
from tests.simulation.limitbugs import LIMITED
from tests.simulation.movebugs import MOVED
from tests.simulation.orderbugs import ORDERED
from tests.simulation.pushbugs import PUSHED
from tests.simulation.sharebugs import SHARED
from tests.simulation.shown import RUNS, known_first, known_seeds, seed_that_shows, seeds_of
from tests.simulation.slowbugs import SLOW
from tests.simulation.suspectbugs import SUSPECTS
from tests.simulation.sweepbugs import SWEPT
from tests.simulation.timerbugs import TIMED

BUGS = [
    *PLANTED,
    *DELAYED,
    *PUSHED,
    *ARCHIVED,
    *LIMITED,
    *SLOW,
    *TIMED,
    *FILTERED,
    *SPOILT,
    *MOVED,
    *FOUND,
    *ORDERED,
    *BROADCAST,
    *GROWN,
    *DELETED,
    *SUSPECTS,
    *SHARED,
    *BLOCKS,
    *SWEPT,
    *HERDS,
    *AHEAD,
    *HURRIED,
    *CHOSEN,
]
RARE = {
    "a_withdrawal_overwrites_a_move_that_was_carried_out",
    "a_part_is_left_though_rows_at_its_end_are_missing",
    "a_subject_is_made_again_while_the_old_one_takes_messages",
    "a_seek_by_time_or_offset_that_meets_an_open_row_goes_to_the_end",
    "a_look_passes_a_row_that_still_grows",
    "a_new_wheel_stops_reading_at_a_hole_before_the_strike",
    "a_redrive_does_not_mark_what_it_sent",
}
"""Bugs that show in one of hundreds of schedules: each takes longer to find than fifty others."""


def _case(bug: Bug) -> Any:
    return pytest.param(bug, id=bug.name, marks=[pytest.mark.volume] if bug.name in RARE else [])


def test_each_rare_bug_is_planted() -> None:
    assert {bug.name for bug in BUGS} >= RARE


def test_the_seeds_that_are_known_are_those_of_planted_bugs() -> None:
    assert known_seeds().keys() <= {bug.name for bug in BUGS}


@pytest.mark.parametrize("bug", [_case(bug) for bug in BUGS])
def test_it_is_found_when(bug: Bug) -> None:
    seed = seed_that_shows(bug, known_first(bug, known_seeds()))
    assert seed is not None, f"{bug.name}: not found in {RUNS} schedules"


def test_a_bug_is_found_by_other_seeds_where_the_known_one_shows_it_no_more() -> None:
    bug = next(bug for bug in BUGS if bug.name == "a_log_forgets_its_own_token")
    seed = seed_that_shows(bug, seeds_of(bug))
    assert seed is not None
    other = next(other for other in seeds_of(bug) if seed_that_shows(bug, [other]) is None)
    assert seed_that_shows(bug, known_first(bug, {bug.name: other})) == seed
