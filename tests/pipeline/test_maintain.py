import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry, Summary
from pyiceberg.table.statistics import StatisticsFile
from pyspark.sql import SparkSession

from hourwheel.system import SystemClock
from hourwheel_pipeline.jobs import maintain
from hourwheel_pipeline.jobs.maintain import MaintainOptions, Maintenance, TableMaintenance
from hourwheel_pipeline.lake.schemas import MESSAGES, spark_ddl
from hourwheel_pipeline.lake.tables import Lake
from tests.pipeline.lakes import HOUR_MS, NOON_MS, Compacted

SCHEMA = pa.schema([pa.field("day", pa.date32()), pa.field("n", pa.int64())])
DAYS = 3
TODAY = datetime.fromtimestamp(SystemClock().now_ms() / 1_000, UTC).date()
DAY_SECONDS = 86_400


@dataclass
class Crowded:
    """A lake with a table. Each call that adds rows adds a file to each day."""

    location: str
    spark: SparkSession
    rows: int = 0

    def add(self) -> None:
        numbers = range(self.rows, self.rows + 2 * DAYS)
        rows = self.spark.createDataFrame([(TODAY - timedelta(days=n % DAYS), n) for n in numbers], spark_ddl(SCHEMA))
        with closing(Lake.open(self.location)) as lake:
            lake.ensure("figures", SCHEMA, sorted_by=("n",))
            lake.append("figures", rows, properties={"hourwheel.last-manifest": str(self.rows)})
        self.rows += 2 * DAYS

    def maintain(self, *, later_seconds: int = 0, **given: Any) -> TableMaintenance:
        options = MaintainOptions(**{"lake": self.location, "fewest_files": 3, **given})
        now_ms = SystemClock().now_ms() + later_seconds * 1_000
        (report,) = maintain.run(self.spark, options, now_ms).tables
        return report

    def check(self) -> None:
        """Asserts that the table has each row once, and its notes."""
        with closing(Lake.open(self.location)) as lake:
            found = lake.read(self.spark, "figures").collect()
            assert sorted(row["n"] for row in found) == list(range(self.rows))
            assert lake.properties("figures") == {"hourwheel.last-manifest": str(self.rows - 2 * DAYS)}

    @property
    def named(self) -> set[str]:
        with closing(Lake.open(self.location)) as lake:
            return {task.file.file_path for task in lake.table("figures").scan().plan_files()}

    @property
    def stored(self) -> set[str]:
        return {str(path) for path in Path(self.location).glob("figures/data/**/*.parquet")}


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Crowded:
    found = Crowded(str(tmp_path), spark)
    for _ in range(3):
        found.add()
    return found


def test_small_files_are_merged_and_the_rows_stay(lake: Crowded) -> None:
    report = lake.maintain(later_seconds=30 * DAY_SECONDS)
    assert (report.merged, report.merged_into) == (9, 3)
    lake.check()
    assert lake.named == lake.stored
    for name in lake.named:
        folder, file = os.path.split(name)
        assert os.path.exists(f"{folder}/.{file}.crc")
    again = lake.maintain(later_seconds=30 * DAY_SECONDS)
    assert (again.merged, again.snapshots_expired, again.files_removed) == (0, 0, 0)
    lake.add()
    lake.check()


def test_few_or_large_files_stay(lake: Crowded) -> None:
    before = lake.named
    lake.maintain(fewest_files=4)
    lake.maintain(file_bytes=500)
    assert lake.named == before


def meanwhile(patch: pytest.MonkeyPatch, happen: Callable[[], object]) -> None:
    """Calls a function just before the first commit that removes files."""
    committing = Lake.commit
    once = [happen]

    def overtaken(self: Lake, *arguments: Any, **named: Any) -> None:
        if once and named.get("removed"):
            once.pop()()
        committing(self, *arguments, **named)

    patch.setattr(Lake, "commit", overtaken)


def test_files_that_are_added_during_a_merge_stay(lake: Crowded, monkeypatch: pytest.MonkeyPatch) -> None:
    meanwhile(monkeypatch, lake.add)
    assert lake.maintain().merged == 9
    lake.check()


def test_one_of_two_concurrent_merges_wins(lake: Crowded, monkeypatch: pytest.MonkeyPatch) -> None:
    meanwhile(monkeypatch, lake.maintain)
    report = lake.maintain(keep_seconds=0)
    assert (report.merged, report.lost_races) == (0, 1)
    lake.check()
    assert len(lake.stored) == 9 + 3  # who lost has left nothing


