"""Reads the archive as a batch."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from hourwheel_pipeline.archive_rows.workers import forget_zip_finders
from pyspark_hourwheel.columns import Window
from pyspark_hourwheel.manifest_cache import ManifestCache
from pyspark_hourwheel.options import BatchOptions, Bound, Moment, Number
from pyspark_hourwheel.scanning import Slice, scan, slices_of


class BatchReader(DataSourceReader):
    """Reads the messages that are in the archive when the query is planned, of one generation of the subject: the
    newest one with archived messages, unless the options name another."""

    def __init__(self, options: BatchOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Returns at least one partition: without any, Spark would read one of its own."""
        forget_zip_finders()
        options = self._options
        window = window_of(options.start, options.end)
        cache = ManifestCache(options)
        cache.read_on()
        cache.check()
        generation = cache.generation()
        segments = [own for segment in cache.segments if (own := segment.of(generation)).within(window)]
        return slices_of(segments, window) or [Slice((), window)]

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
