"""Compacts the archive into the lake: adds the rows of the manifests that came since the last run, each row once.

Manifests are taken in steps. In each step, table by table, Spark writes the rows of the new segments into a folder of
the run. Then a commit adds the files and records up to which manifest the table holds the archive. A run that stops in
between leaves files that no table names; a run that another job overtakes drops its own files and reads the table anew.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec
from pydantic import PositiveInt
from pyspark.sql import SparkSession

from hourwheel.errors import Corrupt
from hourwheel.ports.storage import Blobs
from hourwheel.retention.chain import LinkedManifest, read
from hourwheel.retention.manifests import manifest_key
from hourwheel.system import SystemIds
from hourwheel_pipeline.archive_rows.reading import Work
from hourwheel_pipeline.archive_rows.segment_rows import UNREAD, Unread, of_unread, segment_rows, unread_of
from hourwheel_pipeline.jobs.compact_steps import Step, new_links, put_back, steps_of
from hourwheel_pipeline.jobs.last_runs import leave_compacted
from hourwheel_pipeline.judging.integrity import ArchiveInspection, inspect
from hourwheel_pipeline.lake.schemas import BOUNDED, SCHEMAS, SORTED_BY
from hourwheel_pipeline.lake.table_progress import QuarantinedSegment, TableProgress
from hourwheel_pipeline.lake.tables import CommitConflict, Lake
from hourwheel_pipeline.lake.writing import DAY, FILE_BYTES, share_of, write
from hourwheel_pipeline.runs.job_options import ArchiveOptions
from hourwheel_pipeline.runs.progress import stage
from hourwheel_pipeline.runs.words import counted

__all__ = ["CompactOptions", "CompactReport", "run"]

_GROWTH = 1.0
"""An estimate of the bytes of Parquet for each byte of a segment."""


class UnreadableSegments(Corrupt):
    """Segments cannot be read and ``on_damage`` is ``stop``, or more segments or manifests than ``max_quarantined``."""


class CompactOptions(ArchiveOptions):
    """The options of ``compact``. ``archive`` and ``lake`` are a folder or ``s3://bucket/prefix``.

    ``on_damage`` says whether the job goes on without a segment or manifest that cannot be read, or stops. ``again``
    also takes those that can be read now. One commit takes about ``step_bytes`` or ``step_segments`` of the
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
        Corrupt: the archive is not the one that the lake took, or a manifest cannot be read and ``on_damage`` is
            ``stop``.
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
        retakes = options.again and any(progress.quarantined or progress.lost for progress in every_progress)
        links = () if retakes else new_links(archive, every_progress)
        manifests = (link.manifest for link in links if isinstance(link, LinkedManifest))
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
            self.lake.ensure(table, schema, sorted_by=SORTED_BY[table], bounded=BOUNDED[table])
            if self.options.again:
                while not self._take_again(table):
                    self._lost_races += 1
        links = new_links(self.archive, [self.lake.table_progress(table) for table in SCHEMAS])
        stop = self.options.on_damage == "stop"
        for step in steps_of(links, self.options.step_bytes, self.options.step_segments, stop=stop):
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
        options, last = self.options, self.lake.newest_progress()
        return inspect(
            options.archive,
            last_manifest=last.last_manifest,
            last_digest=last.digest,
            region=options.region,
            endpoint_url=options.endpoint_url,
        )

    def _take(self, table: str, step: Step) -> bool:
        """Brings the table up to the step. Returns False if another job changed the table meanwhile."""
        properties = self.lake.properties(table)
        progress = TableProgress.of(properties)
        if step.last_manifest <= progress.last_manifest:
            return True
        works = [work for work in step.works if work.kind == table and work.manifest > progress.last_manifest]
        lost = [number for number in step.lost if number > progress.last_manifest]
        return self._commit(table, step._replace(works=works), properties, lost=lost)

    def _take_again(self, table: str) -> bool:
        """Takes the quarantined segments, and the segments of lost manifests, that can be read now. Returns False if
        another job changed the table meanwhile."""
        properties = self.lake.properties(table)
        progress = TableProgress.of(properties)
        works = [self._work_of(segment) for segment in progress.quarantined]
        found = put_back(self.archive, progress.lost)
        works += [
            Work.of(manifest.number, segment)
            for manifest in found
            for segment in manifest.segments
            if segment.kind == table
        ]
        if not works and not found:
            return True
        step = Step(progress.last_manifest, progress.digest, works, [])
        return self._commit(table, step, properties, found=[manifest.number for manifest in found])

    def _work_of(self, quarantined: QuarantinedSegment) -> Work:
        manifest = read(self.archive, quarantined.manifest)
        for segment in manifest.segments if manifest else ():
            if segment.key == quarantined.key:
                return Work.of(quarantined.manifest, segment)
        raise Corrupt(f"{manifest_key(quarantined.manifest)} does not name {quarantined.key}, which is quarantined")

    def _commit(
        self,
        table: str,
        step: Step,
        properties: dict[str, str],
        *,
        lost: Sequence[int] = (),
        found: Sequence[int] = (),
    ) -> bool:
        works = step.works
        written = self._write(table, works)
        progress = TableProgress.of(properties).after(
            step.last_manifest,
            {work.key for work in works},
            _quarantined_segments(works, written.unread),
            digest=step.digest,
            lost=lost,
            found=found,
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
        partial: list[Unread] = []
        while left := [work for work in works if work.key not in {unread.key for unread in partial}]:
            size = round(sum(work.bytes for work in left) * _GROWTH)
            rows = segment_rows(self.spark, location, table, left)
            share = share_of(self.spark, size, self.options.file_bytes)
            write(rows, folder, SORTED_BY[table], task_bytes=share, size=size, apart=DAY | UNREAD)
            files = self.lake.written(folder)
            reports = [file.path for file in files if of_unread(file.path)]
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
        for what, number in ((f"segments of {table}", len(progress.quarantined)), ("manifests", len(progress.lost))):
            if number > self.options.max_quarantined:
                raise UnreadableSegments(
                    f"{number} {what} cannot be read, max_quarantined is {self.options.max_quarantined}: is this the"
                    " archive?"
                )


def _quarantined_segments(works: Sequence[Work], unread: Sequence[Unread]) -> list[QuarantinedSegment]:
    by_key = {work.key: work for work in works}
    return [
        QuarantinedSegment(by_key[segment.key].manifest, segment.key, by_key[segment.key].rows, segment.reason)
        for segment in unread
    ]
