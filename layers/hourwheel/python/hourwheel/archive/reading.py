"""The rows of segments, read back. Raises ``Corrupt`` with the key of a segment that is not what its manifest says, as
a rule before any of its rows is given."""

import zlib
from collections.abc import Callable, Iterator
from typing import TypeVar

from hourwheel.archive.blocks import (
    Catalog,
    Entry,
    decode_catalog,
    decode_dispatches,
    decode_messages,
    decode_pulls,
)
from hourwheel.archive.segments import blocks_of
from hourwheel.delay.ownership import Dispatched
from hourwheel.errors import Corrupt, NotFound
from hourwheel.model import Message
from hourwheel.ports import Blobs
from hourwheel.queueing.records import PullRow
from hourwheel.retention.manifests import Segment

T = TypeVar("T")


def message_rows(archive: Blobs, segment: Segment) -> Iterator[tuple[str, Entry, list[Message]]]:
    """Log, row, and those of its messages that are held."""
    for block in _blocks(archive, segment, decode_messages):
        messages, at = block.columns.messages(block.held), 0
        for entry in block.entries:
            yield block.logs[entry.log], entry, messages[at : at + entry.held]
            at += entry.held


def entries(archive: Blobs, segment: Segment) -> Iterator[tuple[str, Entry]]:
    """The same without the messages."""
    for block in _blocks(archive, segment, decode_messages):
        yield from ((block.logs[entry.log], entry) for entry in block.entries)


def pull_rows(archive: Blobs, segment: Segment) -> Iterator[tuple[str, int, PullRow]]:
    """Partition, row, and what it says."""
    for block in _blocks(archive, segment, decode_pulls):
        yield from ((block.logs[log], row, pull) for log, row, pull in block.rows)


def dispatch_rows(archive: Blobs, segment: Segment) -> Iterator[tuple[str, int, Dispatched]]:
    """Bucket, row, and what it says."""
    for block in _blocks(archive, segment, decode_dispatches):
        yield from ((block.logs[log], row, dispatched) for log, row, dispatched in block.rows)


def catalogs(archive: Blobs, segment: Segment) -> Iterator[Catalog]:
    return _blocks(archive, segment, decode_catalog)


def _blocks(archive: Blobs, segment: Segment, decode: Callable[[bytes], T]) -> Iterator[T]:
    try:
        data = archive.get(segment.key)
    except NotFound as error:
        raise Corrupt(f"segment {segment.key} is missing") from error
    if (len(data), zlib.crc32(data)) != (segment.bytes, segment.checksum):
        raise Corrupt(f"segment {segment.key} is not what was written: it has {len(data)} bytes of {segment.bytes}")
    try:
        for extent in blocks_of(data, segment.kind):
            yield decode(data[extent.offset : extent.offset + extent.length])
    except Corrupt as error:
        raise Corrupt(f"segment {segment.key}: {error}") from error
