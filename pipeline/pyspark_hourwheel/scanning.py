"""What a task does: it reads segments, and makes columns of the messages in them."""

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from hourwheel.archive.blocks import decode_messages
from hourwheel.archive.segments import blocks_of
from hourwheel.errors import Corrupt
from hourwheel.retention.kinds import MESSAGES
from hourwheel_pipeline.locations import blobs_at
from hourwheel_pipeline.reading import Work, read_segment
from pyspark_hourwheel.columns import Window, batch_of
from pyspark_hourwheel.options import ArchiveOptions
from pyspark_hourwheel.subject_blocks import Piece

_logger = logging.getLogger("hourwheel")

_SLICE_BYTES = 8 << 20
_SLICE_SEGMENTS = 64
"""One task reads so much, one segment after the other: those of a quiet archive are small, and a task costs some 20 ms,
about as long as it takes to fetch one."""


class Damaged(Exception):
    """A segment of the archive cannot be read. Says which, and what to do."""


class Part(NamedTuple):
    """A segment, and the queues whose rows in it are wanted: their numbers by their logs."""

    work: Work
    queues: dict[str, int]


class Slice(InputPartition):
    """The share of one task: where to read, nothing of what is there."""

    def __init__(self, parts: tuple[Part, ...], window: Window) -> None:
        self.parts = parts
        self.window = window


def slices_of(pieces: Sequence[Piece], window: Window) -> list[Slice]:
    """The pieces dealt out, in their order."""
    found: list[Slice] = []
    parts: list[Part] = []
    size = 0
    for piece in pieces:
        if parts and (size + piece.work.bytes > _SLICE_BYTES or len(parts) == _SLICE_SEGMENTS):
            found.append(Slice(tuple(parts), window))
            parts, size = [], 0
        parts.append(Part(piece.work, {one.log: one.queue for one in piece.stretches}))
        size += piece.work.bytes
    if parts:
        found.append(Slice(tuple(parts), window))
    return found


def scan(options: ArchiveOptions, schema: pa.Schema, one: Slice) -> Iterator[pa.RecordBatch]:
    """The wanted messages of a slice. What cannot be read raises ``Damaged``, or is named in the log of the worker."""
    archive = blobs_at(options.archive, options.region, options.endpoint)
    for part in one.parts:
        try:
            data = read_segment(archive, part.work)
            extents = blocks_of(data, MESSAGES)
        except Corrupt as error:
            _give_up(part.work.key, error, options)
            continue
        for extent in extents:
            block = memoryview(data)[extent.offset : extent.offset + extent.length]
            try:
                batch = batch_of(decode_messages(block), options.subject, part.queues, one.window, schema)
            except Corrupt as error:
                _give_up(f"{part.work.key}, block at {extent.offset},", error, options)
                continue
            if batch is not None:
                yield batch


def _give_up(what: str, error: Exception, options: ArchiveOptions) -> None:
    if options.ondamage == "fail":
        raise Damaged(
            f"{what} of archive {options.archive} cannot be read: {error}. Put it back from a copy, or read on without"
            " it with the option onDamage=skip"
        ) from error
    _logger.error("left out %s of archive %s, which cannot be read: %s", what, options.archive, error)
