"""Writes rows into Parquet files of a sensible size, each with the rows of one partition."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import coalesce, col, lit
from pyspark.sql.types import StringType, StructField

FILE_BYTES = 128 << 20

_LEAST_BYTES = 8 << 20
"""A task for less than this costs more than it saves."""

_SMALL_BYTES = 64 << 10
"""Shuffle partitions below this size share a task, even if that leaves cores without work."""

_SHUFFLED = 2.0
"""An estimate of the bytes that Spark shuffles for each byte of a file."""

_SHUFFLE_PARTITIONS = 4
"""Shuffle partitions for each task. With fewer, small partitions share one with a large partition and are divided like
it; an empty one costs 5 ms."""


# One task handles these in about the time that starting several takes.
_FEW_ROWS = 200_000
_FEW = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "1"}


class Layout(NamedTuple):
    """A file has one value of each column of the ``partition``, and its rows in the order of ``sorted_by``."""

    partition: tuple[str, ...]
    sorted_by: tuple[str, ...]


def share_of(spark: SparkSession, size: int, file_bytes: int = FILE_BYTES) -> int:
    """Returns the bytes that a task should write, of ``size`` bytes of files in all, so that all cores have work."""
    return min(file_bytes, max(_LEAST_BYTES, size // spark.sparkContext.defaultParallelism))


def write(rows: DataFrame, folder: str, layout: Layout, *, task_bytes: int, size: int) -> None:
    """Writes the rows, about ``size`` bytes of files in all, below the folder. A task writes about ``task_bytes``: one
    file of that size for a large partition, or one file for each of several small partitions."""
    spark = rows.sparkSession
    copies = {f"_{column}": _copy(rows.schema[column]) for column in layout.partition}
    settings = {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "true",
        "spark.sql.adaptive.coalescePartitions.minPartitionSize": str(_SMALL_BYTES),
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": str(round(task_bytes * _SHUFFLED)),
        "spark.sql.shuffle.partitions": str(_SHUFFLE_PARTITIONS * (1 + size // task_bytes)),
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
    with configured(spark, settings):
        (
            rows.withColumns(copies)
            .hint("rebalance", *(col(name) for name in copies))
            .sortWithinPartitions(*copies, *layout.sorted_by)
            .write.partitionBy(*copies)
            .option("compression", "zstd")
            .parquet(folder)
        )


def _copy(field: StructField) -> Column:
    """Returns a copy of the column for the names of folders: Spark leaves the columns that it partitions by out of its
    files. Null text becomes empty text."""
    text = isinstance(field.dataType, StringType)
    return coalesce(col(field.name), lit("")) if text else col(field.name)


@contextmanager
def sized(spark: SparkSession, rows: int) -> Iterator[None]:
    """Sets the session for this number of rows within the block: with few rows, planning and starting tasks take most
    of the time, so one task is best."""
    with configured(spark, _FEW if rows <= _FEW_ROWS else {}):
        yield


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Applies these settings to the session within the block, and restores the old ones afterwards."""
    before: dict[str, str | None] = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
