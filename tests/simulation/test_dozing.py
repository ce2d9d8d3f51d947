"""Groups that doze miss no message, whatever happens to wake-ups; the simulation finds each clause that is left out."""

from itertools import count, islice

import pytest

from tests.simulation.dozebugs import DOZING, DozeBug
from tests.simulation.dozeplans import drawn
from tests.simulation.dozing import run_doze
from tests.simulation.world import Violation

CHUNK = 20
CHUNKS = 2
VOLUME = 15  # chunks
RUNS = 60
"""The number of runs within which a bug must be found, among those that fit it."""


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_run_forgets_a_message(chunk: int) -> None:
    _run_chunk(chunk)


@pytest.mark.volume
@pytest.mark.parametrize("chunk", range(CHUNKS, VOLUME))
def test_no_run_of_many_forgets_a_message(chunk: int) -> None:
    _run_chunk(chunk)


def _run_chunk(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
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
