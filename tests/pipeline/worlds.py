"""Builds systems for the checks: a real cell that does everything a cell can do, archived and compacted."""

from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from pyspark.sql import SparkSession

from hourwheel.adapters.files import FileBlobs
from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.archive.archiver import Archiver
from hourwheel.context import Settings
from hourwheel.dead_letters.dead_rows import dead_id_of
from hourwheel.groups.early_retries import RetryFilter
from hourwheel.model.groups import RetryPolicy, TagFilter
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import Pull, RetryLater
from hourwheel.ports.storage import CellStorage
from hourwheel_pipeline.jobs import compact
from hourwheel_pipeline.jobs.compact import CompactOptions
from hourwheel_pipeline.jobs.metrics import Measured, MetricsOptions
from hourwheel_pipeline.jobs.metrics import run as measure
from hourwheel_pipeline.jobs.reconcile import ReconcileOptions
from hourwheel_pipeline.jobs.reconcile import run as reconcile
from hourwheel_pipeline.judging.reconciliation import Reconciled
from tests.support import AT_ONCE, Bench

HOUR = 3_600
DAY = 24 * HOUR


@dataclass
class World:
    """A cell, its archive and its lake, below ``root``."""

    root: Path
    bench: Bench = field(
        default_factory=lambda: Bench(
            settings=Settings(retry=AT_ONCE, archive=True), cells={"fast": CellStorage(MemoryStore(), MemoryBlobs())}
        )
    )

    @property
    def archive(self) -> str:
        return str(self.root / "archive")

    @property
    def lake(self) -> str:
        return str(self.root / "lake")

    @property
    def now_ms(self) -> int:
        return self.bench.clock.now_ms()

    def archived(self) -> None:
        deployment = self.bench.another_process()
        report = Archiver(deployment.context, deployment.registry, FileBlobs(self.archive)).run(self.now_ms + 600_000)
        assert report.complete

    def compacted(self, spark: SparkSession) -> None:
        compact.run(spark, CompactOptions(archive=self.archive, lake=self.lake))

    def reconciled(self, spark: SparkSession, since: date | None = None) -> Reconciled:
        return reconcile(spark, ReconcileOptions(archive=self.archive, lake=self.lake, since=since), self.now_ms)

    def measured(self, spark: SparkSession) -> Measured:
        return measure(spark, MetricsOptions(archive=self.archive, lake=self.lake), self.now_ms)

    def pass_time(self, seconds: float) -> None:
        """Lets time pass, with the wheels turning and the sweeper running each half minute."""
        until_ms = self.now_ms + round(seconds * 1_000)
        while self.now_ms < until_ms:
            self.bench.turn(min(30, (until_ms - self.now_ms) / 1_000))
            self.bench.deployment.sweeper.sweep()

    def rest(self) -> None:
        """Lets enough time pass that everything that happened is judged."""
        self.bench.clock.pass_time(DAY + HOUR)
        self.bench.send("after", subject="after")
        self.archived()

    def acknowledge(self, subject: str, group: str, limit: int = 100) -> int:
        """Acknowledges all messages that the group can pull. Returns their number."""
        taken = 0
        while pulls := self.bench.pull(limit, subject=subject, group=group):
            for pull in pulls:
                taken += len(pull.messages)
                assert self.bench.settle(pull, subject=subject, group=group) == "settled"
            self.bench.clock.pass_time(0.1)
        return taken


def lively(world: World) -> None:
    """Does everything that a cell can do, without any fault."""
    world.archived()
    _queues(world)
    _moves(world)
    _filters(world)
    _settling(world)
    _delays(world)
    _leases(world)
    _seeks(world)
    _deletions(world)
    _expiry(world)


def _queues(world: World) -> None:
    """Uses several queues and several groups, with pulls that end within a batch."""
    bench = world.bench
    bench.deployment.subjects.put("wide", queues=3)
    for round_ in range(4):
        messages = [NewMessage(body=f"{round_}-{at}", key=f"k{at % 5}", tags=["t"]) for at in range(25)]
        bench.deployment.produce("wide", messages)
        bench.clock.pass_time(60)
    bench.deployment.groups.put("wide", "late", start="latest")
    bench.deployment.produce("wide", [NewMessage(body=f"new-{at}", key=f"k{at}") for at in range(10)])
    assert world.acknowledge("wide", "all", limit=7) == 110
    assert world.acknowledge("wide", "late", limit=3) == 10


