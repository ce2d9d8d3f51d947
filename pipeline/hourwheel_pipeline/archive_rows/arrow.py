"""Converts segments of the archive to Arrow, block by block."""

from collections.abc import Callable, Iterator

import pyarrow as pa

from hourwheel.archive import segments
from hourwheel.errors import Corrupt
from hourwheel_pipeline.archive_rows.dispatch_rows import dispatch_rows
from hourwheel_pipeline.archive_rows.message_rows import message_rows
from hourwheel_pipeline.archive_rows.pull_rows import pull_rows
from hourwheel_pipeline.lake.schemas import DISPATCHES, MESSAGES, PULLS

_READERS: dict[str, Callable[[memoryview, int], Iterator[pa.RecordBatch]]] = {
    MESSAGES: message_rows,
    PULLS: pull_rows,
    DISPATCHES: dispatch_rows,
}


def batches(kind: str, segment: bytes, manifest: int) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a segment, one batch or more for each block. Raises ``Corrupt``, as a rule before the first
    batch."""
    contents = memoryview(segment)
    for extent in segments.blocks_of(segment, kind):
        block = contents[extent.offset : extent.offset + extent.length]
        try:
            yield from _READERS[kind](block, manifest)
        except (pa.ArrowException, OverflowError, ValueError) as error:
            raise Corrupt(f"block at {extent.offset} contains a value that no column can hold: {error}") from error
