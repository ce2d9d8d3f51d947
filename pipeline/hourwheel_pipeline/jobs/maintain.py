"""Maintains the lake: merges small files of a day, and of a month that is over for 31 days; expires old snapshots,
removes files that no table names.

The job may run beside other jobs. The rows stay the same: a merge replaces files by fewer files with the same rows in
one commit, and gives up if another job has removed one of the files meanwhile. Only rows of ``metrics`` that a later
run computed again are left out.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

import msgspec
from pydantic import NonNegativeInt, PositiveInt
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from hourwheel.system import SystemIds
from hourwheel_pipeline.jobs import metrics
from hourwheel_pipeline.lake.data_files import files_of, frame_of
from hourwheel_pipeline.lake.layout import sort_columns
from hourwheel_pipeline.lake.merges import Merge, merges, steps
from hourwheel_pipeline.lake.snapshots import noted
from hourwheel_pipeline.lake.tables import CommitConflict, Lake
from hourwheel_pipeline.lake.writing import FILE_BYTES, write
from hourwheel_pipeline.runs.job_options import LakeOptions
from hourwheel_pipeline.runs.progress import stage
from hourwheel_pipeline.runs.words import counted

__all__ = ["MaintainOptions", "MaintainReport", "run"]

# The size of a commit: a run that another job overtakes loses this much work.
_STEP_BYTES = 2 << 30
_STEP_FILES = 2_000
# The next run expires the snapshots that this run leaves because other jobs commit all the time.
_TRIES = 10


class MaintainOptions(LakeOptions):
    """The options of ``maintain``. ``lake`` is a folder or ``s3://bucket/prefix``.

    The job merges the files under half of ``file_bytes`` of a day or month that has ``fewest_files`` of them. It
    removes snapshots ``keep_seconds`` after they were replaced, and files that no table names ``grace_seconds`` after
    they were written: longer than any job takes from its first file to its commit.

    Raises:
        ValidationError: an option is unknown, missing or out of its range.

    Example:
        >>> maintain.MaintainOptions(lake="orders-data/lake").fewest_files
        5
    """

    file_bytes: PositiveInt = FILE_BYTES
    fewest_files: PositiveInt = 5
    keep_seconds: NonNegativeInt = 7 * 86_400
    grace_seconds: NonNegativeInt = 3 * 86_400


class TableMaintenance(msgspec.Struct, kw_only=True):
    """Counts the changes that a run made to a table: it merged ``merged`` files into ``merged_into`` files."""

    table: str
    merged: int = 0
    merged_into: int = 0
    lost_races: int = 0
    snapshots_expired: int = 0
    files_removed: int = 0
    bytes_removed: int = 0


class MaintainReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of ``maintain``: the changes to each table.

    Example:
        >>> report = maintain.run(spark, maintain.MaintainOptions(lake="orders-data/lake"), now_ms)
        >>> {table.lost_races for table in report.tables}
        {0}
    """

    tables: list[TableMaintenance]


def run(spark: SparkSession, options: MaintainOptions, now_ms: int) -> MaintainReport:
    """Merges small files, removes old snapshots and files that no table names, of all tables. ``now_ms`` is the time of
    the run, in Unix milliseconds.

    Raises:
        Broken: the lake was copied or moved.

    Example:
        >>> report = maintain.run(spark, maintain.MaintainOptions(lake="orders-data/lake"), now_ms)
        >>> sum(table.files_removed for table in report.tables)
        0
    """
    with closing(options.open_lake()) as lake:
        return MaintainReport(tables=[Maintenance(spark, options, lake, name).run(now_ms) for name in lake.tables()])


def idle(options: MaintainOptions, now_ms: int) -> MaintainReport | None:
    """Runs the job without Spark and returns its report if there are no files to merge. Returns None otherwise."""
    with closing(options.open_lake()) as lake:
        names = lake.tables()
        if any(True for name in names for _ in _merges(lake.table(name), options, now_ms)):
            return None
        return MaintainReport(tables=[Maintenance(None, options, lake, name).run(now_ms) for name in names])