def test_a_merge_during_a_compaction_hinders_neither(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Compacted(tmp_path, spark)
    for hour in range(2):
        lake.add(NOON_MS + hour * HOUR_MS)
    lake.compact(step_segments=1)
    lake.add(NOON_MS + 2 * HOUR_MS)
    committing = Lake.commit
    reports = []

    def overtaken(self: Lake, *arguments: Any, **named: Any) -> None:
        if not reports:
            reports.append(None)
            reports[:] = maintain.run(
                spark, MaintainOptions(lake=lake.lake, fewest_files=2), SystemClock().now_ms()
            ).tables
        committing(self, *arguments, **named)

    monkeypatch.setattr(Lake, "commit", overtaken)
    assert lake.compact().lost_races == 0
    assert {report.table: report.merged for report in reports}[MESSAGES] == 2
    assert lake.places() == lake.archived()


def test_snapshots_and_files_that_nobody_names_go_when_their_time_is_over(lake: Crowded) -> None:
    orphan = Path(lake.location, "figures/data/stopped/_day=2026-01-01/part-0.parquet")
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"x")
    kept = lake.maintain()
    assert (kept.merged, kept.snapshots_expired, kept.files_removed) == (9, 0, 0)
    assert len(lake.stored) == 9 + 3 + 1
    expired = lake.maintain(later_seconds=8 * DAY_SECONDS, grace_seconds=9 * DAY_SECONDS)
    assert (expired.snapshots_expired, expired.files_removed) == (3, 0)
    removed = lake.maintain(later_seconds=8 * DAY_SECONDS)
    assert removed.files_removed > 10
    assert lake.stored == lake.named
    lake.check()


@dataclass
class Told:
    """Stands for a table, as far as the choice of the snapshots to expire reads it."""

    taken: list[Snapshot]
    log: list[SnapshotLogEntry]
    refs: dict[str, SnapshotRef]

    @property
    def metadata(self) -> "Told":
        return self

    def snapshots(self) -> list[Snapshot]:
        return self.taken

    def history(self) -> list[SnapshotLogEntry]:
        return self.log

    def current_snapshot(self) -> Snapshot:
        return self.taken[-1]

    def snapshot_by_id(self, number: int) -> Snapshot | None:
        return next((one for one in self.taken if one.snapshot_id == number), None)


def told(notes: Sequence[bool], tagged: int | None = None) -> Any:
    """Returns a table with a snapshot at each second, numbered from 1, with these notes."""
    taken = [
        Snapshot(
            snapshot_id=number,
            parent_snapshot_id=number - 1 or None,
            timestamp_ms=1_000 * number,
            manifest_list="",
            summary=Summary(Operation.APPEND, **({"hourwheel.a": "1"} if noted else {})),
        )
        for number, noted in enumerate(notes, 1)
    ]
    log = [SnapshotLogEntry(snapshot_id=one.snapshot_id, timestamp_ms=one.timestamp_ms) for one in taken]
    refs = {"kept": SnapshotRef(snapshot_id=tagged, snapshot_ref_type=SnapshotRefType.TAG)} if tagged else {}
    return Told(taken, log, refs)


@pytest.mark.parametrize(("before_ms", "expired"), [(2_000, []), (2_001, [1]), (4_000, [1, 2]), (9_000, [1, 2, 3])])
def test_a_snapshot_goes_when_it_was_replaced_long_enough_ago(before_ms: int, expired: list[int]) -> None:
    """A reader that began just before the snapshot was replaced may read its files this long."""
    assert maintain.expired(told([True] * 4), before_ms) == expired


def test_snapshots_that_lead_to_the_notes_or_have_a_name_stay() -> None:
    assert maintain.expired(told([True, True, True, False, False]), 9_000) == [1, 2]
    assert maintain.expired(told([True] * 4, tagged=2), 9_000) == [1, 3]


def test_statistics_of_another_engine_are_not_taken_for_leftovers(tmp_path: Path) -> None:
    with closing(Lake.open(str(tmp_path))) as lake:
        lake.ensure("figures", SCHEMA, sorted_by=("n",))
        lake.commit("figures", added=[], properties={"hourwheel.last-manifest": "0"})
        path, leftover = (tmp_path / "figures/metadata" / name for name in ("some.stats", "other.stats"))
        for one in (path, leftover):
            one.write_bytes(b"x")
        table = lake.table("figures")
        current = table.current_snapshot()
        assert current is not None
        statistics = StatisticsFile(
            snapshot_id=current.snapshot_id,
            statistics_path=str(path),
            file_size_in_bytes=1,
            file_footer_size_in_bytes=1,
            blob_metadata=[],
        )
        table.update_statistics().set_statistics(statistics).commit()
        no_spark: Any = None  # there is nothing to merge
        options = MaintainOptions(lake=lake.location)
        report = Maintenance(no_spark, options, lake, "figures").run(SystemClock().now_ms() + 30 * DAY_SECONDS * 1_000)
    assert (report.files_removed, path.exists(), leftover.exists()) == (1, True, False)


def test_files_that_old_snapshots_name_stay_as_long_as_the_snapshots(lake: Crowded) -> None:
    lake.maintain(later_seconds=30 * DAY_SECONDS, keep_seconds=365 * DAY_SECONDS)
    assert len(lake.stored) == 9 + 3
    with closing(Lake.open(lake.location)) as opened:
        table = opened.table("figures")
        rows = [table.scan(snapshot_id=one.snapshot_id).to_arrow().num_rows for one in table.snapshots()]
    assert rows == [6, 12, 18, 18]


def test_a_job_that_is_killed_between_a_merge_and_its_commit_has_changed_nothing(
    lake: Crowded, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed() -> None:
        raise Killed

    before = lake.named
    with monkeypatch.context() as patch:
        meanwhile(patch, killed)
        with pytest.raises(Killed):
            lake.maintain()
    assert lake.named == before
    assert len(lake.stored) == 9 + 3
    lake.maintain(later_seconds=30 * DAY_SECONDS)
    assert lake.named == lake.stored
    lake.check()
