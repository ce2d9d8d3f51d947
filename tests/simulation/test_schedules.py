"""Runs hundreds of schedules of the real library: none may break an invariant."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from random import Random

import pytest

from tests.simulation.draws import delayed, draw, prompt
from tests.simulation.scenes import PLAN
from tests.simulation.schedule import simulate
from tests.simulation.world import World

CHUNK = 40
CHUNKS = 2  # `make verify` runs thousands more


@pytest.mark.parametrize("first", [chunk * CHUNK for chunk in range(CHUNKS)])
def test_no_schedule_breaks_an_invariant(first: int) -> None:
    for seed in range(first, first + CHUNK):
        violation = simulate(seed).violation
        assert violation is None, f"seed {seed}: {violation}; python -m tests.simulation.run --seeds {seed}"


def test_rows_grow_in_some_schedules() -> None:
    steady = (seed for seed in range(200) if draw(seed).steady)
    growing = (seed for seed in steady if simulate(seed).world.grown)
    assert len([*islice(growing, 5)]) == 5


REGRESSIONS = {
    262140: "a seek by offset led into a row that came in while it searched",
    281168: "a batch whose retention ended while a new owner looked for it was handed over again",
    203403: "a filler of the dead log was removed at once, and let in the slow writer of its row below the trim mark",
    547: "a process that knew the old subject replaced a group of the new one",
    1: "a subject was made again while the old one still took messages; a pull was held for days",
    165: "the sweep failed when a group was deleted meanwhile",
    212: "a lease outlived its messages and could not be ended",
    308: "a seek to the start passed a row that was on its way",
    408: "settling failed when the group was deleted meanwhile",
    2437: "a batch over two subjects was stored again when one of them was deleted meanwhile",
    1170: "a key of a deleted subject put rows into the new one",
    1736: "a keyed batch past its retention was answered as stored",
    703: "a settlement that was made was answered stale",
    2121: "a seek by offset that met an open row went to the end",
    5147: "the checker blamed a sleeping wheel for a message whose move was cut off",
    5734: "the checker counted leases of a deleted group that were settled after the deletion",
    6097: "the checker demanded messages of a claim of a row that grew, none of which could be read",
    33117: "a wheel was started again and again between a message that may be a minute late and a precise one",
    11764: "a wheel was late because another actor of the simulation made all the calls",
    13141: "the checker demanded messages of an ordered claim that a consumer who left had given back",
    32641: "a sweep with an old list of groups expired the part of a queue in which a group had a lease",
    32668: "a trace counted as complete although a copy, which was pulled, had expired and was removed",
    10358: "the checker judged a damaged batch by the tags that it had before",
    847: "a group with a rate stood still after its last pull row had expired before an earlier one",
    18: "the checker demanded that a suspect which waits for its next attempt is none any more",
}
"""Seeds that have found a bug of the library or of the checker. Each change of the simulator changes the meaning of a
seed; ``found`` plants the bugs of the library."""


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_a_seed_that_found_a_bug_finds_it_no_more(seed: int) -> None:
    assert simulate(seed).violation is None, REGRESSIONS[seed]


def test_a_clock_drifts_steadily_until_it_is_wrong_by_what_the_plan_allows() -> None:
    world = World(replace(PLAN, skew_ms=300, drift=0.05))
    clocks = [world.process(f"c{n}") for n in range(20)]
    wrong = []
    for _ in range(4):
        wrong.append([clock.now_ms() - world.now_ms for clock in clocks])
        world.now_ms += 2_000
    assert all(-300 <= by <= 300 for moment in wrong for by in moment)
    drifted = [[later - sooner for sooner, later in pairwise(clock)] for clock in zip(*wrong, strict=True)]
    assert all(step * steps[0] >= 0 for steps in drifted for step in steps), "never there and back"
    assert len({steps[0] for steps in drifted}) > 10, "each at a rate of its own"


def test_an_actor_that_can_go_on_does_so_soon_in_a_run_without_faults() -> None:
    world = World(replace(prompt(delayed(PLAN, Random(1)), Random(1)), switch=0.0, latency_ms=80, calls=1_000))
    busy, sleeper = world.process("busy"), world.process("sleeper")
    woken_ms: list[int] = []

    def work() -> None:
        while len(woken_ms) < 10:
            world.step(busy)

    def sleep() -> None:
        while len(woken_ms) < 10:
            began_ms = world.now_ms
            sleeper.sleep(1)
            woken_ms.append(world.now_ms - began_ms)

    world.spawn(busy, work)
    world.spawn(sleeper, sleep)
    world.run()
    assert max(woken_ms) < 1_700
    assert max(woken_ms) > 1_100, "the other actor is at work meanwhile"


def test_a_seed_decides_everything_whatever_the_hash_seed() -> None:
    code = "from tests.simulation.schedule import simulate; print([simulate(seed).digest() for seed in range(8)])"
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "3")
    }
    assert len(digests) == 1
