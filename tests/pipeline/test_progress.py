"""A job writes its stages to a terminal, and to nothing else."""

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.lakes import NOON_MS, Compacted

STAGES = [f"compact: takes 1 segment into {table}" for table in ("messages", "pulls", "dispatches")]


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Compacted:
    lake = Compacted(tmp_path, spark)
    lake.add(NOON_MS)
    return lake


def test_a_terminal_gets_a_line_for_each_stage(lake: Compacted, monkeypatch: pytest.MonkeyPatch) -> None:
    controller, terminal = os.openpty()
    with open(terminal, "w") as stderr, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stderr)
        lake.compact()
        lines = os.read(controller, 10_000).decode().splitlines()
    os.close(controller)
    assert sorted(lines) == sorted(STAGES)


def test_a_pipe_gets_nothing(lake: Compacted, capsys: pytest.CaptureFixture[str]) -> None:
    lake.compact()
    assert capsys.readouterr().err == ""
