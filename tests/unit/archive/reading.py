"""Reads the contents of an archive from its objects alone."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from zlib import crc32

from hourwheel.archive import blocks, segments
from hourwheel.archive.blocks import Entry
from hourwheel.delay.ownership import Dispatched
from hourwheel.model.messages import Message
from hourwheel.ports.storage import Blobs
from hourwheel.pull_log.records import PullRow
from hourwheel.retention import chain, kinds, manifests


@dataclass
class Contents:
    """``rows``: how often each row of each log is there. ``messages``: by log, row and index."""

    rows: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    entries: dict[tuple[str, int], Entry] = field(default_factory=dict)
    messages: dict[tuple[str, int, int], Message] = field(default_factory=dict)
    pulls: dict[tuple[str, int], PullRow] = field(default_factory=dict)
    dispatches: dict[tuple[str, int], Dispatched] = field(default_factory=dict)
    registry: blocks.RegistrySnapshot | None = None

    def bodies(self, log: str) -> list[str | None]:
        return [message.body for (name, _, _), message in sorted(self.messages.items()) if name == log]


def contents(archive: Blobs) -> Contents:
    """Fails when an object differs from its manifest."""
    found = Contents()
    for manifest in chain.manifests(archive):
        spans = {(span.kind, span.log, row) for span in manifest.spans for row in range(span.start, span.end)}
        for segment in manifest.segments:
            data = archive.get(segment.key)
            assert (len(data), crc32(data)) == (segment.bytes, segment.checksum)
            before = sum(found.rows.values())
            entries: dict[str, list[Entry]] = {}
            for extent in segments.blocks_of(data, segment.kind):
                for log, entry in _read(found, segment.kind, data[extent.offset : extent.offset + extent.length]):
                    entries.setdefault(log, []).append(entry)
            if segment.kind != kinds.REGISTRY:
                assert sum(found.rows.values()) - before == segment.rows
            if segment.kind == kinds.MESSAGES:
                assert {part.log: part for part in segment.parts if part.messages} == _parts(entries)
            assert segment.messages == sum(part.messages for part in segment.parts)
        gone = {(one.log, row) for one in manifest.missing for row in range(one.start, one.end)}
        assert all(position in found.rows or position[1:] in gone for position in spans)
    return found


def _parts(entries: dict[str, list[Entry]]) -> dict[str, manifests.SegmentPart]:
    """Returns the parts that a manifest must list for a segment: the rows of each log, and the sequences of their
    messages."""
    parts = {}
    for log, rows in entries.items():
        held = [entry for entry in rows if entry.present]
        if held:
            parts[log] = manifests.SegmentPart(
                log=log,
                start=rows[0].row_no,
                end=rows[-1].row_no + 1,
                first=held[0].first_seq,
                following=held[-1].first_seq + held[-1].present,
                messages=sum(entry.present for entry in held),
            )
    return parts


def _read(found: Contents, kind: str, data: bytes) -> list[tuple[str, Entry]]:
    """Adds a block to the rows that were read; the rows of messages in it."""
    entries = []
    if kind == kinds.REGISTRY:
        found.registry = blocks.decode_registry(data)
    elif kind == kinds.MESSAGES:
        for log, entry, messages in _batches(blocks.decode_messages(data)):
            entries.append((log, entry))
            found.rows[kind, log, entry.row_no] += 1
            found.entries[log, entry.row_no] = entry
            found.messages |= {(log, entry.row_no, index): message for index, message in enumerate(messages)}
    elif kind == kinds.PULLS:
        pulls = blocks.decode_pulls(data)
        for log, row, pull in pulls.rows:
            found.rows[kind, pulls.logs[log], row] += 1
            found.pulls[pulls.logs[log], row] = pull
    else:
        dispatches = blocks.decode_dispatches(data)
        for log, row, dispatched in dispatches.rows:
            found.rows[kind, dispatches.logs[log], row] += 1
            found.dispatches[dispatches.logs[log], row] = dispatched
    return entries


def _batches(block: blocks.MessageRows) -> Iterator[tuple[str, Entry, list[Message]]]:
    messages, start = block.columns.messages(block.present), 0
    for entry in block.entries:
        yield block.logs[entry.log], entry, messages[start : start + entry.present]
        start += entry.present
