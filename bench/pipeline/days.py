"""``python -m bench.pipeline.days [DAYS] [SUBJECTS] [MESSAGES]``: the cost of ``metrics`` as a lake gets older.

Each day the same subjects get this many messages, which a group acknowledges; some are retried. Prints the CPU seconds
of each day's run, of the whole tree of processes, and at the end those of a run that reads all days. A small lake is
treated as a large one. The last line is JSON.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from datetime import date
from pathlib import Path

from pyspark.sql import SparkSession

from bench.measures import median
from bench.pipeline.__main__ import session
from hourwheel.model.messages import NewMessage
from hourwheel_pipeline.jobs import metrics
from hourwheel_pipeline.jobs.metrics import Measured, MetricsOptions
from hourwheel_pipeline.judging import changed_subjects
from tests.pipeline.worlds import DAY, World

GROUP = "billing"
_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("days", nargs="?", type=int, default=30)
    parser.add_argument("subjects", nargs="?", type=int, default=10)
    parser.add_argument("messages", nargs="?", type=int, default=1_000)
    options = parser.parse_args()
    changed_subjects.SMALL_ROWS = 0
    spark = session()
    with tempfile.TemporaryDirectory() as folder:
        world, seconds = World(Path(folder)), list[float]()
        for day in range(options.days):
            _work(world, options.subjects, options.messages)
            world.bench.clock.pass_time(DAY)
            world.archived()
            world.compacted(spark)
            taken, report = _cpu(lambda: _run(spark, world))
            seconds.append(round(taken, 2))
            print(f"day {day + 1}: {taken:.2f} s CPU {report.all_days}", flush=True)
        whole, _ = _cpu(lambda: _run(spark, world, since=date(2020, 1, 1)))
    spark.stop()
    early, late = median(seconds[3:8]), median(seconds[-5:])
    print(json.dumps({"days_4_to_8_s": early, "last_5_days_s": late, "all_days_s": round(whole, 2), "each": seconds}))
    return 0


def _work(world: World, subjects: int, messages: int) -> None:
    bench = world.bench
    for name in (f"s-{number}" for number in range(subjects)):
        bench.deployment.groups.put(name, GROUP)
        bench.deployment.produce(name, [NewMessage(body="m" * 100, key=f"k-{at % 7}") for at in range(messages)])
        (pull, *_) = bench.pull(10, subject=name, group=GROUP)
        bench.settle(pull, subject=name, group=GROUP, retry=[0])
        bench.clock.pass_time(1)
        world.acknowledge(name, GROUP)


def _run(spark: SparkSession, world: World, since: date | None = None) -> Measured:
    world.bench.clock.pass_time(1)
    options = MetricsOptions(archive=world.archive, lake=world.lake, since=since)
    return metrics.run(spark, options, world.now_ms)


def _cpu(run: Callable[[], Measured]) -> tuple[float, Measured]:
    """Returns the CPU seconds of the run in this process, Spark's and the workers'."""
    before = _tree_seconds()
    report = run()
    return _tree_seconds() - before, report


def _tree_seconds() -> float:
    """Returns the CPU seconds that this process and all below it have used."""
    parents, seconds = dict[int, int](), dict[int, float]()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(entry.parent.name)
        parents[pid] = int(fields[1])
        seconds[pid] = sum(map(int, fields[11:15])) / _TICKS
    below = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return sum(seconds[pid] for pid in below)


if __name__ == "__main__":
    sys.exit(main())
