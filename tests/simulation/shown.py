"""Finds the seeds that show the planted bugs, and writes them to ``shown.toml``: ``python -m tests.simulation.shown``.

A seed shows its bug until a change of the library or of the simulator gives it another meaning. ``make test`` begins
with the seed of the file, and tries the others if that one shows nothing any more: it finds the same bugs sooner.
"""

import logging
import sys
import tomllib
from collections.abc import Iterable, Iterator
from itertools import chain, count, islice
from pathlib import Path

from tests.simulation.bugs import Bug
from tests.simulation.draws import unarchived
from tests.simulation.plan import Plan
from tests.simulation.schedule import run_plan
from tests.simulation.world import Violation

FILE = Path(__file__).with_name("shown.toml")
RUNS = 600
"""The number of schedules within which a bug must be found, among those that can show it."""

_SOON = 4
"""A bug that shows in one of so few schedules needs no line in the file."""


def seeds_of(bug: Bug) -> Iterator[int]:
    """Yields the seeds of the schedules that can show the bug."""
    return islice((seed for seed in count() if _can_show(unarchived(seed), bug)), RUNS)


def _can_show(plan: Plan, bug: Bug) -> bool:
    return plan.delays is None and not plan.couriers and bug.focus(plan)


def seed_that_shows(bug: Bug, seeds: Iterable[int]) -> int | None:
    """Returns the first of the seeds whose schedule breaks an invariant, or None. Raises what else goes wrong in a
    run."""
    with bug.plant():
        for seed in seeds:
            violation = run_plan(bug.sharpen(unarchived(seed))).violation
            if isinstance(violation, Violation):
                return seed
            if violation is not None:
                raise violation
    return None


def known_first(bug: Bug, known: dict[str, int]) -> Iterator[int]:
    """Yields the seed that is known to show the bug, if it still can, and then all others."""
    first = [seed for seed in (known.get(bug.name),) if seed is not None and _can_show(unarchived(seed), bug)]
    return chain(first, (seed for seed in seeds_of(bug) if seed not in first))


def known_seeds() -> dict[str, int]:
    seeds: dict[str, int] = tomllib.loads(FILE.read_text())
    return seeds


def main() -> int:
    from tests.simulation.test_planted_bugs import BUGS  # which imports this module

    logging.getLogger("hourwheel").setLevel(logging.CRITICAL)  # errors that the library reports in a run are planned
    known, lines, missed = known_seeds(), [], []
    for bug in sorted(BUGS, key=lambda bug: bug.name):
        seed = seed_that_shows(bug, known_first(bug, known))
        if seed is None:
            missed.append(bug.name)
        elif seed not in islice(seeds_of(bug), _SOON):
            lines.append(f"{bug.name} = {seed}\n")
    FILE.write_text(
        "# A seed that shows each planted bug: python -m tests.simulation.shown writes them.\n" + "".join(lines)
    )
    sys.stdout.write("\n".join([f"{len(lines)} seeds", *(f"not found: {name}" for name in missed), ""]))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
