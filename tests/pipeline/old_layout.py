"""Writes a lake as earlier versions did: each table partitioned by day and subject."""

from contextlib import closing

import pyarrow as pa
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from hourwheel_pipeline.lake.schemas import SCHEMAS
from hourwheel_pipeline.lake.tables import Lake
from tests.pipeline.lakes import IDENTITY

_PARTITION = ("day", "subject")


def write_old(spark: SparkSession, location: str, old: str) -> None:
    """Writes the rows and the notes of a lake into another one of the old layout."""
    with closing(Lake.open(location)) as given, closing(Lake.open(old)) as lake:
        for table in SCHEMAS:
            _create(lake, table)
            folder = lake.folder(table, "old")
            rows = given.read(spark, table).withColumns({f"_{name}": fn.col(name) for name in _PARTITION})
            rows.write.partitionBy("_day", "_subject").parquet(folder)
            paths = [file.path for file in lake.written(folder)]
            lake.commit(table, added=paths, properties=given.properties(table))


def _create(lake: Lake, table: str) -> None:
    order = tuple(name for name in IDENTITY[table] if name != "kind")
    bounds = {f"write.metadata.metrics.column.{name}": "truncate(64)" for name in (*_PARTITION, *order)}
    with lake.catalog.create_table_transaction(
        (lake.namespace, table),
        schema=pa.schema([field.with_nullable(True) for field in SCHEMAS[table]]),
        location=f"{lake.location}/{table}",
        properties={"write.metadata.metrics.default": "none", **bounds},
    ) as transaction:
        with transaction.update_spec() as spec:
            for column in _PARTITION:
                spec.add_identity(column)
        with transaction.update_sort_order() as sort:
            for column in order:
                sort.asc(column, IdentityTransform())
        mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({"schema.name-mapping.default": mapping})
