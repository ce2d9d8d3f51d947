"""Compacts the archive into the lake: adds the rows of the manifests that came since the last run, each row once.

Manifests are taken in steps. In each step, table by table, Spark writes the rows of the new segments into a folder of
the run. Then a commit adds the files and records up to which manifest the table holds the archive. A run that stops in
between leaves files that no table names; a run that another job overtakes drops its own files and reads the table anew.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec
from pydantic import PositiveInt
from pyspark.sql import SparkSession

from hourwheel.errors import Corrupt
from hourwheel.ports.storage import Blobs
from hourwheel.retention.manifests import Manifest, manifest_key, read
from hourwheel.system import SystemIds
from hourwheel_pipeline.integrity import ArchiveInspection, inspect
from hourwheel_pipeline.job_options import ArchiveOptions
from hourwheel_pipeline.lake import CommitConflict, Lake, layout_of
from hourwheel_pipeline.last_runs import leave_compacted
from hourwheel_pipeline.progress import stage
from hourwheel_pipeline.reading import Work, manifests_from
from hourwheel_pipeline.schemas import PARTITION, SCHEMAS, SORTED_BY
from hourwheel_pipeline.segment_rows import QUARANTINED, Unread, segment_rows, unread_of
from hourwheel_pipeline.table_progress import QuarantinedSegment, TableProgress
from hourwheel_pipeline.words import counted
from hourwheel_pipeline.writing import FILE_BYTES, share_of, write

__all__ = ["CompactOptions", "CompactReport", "run"]

_GROWTH = 1.0
"""An estimate of the bytes of Parquet for each byte of a segment."""


class UnreadableSegments(Corrupt):
    """Segments cannot be read, and ``on_damage`` is ``stop``, or there are more of them than ``max_quarantined``."""


class CompactOptions(ArchiveOptions):
    """The options of ``compact``. ``archive`` and ``lake`` are a folder or ``s3://bucket/prefix``.

    ``on_damage`` says whether the job quarantines a segment that cannot be read, or stops. ``again`` also takes
    quarantined segments that can be read now. One commit takes about ``step_bytes`` or ``step_segments`` of the
    archive, and writes files of about ``file_bytes``. With more than ``max_quarantined`` unreadable segments of a
    table the job fails: then the archive is wrong, not a few segments.

    Raises:
        ValidationError: an option is unknown, missing or out of its range.

    Example:
        >>> compact.CompactOptions(archive="orders-data/archive", lake="orders-data/lake").on_damage
        'quarantine'
    """

    on_damage: Literal["quarantine", "stop"] = "quarantine"
    again: bool = False
    step_bytes: PositiveInt = 2 << 30
    step_segments: PositiveInt = 5_000
    max_quarantined: PositiveInt = 1_000
    file_bytes: PositiveInt = FILE_BYTES


class TableReport(msgspec.Struct, kw_only=True):
    """Counts the commits, segments, files and bytes that a run added to a table. The table holds the archive up to
    ``last_manifest``, without the ``quarantined`` segments."""

    table: str
    last_manifest: int = -1
    commits: int = 0
    segments: int = 0
    files: int = 0
    bytes: int = 0
    quarantined: tuple[QuarantinedSegment, ...] = ()


class CompactReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of ``compact``: the changes to each table. ``lost_races`` counts the commits that another job
    overtook. ``archive`` says whether the archive is complete, including the part that the lake holds already.

    Example:
        >>> report = compact.run(spark, compact.CompactOptions(archive="orders-data/archive", lake="orders-data/lake"))
        >>> report.lost_races
        0
    """

    tables: list[TableReport]
    lost_races: int
    archive: ArchiveInspection | None = None


class Step(NamedTuple):
    """The segments of the manifests up to ``last_manifest``."""

    last_manifest: int
    works: Sequence[Work]


class _Written(NamedTuple):
    folder: str
    paths: Sequence[str]
    size: int
    unread: Sequence[Unread]


