"""A subject that is there is in the list, however creations and deletions of it meet."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.simulation.directed import cases, run_case
from tests.simulation.listbugs import LIST_BUGS
from tests.simulation.listscenes import LIST_SCENES

MEETING = ("create the subject", "delete the subject", "sweep")


@pytest.mark.parametrize("bug", LIST_BUGS, ids=lambda bug: bug.__name__)
def test_it_is_found_when(bug: Callable[[], AbstractContextManager[None]]) -> None:
    scenes = [scene for scene in LIST_SCENES if scene.name == LIST_BUGS[bug]]
    chosen = [case for case in cases(1, scenes) if case.second.name in MEETING]
    with bug():
        for case in chosen:
            if run_case(case).violation is not None:
                return
    pytest.fail(f"not found in {len(chosen)} schedules")


def test_no_subject_is_left_out() -> None:
    for case in cases(12, LIST_SCENES):
        assert run_case(case).violation is None, case.label
