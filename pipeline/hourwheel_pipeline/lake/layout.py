"""Lays out a table: the order of rows in its files, and the columns of which Iceberg keeps the bounds of each file.

The tables have no partition of Iceberg: a file has one value of it, and could not have the rows of several days or
subjects. A query chooses files by their bounds instead.
"""

from typing import Final, NamedTuple

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

_METRICS: Final = "write.metadata.metrics.column."
_PROPERTIES: Final = {
    # A job that is overtaken reads the table again before it tries again: no retry in the library.
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    # A query reads each manifest of the table: an append merges them from this number on.
    "commit.manifest.min-count-to-merge": "20",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    # Metrics of bodies would be larger than all others together, and no query filters by body.
    "write.metadata.metrics.default": "none",
}


class Layout(NamedTuple):
    """The rows of a file are in the order of ``sorted_by``. Iceberg keeps bounds of ``day``, of these columns, and of
    ``bounded``."""

    sorted_by: tuple[str, ...]
    bounded: tuple[str, ...] = ()

    @property
    def properties(self) -> dict[str, str]:
        # Cut off after 64 characters: a key may have 1 MB.
        return _PROPERTIES | {f"{_METRICS}{column}": "truncate(64)" for column in self.columns}

    @property
    def columns(self) -> set[str]:
        return {"day", *self.sorted_by, *self.bounded}


def sort_columns(table: Table) -> tuple[str, ...]:
    """Returns the columns by which the rows of a file are sorted."""
    schema = table.schema()
    return tuple(schema.find_field(field.source_id).name for field in table.sort_order().fields)


def is_laid_out(table: Table, layout: Layout) -> bool:
    """Returns whether the table has this layout."""
    properties = layout.properties
    return (
        table.spec().is_unpartitioned()
        and sort_columns(table) == layout.sorted_by
        and properties.items() <= table.properties.items()
    )


def create(catalog: Catalog, name: tuple[str, str], schema: pa.Schema, location: str, layout: Layout) -> None:
    """Creates the table, or leaves it to another job that was first."""
    try:
        with catalog.create_table_transaction(
            name,
            schema=pa.schema([field.with_nullable(True) for field in schema]),  # as Spark reads them back
            location=location,
            properties=layout.properties,
        ) as transaction:
            with transaction.update_sort_order() as order:
                for column in layout.sorted_by:
                    order.asc(column, IdentityTransform())
            mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
            transaction.set_properties({"schema.name-mapping.default": mapping})
    except (TableAlreadyExistsError, CommitFailedException):
        pass


def lay_out(table: Table, layout: Layout) -> None:
    """Gives the table this layout for the files that are written from now on, in one commit. The files that it has stay
    readable as they are; ``maintain`` merges them into files of the new layout. Does nothing if another job was
    first."""
    try:
        with table.transaction() as transaction:
            with transaction.update_spec() as spec:
                for field in table.spec().fields:
                    spec.remove_field(field.name)
            if sort_columns(table) != layout.sorted_by:
                with transaction.update_sort_order() as order:
                    for column in layout.sorted_by:
                        order.asc(column, IdentityTransform())
            transaction.set_properties(layout.properties)
    except CommitFailedException:
        pass
