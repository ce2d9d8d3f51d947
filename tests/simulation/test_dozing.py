"""Groups that doze miss no message, whatever happens to wake-ups; the simulation finds each clause that is left out."""

from itertools import count, islice

import pytest

from tests.simulation.dozebugs import DOZING, DozeBug
from tests.simulation.dozing import drawn, run_doze
from tests.simulation.world import Violation

CHUNK = 60
CHUNKS = 5
RUNS = 60
"""The number of runs within which a bug must be found, among those that fit it."""


@pytest.mark.parametrize("first", [chunk * CHUNK for chunk in range(CHUNKS)])
def test_no_run_forgets_a_message(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_doze(drawn(seed))


@pytest.mark.parametrize("bug", DOZING, ids=lambda bug: bug.name)
def test_it_is_found_when(bug: DozeBug) -> None:
    with bug.plant():
        for doze in islice(filter(bug.fits, map(drawn, count())), RUNS):
            try:
                run_doze(bug.change(doze))
            except Violation:
                return
    pytest.fail(f"{bug.name}: not found in {RUNS} runs")


def test_a_seed_decides_everything() -> None:
    assert run_doze(drawn(2)).trace == run_doze(drawn(2)).trace
