"""The public names of the pipeline and of the data source: their docstrings have the format."""

from importlib import import_module

import pytest

import pyspark_hourwheel
from hourwheel_pipeline import lake, session
from hourwheel_pipeline.jobs import JOBS
from tests.docs.docstrings import faults
from tests.docs.names import Public, members, public

OF_LAKE = {"open", "find", "close", "table", "tables", "read", "rows"}
"""The rest is for the jobs."""

JOB_MODULES = {name: import_module(f"hourwheel_pipeline.{name}") for name in JOBS}
NAMES = [
    *public([*JOB_MODULES.values(), session, pyspark_hourwheel]),
    Public("hourwheel_pipeline.lake.Lake", lake.Lake),
    *(each for each in members("Lake", lake.Lake) if each.name.partition(".")[2] in OF_LAKE),
]


@pytest.mark.parametrize("each", NAMES, ids=[each.name for each in NAMES])
def test_the_docstring_has_the_format(each: Public) -> None:
    assert list(faults(each)) == []
