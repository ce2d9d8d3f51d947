"""Ends of logs that cannot be read are none, wherever their file is damaged: a run then reads all days."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from hourwheel_pipeline.lake.tables import Lake
from hourwheel_pipeline.measures.log_ends import STORED, read_ends, write_ends

DDL = "kind string, subject string, log string, hour_ms bigint, offset bigint, row bigint"
ENDS = [(STORED, "orders", f"orders~1/{queue}", 3_600_000, queue, queue) for queue in range(100)]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with closing(Lake.open(str(tmp_path / "lake"))) as opened:
        yield opened


def test_ends_are_read_as_they_were_written(spark: SparkSession, lake: Lake) -> None:
    read = read_ends(spark, lake, write_ends(lake, spark.createDataFrame(ENDS, DDL)))
    assert read is not None
    assert sorted(tuple(row) for row in read.collect()) == sorted(ENDS)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data[:4] + bytes(len(data) - 12) + data[-8:],
        lambda data: data[:40] + bytes(200) + data[240:],
        lambda data: data[:-200] + b"\xff" * 192 + data[-8:],
    ],
    ids=["empty", "half", "zeroed", "a page", "the footer"],
)
def test_ends_that_are_damaged_are_none(spark: SparkSession, lake: Lake, damage: Callable[[bytes], bytes]) -> None:
    path = write_ends(lake, spark.createDataFrame(ENDS, DDL))
    data = lake.files.read(path)
    assert data is not None
    lake.files.write(path, damage(data))
    assert read_ends(spark, lake, path) is None