def _moves(world: World) -> None:
    """Moves a queue to another cell, back, and there again, and adds a queue; with a group that begins in a later part,
    and with messages that are retried, given up and delayed meanwhile."""
    bench, where = world.bench, {"subject": "moved", "group": "billing"}
    bench.deployment.cells.add("fast")
    bench.deployment.subjects.put("moved", queues=2)
    bench.deployment.groups.put("moved", "billing", max_attempts=3)
    for cell in ("fast", "home", "fast"):
        bench.deployment.produce("moved", [NewMessage(body=f"{cell}-{at}", key=f"k{at}") for at in range(10)])
        for pull in bench.pull(4, **where):
            bench.settle(pull, retry=[0], dead=[1] if len(pull.messages) > 1 else [], **where)
        bench.send_later("later", delay=90, subject="moved")
        bench.deployment.routes.move("moved", 0, cell)
        world.pass_time(60)
        world.archived()
    bench.deployment.groups.put("moved", "late", start="latest")
    bench.deployment.routes.add_queues("moved", 3)
    bench.deployment.produce("moved", [NewMessage(body=f"new-{at}", key=f"k{at}") for at in range(10)])
    world.pass_time(120)
    assert world.acknowledge("moved", "billing") > 30
    assert world.acknowledge("moved", "late", limit=3) == 11


def _filters(world: World) -> None:
    """Adds a group that takes some messages of a batch, retries some of them, passes over whole rows, and takes others
    from then on."""
    bench, where = world.bench, {"subject": "picky", "group": "europe"}
    bench.deployment.groups.put("picky", "europe", filter=TagFilter(tags_any=("eu",)))
    for _ in range(3):
        bench.deployment.produce(
            "picky", [NewMessage(body=f"p{at}", tags=["eu" if at % 4 == 1 else "us"]) for at in range(12)]
        )
    (pull,) = bench.pull(5, **where)
    bench.settle(pull, retry=[1], dead=[3], **where)
    for _ in range(70):
        bench.deployment.produce("picky", [NewMessage(body="unwanted")])
    assert world.acknowledge(**where) == 5
    bench.deployment.groups.put("picky", "europe", filter=TagFilter(tags_none=("eu",)))
    bench.deployment.produce("picky", [NewMessage(body=f"q{at}", tags=["eu" if at % 2 else "us"]) for at in range(6)])
    assert world.acknowledge(**where) == 3


def _settling(world: World) -> None:
    """Retries with and without a delay, rejects, redrives and drops dead letters, and releases messages."""
    bench, where = world.bench, {"subject": "orders", "group": "billing"}
    bench.deployment.groups.put("orders", "billing", max_attempts=3, retry=RetryPolicy(first_seconds=5, factor=2))
    bench.send(*(f"o{at}" for at in range(10)))
    (pull,) = bench.pull(**where)
    # In two parts: the second while the first's copies are already tried again.
    bench.settle(pull, ack=[0, 1], retry=[2, RetryLater(index=3, delay=0)], **where)
    bench.clock.pass_time(1)
    for again in bench.pull(**where):
        bench.settle(again, retry=list(range(len(again.messages))), **where)
    bench.settle(pull, ack=[4, 5], release=[6], dead=[7], retry=[8, 9], **where)
    for _ in range(6):
        world.pass_time(10)
        for pull in bench.pull(**where):
            bench.settle(pull, retry=list(range(len(pull.messages))), **where)
    dead = bench.deployment.dead_letters("orders", "billing").page(after=None, limit=100).messages
    assert len(dead) >= 4
    kept, dropped = dead[0].dead_id, dead[1].dead_id
    bench.deployment.dead_letters("orders", "billing").drop(lambda position, _: dead_id_of(position) == dropped)
    bench.deployment.dead_letters("orders", "billing").redrive(lambda position, _: dead_id_of(position) != kept)
    world.pass_time(5)
    for pull in bench.pull(**where):
        bench.settle(pull, dead=[0], **where)
    bench.deployment.dead_letters("orders", "billing").redrive(lambda *_: True)
    assert world.acknowledge(**where)


