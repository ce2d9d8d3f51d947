"""Reads an archive as a stream: by the calls that Spark makes, in their order, and by Spark itself."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit, raise_error, when

from pyspark_hourwheel import HourwheelDataSource
from pyspark_hourwheel.columns import SCHEMA
from pyspark_hourwheel.options import StreamOptions, read_options
from pyspark_hourwheel.stream import Remade, StreamReader
from tests.pipeline.connecting import HOUR_MS, NOON_MS, Orders, bodies_of, moment

OLD, NEW = "4.0", "4.2"


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path / "archive")


@dataclass
class Query:
    """Asks a reader as Spark does, of the version before or since 4.2, and keeps the positions that a checkpoint
    keeps."""

    orders: Orders
    spark: str
    options: dict[str, str] = field(default_factory=dict)
    planned: list[dict[str, int]] = field(default_factory=list)
    """The ends of the batches; the first one is where the query began."""
    done: int = 0
    batches: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start_again()

    def start_again(self) -> None:
        given = {"archive": str(self.orders.folder), "subject": "orders", **self.options}
        self.reader = StreamReader(read_options(StreamOptions, given), SCHEMA)
        if self.planned and self.spark == OLD:
            assert self.reader.partitions(self.planned[-1], self.planned[-1]) == []

    def plan(self) -> bool:
        """Stores where the next batch ends. Returns whether there is one."""
        start = self.planned[-1] if self.planned else None
        if self.spark == OLD:
            end = self.reader.latestOffset()
            start = start or self.reader.initialOffset()
        else:
            start = start or self.reader.initialOffset()
            end = self.reader.latestOffset(start, SimpleNamespace(**self._limit()))
        if not self.planned:
            self.planned.append(start)
        if json.dumps(end) == json.dumps(start):
            return False
        self.planned.append(json.loads(json.dumps(end)))
        return True

    def process(self) -> list[str]:
        """Reads the planned batch, and stores that it is done."""
        found = self.read_planned()
        self.batches.append(found)
        self.done += 1
        return found

    def read_planned(self) -> list[str]:
        start, end = self.planned[self.done : self.done + 2]
        return bodies_of(self.reader, self.reader.partitions(start, end))

    def run(self) -> list[str]:
        """Runs the query until it has read everything."""
        found = []
        while self.done < len(self.planned) - 1 or self.plan():
            found += self.process()
        return found

    def _limit(self) -> dict[str, int]:
        rows = self.options.get("maxrowspertrigger")
        return {} if rows is None else {"max_rows": int(rows)}


@pytest.fixture(params=[OLD, NEW])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_each_message_comes_once_as_the_archive_grows(orders: Orders, version: str) -> None:
    orders.add("a0", "a1", queue=0)
    orders.archive("b0", queue=1)
    query = Query(orders, version)

    assert query.run() == ["a0", "a1", "b0"]
    assert query.run() == []
    orders.archive("other", subject="invoices")
    orders.archive("b1", queue=1)
    orders.archive("a2", queue=0)
    assert query.run() == ["b1", "a2"]


@pytest.mark.parametrize("limit", [{}, {"maxrowspertrigger": "2"}], ids=["unlimited", "limited"])
@pytest.mark.parametrize("steps", range(12))
def test_wherever_it_stops_it_goes_on_without_a_loss_or_a_repeat(
    orders: Orders, version: str, limit: dict[str, str], steps: int
) -> None:
    query = Query(orders, version, limit)
    waiting = iter(range(5))
    for step in range(steps + 1):
        if step % 2 == 0 and (number := next(waiting, None)) is not None:
            orders.add(f"{number}-a", queue=0)
            orders.archive(f"{number}-b", queue=1, at_ms=NOON_MS + HOUR_MS)
        if step % 3 == 0:
            query.plan()
        elif step % 3 == 1 and query.done < len(query.planned) - 1:
            query.read_planned()  # its tasks ran, and nobody heard of it
        elif query.done < len(query.planned) - 1:
            query.process()
    query.start_again()
    for number in waiting:
        orders.add(f"{number}-a", queue=0)
        orders.archive(f"{number}-b", queue=1, at_ms=NOON_MS + HOUR_MS)

    query.run()

    found = [body for batch in query.batches for body in batch]
    assert sorted(found) == sorted(f"{number}-{queue}" for number in range(5) for queue in "ab")


def test_a_planned_batch_is_the_same_when_it_is_planned_again_later(orders: Orders, version: str) -> None:
    orders.archive("a")
    query = Query(orders, version)
    query.plan()
    orders.archive("b")
    query.start_again()

    assert query.process() == ["a"]
    assert query.run() == ["b"]


def test_a_batch_has_at_most_the_rows_of_its_limit_but_at_least_one_segment(orders: Orders, version: str) -> None:
    for count in (1, 1, 5, 1):
        orders.archive(*(f"{count}-{number}" for number in range(count)))
    query = Query(orders, version, {"maxrowspertrigger": "3"})

    query.run()

    assert [len(batch) for batch in query.batches] == [2, 5, 1]


def test_after_a_restart_the_limit_holds_from_the_first_batch_on(orders: Orders, version: str) -> None:
    orders.archive("a")
    query = Query(orders, version, {"maxrowspertrigger": "1"})
    query.run()
    orders.archive("b")
    orders.archive("c")
    query.start_again()

    assert query.run() == ["b", "c"]
    assert query.batches == [["a"], ["b"], ["c"]]


def test_a_new_query_may_begin_at_the_end(orders: Orders, version: str) -> None:
    orders.archive("before")
    query = Query(orders, version, {"startingposition": "latest"})

    assert query.run() == []
    orders.archive("after")
    assert query.run() == ["after"]


def test_a_new_query_may_begin_at_a_time(orders: Orders, version: str) -> None:
    orders.archive("an hour before", at_ms=NOON_MS - HOUR_MS)
    orders.add("just before", at_ms=NOON_MS - 1)
    orders.archive("at noon", at_ms=NOON_MS)
    query = Query(orders, version, {"startingposition": moment(NOON_MS)})

    assert query.run() == ["at noon"]
    orders.add("late, and from before", at_ms=NOON_MS - 1)
    orders.archive("later", at_ms=NOON_MS + 1)
    query.options["startingposition"] = "earliest"
    query.start_again()
    assert query.run() == ["later"]


def test_a_subject_that_was_created_again_ends_the_query_once_the_old_one_is_read(orders: Orders, version: str) -> None:
    orders.archive("old", generation=1)
    query = Query(orders, version)
    query.run()
    orders.archive("old, too", generation=1)
    orders.archive("new", generation=2)

    assert query.plan()
    assert query.process() == ["old, too"]
    for _ in range(2):
        with pytest.raises(Remade, match=r"all of its generation 1 is read. For generation 2 start a new query"):
            query.plan()
        query.start_again()
    assert Query(orders, version).run() == ["new"]
    assert Query(orders, version, {"generation": "1"}).run() == ["old", "old, too"]


def test_a_query_keeps_its_generation(orders: Orders, version: str) -> None:
    orders.archive("old", generation=1)
    query = Query(orders, version)
    query.run()
    query.options["generation"] = "2"
    query.start_again()

    with pytest.raises(ValueError, match=r"reads generation 1 of subject 'orders': for generation 2 start a new one"):
        query.plan()


def test_another_archive_than_that_of_the_checkpoint_is_refused(orders: Orders, version: str, tmp_path: Path) -> None:
    for body in ("a", "b"):
        orders.archive(body)
    query = Query(orders, version)
    query.run()
    query.orders = Orders(tmp_path / "another")
    query.orders.archive("c")
    query.start_again()

    with pytest.raises(ValueError, match=r"ends before manifest 1, which the checkpoint of this query names"):
        query.plan()


def test_manifests_without_the_subject_are_passed_by_in_time(
    orders: Orders, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_hourwheel.stream._QUIET_MANIFESTS", 3)
    orders.archive("a")
    query = Query(orders, version)
    query.run()
    for _ in range(3):
        orders.archive("other", subject="invoices")
    assert query.run() == []
    assert query.batches == [["a"]]
    orders.archive("other", subject="invoices")

    assert query.run() == []
    assert query.batches == [["a"], []]
    orders.archive("b")
    query.start_again()
    assert query.run() == ["b"]


def test_rows_that_are_archived_during_an_available_now_run_wait_for_the_next_run(orders: Orders) -> None:
    orders.archive("a")
    orders.archive("b")
    query = Query(orders, NEW, {"maxrowspertrigger": "1"})
    query.reader.prepareForTriggerAvailableNow()
    query.plan()
    orders.archive("c")

    assert query.run() == ["a", "b"]
    query.start_again()
    assert query.run() == ["c"]


@pytest.fixture
def source(spark: SparkSession, orders: Orders) -> Any:
    spark.dataSource.register(HourwheelDataSource)
    return spark.readStream.format("hourwheel").option("archive", str(orders.folder)).option("subject", "orders")


def run(frame: DataFrame, folder: Path) -> None:
    """Writes the rows that have come to files, once, as Spark's own sink does."""
    query = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    query.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()


