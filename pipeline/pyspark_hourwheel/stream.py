"""Reads the archive as it grows.

Spark 4.2 and newer say where the stream stands and how much they want when they ask how far to go. Older ones do not:
but after a restart they plan a batch before they ask, be it an empty one, and of a new query they plan none before.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_hourwheel.columns import Window
from pyspark_hourwheel.manifest_cache import ManifestCache
from pyspark_hourwheel.options import Moment, StreamOptions
from pyspark_hourwheel.positions import Position
from pyspark_hourwheel.scanning import Slice, scan, slices_of
from pyspark_hourwheel.spark_compat import read_limit, rows_of, serves_available_now
from pyspark_hourwheel.subject_blocks import newest

_QUIET_MANIFESTS = 1_000
"""So many without a message of the subject are passed by in an empty batch: after a restart all of them are read."""


class Remade(Exception):
    """The subject was deleted and made again. Says what to do."""


@serves_available_now
class StreamReader(DataSourceStreamReader):
    """Every message of one generation of the subject once, in the order in which they were archived."""

    def __init__(self, options: StreamOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._trail: ManifestCache | None = None
        self._initial: Position | None = None
        self._planned: Position | None = None
        self._until_now = False
        self._looked = False

    def initialOffset(self) -> dict[str, int]:
        return self._begin().offset

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:
        if start is None:
            position = self._planned or self._begin()
            return self._end_of_batch(position, self._options.maxrowspertrigger).offset
        return self._end_of_batch(Position.of(start), rows_of(limit)).offset

    def getDefaultReadLimit(self) -> Any:
        return read_limit(self._options.maxrowspertrigger)

    def prepareForTriggerAvailableNow(self) -> None:
        self._until_now = True

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        first, last = Position.of(start), Position.of(end)
        if first.at > last.at:
            raise ValueError(f"format hourwheel: a batch cannot go back from {start} to {end}")
        self._planned = last
        if start == end:
            return []
        trail = self._along(first)
        if trail.known <= last.manifest:
            trail.read_on()
        self._check_reaches(trail, last)
        window = Window(since_ms=last.since_ms)
        pieces = [piece.of(last.generation) for piece in trail.after(first) if piece.at < last.at]
        return slices_of([piece for piece in pieces if piece.within(window)], window)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Slice)
        return scan(self._options, self._schema, partition)

    def _begin(self) -> Position:
        """Where a new query begins; the same whenever it is asked."""
        if self._initial is None:
            options = self._options
            trail = self._trail = ManifestCache(options)
            trail.read_on()
            trail.check()
            start = options.startingposition
            self._initial = Position(
                manifest=trail.known if start == "latest" else 0,
                place=0,
                generation=trail.generation(),
                since_ms=start.ms if isinstance(start, Moment) else 0,
            )
        return self._initial

    def _end_of_batch(self, position: Position, rows: int | None) -> Position:
        """How far a batch from that position goes: whole segments, as many as have so many rows, and one at least. The
        position itself where nothing is new."""
        trail = self._along(position)
        if not self._looked:
            trail.read_on()
            self._looked = self._until_now
        self._check_reaches(trail, position)
        generation = self._generation(position, trail)
        window = Window(since_ms=position.since_ms)
        end, taken = position, 0
        for piece in trail.after(position):
            own = piece.of(generation)
            if not own.within(window):
                continue
            if rows is not None and taken and taken + own.messages > rows:
                break
            end, taken = end.behind(piece), taken + own.messages
        if taken:
            return end._replace(generation=generation)
        self._check_same_subject(position, trail)
        quiet = trail.known - 1 - position.manifest > _QUIET_MANIFESTS
        return position._replace(manifest=trail.known, place=0) if quiet else position

    def _along(self, position: Position) -> ManifestCache:
        """The trail from that position on."""
        if self._trail is None:
            self._trail = ManifestCache(self._options)
        self._trail.begin_at(position)
        return self._trail

    def _generation(self, position: Position, trail: ManifestCache) -> int:
        """Which one is read: the first that was seen is kept."""
        wanted = self._options.generation
        if wanted is not None and position.generation not in {0, wanted}:
            raise ValueError(
                f"format hourwheel: this query reads generation {position.generation} of subject"
                f" {self._options.subject!r}: for generation {wanted} start a new one, with a new checkpoint"
            )
        return position.generation or wanted or newest(trail.after(position))

    def _check_same_subject(self, position: Position, trail: ManifestCache) -> None:
        """Nothing of the generation is left to read: is there a newer one?"""
        later = newest(trail.after(position))
        if self._options.generation is None and later > position.generation > 0:
            raise Remade(
                f"subject {self._options.subject!r} was deleted and made again: all of its generation"
                f" {position.generation} is read. For generation {later} start a new query, with a new checkpoint"
            )

    def _check_reaches(self, trail: ManifestCache, position: Position) -> None:
        if position.manifest > trail.known or (position.manifest == trail.known and position.place):
            raise ValueError(
                f"format hourwheel: the archive at {self._options.archive} ends before manifest {position.manifest},"
                " which the checkpoint of this query names: is it another archive?"
            )
