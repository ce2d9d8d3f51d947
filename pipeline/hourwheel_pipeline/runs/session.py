"""Makes the Spark session of a job."""

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from hourwheel_pipeline.runs.scratch import make_scratch

__all__ = ["session"]

_SETTINGS = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Iceberg has microseconds; by default Spark writes a type of time that Iceberg does not have.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
}
_ONE_MACHINE = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Most of Spark's default of 200 would be empty: a day of a small cell took seven times as long.
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

    ``master`` names one machine, such as ``local[2]``; without it, the session runs on the cluster that the program was
    submitted to. One machine spills below ``scratch`` (default: the system's folder for temporary files). Spark itself
    logs to stderr from ``log_level`` on.

    Raises nothing of its own; Spark raises what keeps it from starting.

    Example:
        >>> from hourwheel_pipeline.runs.session import session
        >>> session("questions", master="local[2]").conf.get("spark.sql.session.timeZone")
        'UTC'
    """
    builder = SparkSession.builder.appName(f"hourwheel {name}")
    if master is not None:
        builder = builder.master(master)
        # Otherwise the workers run the first python3 on the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    merged = {**_SETTINGS, **(_one_machine(master, scratch) if master else {}), **(settings or {})}
    for key, value in merged.items():
        builder = builder.config(key, value)
    for logger in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        # They write a line of JSON on stderr for each error that Spark raises as well.
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(log_level)
    return spark


def _one_machine(master: str, parent: Path | None) -> dict[str, str]:
    folder = make_scratch(parent)
    # Both settings avoid warnings of Spark on stderr: about a guessed address, and about its default log settings.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    (folder / "log4j2.properties").write_text(_LOG)
    return {
        **_ONE_MACHINE,
        **(_LOCAL if master.startswith("local") else {}),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # Spark spills there as well unless spark.local.dir is set, and then warns of nothing.
        "spark.driver.extraJavaOptions": (
            f'-Djava.io.tmpdir="{folder}" -Dlog4j2.configurationFile={(folder / "log4j2.properties").as_uri()}'
        ),
    }
