"""Builds archives of the subject ``orders``, and reads them with the data source."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from hourwheel.adapters.files import FileBlobs
from hourwheel.model.messages import Message
from pyspark_hourwheel.batch import BatchReader
from pyspark_hourwheel.columns import SCHEMA
from pyspark_hourwheel.options import BatchOptions, read_options
from pyspark_hourwheel.scanning import Slice
from tests.pipeline.archives import ArchiveBuilder

NOON_MS = 1_763_640_000_000
HOUR_MS = 3_600_000


class Orders:
    """An archive with rows of messages, of which the caller chooses the bodies."""

    def __init__(self, folder: Path, block_rows: int = 100) -> None:
        self.folder = folder
        self.blobs = FileBlobs(folder)
        self.builder = ArchiveBuilder(self.blobs, block_rows=block_rows)

    def add(
        self, *bodies: str, queue: int = 0, generation: int = 1, at_ms: int = NOON_MS, subject: str = "orders"
    ) -> None:
        """Adds a row of one queue for the next manifest."""
        messages = [Message(body=body, id=f"id-{body}") for body in bodies]
        self.builder.row(f"{subject}~{generation}/{queue}", messages, at_ms)

    def archive(self, *bodies: str, **where: Any) -> None:
        """Adds a row of one queue, and commits a manifest."""
        self.add(*bodies, **where)
        self.builder.commit()

    def segments(self) -> list[str]:
        return self.blobs.list("segments/")

    def damage(self, key: str, change: Any) -> None:
        """Replaces the bytes of a segment; None removes the segment."""
        data = self.blobs.get(key)
        self.blobs.delete(key)
        changed = change(data)
        if changed is not None:
            self.blobs.put(key, changed)


def read(spark: SparkSession, orders: Orders, **options: Any) -> DataFrame:
    reader = spark.read.format("hourwheel").option("archive", str(orders.folder))
    return reader.options(**{"subject": "orders", **options}).load()


def reader_of(orders: Orders, **options: str) -> BatchReader:
    given = {"archive": str(orders.folder), "subject": "orders", **options}
    return BatchReader(read_options(BatchOptions, given), SCHEMA)


def scanned(orders: Orders, **options: str) -> list[str]:
    """Returns the bodies of a batch that is read without Spark, in the order of its partitions."""
    reader = reader_of(orders, **options)
    return bodies_of(reader, reader.partitions())


def bodies_of(reader: Any, partitions: Sequence[Any]) -> list[str]:
    assert all(isinstance(partition, Slice) for partition in partitions)
    batches: Iterable[Any] = (batch for partition in partitions for batch in reader.read(partition))
    return [body for batch in batches for body in batch.column("body").to_pylist()]


def moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat()
