"""The layout of the tables: which files a query reads, and how a lake of the old layout gets the new one."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from hourwheel.adapters.files import FileBlobs
from hourwheel.model.messages import Message
from hourwheel_pipeline.jobs import maintain, metrics
from hourwheel_pipeline.jobs.maintain import MaintainOptions, TableMaintenance
from hourwheel_pipeline.lake.layout import Layout, is_laid_out
from hourwheel_pipeline.lake.schemas import BOUNDED, MESSAGES, SCHEMAS, SORTED_BY, spark_ddl
from hourwheel_pipeline.lake.tables import Lake
from hourwheel_pipeline.measures import metrics_rows
from tests.pipeline.lakes import DAY_MS, HOUR_MS, NOON_MS, Compacted
from tests.pipeline.old_layout import write_old

DAYS = 30


class Killed(BaseException):
    """The process ends here."""


def files(table: Table, where: Any = "manifest >= 0") -> set[str]:
    return {task.file.file_path for task in table.scan(row_filter=where).plan_files()}


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Compacted:
    """Returns the lake of a month in which each day was compacted by itself."""
    lake = Compacted(tmp_path_factory.mktemp("month"), spark)
    for day in range(DAYS):
        for hour in (0, 5):
            at_ms = NOON_MS + day * DAY_MS + hour * HOUR_MS
            for subject in ("a", "b", "c"):
                lake.builder.row(f"{subject}~1/0", [Message(body="x", key=f"k{day:02d}")], at_ms)
        lake.builder.commit()
    lake.compact()
    return lake


@pytest.fixture
def messages(month: Compacted) -> Iterator[Table]:
    with closing(Lake.open(month.lake)) as lake:
        yield lake.table(MESSAGES)


def rfc(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat()


def test_an_hour_by_the_time_of_acceptance_reads_one_file_of_thirty(messages: Table) -> None:
    from_ms = NOON_MS + 12 * DAY_MS
    assert len(files(messages)) == DAYS
    where = f"accepted_at >= '{rfc(from_ms)}' and accepted_at < '{rfc(from_ms + HOUR_MS)}'"
    assert len(files(messages, where)) <= 0.05 * DAYS
    assert messages.scan(row_filter=where).to_arrow().num_rows == 3


@pytest.mark.parametrize(
    ("where", "read"),
    [
        (EqualTo("key", "k07"), 1),
        (EqualTo("manifest", 7), 1),
        (EqualTo("day", date(2025, 11, 25)), 1),
        (EqualTo("kind", "dead"), 0),
        (EqualTo("subject", "z"), 0),
        (EqualTo("subject", "b"), DAYS),
    ],
)
def test_queries_choose_files_by_the_bounds_of_their_columns(messages: Table, where: Any, read: int) -> None:
    assert len(files(messages, where)) == read


def test_a_file_with_rows_of_others_gives_only_those_that_were_asked_for(month: Compacted) -> None:
    with closing(Lake.open(month.lake)) as lake:
        since, until = date(2025, 11, 25), date(2025, 11, 27)
        rows = lake.read(month.spark, MESSAGES, since, until, subjects={"b"}).collect()
        assert {(row["subject"], row["day"]) for row in rows} == {("b", since), ("b", since + timedelta(days=1))}
        assert len(rows) == 4
        assert lake.read(month.spark, MESSAGES, subjects=()).count() == 0


def maintained(spark: SparkSession, location: str, today: date, **given: Any) -> dict[str, TableMaintenance]:
    now_ms = int(datetime(today.year, today.month, today.day, tzinfo=UTC).timestamp()) * 1_000
    options = MaintainOptions(**{"lake": location, "fewest_files": 2, **given})
    return {report.table: report for report in maintain.run(spark, options, now_ms).tables}


def test_days_stay_apart_for_a_month_after_their_month_and_are_then_merged(month: Compacted) -> None:
    """The days are 20 November to 19 December."""
    before = month.places()
    assert maintained(month.spark, month.lake, date(2025, 12, 31))[MESSAGES].merged == 0
    november = maintained(month.spark, month.lake, date(2026, 1, 1))[MESSAGES]
    assert (november.merged, november.merged_into) == (11, 1)
    december = maintained(month.spark, month.lake, date(2026, 3, 4))[MESSAGES]
    assert (december.merged, december.merged_into) == (19, 1)
    assert month.places() == before


@pytest.fixture
def old(tmp_path: Path, spark: SparkSession) -> Compacted:
    """Returns an archive with a lake of the old layout that holds all of it."""
    source, lake = (Compacted(tmp_path / name, spark) for name in ("source", "old"))
    for hour in range(3):
        source.add(NOON_MS + hour * HOUR_MS)
        source.compact()
    copytree(source.root / "archive", lake.root / "archive")
    lake.builder = replace(source.builder, archive=FileBlobs(lake.root / "archive"))
    write_old(spark, source.lake, lake.lake)
    return lake


def tables(lake: Compacted) -> dict[str, Table]:
    with closing(Lake.open(lake.lake)) as opened:
        return {name: opened.table(name) for name in SCHEMAS}


def test_a_lake_of_the_old_layout_gets_the_new_one_in_place(old: Compacted, spark: SparkSession) -> None:
    before = {name: files(table) for name, table in tables(old).items()}
    assert [len(table.spec().fields) for table in tables(old).values()] == [2, 2, 2]
    assert old.places() == old.archived()  # it is read as it is
    old.add(NOON_MS + DAY_MS)
    old.compact()
    for name, table in tables(old).items():
        assert is_laid_out(table, Layout(SORTED_BY[name], BOUNDED[name]))
        assert before[name] < files(table)
    assert old.places() == old.archived()
    reports = maintained(spark, old.lake, date(2025, 11, 22))
    assert reports[MESSAGES].merged == len(before[MESSAGES]) > reports[MESSAGES].merged_into == 1
    assert old.places() == old.archived()
    (merged,) = files(tables(old)[MESSAGES], EqualTo("accepted_at", datetime.fromtimestamp(NOON_MS / 1_000, UTC)))
    assert merged not in before[MESSAGES]


@pytest.mark.parametrize("late", [False, True])
def test_a_job_that_is_killed_while_it_lays_out_a_table_has_lost_nothing(
    old: Compacted, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    old.add(NOON_MS + DAY_MS)
    with monkeypatch.context() as patch:
        commit = SqlCatalog.commit_table

        def killed(self: SqlCatalog, *given: Any) -> None:
            if late:
                commit(self, *given)
            raise Killed

        patch.setattr(SqlCatalog, "commit_table", killed)
        with pytest.raises(Killed):
            old.compact()
    assert [table.spec().is_unpartitioned() for table in tables(old).values()] == [late, False, False]
    old.compact()
    assert old.places() == old.archived()


def test_two_jobs_may_lay_out_a_table_at_once(old: Compacted, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, first = SqlCatalog.commit_table, [True]

    def overtaken(self: SqlCatalog, *given: Any) -> Any:
        if first:
            first.clear()
            old.compact()
        return commit(self, *given)

    monkeypatch.setattr(SqlCatalog, "commit_table", overtaken)
    old.add(NOON_MS + DAY_MS)
    old.compact()
    assert old.places() == old.archived()


def test_rows_of_metrics_that_were_computed_again_are_dropped(spark: SparkSession, tmp_path: Path) -> None:
    day, hour = date(2025, 11, 20), datetime(2025, 11, 20, 3, tzinfo=UTC)
    later = [hour + timedelta(days=1, hours=number) for number in range(3)]
    with closing(Lake.open(str(tmp_path))) as lake:
        lake.ensure(metrics.TABLE, metrics_rows.SCHEMA, sorted_by=metrics_rows.SORTED_BY)
        for number, computed_at in enumerate(later):
            known = {"day": day, "hour": hour, "step_seconds": 3_600, "computed_at": computed_at, "accepted": number}
            rows = [known | {"subject": "a", "group": None}, known | {"subject": "a", "group": "g"}]
            rows += [known | {"subject": f"only-{number}", "group": None}]
            frame = spark.createDataFrame(rows, spark_ddl(metrics_rows.SCHEMA))
            lake.append(metrics.TABLE, frame, properties={"hourwheel.measured": str(number)})
    report = maintained(spark, str(tmp_path), date(2025, 11, 22))[metrics.TABLE]
    assert (report.merged, report.merged_into) == (3, 1)
    with closing(Lake.open(str(tmp_path))) as lake:
        left = lake.rows(metrics.TABLE, "step_seconds = 3600").to_pylist()
        assert lake.properties(metrics.TABLE) == {"hourwheel.measured": "2"}
    found = sorted((row["subject"], row["group"] or "", row["accepted"]) for row in left)
    assert found == [("a", "", 2), ("a", "g", 2), ("only-0", "", 0), ("only-1", "", 1), ("only-2", "", 2)]


def test_a_table_that_is_written_often_has_few_manifests_of_iceberg(spark: SparkSession, tmp_path: Path) -> None:
    with closing(Lake.open(str(tmp_path))) as lake:
        lake.ensure(metrics.TABLE, metrics_rows.SCHEMA, sorted_by=metrics_rows.SORTED_BY)
        known = {"hour": datetime(2025, 11, 20, tzinfo=UTC), "step_seconds": 60, "subject": "a"}
        row = known | {"day": date(2025, 11, 20), "computed_at": datetime(2025, 11, 21, tzinfo=UTC)}
        frame = spark.createDataFrame([row], spark_ddl(metrics_rows.SCHEMA))
        for _ in range(45):
            lake.append(metrics.TABLE, frame, properties={"hourwheel.measured": "0"})
        current = lake.table(metrics.TABLE).current_snapshot()
        assert current is not None
        assert len(current.manifests(lake.table(metrics.TABLE).io)) <= 20
        assert len(files(lake.table(metrics.TABLE), "step_seconds = 60")) == 45
