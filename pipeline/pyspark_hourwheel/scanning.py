"""Does the work of a task: reads segments, and builds columns from the messages in them."""

import logging
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from hourwheel.archive.blocks import decode_messages
from hourwheel.archive.reading import read_segment
from hourwheel.archive.segments import blocks_of
from hourwheel.errors import Corrupt
from hourwheel.retention.kinds import MESSAGES
from hourwheel_pipeline.archive_rows.compression import decompress
from hourwheel_pipeline.archive_rows.reading import Work
from hourwheel_pipeline.archive_rows.workers import forget_zip_finders
from hourwheel_pipeline.lake.locations import blobs_at
from pyspark_hourwheel.columns import Window, batch_of
from pyspark_hourwheel.options import ReadOptions
from pyspark_hourwheel.subject_blocks import SubjectSegment

_logger = logging.getLogger("hourwheel")

_SLICE_BYTES = 16 << 20
_SLICE_SEGMENTS = 64
"""A task reads about this much, and at most this many segments, one after the other. Segments of a quiet archive are
small, and a task costs some 50 ms, more than the time to fetch one segment."""

_LEAST_BYTES = 4 << 20
_LEAST_TASKS = 4
"""A read of less than ``_SLICE_BYTES`` for each of these tasks is divided as well, so that all cores of a small machine
have work, unless a task would get less than ``_LEAST_BYTES``."""


class UnreadableSegment(Exception):
    """A segment of the archive cannot be read. The message names the segment and what to do."""


class Part(NamedTuple):
    """A segment to read, and the numbers of the queues to read from it, by their logs."""

    work: Work
    queues: dict[str, int]


class Slice(InputPartition):
    """The share of one task: the segments to read, without their content."""

    def __init__(self, parts: tuple[Part, ...], window: Window) -> None:
        self.parts = parts
        self.window = window


def slices_of(segments: Sequence[SubjectSegment], window: Window) -> list[Slice]:
    """Divides the segments among tasks, in their order, into shares of about equal size."""
    parts = [Part(segment.work, {stretch.log: stretch.queue for stretch in segment.stretches}) for segment in segments]
    ends = list(accumulate(part.work.bytes for part in parts))
    count = _count_of(ends[-1]) if ends else 1
    numbered = [
        (int((end - part.work.bytes / 2) * count / ends[-1]), part) for part, end in zip(parts, ends, strict=True)
    ]
    shares = [[part for _, part in group] for _, group in groupby(numbered, key=itemgetter(0))]
    return [
        Slice(tuple(share[start : start + _SLICE_SEGMENTS]), window)
        for share in shares
        for start in range(0, len(share), _SLICE_SEGMENTS)
    ]


def _count_of(size: int) -> int:
    """Returns the number of tasks that read this many bytes."""
    return max(1, round(size / _SLICE_BYTES), min(_LEAST_TASKS, size // _LEAST_BYTES))


def scan(options: ReadOptions, schema: pa.Schema, share: Slice) -> Iterator[pa.RecordBatch]:
    """Yields the messages of a slice. For a segment or block that cannot be read, raises ``UnreadableSegment``, or with
    ``onDamage=skip`` logs an error in the worker and goes on."""
    forget_zip_finders()
    archive = blobs_at(options.archive, options.region, options.endpoint)
    for part in share.parts:
        try:
            data = read_segment(archive, part.work)
            extents = blocks_of(data, MESSAGES)
        except Corrupt as error:
            _give_up(part.work.key, error, options)
            continue
        for extent in extents:
            block = memoryview(data)[extent.offset : extent.offset + extent.length]
            try:
                batch = batch_of(decode_messages(block, decompress), options.subject, part.queues, share.window, schema)
            except Corrupt as error:
                _give_up(f"{part.work.key}, block at {extent.offset},", error, options)
                continue
            if batch is not None:
                yield batch


def _give_up(what: str, error: Exception, options: ReadOptions) -> None:
    if options.ondamage == "fail":
        raise UnreadableSegment(
            f"{what} of archive {options.archive} cannot be read: {error}. Put it back from a copy, or read on without"
            " it with the option onDamage=skip"
        ) from error
    _logger.error("left out %s of archive %s, which cannot be read: %s", what, options.archive, error)
