"""Invariant: the lake has each row of the archive once, whatever happens."""

import random
import struct
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from hourwheel.archive import segments
from hourwheel.archive.blocks import SCHEMAS as BLOCK_SCHEMAS
from hourwheel.errors import Corrupt
from hourwheel.logs.codec import Block, pack, unpack
from hourwheel.model.messages import Message
from hourwheel.retention.chain import read
from hourwheel.retention.manifests import manifest_key
from hourwheel_pipeline.jobs import compact
from hourwheel_pipeline.jobs.compact import UnreadableSegments
from hourwheel_pipeline.jobs.status import status_of
from hourwheel_pipeline.lake.schemas import BOUNDED, MESSAGES, SCHEMAS, SORTED_BY
from hourwheel_pipeline.lake.tables import Lake
from hourwheel_pipeline.outcomes import report_status
from hourwheel_pipeline.runs import exits
from tests.pipeline.archives import ArchiveBuilder
from tests.pipeline.lakes import DAY_MS, HOUR_MS, NOON_MS, Compacted, closed
from tests.pipeline.worlds import World, lively


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Compacted:
    return Compacted(tmp_path, spark)


def test_all_that_a_cell_has_archived_is_in_the_lake_once(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path)
    lively(world)
    world.archived()
    world.compacted(spark)
    found = Compacted(tmp_path, spark)
    assert found.places() == found.archived()
    bodies = {(row["log"], row["row"], row["index"]): row["body"] for row in found.rows()}
    assert "o7" in bodies.values()


def test_nothing_changes_when_nothing_is_new(lake: Compacted) -> None:
    lake.add()
    first = lake.compact()
    assert [(table.last_manifest, table.commits, table.segments) for table in first.tables] == [(0, 1, 1)] * 3
    before = snapshots(lake)
    again = lake.compact()
    assert [(table.last_manifest, table.commits, table.files) for table in again.tables] == [(0, 0, 0)] * 3
    assert snapshots(lake) == before


def snapshots(lake: Compacted) -> list[int | None]:
    with closing(Lake.open(lake.lake)) as opened:
        return [opened.table(name).metadata.current_snapshot_id for name in SCHEMAS]


def test_an_archive_without_anything_makes_a_lake_without_anything(lake: Compacted) -> None:
    report = lake.compact()
    assert [table.last_manifest for table in report.tables] == [-1, -1, -1]
    assert lake.rows() == []


def test_a_manifest_without_segments_is_passed(lake: Compacted) -> None:
    lake.builder.commit()
    assert [table.last_manifest for table in lake.compact().tables] == [0, 0, 0]
    assert lake.places() == lake.archived()


def test_late_rows_go_to_the_day_on_which_they_were_stored(lake: Compacted) -> None:
    lake.add(NOON_MS + DAY_MS)
    lake.compact()
    lake.add(NOON_MS)
    lake.add(NOON_MS + DAY_MS + HOUR_MS)
    lake.compact(step_segments=1)
    assert lake.places() == lake.archived()
    days = {(str(row["day"]), row["manifest"]) for row in lake.rows()}
    assert days == {("2025-11-21", 0), ("2025-11-20", 1), ("2025-11-21", 2)}


def test_a_file_has_rows_of_one_day_in_their_order(lake: Compacted) -> None:
    for hour in (0, 1, 24):
        lake.add(NOON_MS + hour * HOUR_MS)
    lake.compact()
    files = list(lake.root.glob("lake/messages/data/**/*.parquet"))
    assert len(files) == 2
    for file in files:
        rows = pq.ParquetFile(file).read().to_pylist()
        assert len({row["day"] for row in rows}) == 1
        assert {row["subject"] for row in rows} == {"orders", "bills", ""}
        places = [tuple(row[name] for name in SORTED_BY[MESSAGES]) for row in rows]
        assert places == sorted(places)


def test_a_large_day_is_divided_into_ranges_of_subjects_and_times(lake: Compacted) -> None:
    noise = random.Random(1)
    for hour in range(8):
        at_ms = NOON_MS + hour * HOUR_MS
        lake.builder.row("huge~1/0", [Message(body_base64=noise.randbytes(4_000)) for _ in range(60)], at_ms)
        for number in range(20):
            lake.builder.row(f"tiny{number}~1/0", [Message(body="x")], at_ms)
    lake.builder.commit()
    lake.compact(file_bytes=200_000)
    ranges = []
    for file in lake.root.glob("lake/messages/data/**/*.parquet"):
        places = [(row["subject"], row["accepted_at"]) for row in pq.ParquetFile(file).read().to_pylist()]
        ranges.append((min(places), max(places)))
    ranges.sort()
    assert len(ranges) >= 4
    # Rows of one time may be in two files: their order goes on with the row.
    assert all(last <= first for (_, last), (first, _) in pairwise(ranges))
    assert lake.places() == lake.archived()


