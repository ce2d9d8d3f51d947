"""The Spark session of a job."""

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from hourwheel_pipeline.scratch import make_scratch

__all__ = ["session"]

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
_LOG = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""
# Within one process Spark draws the secret itself. Any user of the machine may connect to its loopback ports.
_LOCAL = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
}


def session(
    name: str,
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    scratch: Path | None = None,
    log_level: str = "WARN",
) -> SparkSession:
    """Starts Spark with the settings that the jobs need, or returns the session that runs.

    ``master`` is such as ``local[2]`` on one machine; without it, the session runs on the cluster that the program was
    submitted to. One machine spills below ``scratch`` (default: the system's folder for temporary files). Spark itself
    logs to stderr from ``log_level`` on.

    Raises nothing of its own; Spark raises what keeps it from starting.

    Example:
        >>> from hourwheel_pipeline.session import session
        >>> session("questions", master="local[2]").conf.get("spark.sql.session.timeZone")
        'UTC'
    """
    builder = SparkSession.builder.appName(f"hourwheel {name}")
    if master is not None:
        builder = builder.master(master)
        # Else its processes were of whatever python3 is on the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    every = {**_SETTINGS, **(_one_machine(master, scratch) if master else {}), **(settings or {})}
    for key, value in every.items():
        builder = builder.config(key, value)
    for logger in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        # It writes a line of JSON on stderr for each error that it raises as well.
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel(log_level)
    return found


def _one_machine(master: str, parent: Path | None) -> dict[str, str]:
    folder = make_scratch(parent)
    # Else Spark says on stderr that it has to guess an address, and which settings of its log it takes.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    (folder / "log4j2.properties").write_text(_LOG)
    return {
        **_ONE_MACHINE,
        **(_LOCAL if master.startswith("local") else {}),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # Where spark.local.dir is not set either, what is spilled lies there as well, without a warning.
        "spark.driver.extraJavaOptions": (
            f'-Djava.io.tmpdir="{folder}" -Dlog4j2.configurationFile={(folder / "log4j2.properties").as_uri()}'
        ),
    }
