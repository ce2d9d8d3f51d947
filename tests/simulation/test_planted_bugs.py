"""The simulator finds each planted bug: the real code with a clause of the protocol left out."""

from collections.abc import Iterator
from itertools import count, islice

import pytest

from tests.simulation.archivebugs import ARCHIVED
from tests.simulation.broadcastbugs import BROADCAST
from tests.simulation.bugs import PLANTED, Bug
from tests.simulation.damagebugs import SPOILT
from tests.simulation.delaybugs import DELAYED
from tests.simulation.filterbugs import FILTERED
from tests.simulation.found import FOUND
from tests.simulation.growthbugs import GROWN
from tests.simulation.limitbugs import LIMITED
from tests.simulation.movebugs import MOVED
from tests.simulation.orderbugs import ORDERED
from tests.simulation.plan import Plan, unarchived
from tests.simulation.pushbugs import PUSHED
from tests.simulation.schedule import run_plan
from tests.simulation.slowbugs import SLOW
from tests.simulation.timerbugs import TIMED
from tests.simulation.world import Violation

RUNS = 600
"""The number of schedules within which a bug must be found, among those that can show it."""


@pytest.mark.parametrize(
    "bug",
    [
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
    ],
    ids=lambda bug: bug.name,
)
def test_it_is_found_when(bug: Bug) -> None:
    with bug.plant():
        for plan in _plans(bug):
            violation = run_plan(plan).violation
            if isinstance(violation, Violation):
                return
            if violation is not None:
                raise violation
    pytest.fail(f"{bug.name}: not found in {RUNS} schedules")


def _plans(bug: Bug) -> Iterator[Plan]:
    plans = (plan for plan in map(unarchived, count()) if plan.delays is None and not plan.couriers and bug.focus(plan))
    return map(bug.sharpen, islice(plans, RUNS))
