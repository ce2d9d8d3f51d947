"""Reads the rows of segments. Each function raises ``Corrupt``, with the key of the segment, when a segment is missing
or is not what its manifest says; as a rule before it yields any row."""

import zlib
from collections.abc import Callable, Iterator
from typing import TypeVar

from hourwheel.archive.blocks import (
    Entry,
    RegistrySnapshot,
    decode_dispatches,
    decode_messages,
    decode_pulls,
    decode_registry,
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
    """Yields for each row its log, its entry, and the messages that the archive has of it."""
    for block in _blocks(archive, segment, decode_messages):
        messages, at = block.columns.messages(block.present), 0
        for entry in block.entries:
            yield block.logs[entry.log], entry, messages[at : at + entry.present]
            at += entry.present


def entries(archive: Blobs, segment: Segment) -> Iterator[tuple[str, Entry]]:
    """Yields for each row of messages its log and its entry, without the messages."""
    for block in _blocks(archive, segment, decode_messages):
        yield from ((block.logs[entry.log], entry) for entry in block.entries)


def pull_rows(archive: Blobs, segment: Segment) -> Iterator[tuple[str, int, PullRow]]:
    """Yields for each pull row its partition, its number and its content."""
    for block in _blocks(archive, segment, decode_pulls):
        yield from ((block.logs[log], row_no, pull) for log, row_no, pull in block.rows)


def dispatch_rows(archive: Blobs, segment: Segment) -> Iterator[tuple[str, int, Dispatched]]:
    """Yields for each dispatch row its bucket, its number and its content."""
    for block in _blocks(archive, segment, decode_dispatches):
        yield from ((block.logs[log], row_no, dispatched) for log, row_no, dispatched in block.rows)


def registry_snapshots(archive: Blobs, segment: Segment) -> Iterator[RegistrySnapshot]:
    return _blocks(archive, segment, decode_registry)


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
