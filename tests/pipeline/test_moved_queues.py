"""The jobs read a lake of an embedded server with two cells, whose queues were moved back and forth and added."""

from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from typer.testing import CliRunner

from hourwheel.cli.app import app
from hourwheel.embedded.offline import opened
from hourwheel.model.log_names import LogName, Member, pull_log
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import Position, PullRow
from hourwheel.registry.registry import Registry
from hourwheel.sweep.erasure import make_registry
from hourwheel.system import SystemClock
from hourwheel_pipeline.archive_rows.names import PULL_LOG, PULL_LOG_PARTS, pull_log_owner
from hourwheel_pipeline.jobs import compact, metrics, reconcile
from hourwheel_pipeline.jobs.compact import CompactOptions
from hourwheel_pipeline.jobs.metrics import MetricsOptions
from hourwheel_pipeline.jobs.reconcile import ReconcileOptions
from hourwheel_pipeline.judging.reconciliation import Reconciled
from hourwheel_pipeline.lake.tables import Lake
from pyspark_hourwheel import HourwheelDataSource
from tests.integration.process import Server, pull

GROUPS = ("billing", "slow", "late", "idle")
MIDDLE = "fast:losing~1/0.1"


class Moved(NamedTuple):
    """``accepted``: the queue and offset of each message of ``orders``, by its body. ``lags``: the lags that the server
    answered."""

    root: Path
    accepted: dict[str, tuple[int, int]]
    lags: dict[str, dict[str, Any]]
    found: Reconciled


