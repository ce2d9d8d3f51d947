"""Tries mutants: ``make mutants N=50 SEED=7 ROOM=ordered``, or some of them: ``--only "PullLog.claim:"``.

Prints each survivor with its place, its change, and its entry in ``harmless.toml``. The exit status is 1 if one has
none.
"""

import argparse
import gc
import math
import re
import sys
import time

from tests.mutants.harmless import reasons
from tests.mutants.mutations import Mutant, mutants
from tests.mutants.rooms import ROOMS, Checks
from tests.mutants.trials import NOT_PLANTED, SURVIVED, TOO_LONG, UNCHANGED, Trial, sampled, trials


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.run", description="Tries mutants.")
    parser.add_argument("--count", type=int, default=50, help="this many mutants of each room, drawn by the seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--room", choices=("all", *ROOMS), default="all")
    parser.add_argument("--only", default="", metavar="PATTERN", help="only mutants whose names this finds")
    parser.add_argument("--list", action="store_true", help="print the names, and check nothing")
    parser.add_argument("--seeds", type=int, default=200, help="this many schedules of the simulation")
    parser.add_argument("--directed", type=int, default=200, help="one in this many directed schedules; 0: none")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300, help="a mutant that takes longer is found")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no mutant of a room after this time")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    names = list(ROOMS) if options.room == "all" else [options.room]
    unjudged = 0
    for name in names:
        every = [mutant for path in ROOMS[name].paths() for mutant in mutants(path)]
        wanted = [mutant for mutant in every if re.search(options.only, mutant.name)]
        chosen = sampled(wanted, options.count, options.seed)
        if options.list:
            _say("\n".join(f"{mutant.place}  {mutant.name}" for mutant in chosen))
        elif chosen:
            unjudged += _try(name, chosen, len(every), options)
    return 1 if unjudged else 0


def _try(name: str, chosen: list[Mutant], every: int, options: argparse.Namespace) -> int:
    """Tries mutants of one room, and returns the number of survivors without a reason."""
    checks = Checks.of(ROOMS[name], range(options.seeds), options.directed)
    harmless, done = reasons(), list[Trial]()
    gc.freeze()  # else the collector of each child copies the pages of everything that is loaded
    for trial in trials(
        [UNCHANGED, *chosen],
        checks.finder,
        processes=options.processes,
        longest_seconds=options.seconds,
        until=time.monotonic() + 60 * options.minutes,
    ):
        if trial.mutant is UNCHANGED:
            if trial.finder != SURVIVED:
                raise SystemExit(f"the checks fail without a mutant: {trial.finder}")
            continue
        done.append(trial)
        _say(_line(trial, harmless))
    planted = [trial for trial in done if trial.finder != NOT_PLANTED]
    survivors = [trial.mutant.name for trial in planted if trial.finder == SURVIVED]
    unjudged = [each for each in survivors if each not in harmless]
    late = sum(trial.finder == TOO_LONG for trial in planted)
    _say(
        f"{name}: {len(planted)} of {every} mutants planted, {len(planted) - len(survivors)} found "
        f"({late} by the time-out), {len(survivors)} survived, {len(unjudged)} of them without a reason"
    )
    return len(unjudged)


def _line(trial: Trial, harmless: dict[str, str]) -> str:
    mutant, how = trial.mutant, trial.finder
    if how == SURVIVED:
        how = f"SURVIVED; {harmless.get(mutant.name, 'no reason')}"
    return f"{mutant.place}  {mutant.name}\n    {trial.seconds:.0f} s  {how}"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
