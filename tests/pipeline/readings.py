"""Watches which files of the lake Spark reads."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from hourwheel_pipeline.lake import tables
from hourwheel_pipeline.lake.schemas import SCHEMAS


def subjects_read(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Collects the subjects of which Spark reads files from now on, of the tables that are filled from the archive."""
    subjects: set[str] = set()
    frame_of = tables.frame_of

    def watched(spark: SparkSession, table: Any, files: list[str]) -> Any:
        if table.name()[-1] in SCHEMAS:
            subjects.update(path.split("/_subject=")[1].split("/")[0] for path in files)
        return frame_of(spark, table, files)

    monkeypatch.setattr(tables, "frame_of", watched)
    return subjects
