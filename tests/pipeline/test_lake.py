import re
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyspark.sql import DataFrame, SparkSession

from hourwheel.errors import Broken, NotFound
from hourwheel_pipeline.jobs import maintain
from hourwheel_pipeline.jobs.maintain import MaintainOptions
from hourwheel_pipeline.lake.schemas import SCHEMAS, TIMESTAMP, spark_ddl
from hourwheel_pipeline.lake.table_progress import QuarantinedSegment, TableProgress
from hourwheel_pipeline.lake.tables import CommitConflict, Lake

SCHEMA = pa.schema(
    [pa.field("day", pa.date32(), nullable=False), pa.field("n", pa.int64()), pa.field("text", pa.string())]
)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with closing(Lake.open(str(tmp_path / "a lake, 100%"))) as opened:
        opened.ensure("findings", SCHEMA, sorted_by=("n",))
        yield opened


def rows(spark: SparkSession, *numbers: int) -> DataFrame:
    return spark.createDataFrame([(date(2026, 1, 1 + n % 3), n, f"t{n}") for n in numbers], spark_ddl(SCHEMA))


def numbers(spark: SparkSession, lake: Lake, **bounds: date) -> list[int]:
    return sorted(row["n"] for row in lake.read(spark, "findings", **bounds).collect())


def test_appended_rows_are_read_by_day(spark: SparkSession, lake: Lake) -> None:
    lake.append("findings", rows(spark, *range(9)))
    lake.append("findings", rows(spark, 9))
    assert numbers(spark, lake) == list(range(10))
    assert numbers(spark, lake, since=date(2026, 1, 2)) == [1, 2, 4, 5, 7, 8]
    assert numbers(spark, lake, until=date(2026, 1, 2)) == [0, 3, 6, 9]
    assert numbers(spark, lake, since=date(2026, 1, 2), until=date(2026, 1, 3)) == [1, 4, 7]
    assert numbers(spark, lake, since=date(2027, 1, 1)) == []
    assert lake.read(spark, "findings").columns == SCHEMA.names


def test_a_table_without_rows_is_read(spark: SparkSession, lake: Lake) -> None:
    assert numbers(spark, lake) == []


