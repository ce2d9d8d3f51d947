"""Messages that a pull kept for its consumer, and released, count where they are handed out."""

from contextlib import closing

import pytest
from pyspark.sql import SparkSession

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.trace.messages import SearchSpan
from hourwheel_pipeline.jobs import trace
from hourwheel_pipeline.jobs.report import ReportOptions, contents_of
from hourwheel_pipeline.jobs.trace import TraceOptions
from hourwheel_pipeline.lake.tables import Lake
from tests.pipeline.worlds import World
from tests.support import AT_ONCE, Bench, CallByCall
from tests.unit.pull_log.claiming.test_ahead import met

_MESSAGES = 21


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Makes a world in which a consumer releases eight kept messages, and another one takes all that are left."""
    settings = Settings(retry=AT_ONCE, archive=True, registry_seconds=0)
    world = World(tmp_path_factory.mktemp("kept"), Bench(CallByCall(MemoryStore()), settings=settings))
    world.archived()
    consumer = met(world.bench)
    assert consumer.held is not None
    world.bench.clock.pass_time(1)
    consumer.settle(consumer.held.receipt)
    world.acknowledge("orders", "billing")
    world.pass_time(60)
    world.acknowledge("orders", "billing")
    world.rest()
    world.compacted(spark)
    return world


def test_each_message_was_delivered_once(spark: SparkSession, world: World) -> None:
    world.measured(spark)
    with closing(Lake.open(world.lake)) as lake:
        contents = contents_of(lake, ReportOptions(lake=world.lake, output="unused"), world.now_ms)
    hours = [hour for subject in contents.subjects for group in subject.groups for hour in group.hours]
    assert sum(hour.settled for hour in hours) == _MESSAGES
    # The lease of one message ended, and its second pull acknowledged it.
    assert sum(hour.delivered for hour in hours) == _MESSAGES + 1
    assert sum(hour.released for hour in hours) == 8 + 1


def test_the_messages_are_accounted_for(spark: SparkSession, world: World) -> None:
    reconciled = world.reconciled(spark)
    assert reconciled.totals["delivered"] == _MESSAGES
    assert not reconciled.findings


def test_the_lake_traces_them_as_the_logs_do(world: World) -> None:
    for offset in (4, 11, 12):
        options = TraceOptions(archive=world.archive, lake=world.lake, subject="orders", message=f"0:{offset}")
        (by_lake,) = trace.run(options, world.now_ms).messages
        (by_logs,) = world.bench.deployment.messages.trace("orders", f"0:{offset}", SearchSpan()).messages
        assert [event.event for event in by_lake.groups[0].events] == ["pulled", "acknowledged"]
        assert by_lake.groups == by_logs.groups
