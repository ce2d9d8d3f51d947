"""Gathers the rows of a commit by kind and hour, and writes them as segments."""

import zlib
from dataclasses import dataclass, field

from hourwheel.archive.blocks import Entry, RegistrySnapshot, encode_messages, encode_registry, encode_rows
from hourwheel.archive.segments import join, segment_key
from hourwheel.archive.sources import Item, LogSource
from hourwheel.context import Context
from hourwheel.delay.ownership import Dispatched
from hourwheel.errors import Corrupt
from hourwheel.logs.codec import Block
from hourwheel.logs.large_batches import messages_of
from hourwheel.logs.rows import Row
from hourwheel.model.messages import Message
from hourwheel.ports.storage import Blobs
from hourwheel.pull_log.records import PullRow
from hourwheel.retention.kinds import MESSAGES, REGISTRY
from hourwheel.retention.manifests import MissingRows, Segment, SegmentPart, Span, UnreadableRow
from hourwheel.times import HOUR_MS

_BLOCK_BYTES = 1 << 20  # a block is compressed and read as one piece: large enough to compress well
_BLOCK_ROWS = 4_096  # half of what readers accept (``MOST_ROWS``)
_SEGMENT_BYTES = 16 << 20  # a reader has a whole segment in memory, to compare its checksum
_OPEN_BYTES = 32 << 20  # of all open segments: there is one for each kind and hour of a backlog
_RELIEF_BYTES = 8 << 20  # the sizes are summed once for these bytes of rows, because a sum visits every open segment
_ROW_BYTES = 60  # about the size of a row without its messages


@dataclass
class _OpenSegment:
    """A segment that is being filled: complete blocks, and the rows of the next block."""

    kind: str
    hour_ms: int
    earliest_ms: int = 0
    latest_ms: int = 0
    blocks: list[Block] = field(default_factory=list)
    logs: dict[str, int] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    rows: list[tuple[int, int, PullRow | Dispatched]] = field(default_factory=list)
    raw_bytes: int = 0
    parts: dict[str, SegmentPart] = field(default_factory=dict)
    written: int = 0
    """The number of rows, or of subjects and groups, that were added."""
    message_count: int = 0

    @property
    def size(self) -> int:
        """About the memory that the segment takes, in bytes."""
        return sum(len(block.data) for block in self.blocks) + self.raw_bytes

    def log_index(self, log: str) -> int:
        return self.logs.setdefault(log, len(self.logs))

    def take(self, part: SegmentPart, at_ms: int, size: int) -> None:
        """Counts a row that was added, and closes the block once it is full."""
        before = self.parts.get(part.log)
        if before is not None:
            part = SegmentPart(
                log=part.log,
                start=before.start,
                end=part.end,
                # Fillers have no sequence: the first row with messages gives the first one.
                first=before.first if before.messages else part.first,
                following=part.following if part.messages else before.following,
                messages=before.messages + part.messages,
            )
        self.parts[part.log] = part
        self.earliest_ms = min(self.earliest_ms, at_ms) if self.written else at_ms
        self.latest_ms = max(self.latest_ms, at_ms)
        self.written += 1
        self.raw_bytes += size
        if self.raw_bytes >= _BLOCK_BYTES or len(self.entries) + len(self.rows) >= _BLOCK_ROWS:
            self.close_block()

    def close_block(self) -> None:
        if self.entries:
            self.blocks.append(encode_messages(list(self.logs), self.entries, self.messages))
        elif self.rows:
            self.blocks.append(encode_rows(self.kind, list(self.logs), self.rows))
        self.logs, self.entries, self.messages, self.rows, self.raw_bytes = {}, [], [], [], 0


