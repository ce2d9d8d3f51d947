"""Measures the time of runs of ``metrics`` and ``reconcile`` with nothing new, with few changed subjects, and over all
subjects."""

import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.measures import median
from hourwheel.model.messages import NewMessage
from hourwheel_pipeline.jobs import metrics, reconcile
from hourwheel_pipeline.jobs.job_names import Job
from hourwheel_pipeline.jobs.metrics import MetricsOptions
from hourwheel_pipeline.jobs.reconcile import ReconcileOptions
from hourwheel_pipeline.judging import changed_subjects
from tests.pipeline.worlds import DAY, World

GROUP = "billing"
_LONG = 3 * DAY
"""After this time no later horizon changes the judgement of a row, so runs leave out the subjects of earlier rounds."""


def growth(
    spark: SparkSession, root: Path, *, subjects: int, days: int, messages: int, rounds: int
) -> dict[str, dict[str, float]]:
    """Returns the seconds of runs over a lake with this many subjects, each with this many messages on each day. In
    each round one subject of a hundred gets new messages."""
    changed_subjects.SMALL_ROWS = 0  # a lake that counts as small is read as a whole
    world = _world(root, subjects, days, messages)
    world.archived()
    world.compacted(spark)
    _timed(lambda: _metrics(spark, world, full=True))
    _timed(lambda: _reconcile(spark, world, full=True))
    seconds: dict[str, dict[str, list[float]]] = {name: {} for name in ("metrics", "reconcile")}
    for number in range(rounds):
        world.bench.clock.pass_time(_LONG)
        for subject in range(max(1, subjects // 100)):
            _work(world, f"s-{(number * 7 + subject) % subjects}", messages)
        world.archived()
        world.compacted(spark)
        for name, run in (("metrics", _metrics), ("reconcile", _reconcile)):
            _add(seconds[name], "1 % of the subjects new", lambda run=run: run(spark, world))
            _add(seconds[name], "nothing new", lambda name=name: _idle(world, name))
            _add(seconds[name], "full", lambda run=run: run(spark, world, full=True))
    return {name: _ratios(of_job) for name, of_job in seconds.items()}


def _world(root: Path, subjects: int, days: int, messages: int) -> World:
    world = World(root)
    for _ in range(days):
        for number in range(subjects):
            _work(world, f"s-{number}", messages)
        world.bench.clock.pass_time(DAY)
    return world


def _work(world: World, subject: str, messages: int) -> None:
    """Sends and acknowledges; one message of the first pull is retried."""
    world.bench.deployment.groups.put(subject, GROUP)
    world.bench.deployment.produce(subject, [NewMessage(body="m" * 100, key=f"k-{i % 7}") for i in range(messages)])
    (pull, *_) = world.bench.pull(10, subject=subject, group=GROUP)
    world.bench.settle(pull, subject=subject, group=GROUP, retry=[0])
    world.bench.clock.pass_time(1)
    world.acknowledge(subject, GROUP)


def _metrics(spark: SparkSession, world: World, *, full: bool = False) -> None:
    world.bench.clock.pass_time(1)
    since = date(2020, 1, 1) if full else None
    options = MetricsOptions(archive=world.archive, lake=world.lake, since=since)
    metrics.run(spark, options, world.now_ms)


def _reconcile(spark: SparkSession, world: World, *, full: bool = False) -> None:
    world.bench.clock.pass_time(1)  # findings of one run have the same time
    options = ReconcileOptions(archive=world.archive, lake=world.lake, full=full)
    reconcile.run(spark, options, world.now_ms)


def _idle(world: World, name: str) -> None:
    job = Job(name)
    options = job.read({"archive": world.archive, "lake": world.lake}, world.now_ms)
    job.run(_no_session, options, world.now_ms)


def _no_session() -> Any:
    raise AssertionError("a run with nothing new needs no Spark")


def _add(seconds: dict[str, list[float]], name: str, run: Callable[[], None]) -> None:
    seconds.setdefault(name, []).append(_timed(run))


def _timed(run: Callable[[], None]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _ratios(seconds: dict[str, list[float]]) -> dict[str, float]:
    """Returns the medians, and the medians of the ratios to the full run of the round."""
    full = seconds["full"]
    medians = {f"{name}, s": round(median(taken), 2) for name, taken in seconds.items()}
    return medians | {
        f"{name}, of a full run": round(median([part / all_ for part, all_ in zip(taken, full, strict=True)]), 3)
        for name, taken in seconds.items()
        if name != "full"
    }
