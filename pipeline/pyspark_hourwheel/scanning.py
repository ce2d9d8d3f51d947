"""Does the work of a task: reads segments, and builds columns from the messages in them."""

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from hourwheel.archive.blocks import decode_messages
from hourwheel.archive.reading import read_segment
from hourwheel.archive.segments import blocks_of
from hourwheel.errors import Corrupt
from hourwheel.retention.kinds import MESSAGES
from hourwheel_pipeline.locations import blobs_at
from hourwheel_pipeline.reading import Work
from pyspark_hourwheel.columns import Window, batch_of
from pyspark_hourwheel.options import ReadOptions
from pyspark_hourwheel.subject_blocks import SubjectSegment

_logger = logging.getLogger("hourwheel")

_SLICE_BYTES = 8 << 20
_SLICE_SEGMENTS = 64
"""A task reads at most this much, one segment after the other: segments of a quiet archive are small, and a task costs
some 20 ms, about the time to fetch one segment."""


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
    """Divides the segments among tasks, in their order."""
    slices: list[Slice] = []
    parts: list[Part] = []
    size = 0
    for segment in segments:
        if parts and (size + segment.work.bytes > _SLICE_BYTES or len(parts) == _SLICE_SEGMENTS):
            slices.append(Slice(tuple(parts), window))
            parts, size = [], 0
        parts.append(Part(segment.work, {stretch.log: stretch.queue for stretch in segment.stretches}))
        size += segment.work.bytes
    if parts:
        slices.append(Slice(tuple(parts), window))
    return slices


def scan(options: ReadOptions, schema: pa.Schema, share: Slice) -> Iterator[pa.RecordBatch]:
    """Yields the messages of a slice. For a segment or block that cannot be read, raises ``UnreadableSegment``, or with
    ``onDamage=skip`` logs an error in the worker and goes on."""
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
                batch = batch_of(decode_messages(block), options.subject, part.queues, share.window, schema)
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
