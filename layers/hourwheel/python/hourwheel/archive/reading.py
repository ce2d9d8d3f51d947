"""Reads segments and their rows. ``read_segment`` checks a segment against its manifest, for the library and for the
jobs of the pipeline. The other functions raise ``Corrupt`` with the key of the segment, as a rule before any row.
"""

import zlib
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from hourwheel.archive.blocks import (
    Entry,
    RegistrySnapshot,
    decode_dispatches,
    decode_messages,
    decode_ordered_pulls,
    decode_registry,
)
from hourwheel.archive.segments import blocks_of
from hourwheel.delay.ownership import Dispatched
from hourwheel.errors import Corrupt, NotFound
from hourwheel.model.messages import Message
from hourwheel.ports.storage import Blobs
from hourwheel.pull_log.ordered_rows import OrderedRow

T = TypeVar("T")


class NamedSegment(Protocol):
    """The facts about a segment in a manifest."""

    @property
    def key(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def bytes(self) -> int: ...

    @property
    def checksum(self) -> int: ...


def read_segment(archive: Blobs, segment: NamedSegment) -> bytes:
    """Reads a segment. Raises ``Corrupt`` with the reason if it is missing, or has another size or checksum."""
    try:
        data = archive.get(segment.key)
    except NotFound:
        raise Corrupt("segment is missing") from None
    if len(data) != segment.bytes:
        raise Corrupt(f"segment has {len(data)} bytes, its manifest says {segment.bytes}")
    if zlib.crc32(data) != segment.checksum:
        raise Corrupt("segment fails its checksum")
    return data


def message_rows(archive: Blobs, segment: NamedSegment) -> Iterator[tuple[str, Entry, list[Message]]]:
    """Yields for each row its log, its entry, and the messages that the archive has of it."""
    for block in _blocks(archive, segment, decode_messages):
        messages, start = block.columns.messages(block.present), 0
        for entry in block.entries:
            yield block.logs[entry.log], entry, messages[start : start + entry.present]
            start += entry.present


def entries(archive: Blobs, segment: NamedSegment) -> Iterator[tuple[str, Entry]]:
    """Yields for each row of messages its log and its entry, without the messages."""
    for block in _blocks(archive, segment, decode_messages):
        yield from ((block.logs[entry.log], entry) for entry in block.entries)


def pull_rows(archive: Blobs, segment: NamedSegment) -> Iterator[tuple[str, int, OrderedRow]]:
    """Yields for each pull row its partition, its number and its content. Rows of unordered groups have no order."""
    for rows in _blocks(archive, segment, decode_ordered_pulls):
        yield from rows


def dispatch_rows(archive: Blobs, segment: NamedSegment) -> Iterator[tuple[str, int, Dispatched]]:
    """Yields for each dispatch row its bucket, its number and its content."""
    for block in _blocks(archive, segment, decode_dispatches):
        yield from ((block.logs[log], row_no, dispatched) for log, row_no, dispatched in block.rows)


def registry_snapshots(archive: Blobs, segment: NamedSegment) -> Iterator[RegistrySnapshot]:
    """Yields the subjects and groups of each block."""
    return _blocks(archive, segment, decode_registry)


def _blocks(archive: Blobs, segment: NamedSegment, decode: Callable[[bytes], T]) -> Iterator[T]:
    try:
        data = read_segment(archive, segment)
        for extent in blocks_of(data, segment.kind):
            yield decode(data[extent.offset : extent.offset + extent.length])
    except Corrupt as error:
        raise Corrupt(f"{segment.key}: {error}") from error
