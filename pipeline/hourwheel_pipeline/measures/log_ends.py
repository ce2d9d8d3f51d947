"""Carries the ends of logs from run to run: what ``metrics`` needs of hours that it no longer reads.

    kind     log                  hour                             offset                           row
    stored   a queue's log        the hour of the last messages    the next offset at its end       the next row
    pulled   a pull log           the hour of the last claim       the next offset of the group     null
    origin   a pull log           the hour of the group's creation the offset at which it begins    null

A group's lag at the end of an hour follows from the newest ends up to that hour. The ends that a run keeps are those of
the hours from ``keep_ms`` on, and the newest of each log before. They name no message.
"""

from collections.abc import Collection
from io import BytesIO
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

from hourwheel.system import SystemIds
from hourwheel.times import HOUR_MS
from hourwheel_pipeline.judging.checks.evidence import Evidence
from hourwheel_pipeline.lake.schemas import QUEUE
from hourwheel_pipeline.lake.tables import Lake
from hourwheel_pipeline.measures.hours import hour

STORED, PULLED, ORIGIN = "stored", "pulled", "origin"
COLUMNS: Final = ("kind", "subject", "log", "hour_ms", "offset", "row")

_FOLDER: Final = "metrics-ends"
_DDL: Final = "kind string, subject string, log string, hour_ms bigint, offset bigint, row bigint"


def ends_of(evidence: Evidence, step_ms: int = HOUR_MS) -> DataFrame:
    """Returns the ends of the logs in the evidence at each hour, or step of ``step_ms``, with new messages or pulls."""
    stored = evidence.messages.where(fn.col("kind") == QUEUE).groupBy("subject", "log", hour("accepted_at", step_ms))
    pulled = evidence.pulls.where("queue is not null").groupBy("subject", "log", hour("claimed_at", step_ms))
    ends = stored.agg((fn.max("sequence") + 1).alias("offset"), (fn.max("row") + 1).alias("row"))
    reached = pulled.agg(fn.max_by("end_seq", "pull_row").alias("offset"), fn.lit(None).cast("bigint").alias("row"))
    every = ends.withColumn("kind", fn.lit(STORED)).unionByName(reached.withColumn("kind", fn.lit(PULLED)))
    return every.where("offset is not null").withColumn("hour_ms", fn.unix_millis("hour")).select(*COLUMNS)


def carried(before: DataFrame, now: DataFrame, subjects: Collection[str] | None, cut_ms: int) -> DataFrame:
    """Returns the ends ``before``, with those from ``cut_ms`` on of the subjects that the run read (None: all) replaced
    by the ends that it found ``now``."""
    read = fn.lit(True) if subjects is None else fn.col("subject").isin(list(subjects))
    kept = before.where((fn.col("hour_ms") < cut_ms) | (fn.col("kind") == ORIGIN) | ~read)
    return kept.unionByName(now.where(fn.col("hour_ms") >= cut_ms))


def kept(ends: DataFrame, keep_ms: int) -> DataFrame:
    """Returns the ends of the hours from ``keep_ms`` on, and the newest of each log before."""
    newest = Window.partitionBy("kind", "log", fn.col("hour_ms") >= keep_ms).orderBy(fn.desc("hour_ms"))
    numbered = ends.withColumn("nth", fn.row_number().over(newest))
    return numbered.where((fn.col("hour_ms") >= keep_ms) | (fn.col("nth") == 1)).select(*COLUMNS)


def write_ends(lake: Lake, ends: DataFrame) -> str:
    """Writes the ends to a file of their own, and returns its path."""
    path = f"{lake.location}/{_FOLDER}/{SystemIds().token().hex()}.parquet"
    data = BytesIO()
    pq.write_table(ends.toArrow(), data, compression="zstd")
    lake.files.write(path, data.getvalue())
    return path


def read_ends(spark: SparkSession, lake: Lake, path: str) -> DataFrame | None:
    """Returns the ends in the file; None if it is missing or cannot be read."""
    data = lake.files.read(path)
    if data is None:
        return None
    try:
        rows = pq.read_table(BytesIO(data))
    except (pa.ArrowInvalid, OSError):  # OSError: damage within the footer or a page; nothing is fetched here
        return None
    return spark.createDataFrame(rows, _DDL)


def remove_ends(lake: Lake, named: Collection[str]) -> None:
    """Removes all files of ends but these. A run beside this one that still names a removed file is right all the same:
    the run after it reads all days."""
    files = lake.files.below(f"{lake.location}/{_FOLDER}")
    lake.files.delete(file.path for file in files if file.path not in named)
