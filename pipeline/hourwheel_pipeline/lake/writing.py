"""Writes rows into Parquet files of a sensible size, each with rows of one day, or of one month."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr

FILE_BYTES = 128 << 20

DAY: Final = {"_day": "day"}
MONTH: Final = {"_month": "date_format(day, 'yyyy-MM')"}
"""Folders for files, each with the expression of Spark that all rows of its files share."""

_LEAST_BYTES = 8 << 20
"""A task for less than this costs more than it saves."""

_SMALL_BYTES = 64 << 10
"""Shuffle partitions below this size share a task, even if that leaves cores without work."""

_SHUFFLED = 2.0
"""An estimate of the bytes that Spark shuffles for each byte of a file."""

_SHUFFLE_PARTITIONS = 4
"""Shuffle partitions for each task. With fewer, small partitions share one with a large partition and are divided like
it; an empty one costs 5 ms."""

_FEW_TASKS = 2
"""For more tasks the rows are divided into ranges. That takes a second reading, to sample them, and two files of a day
need none: most queries read both."""

# One task handles these in about the time that starting several takes.
_FEW_ROWS = 200_000
_FEW = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "1"}


def share_of(spark: SparkSession, size: int, file_bytes: int = FILE_BYTES) -> int:
    """Returns the bytes that a task should write, of ``size`` bytes of files in all, so that all cores have work."""
    return min(file_bytes, max(_LEAST_BYTES, size // spark.sparkContext.defaultParallelism))


def write(
    rows: DataFrame,
    folder: str,
    sorted_by: Sequence[str],
    *,
    task_bytes: int,
    size: int,
    apart: Mapping[str, str] = DAY,
) -> None:
    """Writes the rows, about ``size`` bytes of files in all, below the folder. A file has one value of each expression
    of ``apart``, which names its folders, and its rows in the order of ``sorted_by``. Rows for several tasks, each of
    ``task_bytes``, are divided into ranges of days and of this order: so a query for a subject or a time reads few
    files."""
    spark = rows.sparkSession
    tasks = 1 + size // task_bytes
    settings = {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "true",
        "spark.sql.adaptive.coalescePartitions.minPartitionSize": str(_SMALL_BYTES),
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": str(round(task_bytes * _SHUFFLED)),
        "spark.sql.shuffle.partitions": str(_SHUFFLE_PARTITIONS * tasks),
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
    with configured(spark, settings):
        placed = rows.withColumns({name: expr(text) for name, text in apart.items()})
        if tasks > _FEW_TASKS:
            divided = placed.repartitionByRange(tasks, *apart, "day", *sorted_by)
        else:
            shared = placed.withColumn("_share", expr(f"pmod(hash(`{sorted_by[0]}`), {tasks})"))
            divided = shared.hint("rebalance", *map(col, apart), col("_share")).drop("_share")
        (
            divided.sortWithinPartitions(*apart, *sorted_by)
            .write.partitionBy(*apart)
            .option("compression", "zstd")
            .parquet(folder)
        )


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
