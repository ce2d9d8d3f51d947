"""Commits data files to a table: adds some and removes others in one snapshot."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from hourwheel.errors import Broken

TRIES = 50
"""Each conflict means that another commit succeeded: a job gives up only among very many."""

_THREADS = 16  # they read footers of files, and wait for storage


def described_files(table: Table, paths: Sequence[str]) -> list[DataFile]:
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda path: parquet_file_to_data_file(table.io, table.metadata, path), paths))


def check_rows(name: str, added: Sequence[DataFile], removed: Sequence[DataFile]) -> None:
    rows_added, rows_removed = (sum(file.record_count for file in files) for files in (added, removed))
    if rows_added != rows_removed:
        raise Broken(
            f"{len(removed)} files of table {name} have {rows_removed} rows, those in their place {rows_added}"
        )


def commit(table: Table, added: Sequence[DataFile], removed: Sequence[DataFile], properties: Mapping[str, str]) -> None:
    with table.transaction() as transaction:
        update = transaction.update_snapshot(snapshot_properties=dict(properties))
        with update.overwrite() if removed else update.merge_append() as snapshot:
            for file in added:
                snapshot.append_data_file(file)
            for file in removed:
                snapshot.delete_data_file(file)
