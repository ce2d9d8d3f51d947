"""Watches which rows of the lake Spark reads."""

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from hourwheel_pipeline.lake.schemas import SCHEMAS
from hourwheel_pipeline.lake.tables import Lake


def subjects_read(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Collects the subjects of which Spark reads rows from now on, of the tables that are filled from the archive."""
    subjects: set[str] = set()
    read = Lake.read

    def watched(self: Lake, spark: SparkSession, name: str, *bounds: Any, **named: Any) -> DataFrame:
        rows = read(self, spark, name, *bounds, **named)
        if name in SCHEMAS:
            subjects.update(row["subject"] for row in rows.select("subject").distinct().collect())
        return rows

    monkeypatch.setattr(Lake, "read", watched)
    return subjects