def test_a_table_that_is_not_there_is_not_found(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(NotFound, match="no table 'metrics'"):
        lake.read(spark, "metrics")
    assert lake.table_progress("metrics") == TableProgress()


def test_a_table_is_created_once_and_keeps_its_columns(lake: Lake) -> None:
    lake.ensure("findings", SCHEMA, sorted_by=("n",))
    with pytest.raises(Broken, match="has the columns"):
        lake.ensure("findings", SCHEMA.append(pa.field("new", pa.int64())), sorted_by=("n",))
    assert lake.tables() == ["findings"]


def test_a_lake_that_was_moved_is_refused_and_not_taken_for_another(lake: Lake, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copytree(lake.location, copy)
    with closing(Lake.open(str(copy))) as moved:
        with pytest.raises(Broken, match=f"copied or moved from {re.escape(lake.location)}/findings"):
            moved.table("findings")
        with pytest.raises(Broken, match="copied or moved"):
            moved.ensure("findings", SCHEMA, sorted_by=("n",))


def test_a_location_has_one_name_however_it_is_spelled(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(lake.location)
    for name in (tmp_path / "link", tmp_path / "link/../a lake, 100%"):
        with closing(Lake.open(str(name))) as opened:
            assert opened.table("findings").location() == lake.table("findings").location()


def test_where_there_is_no_lake_none_is_found_and_none_is_made(lake: Lake, tmp_path: Path) -> None:
    assert Lake.find(str(tmp_path / "new")) is None
    assert not (tmp_path / "new").exists()
    assert Lake.find(lake.location, namespace="another") is None
    found = Lake.find(lake.location)
    assert found is not None
    with closing(found):
        assert found.tables() == ["findings"]


def test_many_may_open_a_lake_at_once(tmp_path: Path) -> None:
    for _ in range(2):
        with closing(Lake.open(str(tmp_path / "new"))) as one, closing(Lake.open(str(tmp_path / "new"))) as other:
            for opened in (one, other):
                opened.ensure("findings", SCHEMA, sorted_by=("n",))


def test_notes_stay_until_they_are_changed(spark: SparkSession, lake: Lake) -> None:
    assert lake.properties("findings") == {}
    lake.append("findings", rows(spark, 1), properties={"hourwheel.a": "1", "hourwheel.b": "2"})
    lake.append("findings", rows(spark, 2), properties={"hourwheel.b": "3"})
    lake.append("findings", rows(spark, 3))
    assert lake.properties("findings") == {"hourwheel.a": "1", "hourwheel.b": "3"}


def test_notes_are_those_of_the_rows_that_are_there(spark: SparkSession, lake: Lake) -> None:
    """Another tool writes, and an operator goes back to an earlier snapshot."""
    lake.append("findings", rows(spark, 1), properties={"hourwheel.a": "1"})
    first = lake.table("findings").current_snapshot()
    assert first is not None
    lake.append("findings", rows(spark, 2), properties={"hourwheel.a": "2"})
    table = lake.table("findings")
    table.append(pa.table({"day": [date(2026, 1, 1)], "n": [3], "text": ["x"]}, schema=table.schema().as_arrow()))
    assert lake.properties("findings") == {"hourwheel.a": "2"}
    lake.table("findings").manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    assert lake.properties("findings") == {"hourwheel.a": "1"}
    assert numbers(spark, lake) == [1]


def test_a_table_whose_notes_are_lost_is_not_taken_for_an_empty_one(lake: Lake) -> None:
    table = lake.table("findings")
    table.append(pa.table({"day": [date(2026, 1, 1)], "n": [3], "text": ["x"]}, schema=table.schema().as_arrow()))
    for look in (lake.properties, lake.table_progress, lake.last_manifest):
        with pytest.raises(Broken, match="does not say what it holds"):
            look("findings")


def test_rows_that_another_engine_deleted_are_not_read_as_if_they_were_there(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    lake.append("findings", rows(spark, 1, 2))
    table = lake.table("findings")
    (one, *_) = (task.file for task in table.scan().plan_files())
    delete = DataFile.from_args(
        _table_format_version=2,
        content=DataFileContent.POSITION_DELETES,
        file_path=str(tmp_path / "deletes.parquet"),
        file_format=FileFormat.PARQUET,
        partition=one.partition,
        record_count=1,
        file_size_in_bytes=1,
    )
    delete.spec_id = one.spec_id
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as snapshot:
        snapshot.append_data_file(delete)
    with pytest.raises(Broken, match="another engine has deleted rows"):
        lake.read(spark, "findings")
    with pytest.raises(Broken, match="another engine has deleted rows"):
        maintain.run(spark, MaintainOptions(lake=lake.location), 0)


def test_a_commit_that_expects_other_notes_changes_nothing(spark: SparkSession, lake: Lake) -> None:
    lake.append("findings", rows(spark, 1), properties={"hourwheel.a": "1"})
    with pytest.raises(CommitConflict):
        lake.commit("findings", added=[], properties={"hourwheel.a": "3"}, on={"hourwheel.a": "2"})
    lake.commit("findings", added=[], properties={"hourwheel.a": "3"}, on={"hourwheel.a": "1"})
    assert lake.properties("findings") == {"hourwheel.a": "3"}
    assert numbers(spark, lake) == [1]


def test_a_commit_that_an_unrelated_one_overtakes_is_repeated(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.append("findings", rows(spark, 1))
    committing = lake.catalog.commit_table
    others = [rows(spark, 7), rows(spark, 8)]

    def overtaken(*arguments: Any) -> object:
        if others:
            with closing(Lake.open(lake.location)) as another:
                another.append("findings", others.pop())
        return committing(*arguments)

    monkeypatch.setattr(lake.catalog, "commit_table", overtaken)
    lake.append("findings", rows(spark, 2))
    assert numbers(spark, lake) == [1, 2, 7, 8]


def test_files_that_are_there_already_cannot_replace_others_with_more_rows(spark: SparkSession, lake: Lake) -> None:
    lake.append("findings", rows(spark, 0, 3))
    lake.append("findings", rows(spark, 6))
    files = [task.file for task in lake.table("findings").scan().plan_files()]
    (small,) = (file for file in files if file.record_count == 1)
    (large,) = (file for file in files if file.record_count == 2)
    with pytest.raises(Broken, match="have 2 rows, those in their place 1"):
        lake.commit("findings", added=[small.file_path], removed=[large])
    assert numbers(spark, lake) == [0, 3, 6]


def test_other_tools_open_the_catalog(spark: SparkSession, lake: Lake) -> None:
    lake.append("findings", rows(spark, 1, 2))
    catalog = SqlCatalog("lake", uri=f"sqlite:///{lake.location}/catalog.db")
    with closing(catalog):
        found = catalog.load_table("hourwheel.findings").scan(row_filter="n > 1").to_arrow()
    assert found.to_pylist() == [{"day": date(2026, 1, 3), "n": 2, "text": "t2"}]


def test_the_progress_of_a_table_is_read_as_it_was_noted() -> None:
    segment = QuarantinedSegment(manifest=3, key="segments/messages/x", rows=9, reason='"quoted"')
    holding = TableProgress(4, (segment,))
    assert TableProgress.of(holding.properties) == holding
    assert TableProgress.of({}) == TableProgress(last_manifest=-1)
    with pytest.raises(Broken, match="does not say"):
        TableProgress.of({"hourwheel.last-manifest": "4"})


def test_a_segment_that_can_be_read_again_is_no_longer_quarantined() -> None:
    first, second = (QuarantinedSegment(number, f"key-{number}", 1, "missing") for number in (1, 2))
    holding = TableProgress(4, (first, second))
    assert holding.after(4, {"key-1"}, []) == TableProgress(4, (second,))
    assert holding.after(9, {"key-1", "key-5"}, [first]) == TableProgress(9, (first, second))


def test_schemas_are_those_of_spark(spark: SparkSession) -> None:
    for schema in SCHEMAS.values():
        assert spark.createDataFrame([], spark_ddl(schema)).columns == schema.names
    assert spark_ddl(pa.schema([pa.field("at", TIMESTAMP)])) == "`at` timestamp"
