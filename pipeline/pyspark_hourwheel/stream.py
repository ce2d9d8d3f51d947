"""Reads the archive as a stream.

Spark 4.2 and newer pass the position of the stream and the limit of a batch when they ask for the latest offset. Older
versions pass neither. But after a restart they plan a batch (perhaps an empty one) before they ask, and for a new query
they plan none: so the last planned batch tells the position.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_hourwheel.columns import Window
from pyspark_hourwheel.manifest_cache import ManifestCache
from pyspark_hourwheel.options import Moment, StreamOptions
from pyspark_hourwheel.positions import StreamPosition
from pyspark_hourwheel.scanning import Slice, scan, slices_of
from pyspark_hourwheel.spark_compat import read_limit, rows_of, serves_available_now
from pyspark_hourwheel.subject_blocks import newest

_QUIET_MANIFESTS = 1_000
"""After this many manifests without a message of the subject an empty batch moves the position on: a restart reads all
manifests from the position on."""


class Remade(Exception):
    """The subject was deleted and created again. The message says what to do."""


@serves_available_now
class StreamReader(DataSourceStreamReader):
    """Reads every message of one generation of the subject once, in the order of the archive."""

    def __init__(self, options: StreamOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._cache: ManifestCache | None = None
        self._initial: StreamPosition | None = None
        self._planned: StreamPosition | None = None
        self._until_now = False
        self._looked = False

    def initialOffset(self) -> dict[str, int]:
        return self._begin().offset

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:
        if start is None:
            position = self._planned or self._begin()
            return self._end_of_batch(position, self._options.maxrowspertrigger).offset
        return self._end_of_batch(StreamPosition.of(start), rows_of(limit)).offset

    def getDefaultReadLimit(self) -> Any:
        return read_limit(self._options.maxrowspertrigger)

    def prepareForTriggerAvailableNow(self) -> None:
        self._until_now = True

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        first, last = StreamPosition.of(start), StreamPosition.of(end)
        if first.at > last.at:
            raise ValueError(f"format hourwheel: a batch cannot go back from {start} to {end}")
        self._planned = last
        if start == end:
            return []
        cache = self._cache_from(first)
        if cache.count <= last.manifest:
            cache.read_on()
        self._check_reaches(cache, last)
        window = Window(since_ms=last.since_ms)
        segments = [segment.of(last.generation) for segment in cache.after(first) if segment.at < last.at]
        return slices_of([segment for segment in segments if segment.within(window)], window)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Slice)
        return scan(self._options, self._schema, partition)

    def _begin(self) -> StreamPosition:
        """Returns the position at which a new query begins: the same on each call."""
        if self._initial is None:
            options = self._options
            cache = self._cache = ManifestCache(options)
            cache.read_on()
            cache.check()
            start = options.startingposition
            self._initial = StreamPosition(
                manifest=cache.count if start == "latest" else 0,
                segment_no=0,
                generation=cache.generation(),
                since_ms=start.ms if isinstance(start, Moment) else 0,
            )
        return self._initial

    def _end_of_batch(self, position: StreamPosition, rows: int | None) -> StreamPosition:
        """Returns the position at which a batch from ``position`` ends: after whole segments with at most ``rows``
        rows, but at least one segment. Returns ``position`` itself if nothing is new."""
        cache = self._cache_from(position)
        if not self._looked:
            cache.read_on()
            # With Trigger.AvailableNow the query ends with the manifests that it has seen at first.
            self._looked = self._until_now
        self._check_reaches(cache, position)
        generation = self._generation(position, cache)
        window = Window(since_ms=position.since_ms)
        end, taken = position, 0
        for segment in cache.after(position):
            own = segment.of(generation)
            if not own.within(window):
                continue
            if rows is not None and taken and taken + own.messages > rows:
                break
            end, taken = end.behind(segment), taken + own.messages
        if taken:
            return end._replace(generation=generation)
        self._check_same_subject(position, cache)
        quiet = cache.count - 1 - position.manifest > _QUIET_MANIFESTS
        return position._replace(manifest=cache.count, segment_no=0) if quiet else position

    def _cache_from(self, position: StreamPosition) -> ManifestCache:
        """Returns the cache, which begins at that position from then on."""
        if self._cache is None:
            self._cache = ManifestCache(self._options)
        self._cache.begin_at(position)
        return self._cache

    def _generation(self, position: StreamPosition, cache: ManifestCache) -> int:
        """Returns the generation to read: a query stays with the first one that it saw. Raises ``ValueError`` if the
        options name another one."""
        named = self._options.generation
        if named is not None and position.generation not in {0, named}:
            raise ValueError(
                f"format hourwheel: this query reads generation {position.generation} of subject"
                f" {self._options.subject!r}: for generation {named} start a new one, with a new checkpoint"
            )
        return position.generation or named or newest(cache.after(position))

    def _check_same_subject(self, position: StreamPosition, cache: ManifestCache) -> None:
        """Raises ``Remade`` if the archive has a newer generation. Call it once nothing of this one is left to read."""
        later = newest(cache.after(position))
        if self._options.generation is None and later > position.generation > 0:
            raise Remade(
                f"subject {self._options.subject!r} was deleted and created again: all of its generation"
                f" {position.generation} is read. For generation {later} start a new query, with a new checkpoint"
            )

    def _check_reaches(self, cache: ManifestCache, position: StreamPosition) -> None:
        if position.manifest > cache.count or (position.manifest == cache.count and position.segment_no):
            raise ValueError(
                f"format hourwheel: the archive at {self._options.archive} ends before manifest {position.manifest},"
                " which the checkpoint of this query names: is it another archive?"
            )
