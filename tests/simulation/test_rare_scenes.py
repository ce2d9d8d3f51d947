"""Where two rare states meet, the directed schedules find a bug that shows nowhere else."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import islice

import pytest

from tests.simulation.directed import cases, run_case
from tests.simulation.rarebugs import RARE_BUGS
from tests.simulation.rarescenes import RARE_SCENES

RUNS = 60
"""The number of schedules of its scene within which a bug must be found."""


@pytest.mark.parametrize("bug", RARE_BUGS, ids=lambda bug: bug.__name__)
def test_it_is_found_when(bug: Callable[[], AbstractContextManager[None]]) -> None:
    scenes = [scene for scene in RARE_SCENES if scene.name.startswith(RARE_BUGS[bug])]
    chosen = [*islice(cases(1, scenes), RUNS)]
    with bug():
        for case in chosen:
            if run_case(case).violation is not None:
                return
    pytest.fail(f"not found in {len(chosen)} schedules")


def test_a_pusher_that_ends_finds_messages_of_queues_that_were_added_meanwhile() -> None:
    [scene] = [scene for scene in RARE_SCENES if scene.name == "a target, and queues that are added"]
    for case in cases(4, [scene]):
        assert run_case(case).violation is None, case.label
