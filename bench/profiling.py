"""``make profile``: prints CPU microseconds for each message in client and server, and the functions that take them.

Client and server are processes of their own. Each case runs twice: once to count CPU time, once under the sampling
profiler py-spy, which would slow the first run down. A sample counts for the thread that holds the interpreter lock:
the lock is what limits a Python process, and a thread that waits does not have it. Linux only: reads /proc.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from rich.console import Console
from rich.table import Table

from bench import profiled
from bench.limits import cpu_seconds
from bench.serving import Served, serving

SAMPLES_A_SECOND = 200
SHOWN = 15
SPY = Path(sys.executable).with_name("py-spy")


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of the messages of one case: microseconds of CPU for each message."""

    messages: int
    per_s: float
    client_us: float
    server_us: float


@dataclass(frozen=True)
class Functions:
    """The samples of one process by function: those in which it ran, and those in which it or a callee ran."""

    samples: int
    """The samples in which some thread held the interpreter lock."""
    own: Counter[str]
    whole: Counter[str]


Profile: TypeAlias = dict[str, Functions]


class Worker:
    """A process that runs a case. It prepares, says that it is ready, and works once it is told to."""

    def __init__(self, case: str, url: str, subject: str, seconds: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.profiled", case, url, subject, str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        assert self._line() == "ready"

    def work(self) -> dict[str, float]:
        """Lets the process work, and returns its counts. The process ends after that."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        counted: dict[str, float] = json.loads(self._line())
        return counted

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def cost(served: Served, case: str, subject: str, seconds: float) -> Cost:
    """Returns the CPU time that a case takes for each message."""
    worker = Worker(case, served.url, subject, seconds)
    before = cpu_seconds(served.pid)
    counted = worker.work()
    server_seconds = cpu_seconds(served.pid) - before
    worker.end()
    messages = int(counted["messages"])
    return Cost(
        messages=messages,
        per_s=messages / counted["seconds"],
        client_us=counted["cpu_seconds"] / messages * 1e6,
        server_us=server_seconds / messages * 1e6,
    )


def sampled(served: Served, case: str, subject: str, seconds: float) -> Profile:
    """Returns the functions in which client and server spent the time of a case."""
    worker = Worker(case, served.url, subject, seconds)
    with tempfile.TemporaryDirectory(prefix="hourwheel-profile-") as folder:
        files = {side: Path(folder) / side for side in ("client", "server")}
        spies = [_spy(pid, files[side], seconds) for side, pid in (("client", worker.pid), ("server", served.pid))]
        worker.work()
        for spy in spies:
            spy.wait(timeout=60)
        worker.end()
        return {side: functions(file.read_text()) for side, file in files.items() if file.exists()}


def _spy(pid: int, output: Path, seconds: float) -> subprocess.Popen[bytes]:
    """Starts to sample a process."""
    options = ["--duration", str(round(seconds)), "--rate", str(SAMPLES_A_SECOND), "--format", "raw", "--gil"]
    return subprocess.Popen(
        [SPY, "record", "--pid", str(pid), "--function", "--output", output, *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def functions(text: str) -> Functions:
    """Counts the samples of each function in stacks as py-spy writes them: ``outer;inner samples`` in a line."""
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for line in text.splitlines():
        stack, _, number = line.rpartition(" ")
        frames = stack.split(";")
        own[frames[-1]] += int(number)
        for frame in set(frames):
            whole[frame] += int(number)
    return Functions(own.total(), own, whole)


def costs_table(costs: dict[str, Cost]) -> Table:
    table = Table(title="CPU for each message of 200 bytes", title_justify="left")
    for name in ("", "messages/s", "client us", "server us"):
        table.add_column(name, justify="right" if name else "left")
    for case, found in costs.items():
        table.add_row(case, f"{found.per_s:,.0f}", f"{found.client_us:,.2f}", f"{found.server_us:,.2f}")
    return table


def functions_table(title: str, functions: Functions) -> Table:
    """Returns the functions with the most samples of their own, beside those of this library with the most samples in
    all that they call."""
    table = Table(title=title, title_justify="left")
    for name in ("itself %", "function", "with what it calls %", "function "):
        table.add_column(name, justify="right" if "%" in name else "left", overflow="fold")
    in_library = Counter({name: samples for name, samples in functions.whole.items() if "(hourwheel/" in name})
    rows = zip(functions.own.most_common(SHOWN), in_library.most_common(SHOWN), strict=False)
    for (own, own_samples), (whole, whole_samples) in rows:
        parts = [f"{100 * samples / functions.samples:.1f}" for samples in (own_samples, whole_samples)]
        table.add_row(parts[0], own, parts[1], whole)
    return table


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", help=f"some of: {', '.join(profiled.CASES)}")
    parser.add_argument("--seconds", type=int, default=4, help="of each run")
    parser.add_argument("--no-functions", action="store_true", help="only counts CPU time")
    arguments = parser.parse_args()
    cases: list[str] = arguments.cases or list(profiled.CASES)
    if unknown := set(cases) - set(profiled.CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    console = Console(width=160)
    costs: dict[str, Cost] = {}
    with serving() as served:
        for number, case in enumerate(cases):
            costs[case] = cost(served, case, f"case-{number}", arguments.seconds)
            if arguments.no_functions:
                continue
            found = sampled(served, case, f"case-{number}-sampled", arguments.seconds)
            for side, samples in found.items():
                held = samples.samples / (SAMPLES_A_SECOND * arguments.seconds)
                console.print(functions_table(f"{case}: {side}, interpreter lock held {held:.0%} of the time", samples))
            if len(found) < 2:
                console.print("py-spy may not look into processes here: run make profile as root, or allow ptrace")
    console.print(costs_table(costs))
    print(json.dumps({case: vars(found) for case, found in costs.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
