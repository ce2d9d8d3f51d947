"""The metrics of a day of which the tests know every message are right."""

from contextlib import closing
from datetime import date
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import RetryLater
from hourwheel_pipeline.jobs import metrics, report
from hourwheel_pipeline.jobs.metrics import Measured, MetricsOptions, first_ms
from hourwheel_pipeline.jobs.report import ReportOptions, contents_of, newest
from hourwheel_pipeline.lake.tables import Lake
from hourwheel_pipeline.measures.hours import percentiles
from hourwheel_pipeline.reporting.contents import Contents
from tests.pipeline.worlds import HOUR, World
from tests.support import NOON_MS

HOUR_MS = HOUR * 1_000
MIDNIGHT_MS = NOON_MS - 12 * HOUR_MS
WHERE = {"subject": "orders", "group": "billing"}


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Makes a world. 12:00: six messages are sent, and three delayed ones. 13:00: four of the six are handed out, and
    settled in part. 14:00: the rest."""
    world = World(tmp_path_factory.mktemp("measured"))
    bench = world.bench
    bench.deployment.groups.put(**_named())
    bench.deployment.groups.put("orders", "idle")
    bench.deployment.produce("orders", [NewMessage(body="body", key="a" if at else "b") for at in range(6)])
    bench.send_later("soon", "cancelled", "far", delay=600, subject="orders")
    accepted = bench.send_later("x", "y", delay=8 * HOUR, subject="orders")
    bench.deployment.delayed.cancel(accepted[0].scheduled_id or "")
    bench.turn(HOUR)
    (pull,) = bench.pull(4, **WHERE)
    bench.clock.pass_time(10)
    bench.settle(pull, retry=[0, RetryLater(index=1, delay=30)], dead=[2], **WHERE)
    bench.turn(HOUR - 10)
    world.acknowledge(**WHERE)
    bench.clock.pass_time(60)
    world.archived()
    world.compacted(spark)
    world.measured(spark)
    return world


def _named() -> dict[str, Any]:
    return {"subject": "orders", "name": "billing"}


@pytest.fixture(scope="module")
def told(spark: SparkSession, world: World) -> Contents:
    with closing(Lake.open(world.lake)) as lake:
        return contents_of(lake, ReportOptions(lake=world.lake, output="unused"), world.now_ms)


def hours(contents: Contents, group: str | None = None) -> dict[int, dict[str, Any]]:
    """Returns the values of each hour, by the number of hours since noon."""
    (subject,) = contents.subjects
    found = subject.hours if group is None else next(one.hours for one in subject.groups if one.group == group)
    return {(hour.hour_ms - NOON_MS) // HOUR_MS: msgspec.to_builtins(hour) for hour in found}


def test_the_hours_of_a_subject_count_its_accepted_messages(told: Contents) -> None:
    noon = hours(told)[0]
    assert (noon["accepted"], noon["scheduled"], noon["dispatched"]) == (9, 5, 3)
    assert noon["accepted_bytes"] == 6 * len("body" + "a") + len("soon" + "cancelled" + "far")
    assert noon["hot_keys"] == [{"key": "a", "messages": 5}, {"key": "b", "messages": 1}]


def test_delayed_messages_are_counted_with_their_lateness_and_by_their_due_hour(told: Contents) -> None:
    assert 0 <= hours(told)[0]["late_max_ms"] <= 500
    assert hours(told)[8] == {"hour_ms": NOON_MS + 8 * HOUR_MS, "due": 1}


def test_the_hours_of_a_group_count_how_its_messages_were_settled(told: Contents) -> None:
    found = hours(told, "billing")
    assert (found[1]["delivered"], found[1]["settled"]) == (4, 1)
    assert (found[1]["retried"], found[1]["dead"], found[1]["released"]) == (2, 1, 0)
    assert (found[2]["delivered"], found[2]["settled"]) == (7, 7)
    assert (found[1]["attempts_max"], found[2]["attempts_max"]) == (1, 2)
    assert found[2]["attempts_mean"] == pytest.approx(9 / 7)


def test_the_hours_of_a_group_have_percentiles_of_times(told: Contents) -> None:
    found = hours(told, "billing")
    assert found[1]["pull_max_ms"] == HOUR_MS
    assert (found[1]["settle_p50_ms"], found[1]["total_p50_ms"]) == (10_000, 3_610_000)
    assert found[2]["total_max_ms"] == pytest.approx(2 * HOUR_MS, rel=0.005)


def test_lag_is_counted_until_it_is_zero(told: Contents) -> None:
    billing, idle = (hours(told, group) for group in ("billing", "idle"))
    assert {at: hour["lag"] for at, hour in billing.items() if "lag" in hour} == {0: 9, 1: 5, 2: 0}
    assert {at: hour["lag"] for at, hour in idle.items()} == {0: 9, 1: 9, 2: 9}


def test_the_newest_row_of_an_hour_holds_and_cancelled_messages_are_no_longer_due() -> None:
    first = [("2025-11-20 12:00", "a", None, 1, 5, None), ("2025-11-20 20:00", "a", None, 1, None, 3)]
    second = [("2025-11-20 12:00", "a", None, 2, 6, None)]
    names = ("hour", "subject", "group", "computed_at", "accepted", "due")
    rows = [dict(zip(names, row, strict=True)) | {"step_seconds": HOUR} for row in first + second]
    table = pa.Table.from_pylist(rows)
    found = {(row["hour"], row["accepted"], row["due"]) for row in newest(table).to_pylist()}
    assert found == {("2025-11-20 12:00", 6, None), ("2025-11-20 20:00", None, None)}


def test_percentiles_weigh_times_by_their_messages(spark: SparkSession) -> None:
    times = spark.createDataFrame([(0, 10), (100, 89), (123_456, 1), (9_999_999, 0)], "ms bigint, messages int")
    row = times.agg(*percentiles("pull", fn.col("ms"), fn.col("messages"))).first()
    assert row is not None
    assert row.asDict() == {"pull_p50_ms": 100, "pull_p90_ms": 100, "pull_p99_ms": 1_329, "pull_max_ms": 123_000}


def options(**given: Any) -> MetricsOptions:
    return MetricsOptions(archive="archive", lake="lake", **given)


def test_hours_are_computed_again_while_they_may_change() -> None:
    now_ms, last = NOON_MS + 90, Measured(computed_ms=NOON_MS, horizon_ms=NOON_MS + 5, rows=1)
    changed_ms = NOON_MS
    assert first_ms(options(), None, now_ms, changed_ms) == 0
    assert first_ms(options(days=3), None, now_ms, changed_ms) == MIDNIGHT_MS - 72 * HOUR_MS
    for given in ({}, {"days": 3}):
        assert first_ms(options(**given), last, now_ms, changed_ms) == NOON_MS - 48 * HOUR_MS
    assert first_ms(options(days=1), last, now_ms, changed_ms) == MIDNIGHT_MS - 24 * HOUR_MS
    assert first_ms(options(since=date(2025, 1, 1)), last, now_ms, changed_ms) == 1_735_689_600_000
    assert first_ms(options(), last, now_ms, NOON_MS - 60 * HOUR_MS) == NOON_MS - 60 * HOUR_MS


@pytest.mark.volume
def test_hours_long_before_the_horizon_are_not_computed_again(spark: SparkSession, world: World) -> None:
    with closing(Lake.open(world.lake)) as lake:
        note = lake.properties(metrics.TABLE)[metrics.PROPERTY]
        last = msgspec.json.decode(note, type=Measured)
        assert last.rows > 5
        later = msgspec.structs.replace(last, horizon_ms=NOON_MS + 96 * HOUR_MS)
        lake.commit(metrics.TABLE, added=[], properties={metrics.PROPERTY: msgspec.json.encode(later).decode()})
    found = world.measured(spark)
    assert (found.rows, found.horizon_ms) == (0, last.horizon_ms)


def test_the_report_is_written_as_a_page_and_as_json(spark: SparkSession, world: World, told: Contents) -> None:
    folder = world.root / "out"
    found = report.run(ReportOptions(lake=world.lake, output=str(folder)), world.now_ms)
    assert (found.findings, found.subjects) == (None, 1)
    assert msgspec.json.decode((folder / "report.json").read_bytes(), type=Contents) == told
    page = (folder / "report.html").read_text()
    assert "Messages that wait" in page
    assert "orders" in page
