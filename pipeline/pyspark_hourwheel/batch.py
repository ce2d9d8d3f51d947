"""Reads the archive once."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_hourwheel.columns import Window
from pyspark_hourwheel.manifest_cache import ManifestCache
from pyspark_hourwheel.options import BatchOptions, Bound, Moment, Number
from pyspark_hourwheel.scanning import Slice, scan, slices_of


class BatchReader(DataSourceReader):
    """What is in the archive when the query is planned, of one generation of the subject: the newest one that has
    messages there, unless the options name another."""

    def __init__(self, options: BatchOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """One at least: Spark reads a partition of its own where there is none."""
        options = self._options
        window = window_of(options.start, options.end)
        trail = ManifestCache(options)
        trail.read_on()
        trail.check()
        generation = trail.generation()
        wanted = [piece for one in trail.pieces if (piece := one.of(generation)).within(window)]
        return slices_of(wanted, window) or [Slice((), window)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Slice)
        return scan(self._options, self._schema, partition)


def window_of(start: Bound | None, end: Bound | None) -> Window:
    return Window(
        first=start.number if isinstance(start, Number) else None,
        following=end.number if isinstance(end, Number) else None,
        since_ms=start.ms if isinstance(start, Moment) else None,
        until_ms=end.ms if isinstance(end, Moment) else None,
    )