@dataclass
class Collector:
    """Gathers the rows of one commit. ``size``: about the bytes of the rows so far. For one thread."""

    context: Context
    archive: Blobs
    segments: list[Segment] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    unreadable: list[UnreadableRow] = field(default_factory=list)
    missing: list[MissingRows] = field(default_factory=list)
    size: int = 0
    _relieved: int = 0
    _open: dict[tuple[str, int], _OpenSegment] = field(default_factory=dict)

    def add(self, source: LogSource, item: Item) -> int:
        """Gathers the row. Returns how many messages the row has, hands out or hands over."""
        if isinstance(item.value, Row):
            messages = self._row(source.log, item.row_no, item.value)
        else:
            messages = self._other(source, item.row_no, item.value)
        self.size += _ROW_BYTES
        if self.size - self._relieved >= _RELIEF_BYTES:
            self._relieve()
            self._relieved = self.size
        return messages

    def add_registry(self, snapshot: RegistrySnapshot) -> None:
        now_ms = self.context.clock.now_ms()
        segment = _OpenSegment(REGISTRY, now_ms // HOUR_MS * HOUR_MS, now_ms, now_ms, [encode_registry(snapshot)])
        segment.written = len(snapshot.subjects) + len(snapshot.groups)
        self._write(segment)

    def finish(self) -> None:
        """Writes the segments that are still open."""
        for segment in self._open.values():
            self._write(segment)
        self._open.clear()

    def _row(self, log: str, row_no: int, row: Row) -> int:
        messages: list[Message] = []
        try:
            messages = messages_of(row, self.context.blobs_of(log))
        except Corrupt as error:
            self.unreadable.append(UnreadableRow(log=log, row_no=row_no, messages=row.count, error=str(error)))
        segment = self._segment(MESSAGES, row.at_ms)
        present = len(messages)
        log_index = segment.log_index(log)
        segment.entries.append(
            Entry(log_index, row_no, row.first_seq, row.count, present, row.at_ms, row.expires_ms, row.meta)
        )
        segment.messages += messages
        segment.message_count += present
        first = 0 if row.filler else row.first_seq  # a filler takes no sequence
        part = SegmentPart(
            log=log, start=row_no, end=row_no + 1, first=first, following=first + present, messages=present
        )
        segment.take(part, row.at_ms, row.raw_bytes + len(row.meta) + _ROW_BYTES)
        self.size += row.raw_bytes
        return present

    def _other(self, source: LogSource, row_no: int, value: PullRow | Dispatched) -> int:
        at_ms = value.closed_ms if isinstance(value, PullRow) else value.at_ms
        segment = self._segment(source.kind, at_ms)
        segment.rows.append((segment.log_index(source.log), row_no, value))
        size = _ROW_BYTES + _picked(value)
        messages = _messages(value)
        part = SegmentPart(log=source.log, start=row_no, end=row_no + 1, first=0, following=0, messages=messages)
        segment.message_count += messages
        segment.take(part, at_ms, size)
        self.size += size
        return messages

    def _segment(self, kind: str, at_ms: int) -> _OpenSegment:
        hour_ms = at_ms // HOUR_MS * HOUR_MS
        key = kind, hour_ms
        if key not in self._open:
            self._open[key] = _OpenSegment(kind, hour_ms)
        elif self._open[key].size >= _SEGMENT_BYTES:
            self._write(self._open[key])
            self._open[key] = _OpenSegment(kind, hour_ms)
        return self._open[key]

    def _relieve(self) -> None:
        """Writes the largest segments until the others take at most ``_OPEN_BYTES``."""
        while sum(segment.size for segment in self._open.values()) > _OPEN_BYTES:
            largest = max(self._open, key=lambda key: self._open[key].size)
            self._write(self._open[largest])
            del self._open[largest]

    def _write(self, segment: _OpenSegment) -> None:
        segment.close_block()
        data = join(segment.kind, segment.blocks)
        key = segment_key(segment.kind, segment.hour_ms, self.context.ids.unique(self.context.clock.now_ms()))
        self.archive.put(key, data)
        self.segments.append(
            Segment(
                key=key,
                kind=segment.kind,
                bytes=len(data),
                checksum=zlib.crc32(data),
                rows=segment.written,
                messages=segment.message_count,
                earliest_ms=segment.earliest_ms,
                latest_ms=segment.latest_ms,
                parts=list(segment.parts.values()),
            )
        )


def _messages(value: PullRow | Dispatched) -> int:
    """Returns how many messages the row hands out or hands over."""
    return value.covered if isinstance(value, PullRow) else sum(len(transfer.picks) for transfer in value.transfers)


def _picked(value: PullRow | Dispatched) -> int:
    """Returns about how many bytes the row's hand-overs and counts take."""
    moves = value.moved if isinstance(value, PullRow) else value.transfers
    counts = len(value.counts) if isinstance(value, PullRow) else 0
    return 4 * counts + sum(_ROW_BYTES + 8 * len(move.picks) for move in moves)
