"""After any history, the jobs that read the changed subjects end with the results of runs over everything."""

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from hourwheel_pipeline.judging import changed_subjects
from tests.pipeline.growth import (
    LONG,
    archived_and_compacted,
    judged,
    same_findings_as_over_everything,
    same_metrics_as_over_everything,
)
from tests.pipeline.histories import act, fail, lose_the_store
from tests.pipeline.worlds import World


@pytest.mark.volume
@pytest.mark.parametrize(("seed", "small_rows"), [(1, 0), (2, 0), (3, changed_subjects.SMALL_ROWS)])
def test_random_histories_give_the_findings_and_metrics_of_runs_over_everything(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, small_rows: int
) -> None:
    monkeypatch.setattr(changed_subjects, "SMALL_ROWS", small_rows)
    world, draw = World(tmp_path), random.Random(seed)
    world.archived()
    for round_ in range(2):
        for _ in range(6):
            act(world, draw)
        fail(world, draw, round_)
        if draw.random() < 0.4:
            world.archived()
            lose_the_store(world)
        world.bench.clock.pass_time(draw.choice((1, LONG)))
        archived_and_compacted(world, spark)
        report = judged(world, spark)
        world.measured(spark)
    same_findings_as_over_everything(world, spark, report)
    same_metrics_as_over_everything(world, spark)
