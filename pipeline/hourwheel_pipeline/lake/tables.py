"""Keeps the lake: Iceberg tables, whose data Spark writes and the driver commits.

    {lake}/catalog.db                          the catalog, on one machine; in the cloud it is Glue's
    {lake}/{table}/data/{run}/…/*.parquet      a run's files, whether or not a commit names them
    {lake}/{table}/metadata/…                  Iceberg's
    {lake}/last-runs/{job}.json                the result of a job's last run: ``jobs/last_runs.py``
    {lake}/last-runs/reconcile-repeated.json   the last report of ``reconcile``, repeated by runs with nothing new

A table keeps *properties* in the summary of its current snapshot, under keys that begin with ``hourwheel.``. So the
properties always describe the rows of that snapshot, also after a roll-back to an earlier one. Each commit repeats the
properties, and succeeds only on the snapshot that it was made from.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, ValidationException
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, In
from pyiceberg.expressions.parser import parse
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from hourwheel.errors import Broken, HourwheelError, NotFound, Unavailable
from hourwheel.system import SystemIds
from hourwheel_pipeline.lake.catalogs import find_catalog, open_catalog
from hourwheel_pipeline.lake.commits import TRIES, check_rows, commit, described_files
from hourwheel_pipeline.lake.data_files import files_of, frame_of
from hourwheel_pipeline.lake.layout import Layout, create, is_laid_out, lay_out, sort_columns
from hourwheel_pipeline.lake.locations import Files, FoundFile, folder_of, on_s3
from hourwheel_pipeline.lake.schemas import SCHEMAS
from hourwheel_pipeline.lake.snapshots import checked_properties, properties_of, rows_of
from hourwheel_pipeline.lake.table_progress import TableProgress
from hourwheel_pipeline.lake.writing import share_of, write

NAMESPACE = "hourwheel"


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

    def ensure(self, name: str, schema: pa.Schema, *, sorted_by: Sequence[str], bounded: Sequence[str] = ()) -> None:
        """Creates the table if it does not exist, or gives it this layout if it has another. The rows of a file are in
        the order of ``sorted_by``, and queries choose files by ``day``, by these columns and by ``bounded``. Raises
        ``Broken`` if the table exists and has other columns."""
        layout = Layout(tuple(sorted_by), tuple(bounded))
        try:
            table = self.table(name)
        except NotFound:
            location = f"{self.location}/{name}"
            create(self.catalog, (self.namespace, name), schema, location, layout)
            table = self.table(name)
        columns = [field.name for field in table.schema().fields]
        if columns != schema.names:
            raise Broken(f"table {name} of the lake has the columns {columns}, this version writes {schema.names}")
        for _ in range(TRIES):
            if is_laid_out(table, layout):
                return
            lay_out(table, layout)
            table = self.table(name)
        raise Unavailable(f"table {name} is being changed by many jobs at once: try again")

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
        return checked_properties(self.table(name))

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
        return TableProgress.of(checked_properties(table)), rows_of(table)

    def read(
        self,
        spark: SparkSession,
        name: str,
        since: date | None = None,
        until: date | None = None,
        *,
        subjects: Collection[str] | None = None,
        where: str | None = None,
    ) -> DataFrame:
        """Reads the rows of a table whose ``day`` is in ``[since, until)``, in Spark; with ``subjects``, only the rows
        of these subjects. Passes over the files of which no row can meet the condition ``where`` of Iceberg.

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
        if where is not None:
            wanted = And(wanted, parse(where))
        rows = frame_of(spark, table, [file.file_path for file in files_of(table.scan(row_filter=wanted))])
        # A file may have rows of other days and subjects too.
        for bound in bounds:
            rows = rows.where(bound)
        return rows if subjects is None else rows.where(fn.col("subject").isin(list(subjects)))

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
            return rows_of(self.table(name))
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
        write(rows, folder, sort_columns(table), task_bytes=share_of(rows.sparkSession, size), size=size)
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
        """Adds Parquet files and removes others, in one commit.
        Properties that ``properties`` does not name stay. With ``on`` the table must have exactly these properties.

        Raises ``CommitConflict`` if the table has other properties, or no longer has a file of ``removed``. Raises
        ``Broken`` if the added files do not have as many rows as the removed ones, unless ``same_rows`` is false. After
        an error the table is unchanged."""
        table = self.table(name)
        try:
            described = described_files(table, added)
        except FileNotFoundError as error:
            raise Broken(
                f"a file of table {name} was removed before its commit, or was never there: {error}"
            ) from error
        if removed and same_rows:
            check_rows(name, described, removed)
        for _ in range(TRIES):
            current = properties_of(table)
            if on is not None and current != on:
                raise CommitConflict(f"table {name} was changed by another job")
            try:
                commit(table, described, removed, {**current, **(properties or {})})
                return
            except ValidationException as error:
                raise CommitConflict(f"files of table {name} were removed by another job: {error}") from error
            except CommitFailedException:
                table = self.table(name)
        raise Unavailable(f"table {name} is being changed by many jobs at once: try again")


def _root(location: str) -> str:
    """Returns the location as the tables spell it in the paths of their files: absolute, without a slash at the end."""
    return location.rstrip("/") if on_s3(location) else str(folder_of(location).resolve())
