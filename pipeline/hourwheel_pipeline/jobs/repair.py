"""Repairs the lake: removes data files that are missing or damaged, and restores rows that it lacks from the archive.

The job checks each data file of each table: whether the file exists, has its size, and begins and ends as Parquet does;
with ``deep`` it reads all files. It compares the rows of the sound files with those that the manifests name, and reads
the segments whose rows are missing. One commit for each table removes and restores, so that no reader sees the table
without these rows. Rows of findings and metrics have no copy: those of damaged files are given up, and the next
reconciliation and ``metrics --since`` make new ones.

The report names what the job cannot repair: objects that the archive lacks, and quarantined segments.
"""

from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import reduce
from operator import or_

import msgspec
from pyiceberg.manifest import DataFile
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from hourwheel.system import SystemIds
from hourwheel_pipeline.archive_rows.segment_rows import QUARANTINED, UNREAD, of_unread, unread_of
from hourwheel_pipeline.judging.checks.claims import Archive, claims
from hourwheel_pipeline.judging.checks.coverage import missing_of, stored_of
from hourwheel_pipeline.judging.integrity import ArchiveInspection, inspect
from hourwheel_pipeline.judging.lacking import IDENTITY, Fewer, lacking
from hourwheel_pipeline.lake.data_files import Days, days_of, files_of, frame_of
from hourwheel_pipeline.lake.schemas import SCHEMAS, SORTED_BY
from hourwheel_pipeline.lake.table_progress import QuarantinedSegment, TableProgress
from hourwheel_pipeline.lake.tables import CommitConflict, Lake
from hourwheel_pipeline.lake.writing import DAY, FILE_BYTES, write
from hourwheel_pipeline.runs.exits import DamagedLake
from hourwheel_pipeline.runs.failures import in_one_sentence
from hourwheel_pipeline.runs.job_options import ArchiveOptions
from hourwheel_pipeline.runs.progress import stage
from hourwheel_pipeline.runs.words import counted

__all__ = ["RepairOptions", "RepairReport", "run"]

PROPERTY = "hourwheel.repaired"
"""The note of a table with a token of its last repair. Of two repairs at once the second finds another token and does
not commit; without the note both would restore the rows."""


class RepairOptions(ArchiveOptions):
    """The options of ``repair``. ``archive`` and ``lake`` are a folder or ``s3://bucket/prefix``. ``deep`` reads all
    data files, not only their sizes and ends.

    Raises:
        ValidationError: an option is unknown or missing.

    Example:
        >>> repair.RepairOptions(archive="orders-data/archive", lake="orders-data/lake", deep=True).deep
        True
    """

    deep: bool = False


class TableRepair(msgspec.Struct, kw_only=True):
    """The changes that a repair made to a table. ``removed``: the data files that it removed, each with the reason.
    ``rows``: the number of rows that it restored from the archive. ``lost``: a sentence for each segment that cannot be
    read, so that its rows cannot be restored."""

    table: str
    removed: list[str] = []
    rows: int = 0
    lost: list[str] = []


class RepairReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of ``repair``: the tables in which something was wrong, of ``files`` data files that were checked.

    ``archive`` says what the archive lacks, ``quarantined`` names the segments that the lake never took. Both come back
    only from a copy.

    Example:
        >>> repair.run(spark, repair.RepairOptions(archive="orders-data/archive", lake="orders-data/lake")).tables
        []
    """

    tables: list[TableRepair]
    files: int = 0
    archive: ArchiveInspection | None = None
    quarantined: tuple[QuarantinedSegment, ...] = ()

    @property
    def unrepaired(self) -> int:
        """Returns the number of objects that an operator has to put back."""
        keys = {segment.key for segment in self.quarantined} | self._lost
        if self.archive is None:
            return len(keys)
        listed = {problem.key for problem in self.archive.problems}
        return self.archive.count - len(listed) + len(keys | listed)

    @property
    def _lost(self) -> set[str]:
        return {sentence.partition(":")[0] for table in self.tables for sentence in table.lost}


def run(spark: SparkSession, options: RepairOptions) -> RepairReport:
    """Repairs all tables of the lake from the archive. Repeats with ``deep`` if a file turns out to be damaged only
    when it is read.

    Raises:
        DamagedLake: the files of a table cannot be read, though each looks sound.
        Corrupt: a manifest cannot be read.
        Broken: the lake was copied or moved.

    Example:
        >>> repair.run(spark, repair.RepairOptions(archive="orders-data/archive", lake="orders-data/lake")).tables
        []
    """
    try:
        with in_one_sentence():
            return _run(spark, options)
    except DamagedLake:
        if options.deep:
            raise
        with in_one_sentence():
            return _run(spark, options.model_copy(update={"deep": True}))


def _run(spark: SparkSession, options: RepairOptions) -> RepairReport:
    with closing(options.open_lake()) as lake:
        return report_of(lake, options, [_Repair(spark, options, lake, name).run() for name in lake.tables()])


def report_of(lake: Lake, options: RepairOptions, tables: Sequence[TableRepair]) -> RepairReport:
    """Returns the report: the changes to the tables, and the objects that an operator has to put back."""
    every_progress = [lake.table_progress(name) for name in SCHEMAS]
    files = sum(len(files_of(lake.table(name).scan())) for name in lake.tables())
    last = lake.newest_progress()
    inspected = inspect(
        options.archive,
        last_manifest=last.last_manifest,
        last_digest=last.digest,
        region=options.region,
        endpoint_url=options.endpoint_url,
    )
    return RepairReport(
        tables=[report for report in tables if report.removed or report.rows or report.lost],
        files=files + sum(len(report.removed) for report in tables),
        archive=inspected,
        quarantined=tuple(segment for progress in every_progress for segment in progress.quarantined),
    )


@dataclass(frozen=True)
class _Repair:
    """The repair of one table."""

    spark: SparkSession
    options: RepairOptions
    lake: Lake
    name: str

    def run(self) -> TableRepair:
        while True:
            report = TableRepair(table=self.name)
            try:
                self._repair(report)
                return report
            except CommitConflict:
                continue

    def _repair(self, report: TableRepair) -> None:
        properties = self.lake.properties(self.name)
        table = self.lake.table(self.name)
        files = files_of(table.scan())
        stage("repair", f"checks {counted(len(files), 'file')} of {self.name}")
        faults = {file.file_path: fault for file in files if (fault := self._fault(file)) is not None}
        report.removed = [f"{path}: {fault}" for path, fault in faults.items()]
        folder = self.lake.folder(self.name, SystemIds().token().hex())
        added: list[str] = []
        removed = [file for file in files if file.file_path in faults]
        if self.name in SCHEMAS:
            sound = [file.file_path for file in files if file.file_path not in faults]
            frame = frame_of(self.spark, table, sound)
            fewer = self._fewer(frame, TableProgress.of(properties), {days_of(table, file) for file in removed})
            added = self._write(frame, fewer, folder, report) if fewer else []
        if not added and not removed:
            return
        try:
            note = {PROPERTY: SystemIds().token().hex()}
            self.lake.commit(self.name, added=added, removed=removed, properties=note, on=properties, same_rows=False)
        except CommitConflict:
            self.lake.files.delete_folder(folder)
            raise

    def _fault(self, file: DataFile) -> str | None:
        return self.lake.files.parquet_fault(
            file.file_path, file.file_size_in_bytes, file.record_count, deep=self.options.deep
        )

    def _write(self, sound: DataFrame, fewer: Sequence[Fewer], folder: str, report: TableRepair) -> list[str]:
        """Writes the rows that the sound files lack. Returns the paths of the new files."""
        location = self.options.location
        # The rows are counted and written: without the cache Spark would read the segments twice.
        rows = lacking(self.spark, location, self.name, fewer, sound).cache()
        report.rows = rows.where(~fn.col("subject").eqNullSafe(QUARANTINED)).count()
        write(rows, folder, SORTED_BY[self.name], task_bytes=FILE_BYTES, size=0, apart=DAY | UNREAD)
        rows.unpersist()
        paths = [file.path for file in self.lake.written(folder)]
        reports = [path for path in paths if of_unread(path)]
        report.lost = [
            f"{segment.key}: {segment.reason}; put it back from a copy, then run repair again"
            for path in reports
            for segment in unread_of(self.name, self.lake.files.rows(path))
        ]
        return [path for path in paths if path not in reports]

    def _fewer(self, sound: DataFrame, progress: TableProgress, lost: Collection[Days | None]) -> Sequence[Fewer]:
        """Returns the logs and manifests of which the sound files have fewer rows than the archive, and all those with
        rows of the days of the ``lost`` files. No manifest counts cancel markers, so their loss does not
        show."""
        archive = Archive(self.options.archive, progress.last_manifest, self.options.region, self.options.endpoint_url)
        brought = claims(self.spark, archive)
        quarantined = [segment.key for segment in progress.quarantined]
        # A doubled row counts once, so that it hides no missing one.
        stored = stored_of(self.name, sound.dropDuplicates(list(IDENTITY[self.name])))
        missing = missing_of(brought, stored, quarantined).where(fn.col("table") == self.name)
        parts = brought.where(
            (fn.col("claim") == "part") & (fn.col("table") == self.name) & ~fn.col("key").isin(quarantined)
        )
        removed = parts.where(reduce(or_, map(_may_have_been_in, lost), fn.lit(False)))
        fewer = missing.select(*Fewer._fields).unionByName(removed.select(*Fewer._fields)).distinct()
        return [Fewer(*row) for row in fewer.collect()]


def _may_have_been_in(days: Days | None) -> Column:
    """Returns the condition that a segment begins on these days; of unknown days any does."""
    return fn.lit(True) if days is None else fn.to_date("at").between(*days)
