"""A run of reconcile judges only the changed subjects, and ends with the findings of a run that judges everything."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from hourwheel.adapters.files import FileBlobs
from hourwheel_pipeline.jobs import compact, reconcile, repair
from hourwheel_pipeline.judging import changed_subjects
from hourwheel_pipeline.judging.baseline import Scope, scope_of
from hourwheel_pipeline.judging.reconciliation import Reconciled
from hourwheel_pipeline.lake.tables import Lake
from tests.pipeline.faults import FAULTS, Scene
from tests.pipeline.growth import LONG, archived_and_compacted, judged, same_findings_as_over_everything
from tests.pipeline.readings import subjects_read
from tests.pipeline.worlds import DAY, World


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets each lake count as one that is too large to be read as a whole."""
    monkeypatch.setattr(changed_subjects, "SMALL_ROWS", 0)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.archived()
    for subject in ("orders", "bills", "mail"):
        made.bench.send("a", "b", subject=subject)
        made.acknowledge(subject, "billing")
    return made


def archived_and_judged(world: World, spark: SparkSession) -> Reconciled:
    archived_and_compacted(world, spark)
    return judged(world, spark)


def subjects_with(report: Reconciled, kind: str) -> set[str | None]:
    return {finding.subject for finding in report.findings if finding.kind == kind}


