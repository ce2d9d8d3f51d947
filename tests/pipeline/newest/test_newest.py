"""Runs the tests of the data source once more, on the newest Spark."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-newest/bin/python"
TESTS = sorted(Path(__file__).parents[1].glob("test_connector_*.py"))


@pytest.mark.volume
def test_the_data_source_works_on_the_newest_spark() -> None:
    if not PYTHON.exists():
        pytest.fail("there is no environment with the newest Spark: make .venv-newest/ready", pytrace=False)
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}

    done = subprocess.run(
        [PYTHON, "-m", "pytest", "-p", "no:cacheprovider", *TESTS],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert TESTS
