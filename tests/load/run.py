"""Plays scenarios on the load model: ``python -m tests.load.run [NAME …] [--limits]``. Exit status 1: a bound is broken
that held before."""

import argparse
import sys

from tests.load.limits import lines
from tests.load.scenario import Played, play
from tests.load.scenarios import SCENARIOS


def report(played: Played) -> str:
    """Returns what a run has shown, for readers."""
    scenario, numbers = played.scenario, played.result.numbers
    text = [f"{scenario.name}: {scenario.says}"]
    text += [f"    {name:24} {numbers[name]:>12,.4g}" for name in scenario.numbers]
    saturated = played.result.saturated
    text.append("    saturated first: " if saturated and saturated[0].refused else "    used most: ")
    text += [f"        {limit}" for limit in saturated]
    for title, bounds in (
        ("BROKEN", played.broken),
        ("does not hold yet", played.not_yet),
        ("holds by now, so it must be listed under holds", played.reached),
    ):
        text += [f"    {title}: {bound}; it is {numbers[bound.number]:,.4g}" for bound in bounds]
    text.append(f"    {scenario.seconds:,g} s in {played.cpu_seconds:.1f} s of CPU")
    return "\n".join(text)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.load.run", description="Plays scenarios on the load model.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="all without a name")
    parser.add_argument("--limits", action="store_true", help="list the numbers of the model, with their sources")
    options = parser.parse_args(arguments)
    if options.limits:
        _say("\n".join(lines()))
        return 0
    unknown = set(options.names) - {scenario.name for scenario in SCENARIOS}
    if unknown:
        parser.error(f"there is no scenario {min(unknown)}")
    broken = False
    for scenario in SCENARIOS:
        if not options.names or scenario.name in options.names:
            played = play(scenario)
            broken = broken or bool(played.broken)
            _say(report(played) + "\n")
    return 1 if broken else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