@pytest.fixture(scope="module")
def moved(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Moved:
    root = tmp_path_factory.mktemp("moved")
    server = Server(root / "home", cells={"fast": root / "fast"}, archive_seconds=3_600)
    server.ok("PUT", "/v1/cells/fast", {})
    accepted = _life(server, "orders")
    lags = {group: server.ok("GET", f"/v1/subjects/orders/groups/{group}/lag") for group in GROUPS}
    _life(server, "losing")
    server.stop()
    _lose(root)
    archived = CliRunner().invoke(
        app, ["pipeline", "run", "archive", "--data", str(root / "home"), "--cell", f"fast={root / 'fast'}"]
    )
    assert archived.exit_code == 0, archived.output
    options = {"archive": str(root / "home/archive"), "lake": str(root / "lake")}
    compact.run(spark, CompactOptions(**options))
    now_ms = SystemClock().now_ms()
    found = reconcile.run(spark, ReconcileOptions(**options), now_ms)
    metrics.run(spark, MetricsOptions(**options), now_ms)
    return Moved(root, accepted, lags, found)


def _life(server: Server, subject: str) -> dict[str, tuple[int, int]]:
    """Lets a subject live. Returns the place of each message by its body."""
    path = f"/v1/subjects/{subject}"
    server.ok("PUT", path, {"queues": 2})
    for group in ("billing", "slow", "idle"):
        server.ok("PUT", f"{path}/groups/{group}", {})
    places: dict[str, tuple[int, int]] = {}
    for number, cell in enumerate(("fast", "home", "fast", None)):
        _send(server, subject, f"{number}", places)
        for group, most in (("billing", 100), ("slow", 2)):
            _consume(server, subject, group, most)
        _send(server, subject, f"{number}-then", places)
        if cell is not None:
            server.ok("POST", f"{path}/queues/0/move", {"cell": cell})
        if number == 1:
            server.ok("PUT", f"{path}/groups/late", {"start": "latest"})
    server.ok("POST", f"{path}/queues", {"queues": 3})
    _send(server, subject, "last", places)
    _consume(server, subject, "late", 5)
    return places


def _send(server: Server, subject: str, name: str, places: dict[str, tuple[int, int]]) -> None:
    messages = [{"body": f"{name}-{at}", "key": f"k{at}"} for at in range(12)]
    answer = server.ok("POST", f"/v1/subjects/{subject}/messages", {"messages": messages})
    for message, placed in zip(messages, answer["results"], strict=True):
        places[message["body"]] = placed["queue"], placed["offset"]


def _consume(server: Server, subject: str, group: str, most: int) -> None:
    """Pulls at most this many messages once, retries the first of each pull, and acknowledges the others."""
    pulls = pull(server, subject=subject, group=group, max_messages=most)
    assert pulls
    settle = [{"receipt": each["receipt"], "retry": [{"index": 0, "delay": 0}]} for each in pulls]
    server.ok("POST", f"/v1/subjects/{subject}/groups/{group}/ack", {"settle": settle})


def _lose(root: Path) -> None:
    """Lets the first pull of a part in the middle of a queue pass its first message without handing it out."""

    def begin_later(row: PullRow) -> PullRow:
        first, *others = row.counts
        return msgspec.structs.replace(row, first=Position(0, 1), counts=(first - 1, *others))

    with opened(root / "home", cells={"fast": root / "fast"}) as context:
        registry: Registry = make_registry(context)
        group = registry.group(registry.subject("losing"), "billing")
        record = PullLog(context, group, context.log(MIDDLE), 0).record(0)
        current = record.load()
        assert current is not None
        assert (current.value.first, current.value.counts[0] > 1) == (Position(0, 0), True)
        assert record.swap(current, begin_later(current.value)).stored


@pytest.mark.volume
def test_queues_lay_in_several_logs_of_two_cells(moved: Moved) -> None:
    with closing(Lake.open(str(moved.root / "lake"))) as lake:
        logs = {log for log in lake.rows("messages", "kind = 'queue'")["log"].to_pylist() if "orders" in log}
    assert {"orders~1/0", "fast:orders~1/0.1", "orders~1/0.2", "fast:orders~1/0.3"} < logs
    assert {"orders~1/1", "orders~1/1.1", "orders~1/2"} < logs


@pytest.mark.volume
def test_reconcile_finds_the_planted_loss_in_a_middle_part_and_nothing_else(moved: Moved) -> None:
    assert moved.found.counts == {"lost": 1}
    (finding,) = moved.found.findings
    assert (finding.subject, finding.group, finding.queue) == ("losing", "billing", 0)
    assert (finding.log, finding.row, finding.index) == (MIDDLE, 0, 0)
    assert finding.detail == f"passed by row 0 of billing~1@{MIDDLE}"


@pytest.mark.volume
def test_the_lag_is_that_of_the_server(moved: Moved) -> None:
    with closing(Lake.open(str(moved.root / "lake"))) as lake:
        rows = lake.rows("metrics", "subject = 'orders' and step_seconds = 3600 and lag is not null").to_pylist()
    newest = {row["group"]: row["lag"] for row in sorted(rows, key=lambda row: row["hour"])}
    assert newest == {group: lag["waiting"] for group, lag in moved.lags.items()}
    assert 0 < newest["late"] < newest["slow"] < newest["idle"] == len(moved.accepted)


@pytest.mark.volume
def test_offsets_in_the_lake_and_in_the_connector_are_those_of_the_server(spark: SparkSession, moved: Moved) -> None:
    with closing(Lake.open(str(moved.root / "lake"))) as lake:
        rows = lake.rows("messages", "subject = 'orders' and kind = 'queue'").to_pylist()
    assert {row["body"]: (row["queue"], row["sequence"]) for row in rows} == moved.accepted
    spark.dataSource.register(HourwheelDataSource)
    reader = spark.read.format("hourwheel").option("archive", str(moved.root / "home/archive"))
    read = reader.option("subject", "orders").load().collect()
    assert {row["body"]: (row["queue"], row["sequence"]) for row in read} == moved.accepted
    assert len(read) == len(moved.accepted)
    later = reader.option("subject", "orders").option("queue", "0").option("from", "12").load().collect()
    in_the_queue = [offset for queue, offset in moved.accepted.values() if queue == 0 and offset >= 12]
    assert sorted(row["sequence"] for row in later) == sorted(in_the_queue)


@pytest.mark.parametrize("log", ["orders~2/0", "fast:orders~2/0.1.2", "orders~2/retry/billing~3"])
def test_spark_reads_the_names_of_pull_logs_as_the_library_does(spark: SparkSession, log: str) -> None:
    name = pull_log(str(Member("billing", 3)), str(LogName.parse(log)))
    owner = pull_log_owner(name)
    row = spark.createDataFrame([(name,)], "log string").select(
        *(fn.regexp_extract("log", PULL_LOG, part).alias(column) for column, part in PULL_LOG_PARTS.items())
    )
    assert row.first() == (owner.group, str(owner.group_generation), owner.source.subject, str(owner.source.generation))