@pytest.mark.volume
def test_a_run_reads_only_the_files_of_subjects_that_changed_since_the_last_whole_run(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    FAULTS["made-up"][0](Scene(world, "made-up"))
    world.bench.clock.pass_time(LONG)
    assert archived_and_judged(world, spark).counts == {"phantom": 1}
    world.bench.send("c", subject="bills")
    world.acknowledge("bills", "billing")
    read = subjects_read(monkeypatch)
    report = archived_and_judged(world, spark)
    assert read == {"bills"}
    assert (report.counts, report.new_errors) == ({"phantom": 1}, 0)
    assert report.totals["accepted"] == 9


@pytest.mark.volume
def test_a_run_over_a_day_does_not_count_as_a_whole_run(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    FAULTS["made-up"][0](Scene(world, "made-up"))
    world.bench.clock.pass_time(LONG)
    archived_and_judged(world, spark)
    world.bench.send("c", subject="bills")
    world.acknowledge("bills", "billing")
    archived_and_compacted(world, spark)
    judged(world, spark, days=1)
    read = subjects_read(monkeypatch)
    report = judged(world, spark)
    assert read == {"bills"}
    assert (report.counts, report.new_errors) == ({"phantom": 1}, 0)
    same_findings_as_over_everything(world, spark, report)
    assert "orders" in read


@pytest.mark.volume
def test_findings_come_and_go_in_subjects_without_new_rows_as_in_a_run_over_everything(
    spark: SparkSession, world: World
) -> None:
    bench = world.bench
    (overdue,) = bench.send_later("late", delay=60, subject="overdue")
    bench.send_later("later", delay=5 * DAY, subject="patient")
    bench.send("a", "b", subject="letters")
    Scene(world, "letters").pull(dead=[0, 1])
    world.rest()
    bench.clock.pass_time(LONG)  # from here on, recent rows are no reason to judge these subjects
    assert subjects_with(archived_and_judged(world, spark), "stuck") == {"overdue"}
    bench.clock.pass_time(6 * DAY)
    bench.deployment.delayed.cancel(overdue.scheduled_id or "")
    assert bench.deployment.dead_letters("letters", "billing").redrive(lambda *_: True) == 2
    Scene(world, "letters").finish()
    world.rest()
    report = archived_and_judged(world, spark)
    assert subjects_with(report, "stuck") == {"patient"}
    assert report.counts == {"stuck": 1}
    same_findings_as_over_everything(world, spark, report)


@pytest.mark.volume
def test_a_small_lake_is_judged_as_a_whole_without_a_search_for_what_changed(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived_and_judged(world, spark)
    monkeypatch.setattr(changed_subjects, "SMALL_ROWS", 1_000)
    monkeypatch.delattr(reconcile, "ChangeSearch")
    world.bench.send("c", subject="bills")
    archived_and_compacted(world, spark)
    read = subjects_read(monkeypatch)
    assert judged(world, spark).totals["accepted"] == 7
    assert read == {"orders", "bills", "mail"}


@pytest.mark.volume
def test_runs_over_some_days_judge_what_changed_and_each_week_everything(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    FAULTS["made-up"][0](Scene(world, "made-up"))
    world.bench.clock.pass_time(LONG)
    archived_and_compacted(world, spark)
    assert judged(world, spark, days=6).counts == {"phantom": 1}
    world.bench.send("c", subject="bills")
    archived_and_compacted(world, spark)
    read = subjects_read(monkeypatch)
    report = judged(world, spark, days=6)
    assert read == {"bills"}
    assert (report.counts, report.totals["accepted"]) == ({"phantom": 1}, 9)
    same_findings_as_over_everything(world, spark, report, days=6)
    world.bench.clock.pass_time(LONG + DAY)
    world.bench.send("d", subject="bills")
    archived_and_compacted(world, spark)
    read.clear()
    report = judged(world, spark, days=6)
    assert read == {"bills"}
    assert (report.counts, report.totals["accepted"]) == ({}, 2)  # the first ones are no longer among these days
    same_findings_as_over_everything(world, spark, report, days=6)
    world.bench.clock.pass_time(8 * DAY)
    world.bench.send("e", subject="mail")
    archived_and_compacted(world, spark)
    assert scope_of_a_run(world, spark, monkeypatch, days=30) == "everything"
    assert scope_of_a_run(world, spark, monkeypatch, days=6) == "everything"


@pytest.mark.volume
def test_a_lost_copy_of_the_registry_and_its_return_are_judged_over_everything(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.bench.clock.pass_time(LONG)
    archived_and_judged(world, spark)
    archive = FileBlobs(world.archive)
    (*_, key) = sorted(archive.list("segments/registry/"))
    data = archive.get(key)
    archive.delete(key)
    assert scope_of_a_run(world, spark, monkeypatch) is None
    report = judged(world, spark)
    assert (report.counts, len(report.unknown.snapshots)) == ({}, 1)
    assert scope_of_a_run(world, spark, monkeypatch) is not None
    archive.put(key, data)
    assert scope_of_a_run(world, spark, monkeypatch) is None
    assert judged(world, spark).unknown.snapshots == []


def _delete_rows(world: World) -> Callable[[SparkSession], None]:
    with closing(Lake.open(world.lake)) as lake:
        lake.table("messages").delete("subject == 'orders'")
    return lambda spark: _repair(world, spark)


def _repair(world: World, spark: SparkSession) -> None:
    repair.run(spark, repair.RepairOptions(archive=world.archive, lake=world.lake))


def _lose_a_manifest(world: World) -> Callable[[SparkSession], None]:
    archive = FileBlobs(world.archive)
    key = sorted(archive.list("manifests/"))[1]
    data = archive.get(key)
    archive.delete(key)
    return lambda _: archive.put(key, data)


def _truncate_a_new_segment(world: World) -> Callable[[SparkSession], None]:
    archive = FileBlobs(world.archive)
    before = set(archive.list("segments/messages/"))
    world.bench.send("c", "d", subject="orders")
    world.archived()
    (key,) = set(archive.list("segments/messages/")) - before
    data = archive.get(key)
    archive.delete(key)
    archive.put(key, data[:-10])

    def put_back(spark: SparkSession) -> None:
        archive.delete(key)
        archive.put(key, data)
        compact.run(spark, compact.CompactOptions(archive=world.archive, lake=world.lake, again=True))

    return put_back


class Judged(Exception):
    """The run has decided what it judges."""


def scope_of_a_run(
    world: World, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> Scope | str | None:
    """Returns the scope of a run that goes no further; ``everything`` if it does not search for what changed."""
    scopes: list[Scope | None] = []

    def search_and_stop(*search: Any) -> None:
        scopes.append(scope_of(*search))
        raise Judged

    def stop(*_: Any) -> None:
        raise Judged

    with monkeypatch.context() as patch:
        patch.setattr(reconcile, "scope_of", search_and_stop)
        patch.setattr(reconcile, "evidence_of", stop)
        with pytest.raises(Judged):
            judged(world, spark, **options)
    return scopes[0] if scopes else "everything"


@pytest.mark.volume
def test_damage_and_its_repair_are_judged_over_everything(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.bench.clock.pass_time(LONG)
    archived_and_judged(world, spark)
    assert scope_of_a_run(world, spark, monkeypatch) is not None
    for damage in (_lose_a_manifest, _truncate_a_new_segment, _delete_rows):
        undo = damage(world)
        compact.run(spark, compact.CompactOptions(archive=world.archive, lake=world.lake))
        assert scope_of_a_run(world, spark, monkeypatch) is None
        undo(spark)
        assert scope_of_a_run(world, spark, monkeypatch) is not None
    take_again, put_back, restore = _truncate_a_new_segment(world), _lose_a_manifest(world), _delete_rows(world)
    world.compacted(spark)
    report = judged(world, spark)
    assert (report.unknown.segments, "missing_rows" in report.counts) == (1, True)
    for undo in (put_back, take_again, restore):
        undo(spark)
    read = subjects_read(monkeypatch)
    assert judged(world, spark).counts == {}
    assert "mail" in read
    assert scope_of_a_run(world, spark, monkeypatch) is not None