def _delays(world: World) -> None:
    """Delays, cancels and moves messages, one of them twice; the group retries one of them."""
    bench, where = world.bench, {"subject": "later", "group": "billing"}
    accepted = bench.send_later(*(f"d{at}" for at in range(6)), delay=90, subject="later")
    ids = [one.scheduled_id or "" for one in accepted]
    far = bench.send_later("far", delay="9d", subject="later")
    bench.send_later("soon", delay=1, subject="later")
    assert bench.deployment.delayed.cancel(ids[0]).state == "cancelled"
    moved = bench.deployment.delayed.reschedule(ids[1], delay=2 * HOUR)
    assert bench.deployment.delayed.reschedule(moved.scheduled_id, delay=300).state == "moved"
    assert bench.deployment.delayed.cancel(far[0].scheduled_id or "").state == "cancelled"
    bench.send_later("farther", delay="30d", subject="later")
    world.pass_time(100)
    assert bench.deployment.delayed.cancel(ids[2]).state == "dispatched"
    (pull,) = bench.pull(**where)
    assert len(pull.messages) == 5
    bench.settle(pull, retry=[RetryLater(index=0, delay="2m"), 1], **where)
    world.pass_time(400)
    assert world.acknowledge(**where) == 3


def hurries(world: World) -> None:
    """Retries messages at once that wait for the delay of their retry: one is served, one waits once more and is
    retried early again, and one fails for good."""
    bench, where = world.bench, {"subject": "hurried", "group": "billing"}
    bench.deployment.groups.put("hurried", "billing", max_attempts=3, retry=RetryPolicy(delays_seconds=(2 * HOUR,)))
    bench.send("a", "b", "c", subject="hurried")
    for retried in (3, 2):
        for pull in bench.pull(**where):
            failed = [index for index, message in enumerate(pull.messages) if retried == 3 or message.body != "a"]
            assert bench.settle(pull, retry=failed, **where) == "settled"
        bench.clock.pass_time(60)
        assert bench.deployment.groups.backing_off("hurried", "billing").retry(RetryFilter()).retried == retried
        bench.turn(60)
    for pull in bench.pull(**where):
        failed = [index for index, message in enumerate(pull.messages) if message.body == "c"]
        assert bench.settle(pull, dead=failed, **where) == "settled"
    bench.turn(3 * HOUR)


def _leases(world: World) -> None:
    bench, where = world.bench, {"subject": "leased", "group": "billing"}
    bench.send("a", "b", "c", subject="leased")
    (pull,) = bench.pull(2, lease=20, **where)
    bench.settle(pull, ack=[0], **where)
    world.pass_time(60)
    assert world.acknowledge(**where) == 2


def _seeks(world: World) -> None:
    bench, where = world.bench, {"subject": "sought", "group": "billing"}
    bench.send(*"abcdef", subject="sought")
    bench.clock.pass_time(10)
    assert world.acknowledge(**where, limit=4) == 6
    bench.deployment.seeks().seek_offset("sought", "billing", 0, 2)
    assert world.acknowledge(**where, limit=3) == 4
    (pull,) = _again(world, where)
    bench.settle(pull, retry=[0], dead=[1], **where)
    assert world.acknowledge(**where) == 1
    bench.send(*"ghij", subject="sought")
    bench.deployment.seeks().seek("sought", "billing", to="end")
    assert world.acknowledge(**where) == 0
    bench.send("k", subject="sought")
    assert world.acknowledge(**where) == 1


def _again(world: World, where: dict[str, str]) -> list[Pull]:
    world.bench.deployment.seeks().seek(where["subject"], where["group"], to="start")
    return world.bench.pull(**where)


def _deletions(world: World) -> None:
    """Deletes a group and a subject and creates them again: their delayed messages are orphaned, or dropped."""
    bench = world.bench
    for _ in range(2):
        bench.send("a", "b", subject="brief")
        bench.send_later("waits", delay=120, subject="brief")
        bench.clock.pass_time(3)
        for group in ("one", "two"):
            (pull,) = bench.pull(subject="brief", group=group)
            bench.settle(pull, subject="brief", group=group, retry=[0, RetryLater(index=1, delay="3m")])
        world.archived()
        bench.deployment.groups.delete("brief", "two")
        assert bench.take(subject="brief", group="two")
        world.pass_time(60)
        world.archived()
        bench.deployment.subjects.delete("brief")
        world.pass_time(180)
    bench.send("a", subject="brief")
    assert world.acknowledge("brief", "one") == 1


def _expiry(world: World) -> None:
    """Lets messages expire before their group comes to them."""
    bench = world.bench
    bench.deployment.subjects.put("fleeting", retention_seconds=60)
    bench.deployment.groups.put("fleeting", "slow")
    bench.send("gone", "too", subject="fleeting")
    world.archived()
    bench.clock.pass_time(100)
    bench.send("here", subject="fleeting")
    assert world.acknowledge("fleeting", "slow") == 1
