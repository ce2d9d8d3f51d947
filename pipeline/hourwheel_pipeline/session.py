"""The Spark session of a job."""

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Iceberg has microseconds; Spark would write times that it does not know.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
}
_ONE_MACHINE = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Of the 200 that Spark makes most would be empty: a day of a small cell took seven times as long.
    "spark.sql.shuffle.partitions": str(os.cpu_count()),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def session(name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """``master``: such as ``local[2]``, for one machine; without it, where the program was submitted to."""
    builder = SparkSession.builder.appName(f"hourwheel {name}")
    if master is not None:
        builder = builder.master(master)
        # Else its processes were of whatever python3 is on the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    every = {**_SETTINGS, **(_ONE_MACHINE if master else {}), **(settings or {})}
    for key, value in every.items():
        builder = builder.config(key, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("WARN")
    return found
