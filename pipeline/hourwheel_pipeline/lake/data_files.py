"""Finds the data files of a table, and reads them in Spark."""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import NamedTuple

from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import DataScan, Table
from pyiceberg.types import DateType
from pyspark.sql import DataFrame, SparkSession

from hourwheel.errors import Broken
from hourwheel_pipeline.lake.schemas import spark_ddl
from hourwheel_pipeline.lake.writing import configured

# Listing a file mostly waits for storage.
_LISTINGS_PER_CORE = 4
_EPOCH = date(1970, 1, 1)


class Days(NamedTuple):
    """The first and the last day of which a file may have rows."""

    first: date
    last: date


def files_of(scan: DataScan) -> list[DataFile]:
    """Returns the data files of the scan. Raises ``Broken`` if another engine deleted rows by delete files: the data
    files still have these rows, and Spark would read them."""
    tasks = list(scan.plan_files())
    deleted = [task.file.file_path for task in tasks if task.delete_files]
    if deleted:
        raise Broken(
            f"another engine has deleted rows of {deleted[0]} and {len(deleted) - 1} other files, and left the files as"
            " they are: have it rewrite them (write.delete.mode=copy-on-write)"
        )
    return [task.file for task in tasks]


def frame_of(spark: SparkSession, table: Table, paths: Sequence[str]) -> DataFrame:
    """Returns the rows of these files of the table."""
    ddl = spark_ddl(schema_to_pyarrow(table.schema(), include_field_ids=False))
    if not paths:
        return spark.createDataFrame([], ddl)
    # Spark lists each file before it reads any, by default with a task for each file.
    tasks = _LISTINGS_PER_CORE * spark.sparkContext.defaultParallelism
    with configured(spark, {"spark.sql.sources.parallelPartitionDiscovery.parallelism": str(tasks)}):
        return spark.read.schema(ddl).parquet(*sorted(paths))


def days_of(table: Table, file: DataFile) -> Days | None:
    """Returns the days of which the file may have rows; None if the engine that wrote the file did not note them."""
    column = table.schema().find_field("day").field_id
    bounds = [(values or {}).get(column) for values in (file.lower_bounds, file.upper_bounds)]
    if None in bounds:
        return None
    return Days(*(_EPOCH + timedelta(days=int(from_bytes(DateType(), value))) for value in bounds if value is not None))
