"""A working system has no findings; each fault leads to its finding, and to no other."""

from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from hourwheel.adapters.files import FileBlobs
from hourwheel.retention import chain, manifests
from hourwheel_pipeline.judging.findings import COLUMNS, DDL, KINDS, dated
from hourwheel_pipeline.judging.reconciliation import Finding, Reconciled
from hourwheel_pipeline.lake.schemas import DISPATCHES, MESSAGES, PULLS
from hourwheel_pipeline.lake.tables import Lake
from hourwheel_pipeline.outcomes import report_status
from hourwheel_pipeline.runs import exits
from tests.pipeline.faults import faulty
from tests.pipeline.worlds import World, hurries, lively


@dataclass
class Faulty:
    """``expected``: kinds of findings by subject."""

    world: World
    expected: dict[str, list[str]]
    found: Reconciled


@pytest.fixture(scope="module")
def broken(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Faulty:
    world = World(tmp_path_factory.mktemp("faulty"))
    expected = faulty(world)
    for subject in ("doubled", "missing"):
        world.bench.send("a", "b", subject=subject)
        world.acknowledge(subject, "billing")
    world.rest()
    world.compacted(spark)
    with closing(Lake.open(world.lake)) as lake:
        rows = lake.read(spark, MESSAGES)
        lake.append(MESSAGES, rows.where("subject = 'doubled' and index = 1"))
        lake.table(MESSAGES).delete("subject == 'missing'")
    expected |= {"doubled": ["doubled_rows"]}
    return Faulty(world, expected, world.reconciled(spark))


@pytest.mark.volume
def test_a_system_that_works_has_no_findings(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path)
    lively(world)
    hurries(world)
    world.rest()
    world.compacted(spark)
    found = world.reconciled(spark)
    assert found.findings == []
    assert found.counts == {}
    assert found.expired == {"fleeting slow": 2}
    assert (found.unknown.segments, found.unknown.ranges, found.unknown.snapshots) == (0, 0, [])
    assert found.rows["messages retry"] > 20  # it was compared with something
    assert found.began_ms < found.horizon_ms == world.now_ms


def test_each_fault_is_found_and_nothing_else(broken: Faulty) -> None:
    found = Counter((one.subject or one.log.partition("~")[0], one.kind) for one in broken.found.findings)
    expected = Counter((subject, kind) for subject, kinds in broken.expected.items() for kind in kinds)
    expected["missing", "missing_rows"] = 1  # and no finding that would follow from it
    assert found == expected
    assert broken.found.counts == dict(sorted(Counter(one.kind for one in broken.found.findings).items()))
    assert {one.kind for one in broken.found.findings} == set(KINDS)
    assert broken.found.new_errors == sum(one.severity == "error" for one in broken.found.findings)


def test_findings_say_where_to_look(broken: Faulty) -> None:
    (one,) = [one for one in broken.found.findings if one.subject == "passed-and-sought"]
    assert (one.log, one.row, one.index, one.group, one.queue) == ("passed-and-sought~1/0", 0, 4, "billing", 0)
    assert one.detail == "passed by row 1 of billing~1@passed-and-sought~1/0"
    assert one.severity == "error"
    assert one.at_ms is not None
    assert one.first_seen_ms == broken.found.found_ms


def test_missing_rows_are_named_by_subject_and_row_with_the_command_that_restores_them(broken: Faulty) -> None:
    (one,) = [one for one in broken.found.findings if one.kind == "missing_rows"]
    assert (one.subject, one.log, one.row) == ("missing", "missing~1/0", 0)
    assert "the lake 0; absent: 2 in rows 0 to 0; hourwheel pipeline run repair restores them" in one.detail


def test_findings_stand_in_their_table(spark: SparkSession, broken: Faulty) -> None:
    with closing(Lake.open(broken.world.lake)) as lake:
        kinds = lake.read(spark, "findings").groupBy("kind").count().collect()
    assert {row["kind"]: row["count"] for row in kinds} == broken.found.counts


@pytest.mark.volume
def test_a_run_from_a_day_on_finds_the_errors_since_that_day(spark: SparkSession, broken: Faulty) -> None:
    broken.world.bench.clock.pass_time(1)
    first = min(one.at_ms for one in broken.found.findings if one.at_ms is not None)
    found = broken.world.reconciled(spark, datetime.fromtimestamp(first // 1_000, UTC).date())
    every = [one for one in broken.found.findings if one.at_ms is None or one.at_ms >= found.began_ms]
    assert 5 < len(every) < len(broken.found.findings)
    # A dead letter may be older than the rows that were read: redriven ones are not judged.
    expected = {_place(one) for one in every if one.subject != "redriven-twice"}
    assert {_place(one) for one in found.findings} == expected
    assert found.new_errors == 0  # an earlier run has told of them all


def _place(one: Finding) -> tuple[str, str, int | None, int | None]:
    return one.kind, one.log, one.row, one.index


def test_damage_of_each_kind_is_reported_and_leads_to_no_findings(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path)
    lively(world)
    world.rest()
    cut = _truncate(world)
    world.compacted(spark)
    archive = FileBlobs(world.archive)
    segments = [segment for manifest in chain.manifests(archive) for segment in manifest.segments]
    gone = [manifests.manifest_key(1), [segment.key for segment in segments if segment.kind == MESSAGES][-1]]
    for key in gone:
        archive.delete(key)
    found = world.reconciled(spark)
    assert found.findings == []
    _counts_three_segments(found)
    assert found.archive is not None
    assert sorted(problem.key for problem in found.archive.problems) == sorted([*gone, *cut])
    assert report_status.of_reports([found]) == exits.DAMAGE


def _counts_three_segments(found: Reconciled) -> None:
    """Asserts that the report counts the segments whose ends were cut off, and says why."""
    assert found.unknown.segments == 3
    assert {one.why for one in found.unknown.rows} == {"quarantined"}
    assert all("bytes" in one.reason for one in found.unknown.quarantined)


@pytest.mark.volume
def test_quarantined_segments_are_reported_and_lead_to_no_findings(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path)
    lively(world)
    world.rest()
    _truncate(world)
    world.compacted(spark)
    found = world.reconciled(spark)
    assert found.findings == []
    _counts_three_segments(found)


@pytest.mark.volume
def test_without_a_manifest_and_a_segment_the_rest_is_judged_and_the_damage_reported(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(tmp_path)
    for _ in range(3):
        world.bench.send("a", "b")
        world.acknowledge("orders", "billing")
        world.archived()
    world.rest()
    world.compacted(spark)
    archive = FileBlobs(world.archive)
    gone = next(segment.key for segment in chain.read(archive, 1).segments)
    for key in (manifests.manifest_key(0), gone):
        archive.delete(key)
    found = world.reconciled(spark)
    assert found.findings == []
    assert found.archive is not None
    assert [problem.key for problem in found.archive.problems] == [manifests.manifest_key(0), gone]
    assert report_status.of_reports([found]) == exits.DAMAGE


def test_the_rows_of_a_lost_manifest_are_unknown_and_named_each_time(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path)
    for _ in range(4):
        world.bench.send("a", "b")
        world.acknowledge("orders", "billing")
        world.archived()
    world.rest()
    archive = FileBlobs(world.archive)
    middle = next(
        manifest for manifest in list(chain.manifests(archive))[1:] if {MESSAGES, PULLS} <= _kinds(manifest.segments)
    )
    archive.delete(manifests.manifest_key(middle.number))
    world.compacted(spark)
    for _ in range(2):
        found = world.reconciled(spark)
        assert found.findings == []
        lost = {(one.log, one.start, one.end) for one in found.unknown.rows if one.why == "lost"}
        assert lost == {(span.log, span.start, span.end) for span in middle.spans}
        assert report_status.of_reports([found]) == exits.DAMAGE


def _kinds(segments: list[manifests.Segment]) -> set[str]:
    return {segment.kind for segment in segments}


def _truncate(world: World) -> list[str]:
    """Cuts off the end of the second segment of each kind. Returns their keys."""
    archive = FileBlobs(world.archive)
    segments = [segment for manifest in chain.manifests(archive) for segment in manifest.segments]
    keys = [[segment.key for segment in segments if segment.kind == kind][1] for kind in (MESSAGES, PULLS, DISPATCHES)]
    for key in keys:
        data = archive.get(key)
        archive.delete(key)
        archive.put(key, data[:-10])
    return keys


def test_a_finding_keeps_the_time_at_which_it_was_first_seen(spark: SparkSession) -> None:
    values = ("lost", "orders", "billing", 0, "orders~1/0", 1, 2, "id", None, "detail")
    rows = [dict(zip(COLUMNS, values, strict=True)), dict(zip(COLUMNS, values, strict=True)) | {"index": None}]
    found = spark.createDataFrame(rows, DDL)
    first, second = (fn.timestamp_millis(fn.lit(at)) for at in (1_000, 2_000))
    earlier = dated(found, dated(found.limit(0), None, first), first)
    later = dated(found.unionByName(found.withColumn("row", fn.lit(9).cast("bigint"))), earlier, second)
    seen = later.select("row", fn.unix_millis("first_seen").alias("seen"), fn.unix_millis("found_at").alias("found"))
    assert {tuple(row) for row in seen.collect()} == {(1, 1_000, 2_000), (9, 2_000, 2_000)}