@dataclass(frozen=True)
class Maintenance:
    """The maintenance of one table. Without ``spark`` it merges no files."""

    spark: SparkSession | None
    options: MaintainOptions
    lake: Lake
    name: str

    def run(self, now_ms: int) -> TableMaintenance:
        report = TableMaintenance(table=self.name)
        if self.spark is not None:
            found = _merges(self.lake.table(self.name), self.options, now_ms)
            for step in steps(found, _STEP_FILES, _STEP_BYTES):
                self._merge(self.spark, step, report)
        self._expire(now_ms - self.options.keep_seconds * 1_000, report)
        self._remove_unnamed(now_ms - self.options.grace_seconds * 1_000, report)
        return report

    def _merge(self, spark: SparkSession, step: Merge, report: TableMaintenance) -> None:
        files, measures = step.files, self.name == metrics.TABLE
        stage("maintain", f"merges {counted(len(files), 'file')} of {self.name}")
        table = self.lake.table(self.name)
        folder = self.lake.folder(self.name, SystemIds().token().hex())
        rows = frame_of(spark, table, [file.file_path for file in files])
        if measures:
            rows = metrics.newest_of(rows)
        size = sum(file.file_size_in_bytes for file in files)
        write(rows, folder, sort_columns(table), task_bytes=self.options.file_bytes, size=size, apart=step.apart)
        written = [file.path for file in self.lake.written(folder)]
        if len(written) >= len(files):  # their rows do not fit into fewer
            self.lake.files.delete_folder(folder)
            return
        try:
            self.lake.commit(self.name, added=written, removed=files, same_rows=not measures)
        except CommitConflict:
            self.lake.files.delete_folder(folder)
            report.lost_races += 1
            return
        report.merged += len(files)
        report.merged_into += len(written)

    def _expire(self, before_ms: int, report: TableMaintenance) -> None:
        for _ in range(_TRIES):
            table = self.lake.table(self.name)
            old = expired(table, before_ms)
            if not old:
                return
            try:
                table.maintenance.expire_snapshots().by_ids(old).commit()
            except CommitFailedException:
                continue
            report.snapshots_expired += len(old)
            return

    def _remove_unnamed(self, before_ms: int, report: TableMaintenance) -> None:
        # Listed before the table is read: a file that a commit adds in between is then seen to be named.
        files = self.lake.files.below(f"{self.lake.location}/{self.name}")
        named = _named(self.lake.table(self.name))
        unnamed = [file for file in files if file.modified_ms < before_ms and _of_checksum(file.path) not in named]
        self.lake.files.delete(file.path for file in unnamed)
        report.files_removed = len(unnamed)
        report.bytes_removed = sum(file.bytes for file in unnamed)


def _merges(table: Table, options: MaintainOptions, now_ms: int) -> Iterator[Merge]:
    today = datetime.fromtimestamp(now_ms / 1_000, UTC).date()
    return merges(table, files_of(table.scan()), options.file_bytes // 2, options.fewest_files, today)


def expired(table: Table, before_ms: int) -> list[int]:
    """Returns the snapshots that were replaced before ``before_ms``, so that a reader of a snapshot that was replaced a
    moment ago still finds its files. Snapshots that a branch or a tag names are kept, and so are the current one and
    those before it, back to the last one with properties."""
    log = table.history()
    replaced_ms = {entry.snapshot_id: following.timestamp_ms for entry, following in pairwise(log)}
    kept = {snapshot.snapshot_id for snapshot in noted(table)}
    kept |= {ref.snapshot_id for ref in table.metadata.refs.values()}
    return [
        snapshot.snapshot_id
        for snapshot in table.snapshots()
        if replaced_ms.get(snapshot.snapshot_id, snapshot.timestamp_ms) < before_ms and snapshot.snapshot_id not in kept
    ]


def _named(table: Table) -> set[str]:
    """Returns the files that a snapshot or the metadata of the table names."""
    metadata = table.metadata
    named = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    named |= {statistics.statistics_path for statistics in (*metadata.statistics, *metadata.partition_statistics)}
    for snapshot in table.snapshots():
        named.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in named:
                named.add(manifest.manifest_path)
                named |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return named


def _of_checksum(path: str) -> str:
    """Returns for a checksum file of Hadoop, ``.NAME.crc``, the path of the file ``NAME``; any other path unchanged."""
    folder, _, name = path.rpartition("/")
    if name.startswith(".") and name.endswith(".crc"):
        return f"{folder}/{name.removeprefix('.').removesuffix('.crc')}"
    return path