def test_a_thousand_subjects_share_few_files(lake: Compacted) -> None:
    for number in range(1_000):
        row = lake.builder.row(f"t-{number:03d}~1/0", [Message(body=f"{at}") for at in range(2)], NOON_MS)
        lake.builder.pull(f"g~1@t-{number:03d}~1/0", closed(row, NOON_MS))
    lake.builder.commit()
    report = lake.compact()
    assert sum(table.files for table in report.tables) <= 40
    assert lake.places() == lake.archived()


class Killed(BaseException):
    """The process ends here."""


def test_whoever_is_killed_at_any_moment_has_lost_and_doubled_nothing(
    lake: Compacted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run is killed at another call: before the call has any effect, or after."""
    moments = [(verb, number, late) for verb in ("write", "commit") for number in range(3) for late in (False, True)]
    for step, moment in enumerate(moments):
        lake.add(NOON_MS + step * HOUR_MS)
        with monkeypatch.context() as patch:
            killed_at(*moment, patch)
            with pytest.raises(Killed):
                lake.compact()
    lake.compact()
    assert lake.places() == lake.archived()


def killed_at(verb: str, number: int, late: bool, patch: pytest.MonkeyPatch) -> None:
    countdown = iter(range(number, -1, -1))

    def fatal(doing: Callable[..., Any]) -> Callable[..., Any]:
        def do(*arguments: Any, **named: Any) -> Any:
            last = next(countdown) == 0
            if last and not late:
                raise Killed
            answer = doing(*arguments, **named)
            if last:
                raise Killed
            return answer

        return do

    if verb == "write":
        patch.setattr(compact, "write", fatal(compact.write))
        return
    opening = Lake.open

    def opened(*arguments: Any, **named: Any) -> Lake:
        found = opening(*arguments, **named)
        for table in SCHEMAS:
            if found.last_manifest(table) < 0:
                found.ensure(table, SCHEMAS[table], sorted_by=SORTED_BY[table], bounded=BOUNDED[table])
        patch.setattr(found.catalog, "commit_table", fatal(found.catalog.commit_table))
        return found

    patch.setattr(Lake, "open", opened)


def test_one_of_two_concurrent_runs_wins_and_the_other_goes_on(
    lake: Compacted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run commits first, each time that the first one is about to commit."""
    lake.add()
    committing = Lake.commit
    others: list[Callable[[], object]] = []

    def overtaken(self: Lake, *arguments: Any, **named: Any) -> None:
        if others:
            others.pop()()
        committing(self, *arguments, **named)

    others.append(lake.compact)
    monkeypatch.setattr(Lake, "commit", overtaken)
    report = lake.compact()
    assert report.lost_races == 1
    assert [table.commits for table in report.tables] == [0, 0, 0]
    lake.add(NOON_MS + HOUR_MS)

    def other() -> None:
        lake.compact()
        lake.add(NOON_MS + 2 * HOUR_MS)
        lake.compact()

    others.append(other)
    assert lake.compact().lost_races == 1
    assert lake.last_manifests() == [2, 2, 2]
    assert lake.places() == lake.archived()
    folders = list(lake.root.glob("lake/*/data/*"))
    assert len(folders) == 9  # who was overtaken has left nothing


def of_newer_format(data: bytes) -> bytes:
    """Returns a segment in a format that a later version may write."""
    return data[:-8] + struct.pack("<I", 2) + data[-4:]


def of_newer_schema(data: bytes) -> bytes:
    """Returns the segment with a last block of a schema that this version does not know."""
    kind = kind_of(data)
    blocks = [Block(one.rows, 0, data[one.offset : one.offset + one.length]) for one in segments.blocks_of(data, kind)]
    payload, count = unpack(blocks[-1].data, BLOCK_SCHEMAS[kind])
    return segments.join(kind, [*blocks[:-1], pack(bytes(payload), count, 90, 3)])


def kind_of(data: bytes) -> str:
    for kind in SCHEMAS:
        with suppress(Corrupt):
            segments.blocks_of(data, kind)
            return kind
    raise AssertionError("no segment")


DAMAGED = {
    1: "its manifest says",
    2: "is missing",
    3: "fails its checksum",
    4: "has format 2",
    5: "has schema 90",
}
"""Manifests, and the faults of the segments that they name."""


def damage(lake: Compacted, twin: Compacted) -> None:
    """Adds the same rows to both archives, and damages the segments of the first."""
    for number in range(7):
        for one in (lake, twin):
            # In blocks of a row: that the last one cannot be read is found out when others have been.
            one.builder.block_rows = 1
        lake.add(NOON_MS + number, alter={4: of_newer_format, 5: of_newer_schema}.get(number, bytes))
        twin.add(NOON_MS + number)
    for number, change in ((1, lambda data: data[:-10]), (2, None), (3, lambda data: bytes([data[0] ^ 1]) + data[1:])):
        for key in keys_of(lake, number):
            data = lake.builder.archive.get(key)
            lake.builder.archive.delete(key)
            if change is not None:
                lake.builder.archive.put(key, change(data))


def keys_of(lake: Compacted, number: int) -> list[str]:
    manifest = read(lake.builder.archive, number)
    assert manifest is not None
    return [segment.key for segment in manifest.segments]


def test_unreadable_segments_are_quarantined_and_taken_once_they_can_be_read(
    lake: Compacted, spark: SparkSession, tmp_path: Path
) -> None:
    twin = Compacted(tmp_path / "twin", spark)
    damage(lake, twin)
    with pytest.raises(UnreadableSegments, match="5 segments of messages cannot be read: segments/messages/"):
        lake.compact(on_damage="stop")
    with pytest.raises(UnreadableSegments, match="5 segments of messages cannot be read, max_quarantined is 4"):
        lake.compact(max_quarantined=4)
    assert lake.rows() == []
    assert not list(lake.root.glob("lake/messages/data/*"))
    for table in lake.compact().tables:
        assert [segment.manifest for segment in table.quarantined] == list(DAMAGED)
        for segment in table.quarantined:
            assert DAMAGED[segment.manifest] in segment.reason
            assert segment.key in keys_of(lake, segment.manifest)
        assert table.segments == 2
    twin.compact()
    for table in SCHEMAS:
        assert manifests_in(lake, table) == {n: rows for n, rows in manifests_in(twin, table).items() if n in (0, 6)}
    for number in (1, 2, 3):
        for key in keys_of(lake, number):
            lake.builder.archive.delete(key)
            lake.builder.archive.put(key, twin.builder.archive.get(key))
    assert [table.commits for table in lake.compact().tables] == [0, 0, 0]
    for _ in range(2):
        for table in lake.compact(again=True).tables:
            assert [segment.manifest for segment in table.quarantined] == [4, 5]
    for table in SCHEMAS:
        wanted = {n: rows for n, rows in manifests_in(twin, table).items() if n not in (4, 5)}
        assert manifests_in(lake, table) == wanted
    assert {count for places in lake.places().values() for count in places.values()} == {1}


def manifests_in(lake: Compacted, table: str) -> dict[int, int]:
    """Returns the number of rows that each manifest has brought."""
    return {row["manifest"]: row["count"] for row in lake.frame(table).groupBy("manifest").count().collect()}


@pytest.mark.parametrize("left", [b"{}", None])
def test_a_lost_manifest_is_passed_over_and_taken_once_it_is_back(
    lake: Compacted, spark: SparkSession, tmp_path: Path, left: bytes | None
) -> None:
    twin = Compacted(tmp_path / "twin", spark)
    for number in range(5):
        lake.add(NOON_MS + number)
        twin.add(NOON_MS + number)
    archive, key = lake.builder.archive, manifest_key(2)
    data = archive.get(key)
    archive.delete(key)
    if left is not None:
        archive.put(key, left)
    with pytest.raises(Corrupt, match=key):
        lake.compact(on_damage="stop")
    assert lake.last_manifests() == [1, 1, 1]
    twin.compact()
    for _ in range(2):  # each day the loss is named
        report = lake.compact()
        assert report.archive is not None
        assert [problem.key for problem in report.archive.problems] == [key]
        assert report_status.of_reports([report]) == exits.DAMAGE
    assert {number for table in SCHEMAS for number in manifests_in(lake, table)} == {0, 1, 3, 4}
    with closing(Lake.open(lake.lake)) as opened:
        assert [opened.table_progress(table).lost for table in SCHEMAS] == [(2,)] * 3
    archive.delete(key)
    archive.put(key, data)
    lake.compact()
    assert lake.places() != twin.places()
    lake.compact(again=True)
    assert lake.places() == twin.places()
    with closing(Lake.open(lake.lake)) as opened:
        assert [opened.table_progress(table).lost for table in SCHEMAS] == [()] * 3


def test_an_archive_that_was_restored_and_written_since_is_not_merged(lake: Compacted) -> None:
    archive = lake.builder.archive
    for number in range(3):
        lake.add(NOON_MS + number)
    lake.compact()
    before = lake.places()
    for number in range(3):
        archive.delete(manifest_key(number))
    lake.builder = ArchiveBuilder(archive)
    for number in range(3, 8):
        lake.add(NOON_MS + number)
    with pytest.raises(Corrupt, match=f"{manifest_key(2)} is not the one that the lake took"):
        lake.compact()
    assert lake.places() == before
    status = status_of(str(lake.root / "archive"), lake.lake)
    assert [problem.kind for problem in status.inspection.problems] == ["other_manifest"]
