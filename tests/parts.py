"""Runs the tests in parts, several at a time, because most of them wait for their servers: ``python -m tests.parts``.

Each part is a process of its own; the longest begin first. Parts that only compute run beside the others, with less
priority. A part shows its output when it has ended. At the end there are a table with the time of each part, and a line
that counts the tests. Exit status 1: a part has failed.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass

from tests import rooms

ROOT = rooms.ROOT
AT_A_TIME = 4  # on two cores: three leave a core idle, five slow each other down
COMPUTING = 2  # one for each core that the others leave idle
NICENESS = 10  # the tests of servers have time-outs, and get a core as soon as they need it
_COUNT = re.compile(r"(\d+) (passed|failed|error)")
_SLOW = re.compile(r"^(?P<seconds>\d+\.\d+)s (?:call|setup|teardown) +(?P<test>\S.*)$", re.MULTILINE)
_FINE = (0, 5)  # of pytest; 5: the part has no test that was asked for


@dataclass(frozen=True)
class Part:
    """Folders and files below ``tests``, behind a ``target`` of make if they need one. The longest part, in seconds
    beside the others on two quiet cores, begins first. A part that ``computes`` waits for nothing."""

    name: str
    seconds: int
    paths: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    computes: bool = False
    target: str = ""

    def command(self, options: Sequence[str]) -> list[str]:
        """Returns the command of the part. The options are those of pytest."""
        paths = [*(f"tests/{path}" for path in self.paths), *(f"--ignore=tests/{path}" for path in self.without)]
        tests = [sys.executable, "-m", "pytest", *paths, "--durations=50", "--durations-min=1", *options]
        made = ["make", "--no-print-directory", self.target]
        steps = [shlex.join(step) for step, wanted in ((made, self.target), (tests, self.paths)) if wanted]
        niceness = ["nice", "-n", str(NICENESS)] if self.computes else []
        return [*niceness, "sh", "-c", " && ".join(steps)]


@dataclass(frozen=True)
class Ended:
    part: Part
    output: str
    status: int
    seconds: float
    cpu_seconds: float

    def count(self, outcome: str) -> int:
        last = self.output.rstrip().rpartition("\n")[2]
        return sum(int(number) for number, found in _COUNT.findall(last) if found == outcome)

    @property
    def failed(self) -> int:
        """The number of tests that failed; 1 at least if pytest says so."""
        return max(self.count("failed") + self.count("error"), int(self.status not in _FINE))


BUGS = ("simulation/test_planted_bugs.py",)
LAKES = tuple(
    f"pipeline/test_{name}.py"
    for name in (
        "growth_histories",
        "metrics",
        "metrics_growth",
        "moved_queues",
        "reconcile",
        "reconcile_growth",
        "trace",
    )
)
CLIENT_SIDE = tuple(f"unit/{name}" for name in ("cli", "client", "apps"))
CORE = tuple(
    f"unit/{name}"
    for name in (
        *("logs", "registry", "retention", "handover", "pull_log", "cells", "ordered", "producing", "settling"),
        *("dozing", "pulling", "dead_letters", "delay", "push", "groups", "trace", "sweep"),
    )
)
PARTS = [
    Part("check", 100, computes=True, target="checks"),
    Part("planted bugs", 185, BUGS, computes=True),
    Part("simulation", 195, ("simulation",), BUGS, computes=True),
    Part("lakes", 400, LAKES),
    Part("pipeline", 480, ("pipeline",), (*LAKES, "pipeline/newest")),
    Part("newest Spark", 5, ("pipeline/newest",)),
    Part("core", 150, CORE),
    Part("client side", 185, CLIENT_SIDE),
    Part("other units", 340, ("unit",), (*CORE, *CLIENT_SIDE)),
    Part("contract", 180, ("contract", "golden")),
    Part("integration", 300, ("integration",)),
    Part("demo", 170, ("e2e", "docs", "fuzz", "mutants")),
    Part("deployed", 340, ("deployed",)),
    Part("infra", 145, ("infra", "cost", "load", "layers", "project")),
    Part("apps", 345, ("apps",)),
    Part("console", 195, ("console",)),
    Part("site", 50, ("site",), computes=True, target="docs"),
]


def run(part: Part, options: Sequence[str]) -> Ended:
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            part.command(options), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    return Ended(part, text, process.returncode, time.monotonic() - began, used.ru_utime + used.ru_stime)


def run_all(parts: Iterable[Part], options: Sequence[str], at_a_time: int) -> list[Ended]:
    ended = []
    with ExitStack() as stack:
        pools = {
            computes: stack.enter_context(ThreadPoolExecutor(most))
            for computes, most in ((True, COMPUTING), (False, at_a_time))
        }
        longest_first = sorted(parts, key=lambda part: -part.seconds)
        for done in as_completed([pools[part.computes].submit(run, part, options) for part in longest_first]):
            ended.append(done.result())
            print(f"\n{ended[-1].part.name}\n{ended[-1].output}", flush=True)
    return ended


def room(name: str) -> list[Part]:
    """Returns one part with the tests of the room. Raises ``SystemExit`` for an unknown room, or one without tests."""
    tests = rooms.find(name, ROOT).tests
    if not tests:
        raise SystemExit(f"the room {name} has no tests of its own")
    return [Part(name, 0, tuple(str(path.relative_to(ROOT / "tests")) for path in tests))]


def chosen_parts(names: Sequence[str] | None, *, tests_only: bool) -> list[Part]:
    """Returns the parts with these names, or all of them. Raises ``SystemExit`` for a name that no part has."""
    parts = [part for part in PARTS if not (tests_only and part.target)]
    known = {part.name for part in parts}
    if unknown := sorted(set(names or ()) - known):
        raise SystemExit(f"no part is named {', '.join(unknown)}; the parts are {', '.join(sorted(known))}")
    return [part for part in parts if names is None or part.name in names]


def table(ended: Sequence[Ended]) -> str:
    lines = [f"{'part':24} {'passed':>7} {'failed':>7} {'seconds':>8} {'CPU s':>6}"]
    for each in sorted(ended, key=lambda each: -each.seconds):
        tests = f"{each.count('passed'):>7,} {each.failed:>7,}"
        lines.append(f"{each.part.name:24} {tests} {each.seconds:>8.0f} {each.cpu_seconds:>6.0f}")
    return "\n".join(lines)


def slowest(ended: Sequence[Ended], most: int) -> str:
    found = [(float(line["seconds"]), line["test"]) for each in ended for line in _SLOW.finditer(each.output)]
    return "\n".join(f"{seconds:6.1f} s  {test}" for seconds, test in sorted(found, reverse=True)[:most])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.parts", description="Runs the tests in parts.")
    parser.add_argument("--volume", action="store_true", help="the tests marked as volume, in place of the others")
    parser.add_argument("--room", metavar="NAME", help="only the tests of this room")
    parser.add_argument("--part", action="append", metavar="NAME", help="only this part; may be repeated")
    parser.add_argument("--slowest", type=int, default=0, metavar="N", help="list the N slowest tests")
    parser.add_argument("--at-a-time", type=int, default=AT_A_TIME, metavar="N", help="parts (default: %(default)s)")
    options = parser.parse_args(arguments)
    parts = room(options.room) if options.room else chosen_parts(options.part, tests_only=options.volume)
    chosen = ["-m", "volume", "-o", "faulthandler_timeout=1800"] if options.volume else []
    chosen += ["--numprocesses=auto"] if options.room else []  # nothing runs beside a room
    began = time.monotonic()
    ended = run_all(parts, chosen, options.at_a_time)
    print(f"\n{table(ended)}\n")
    if options.slowest:
        print(f"the slowest tests:\n{slowest(ended, options.slowest)}\n")
    passed, failed = (sum(each.count("passed") for each in ended), sum(each.failed for each in ended))
    print(f"{time.monotonic() - began:.0f} seconds, {options.at_a_time} parts at a time")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
