"""Starts one Spark session for all tests; if Spark cannot start, the tests fail and give the reason."""

import gc
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

try:
    from pyspark.sql import SparkSession
except ModuleNotFoundError as missing:
    raise pytest.UsageError(f"tests/pipeline needs {missing.name}: make .venv/pipeline-ready") from missing

HERE = Path(__file__).parent

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
    # For few rows: planning and compiling a query costs more than running it.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# PySpark 4.0 leaves the socket through which the JVM sends results to the garbage collector.
SOCKETS = r"ignore:unclosed <socket\.socket .*raddr=\('127\.0\.0\.1':ResourceWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(SOCKETS))


def java_version() -> int:
    """Returns the major version of the Java that Spark would start; 0 without any."""
    home = os.environ.get("JAVA_HOME")
    command = [str(Path(home, "bin/java")) if home else "java", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return 0
    found = re.search(r'version "(\d+)', answer)
    return int(found[1]) if found else 0


def import_frame_comparison() -> None:
    """Imports what ``assertDataFrameEqual`` imports when it is first called. PySpark 4.0 then sets a variable for good,
    with which pyarrow takes the hours of any zone for those of UTC. Here the variable is removed afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYARROW_IGNORE_TIMEZONE", "1")
        importlib.import_module("pyspark.pandas")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    if java_version() < 17:
        pytest.fail("Spark needs Java 17: put its java on the PATH, or set JAVA_HOME", pytrace=False)
    import_frame_comparison()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)  # otherwise the workers are whatever python3 is on the path
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        builder = SparkSession.builder.master("local[2]").appName("tests")
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        jvm = session.sparkContext._gateway.proc
        session.stop()
        # A JVM that this process has waited for counts to the CPU time of its part.
        jvm.stdin.close()
        jvm.wait()
        gc.collect()  # the sockets, while their warning is still ignored


@pytest.fixture(scope="session")
def day(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Returns a run of the daily jobs over three messages of ``orders``, a ``Day``. Modules of tests go on from there,
    each from where the one before has left the world and its lake."""
    days = importlib.import_module("tests.pipeline.days")  # the environment with the newest Spark has no jobs
    return days.run_of(tmp_path_factory.mktemp("day"), ["order 1", "order 2", "order 3"])
