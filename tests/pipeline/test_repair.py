"""Repair restores rows and damaged files of the lake from the archive."""

from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from hourwheel.errors import Corrupt
from hourwheel_pipeline.jobs import repair
from hourwheel_pipeline.jobs.repair import RepairOptions, RepairReport
from hourwheel_pipeline.lake.schemas import MESSAGES, PULLS
from hourwheel_pipeline.lake.tables import Lake
from hourwheel_pipeline.outcomes import report_status
from hourwheel_pipeline.runs import exits
from hourwheel_pipeline.runs.failures import in_one_sentence
from tests.pipeline.lakes import DAY_MS, NOON_MS, Compacted


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Compacted:
    found = Compacted(tmp_path, spark)
    for day in range(2):
        found.add(NOON_MS + day * DAY_MS)
    found.compact()
    return found


def repaired(lake: Compacted) -> RepairReport:
    options = RepairOptions(archive=str(lake.root / "archive"), lake=lake.lake)
    return repair.run(lake.spark, options)


def files(lake: Compacted, table: str) -> list[Path]:
    with closing(Lake.open(lake.lake)) as opened:
        return [Path(task.file.file_path) for task in opened.table(table).scan().plan_files()]


def test_deleted_rows_and_missing_files_are_restored(lake: Compacted) -> None:
    with closing(Lake.open(lake.lake)) as opened:
        opened.table(MESSAGES).delete("subject == 'bills'")
    cut_off, other = files(lake, MESSAGES)
    gone, *_ = files(lake, PULLS)
    cut_off.write_bytes(cut_off.read_bytes()[:-1])
    for file in (other, gone):
        file.unlink()
    messages, pulls = sorted(repaired(lake).tables, key=lambda one: one.table)
    assert messages.rows == 18  # of two subjects, and two that cancel a message, which no manifest counts
    removed = {path.split(": ")[0] for path in (*messages.removed, *pulls.removed)}
    assert removed == {str(cut_off), str(other), str(gone)}
    assert messages.lost == pulls.lost == []
    assert lake.places() == lake.archived()
    assert repaired(lake).tables == []


def test_a_file_that_is_damaged_within_is_named_and_read_to_be_found(lake: Compacted) -> None:
    damaged = max(files(lake, MESSAGES), key=lambda path: path.stat().st_size)
    data = damaged.read_bytes()
    damaged.write_bytes(data[:4] + bytes(byte ^ 0x5A for byte in data[4:400]) + data[400:])
    with pytest.raises(Corrupt) as told, in_one_sentence():
        lake.rows()
    assert str(told.value) == (
        f"{damaged} of the lake is missing or damaged: hourwheel pipeline run repair restores its rows from the archive"
    )
    (table,) = repaired(lake).tables
    assert [path.split(": ")[0] for path in table.removed] == [str(damaged)]
    assert lake.places() == lake.archived()


def test_rows_that_the_archive_lacks_too_are_named_and_are_damage(lake: Compacted) -> None:
    for key in lake.builder.archive.list("segments/messages/"):
        lake.builder.archive.delete(key)
    with closing(Lake.open(lake.lake)) as opened:
        opened.table(MESSAGES).delete("subject == 'bills'")
    report = repaired(lake)
    (table,) = report.tables
    assert (table.rows, len(table.lost)) == (0, 2)
    assert all("segment is missing; put it back from a copy" in sentence for sentence in table.lost)
    assert report_status.of_reports([report]) == exits.DAMAGE