def run(spark: SparkSession, options: CompactOptions) -> CompactReport:
    """Adds to the lake the rows of every manifest that came since the last run, each row once.

    Raises:
        UnreadableSegments: segments cannot be read, and ``on_damage`` is ``stop``, or there are more than
            ``max_quarantined``.
        Corrupt: a manifest cannot be read.
        Broken: the lake was copied or moved, or another version wrote its tables.

    Example:
        >>> report = compact.run(spark, compact.CompactOptions(archive="orders-data/archive", lake="orders-data/lake"))
        >>> sorted(table.table for table in report.tables)
        ['dispatches', 'messages', 'pulls']
    """
    archive = options.open_archive()
    with closing(options.open_lake()) as lake:
        return Compaction(spark, options, archive, lake).run()


def idle(options: CompactOptions) -> CompactReport | None:
    """Runs the job without Spark and returns its report if there is no segment to read. Returns None otherwise."""
    archive = options.open_archive()
    existing = options.find_lake()
    if existing is None:
        return None
    with closing(existing) as lake:
        every_progress = [lake.table_progress(table) for table in SCHEMAS]
        start = min(progress.last_manifest for progress in every_progress) + 1
        retakes = options.again and any(progress.quarantined for progress in every_progress)
        manifests = () if retakes else manifests_from(archive, start)
        if retakes or any(segment.kind in SCHEMAS for manifest in manifests for segment in manifest.segments):
            return None
        return Compaction(None, options, archive, lake).run()


