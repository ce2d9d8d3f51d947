"""Keeps the lake: Iceberg tables, whose data Spark writes and the driver commits.

    {lake}/catalog.db                          the catalog, on one machine; in the cloud it is Glue's
    {lake}/{table}/data/{run}/…/*.parquet      a run's files, whether or not a commit names them
    {lake}/{table}/metadata/…                  Iceberg's
    {lake}/last-runs/{job}.json                the result of a job's last run: ``last_runs.py``

A table keeps *properties* in the summary of its current snapshot, under keys that begin with ``hourwheel.``. So the
properties always describe the rows of that snapshot, also after a roll-back to an earlier one. Each commit repeats the
properties, and succeeds only on the snapshot that it was made from.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, In
from pyiceberg.expressions.parser import parse
from pyiceberg.io.pyarrow import parquet_file_to_data_file, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import DataScan, Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import DataFrame, SparkSession

from hourwheel.errors import Broken, HourwheelError, NotFound, Unavailable
from hourwheel.system import SystemIds
from hourwheel_pipeline.lake.catalogs import find_catalog, open_catalog
from hourwheel_pipeline.lake.locations import Files, FoundFile, folder_of, on_s3
from hourwheel_pipeline.lake.schemas import SCHEMAS, spark_ddl
from hourwheel_pipeline.lake.table_progress import TableProgress
from hourwheel_pipeline.lake.writing import Layout, configured, share_of, write

NAMESPACE = "hourwheel"

_NOTES = "hourwheel."
# Each conflict means that another commit succeeded: a job gives up only among very many.
_TRIES = 50
_THREADS = 16  # they read footers of files, and wait for storage
# Listing a file mostly waits for storage.
_LISTINGS_PER_CORE = 4

_PROPERTIES = {
    # A job that is overtaken reads the table again before it tries again: no retry in the library.
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    # Metrics of bodies would be larger than all others together, and no query filters by body.
    "write.metadata.metrics.default": "none",
}


class CommitConflict(HourwheelError):
    """Another job has committed to the table since the caller read it: read it again (protocol)."""


@dataclass(frozen=True)
class Lake:
    """The tables of a lake. ``location`` is a folder, or ``s3://bucket/prefix``. For one thread; close it.

    Example:
        >>> with closing(Lake.open("orders-data/lake")) as lake:
        ...     lake.tables()
        ['dispatches', 'findings', 'messages', 'metrics', 'pulls']
    """

    location: str
    catalog: Catalog
    files: Files
    namespace: str = NAMESPACE

    @classmethod
    def open(
        cls, location: str, *, namespace: str = NAMESPACE, region: str | None = None, endpoint_url: str | None = None
    ) -> Self:
        """Opens a lake, and creates it if there is none. On AWS ``namespace`` is the cell's database in Glue.

        Raises:
            Broken: the catalog of the lake cannot be read.

        Example:
            >>> Lake.open("orders-data/lake").close()
        """
        root = _root(location)
        catalog = open_catalog(root, namespace, region=region, endpoint_url=endpoint_url)
        return cls(root, catalog, Files(region, endpoint_url), namespace)

    @classmethod
    def find(
        cls, location: str, *, namespace: str = NAMESPACE, region: str | None = None, endpoint_url: str | None = None
    ) -> Self | None:
        """Opens a lake. Returns None if there is none, and creates nothing.

        Raises:
            Broken: the catalog of the lake cannot be read.

        Example:
            >>> Lake.find("nowhere") is None
            True
        """
        root = _root(location)
        catalog = find_catalog(root, namespace, region=region, endpoint_url=endpoint_url)
        return None if catalog is None else cls(root, catalog, Files(region, endpoint_url), namespace)

    def close(self) -> None:
        """Closes the catalog.

        Raises nothing.

        Example:
            >>> Lake.open("orders-data/lake").close()
        """
        self.catalog.close()

    def ensure(self, name: str, schema: pa.Schema, *, partition: Sequence[str], sorted_by: Sequence[str]) -> None:
        """Creates the table if it does not exist. A file has one value of each column of the ``partition``, and its
        rows in the order of ``sorted_by``. Raises ``Broken`` if the table exists and has other columns."""
        try:
            table = self.table(name)
        except NotFound:
            table = self._create(name, schema, partition, sorted_by)
        columns = [field.name for field in table.schema().fields]
        if columns != schema.names:
            raise Broken(f"table {name} of the lake has the columns {columns}, this version writes {schema.names}")

    def table(self, name: str) -> Table:
        """Returns the Iceberg table of this name, as it is now.

        Raises:
            NotFound: there is no such table.
            Broken: the lake was copied or moved, and the table's files are elsewhere.

        Example:
            >>> with closing(Lake.open("orders-data/lake")) as lake:
            ...     lake.table("messages").scan(row_filter="subject == 'orders'").to_arrow().num_rows
            3
        """
        try:
            table = self.catalog.load_table((self.namespace, name))
        except NoSuchTableError as error:
            raise NotFound("table-unknown", f"there is no table {name!r} in {self.location}") from error
        expected = f"{self.location}/{name}"
        if table.location() != expected:
            raise Broken(
                f"this lake was copied or moved from {table.location()}; table {name} is expected in {expected}: put it"
                " back, or make another lake from the archive"
            )
        return table

    def tables(self) -> list[str]:
        """Lists the names of the tables, in order.

        Raises nothing.

        Example:
            >>> with closing(Lake.open("orders-data/lake")) as lake:
            ...     "messages" in lake.tables()
            True
        """
        return sorted(names[-1] for names in self.catalog.list_tables(self.namespace))

    def folder(self, name: str, run: str) -> str:
        """Returns the folder for the files of a run."""
        return f"{self.location}/{name}/data/{run}"

    def properties(self, name: str) -> dict[str, str]:
        """Returns the properties of the table; empty before the first commit. Raises ``Broken`` if they are lost: a
        job that took the table for an empty one would add its rows again."""
        return _checked_properties(self.table(name))

    def table_progress(self, name: str) -> TableProgress:
        """Returns how far the table holds the archive; an empty progress if the table does not exist yet."""
        try:
            return TableProgress.of(self.properties(name))
        except NotFound:
            return TableProgress()

    def last_manifest(self, name: str) -> int:
        """Returns the number of the last manifest that the table holds; -1 for none."""
        return self.table_progress(name).last_manifest

    def newest_progress(self) -> TableProgress:
        """Returns the progress of the table that holds most of the archive."""
        return max(map(self.table_progress, SCHEMAS), key=lambda progress: progress.last_manifest)

    def state(self, name: str) -> tuple[TableProgress, int]:
        """Returns the progress of the table and the number of its rows, both of one snapshot; an empty progress and 0
        if there is no such table."""
        try:
            table = self.table(name)
        except NotFound:
            return TableProgress(), 0
        return TableProgress.of(_checked_properties(table)), _rows_of(table)

    def read(
        self,
        spark: SparkSession,
        name: str,
        since: date | None = None,
        until: date | None = None,
        *,
        subjects: Collection[str] | None = None,
    ) -> DataFrame:
        """Reads the rows of a table whose ``day`` is in ``[since, until)``, in Spark; with ``subjects``, only the files
        of these subjects.

        Raises:
            NotFound: there is no such table.
            Broken: the lake was copied or moved.

        Example:
            >>> with closing(Lake.open("orders-data/lake")) as lake:
            ...     lake.read(spark, "messages", since=date(2023, 1, 1)).where("subject = 'orders'").count()
            3
        """
        table = self.table(name)
        bounds = [f"day >= '{since}'"] * (since is not None) + [f"day < '{until}'"] * (until is not None)
        wanted = parse(" and ".join(bounds)) if bounds else AlwaysTrue()
        if subjects is not None:
            wanted = And(wanted, In("subject", set(subjects)))  # type: ignore[call-arg,arg-type]  # mypy sees a model
        return frame_of(spark, table, [file.file_path for file in files_of(table.scan(row_filter=wanted))])

    def subjects(self, name: str, where: str) -> set[str]:
        """Returns the subjects with data files that may have rows for which a condition of Iceberg holds. Reads no data
        file."""
        try:
            table = self.table(name)
        except NotFound:
            return set()
        subject_field = layout_of(table).partition.index("subject")
        return {file.partition[subject_field] for file in files_of(table.scan(row_filter=where))}

    def subjects_of_rows(self, name: str, where: str) -> set[str]:
        """Returns the subjects of the rows for which a condition of Iceberg holds. Reads the columns of the condition,
        without Spark."""
        try:
            scan = self.table(name).scan(row_filter=where, selected_fields=("subject",))
        except NotFound:
            return set()
        files_of(scan)
        return {
            subject for batch in scan.to_arrow_batch_reader() for subject in pc.unique(batch["subject"]).to_pylist()
        }

    def size(self, names: Iterable[str]) -> int:
        """Returns the number of rows of these tables together, as their snapshots count them."""
        return sum(self._size(name) for name in names)

    def changed_ms(self, name: str) -> int | None:
        """Returns the time at which the table was last changed, in Unix milliseconds; None before the first change."""
        try:
            snapshot = self.table(name).current_snapshot()
        except NotFound:
            return None
        return None if snapshot is None else snapshot.timestamp_ms

    def _size(self, name: str) -> int:
        try:
            return _rows_of(self.table(name))
        except NotFound:
            return 0

    def rows(self, name: str, where: str | BooleanExpression, columns: Sequence[str] = ("*",)) -> pa.Table:
        """Reads the rows for which a condition of Iceberg holds, or some columns of them, without Spark, into memory.

        Raises:
            NotFound: there is no such table.
            Broken: the lake was copied or moved.

        Example:
            >>> with closing(Lake.open("orders-data/lake")) as lake:
            ...     lake.rows("messages", "subject == 'orders'").num_rows
            3
        """
        table = self.table(name)
        scan = table.scan(row_filter=where, selected_fields=tuple(columns))
        files_of(scan)
        return scan.to_arrow()

    def append(self, name: str, rows: DataFrame, *, size: int = 0, properties: Mapping[str, str] | None = None) -> None:
        """Writes the rows, about ``size`` bytes of files, and commits them."""
        table = self.table(name)
        folder = self.folder(name, SystemIds().token().hex())
        write(rows, folder, layout_of(table), task_bytes=share_of(rows.sparkSession, size), size=size)
        self.commit(name, added=[file.path for file in self.written(folder)], properties=properties)

    def written(self, folder: str) -> list[FoundFile]:
        """Returns the files with rows in the folder of a run."""
        # Spark also writes checksums and a file _SUCCESS.
        return [file for file in self.files.below(folder) if file.path.endswith(".parquet")]

    def commit(
        self,
        name: str,
        *,
        added: Sequence[str],
        removed: Sequence[DataFile] = (),
        properties: Mapping[str, str] | None = None,
        on: Mapping[str, str] | None = None,
        same_rows: bool = True,
    ) -> None:
        """Adds Parquet files, each with one value in each column of the partition, and removes others, in one commit.
        Properties that ``properties`` does not name stay. With ``on`` the table must have exactly these properties.

        Raises ``CommitConflict`` if the table has other properties, or no longer has a file of ``removed``. Raises
        ``Broken`` if the added files do not have as many rows as the removed ones, unless ``same_rows`` is false. After
        an error the table is unchanged."""
        table = self.table(name)
        try:
            described = _described(table, added)
        except FileNotFoundError as error:
            raise Broken(
                f"a file of table {name} was removed before its commit, or was never there: {error}"
            ) from error
        if removed and same_rows:
            _check_rows(name, described, removed)
        for _ in range(_TRIES):
            current = _properties_of(table)
            if on is not None and current != on:
                raise CommitConflict(f"table {name} was changed by another job")
            try:
                _commit(table, described, removed, {**current, **(properties or {})})
                return
            except ValidationException as error:
                raise CommitConflict(f"files of table {name} were removed by another job: {error}") from error
            except CommitFailedException:
                table = self.table(name)
        raise Unavailable(f"table {name} is being changed by many jobs at once: try again")

    def _create(self, name: str, schema: pa.Schema, partition: Sequence[str], sorted_by: Sequence[str]) -> Table:
        # Iceberg keeps bounds of these columns alone: queries choose files by them.
        columns = {f"write.metadata.metrics.column.{column}": "truncate(64)" for column in (*partition, *sorted_by)}
        try:
            with self.catalog.create_table_transaction(
                (self.namespace, name),
                schema=pa.schema([field.with_nullable(True) for field in schema]),  # as Spark reads them back
                location=f"{self.location}/{name}",
                properties=_PROPERTIES | columns,
            ) as transaction:
                with transaction.update_spec() as spec:
                    for column in partition:
                        spec.add_identity(column)
                with transaction.update_sort_order() as order:
                    for column in sorted_by:
                        order.asc(column, IdentityTransform())
                mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
                transaction.set_properties({"schema.name-mapping.default": mapping})
        except (TableAlreadyExistsError, CommitFailedException):
            pass  # another job was first
        return self.table(name)


def _root(location: str) -> str:
    """Returns the location as the tables spell it in the paths of their files: absolute, without a slash at the end."""
    return location.rstrip("/") if on_s3(location) else str(folder_of(location).resolve())


def files_of(scan: DataScan) -> list[DataFile]:
    """Returns the data files of the scan. Raises ``Broken`` if another engine deleted rows by delete files: the data
    files still have these rows, and Spark would read them."""
    tasks = list(scan.plan_files())
    deleted = [task.file.file_path for task in tasks if task.delete_files]
    if deleted:
        raise Broken(
            f"another engine has deleted rows of {deleted[0]} and {len(deleted) - 1} other files, and left the files as"
            " they are: have it rewrite them (write.delete.mode=copy-on-write)"
        )
    return [task.file for task in tasks]


def layout_of(table: Table) -> Layout:
    schema = table.schema()
    return Layout(
        partition=tuple(schema.find_field(field.source_id).name for field in table.spec().fields),
        sorted_by=tuple(schema.find_field(field.source_id).name for field in table.sort_order().fields),
    )


def frame_of(spark: SparkSession, table: Table, paths: Sequence[str]) -> DataFrame:
    """Returns the rows of these files of the table."""
    ddl = spark_ddl(schema_to_pyarrow(table.schema(), include_field_ids=False))
    if not paths:
        return spark.createDataFrame([], ddl)
    # Spark lists each file before it reads any, by default with a task for each file.
    tasks = _LISTINGS_PER_CORE * spark.sparkContext.defaultParallelism
    with configured(spark, {"spark.sql.sources.parallelPartitionDiscovery.parallelism": str(tasks)}):
        return spark.read.schema(ddl).parquet(*sorted(paths))


def _rows_of(table: Table) -> int:
    """Returns the number of rows of the table, as its snapshot counts them."""
    snapshot = table.current_snapshot()
    summary = None if snapshot is None else snapshot.summary
    return 0 if summary is None else int(summary.additional_properties.get("total-records", "0"))


def noted(table: Table) -> list[Snapshot]:
    """Returns the current snapshot and those before it, back to the last one with properties: other engines may
    write to the table, and do not repeat the properties."""
    snapshots: list[Snapshot] = []
    snapshot = table.current_snapshot()
    while snapshot is not None:
        snapshots.append(snapshot)
        if _notes_in(snapshot):
            break
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return snapshots


def _checked_properties(table: Table) -> dict[str, str]:
    """Returns the properties of the table. Raises ``Broken`` if the table has a snapshot and no properties."""
    properties = _properties_of(table)
    if not properties and table.current_snapshot() is not None:
        raise Broken(
            f"table {table.name()[-1]} of the lake does not say what it holds: another engine replaced it, or removed"
            " the snapshots that said so"
        )
    return properties


def _properties_of(table: Table) -> dict[str, str]:
    snapshots = noted(table)
    return _notes_in(snapshots[-1]) if snapshots else {}


def _notes_in(snapshot: Snapshot) -> dict[str, str]:
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    return {key: value for key, value in summary.items() if key.startswith(_NOTES)}


def _described(table: Table, paths: Sequence[str]) -> list[DataFile]:
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda path: parquet_file_to_data_file(table.io, table.metadata, path), paths))


def _check_rows(name: str, added: Sequence[DataFile], removed: Sequence[DataFile]) -> None:
    rows_added, rows_removed = (sum(file.record_count for file in files) for files in (added, removed))
    if rows_added != rows_removed:
        raise Broken(
            f"{len(removed)} files of table {name} have {rows_removed} rows, those in their place {rows_added}"
        )


def _commit(
    table: Table, added: Sequence[DataFile], removed: Sequence[DataFile], properties: Mapping[str, str]
) -> None:
    with table.transaction() as transaction:
        update = transaction.update_snapshot(snapshot_properties=dict(properties))
        with update.overwrite() if removed else update.merge_append() as snapshot:
            for file in added:
                snapshot.append_data_file(file)
            for file in removed:
                snapshot.delete_data_file(file)