def test_a_stream_that_fails_midway_and_goes_on_gives_each_message_once(
    spark: SparkSession, orders: Orders, source: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.add("a0", "a1", queue=0)
    orders.archive("b0", queue=1)
    broken = source.load().withColumn("body", when(col("body") == "b0", raise_error(lit("no"))).otherwise(col("body")))
    with pytest.raises(PySparkException, match="no"):
        run(broken, tmp_path)
    orders.archive("a2", queue=0)

    run(source.load(), tmp_path)
    run(source.load(), tmp_path)  # Spark 4.0 did no more than the batch that had failed

    found = [row.body for row in spark.read.parquet(str(tmp_path / "out")).select("body").collect()]
    assert sorted(found) == ["a0", "a1", "a2", "b0"]


def test_a_stream_takes_its_rows_in_portions_and_goes_on_after_a_restart(
    spark: SparkSession, orders: Orders, source: Any, tmp_path: Path
) -> None:
    for number in range(3):
        orders.archive(f"{number}")
    limited = source.option("maxRowsPerTrigger", "1").load()

    def portions() -> list[int]:
        query = limited.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        started = query.trigger(processingTime="0 seconds").start()
        started.processAllAvailable()
        started.stop()
        return [progress.numInputRows for progress in started.recentProgress if progress.numInputRows]

    assert portions() == [1, 1, 1]
    orders.archive("3")
    orders.archive("4")
    assert portions() == [1, 1]
