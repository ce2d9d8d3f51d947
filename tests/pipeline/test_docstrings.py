"""The docstrings of the public names of the pipeline and of the data source have the format; their examples run."""

from collections.abc import Iterator
from contextlib import closing
from datetime import date
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel
from pyspark.sql import SparkSession

import pyspark_hourwheel
from hourwheel.client import Api
from hourwheel_pipeline.jobs.job_names import JOBS
from hourwheel_pipeline.lake import tables
from hourwheel_pipeline.runs import session
from pyspark_hourwheel import HourwheelDataSource
from tests.docs.docstrings import faults, run_example
from tests.docs.names import Public, members, public
from tests.integration.process import Server
from tests.pipeline.days import Day

OF_LAKE = {"open", "find", "close", "table", "tables", "read", "rows"}
"""The rest is for the jobs."""

JOB_MODULES = {name: import_module(f"hourwheel_pipeline.jobs.{name}") for name in JOBS}
NAMES = [
    *public([*JOB_MODULES.values(), session, pyspark_hourwheel]),
    Public("hourwheel_pipeline.lake.tables.Lake", tables.Lake),
    *(each for each in members("Lake", tables.Lake) if each.name.partition(".")[2] in OF_LAKE),
]
EXAMPLES = [each for each in NAMES if ">>>" in each.text]


@pytest.mark.parametrize("each", NAMES, ids=[each.name for each in NAMES])
def test_the_docstring_has_the_format(each: Public) -> None:
    assert list(faults(each)) == []


class Once:
    """Runs a job once for equal options, and repeats the report. The reports of ``day`` are there from the start."""

    def __init__(self, job: ModuleType, day: Day) -> None:
        self._job, self._reports = job, dict(day.reports)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._job, name)

    def run(self, *given: Any) -> Any:
        (key,) = (repr(each) for each in given if isinstance(each, BaseModel | msgspec.Struct))
        if key not in self._reports:
            self._reports[key] = self._job.run(*given)
        return self._reports[key]


@pytest.fixture(scope="module")
def once(day: Day) -> dict[str, Once]:
    return {name: Once(job, day) for name, job in JOB_MODULES.items()}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = Server(tmp_path_factory.mktemp("server") / "data")
    yield f"http://127.0.0.1:{server.port}"
    server.stop()
    for pipe in (server.process.stdout, server.process.stderr):
        assert pipe is not None
        pipe.close()


@pytest.mark.parametrize("each", EXAMPLES, ids=[each.name for each in EXAMPLES])
def test_the_example_runs(
    each: Public, day: Day, once: dict[str, Once], spark: SparkSession, url: str, tmp_path: Path
) -> None:
    # Whole paths, as Spark's workers may run in another folder.
    text = each.text.replace("orders-data", str(day.world.root)).replace('"checkpoint"', f'"{tmp_path}/checkpoint"')
    with Api(url) as api:
        given = {"spark": spark, "url": url, "api": api, "now_ms": day.now_ms, "date": date, "closing": closing}
        names = {"Lake": tables.Lake, "HourwheelDataSource": HourwheelDataSource, **once}
        spark.dataSource.register(HourwheelDataSource)
        assert run_example(each, text, {**given, **names}) == ""