@dataclass
class Compaction:
    """One run of the job. Without ``spark`` it reads no segment."""

    spark: SparkSession | None
    options: CompactOptions
    archive: Blobs
    lake: Lake
    _lost_races: int = 0
    _tables: dict[str, TableReport] = field(default_factory=lambda: {name: TableReport(table=name) for name in SCHEMAS})

    def run(self) -> CompactReport:
        for table, schema in SCHEMAS.items():
            self.lake.ensure(table, schema, partition=PARTITION, sorted_by=SORTED_BY[table])
            if self.options.again:
                while not self._take_again(table):
                    self._lost_races += 1
        start = min(self.lake.last_manifest(table) for table in SCHEMAS) + 1
        for step in self._steps(manifests_from(self.archive, start)):
            for table in SCHEMAS:
                while not self._take(table, step):
                    self._lost_races += 1
        for table, report in self._tables.items():
            progress = self.lake.table_progress(table)
            report.last_manifest, report.quarantined = progress.last_manifest, progress.quarantined
        tables = list(self._tables.values())
        compacted = CompactReport(tables=tables, lost_races=self._lost_races, archive=self._inspected())
        leave_compacted(self.lake, compacted)
        return compacted

    def _inspected(self) -> ArchiveInspection:
        """Inspects the whole archive, of which the run itself reads only the new manifests."""
        options = self.options
        return inspect(
            options.archive,
            last_manifest=max(report.last_manifest for report in self._tables.values()),
            region=options.region,
            endpoint_url=options.endpoint_url,
        )

    def _steps(self, manifests: Iterator[Manifest]) -> Iterator[Step]:
        """Yields the steps. If a manifest cannot be read, yields those before it as a step, and then raises
        ``Corrupt``."""
        works: list[Work] = []
        size, last_manifest = 0, -1
        try:
            for manifest in manifests:
                last_manifest = manifest.number
                new = [Work.of(last_manifest, segment) for segment in manifest.segments if segment.kind in SCHEMAS]
                works += new
                size += sum(work.bytes for work in new)
                if size >= self.options.step_bytes or len(works) >= self.options.step_segments:
                    yield Step(last_manifest, works)
                    works, size = [], 0
        except Corrupt:
            yield Step(last_manifest, works)
            raise
        # Also without segments: the tables record the last manifest that they have seen.
        yield Step(last_manifest, works)

    def _take(self, table: str, step: Step) -> bool:
        """Brings the table up to the step. Returns False if another job changed the table meanwhile."""
        properties = self.lake.properties(table)
        progress = TableProgress.of(properties)
        if step.last_manifest <= progress.last_manifest:
            return True
        works = [work for work in step.works if work.kind == table and work.manifest > progress.last_manifest]
        return self._commit(table, works, step.last_manifest, properties)

    def _take_again(self, table: str) -> bool:
        """Takes the quarantined segments that can be read now. Returns False if another job changed the table
        meanwhile."""
        properties = self.lake.properties(table)
        progress = TableProgress.of(properties)
        works = [self._work_of(segment) for segment in progress.quarantined]
        return not works or self._commit(table, works, progress.last_manifest, properties)

    def _work_of(self, quarantined: QuarantinedSegment) -> Work:
        manifest = read(self.archive, quarantined.manifest)
        for segment in manifest.segments if manifest else ():
            if segment.key == quarantined.key:
                return Work.of(quarantined.manifest, segment)
        raise Corrupt(f"{manifest_key(quarantined.manifest)} does not name {quarantined.key}, which is quarantined")

    def _commit(self, table: str, works: Sequence[Work], last_manifest: int, properties: dict[str, str]) -> bool:
        written = self._write(table, works)
        progress = TableProgress.of(properties).after(
            last_manifest, {work.key for work in works}, _quarantined_segments(works, written.unread)
        )
        try:
            self._check(table, written.unread, progress)
            self.lake.commit(table, added=written.paths, properties=progress.properties, on=properties)
        except (CommitConflict, UnreadableSegments) as error:
            self.lake.files.delete_folder(written.folder)
            if isinstance(error, UnreadableSegments):
                raise
            return False
        report = self._tables[table]
        report.commits += 1
        report.segments += len(works) - len(written.unread)
        report.files += len(written.paths)
        report.bytes += written.size
        return True

    def _write(self, table: str, works: Sequence[Work]) -> _Written:
        """Writes the rows of the segments into files, without any row of a segment that cannot be read."""
        if self.spark is None:
            if works:
                raise CommitConflict("new segments have come since the job began without Spark")
            return _Written("", [], 0, [])
        if works:
            stage("compact", f"takes {counted(len(works), 'segment')} into {table}")
        location = self.options.location
        folder = self.lake.folder(table, SystemIds().token().hex())
        layout = layout_of(self.lake.table(table))
        partial: list[Unread] = []
        while left := [work for work in works if work.key not in {unread.key for unread in partial}]:
            size = round(sum(work.bytes for work in left) * _GROWTH)
            rows = segment_rows(self.spark, location, table, left)
            share = share_of(self.spark, size, self.options.file_bytes)
            write(rows, folder, layout, task_bytes=share, size=size)
            files = self.lake.written(folder)
            reports = [file.path for file in files if f"/_subject={QUARANTINED}/" in file.path]
            unread = [segment for path in reports for segment in unread_of(table, self.lake.files.rows(path))]
            if not any(segment.rows for segment in unread):
                kept = [file for file in files if file.path not in reports]
                return _Written(
                    folder, [file.path for file in kept], sum(file.bytes for file in kept), partial + unread
                )
            # Of these segments the files have some rows: without them, all others are written anew.
            self.lake.files.delete_folder(folder)
            partial += [segment for segment in unread if segment.rows]
        return _Written(folder, [], 0, partial)

    def _check(self, table: str, unread: Sequence[Unread], progress: TableProgress) -> None:
        if unread and self.options.on_damage == "stop":
            reasons = "; ".join(f"{segment.key}: {segment.reason}" for segment in unread[:10])
            raise UnreadableSegments(f"{len(unread)} segments of {table} cannot be read: {reasons}")
        if len(progress.quarantined) > self.options.max_quarantined:
            raise UnreadableSegments(
                f"{len(progress.quarantined)} segments of {table} cannot be read, max_quarantined is "
                f"{self.options.max_quarantined}: is this the archive?"
            )


def _quarantined_segments(works: Sequence[Work], unread: Sequence[Unread]) -> list[QuarantinedSegment]:
    by_key = {work.key: work for work in works}
    return [
        QuarantinedSegment(by_key[segment.key].manifest, segment.key, by_key[segment.key].rows, segment.reason)
        for segment in unread
    ]
