"""Builds archives for tests: row by row, or by a real cell."""

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hourwheel.archive.blocks import Entry, encode_messages, encode_rows
from hourwheel.archive.segments import join, segment_key
from hourwheel.delay.ownership import Dispatched
from hourwheel.logs.codec import Block
from hourwheel.model.messages import Message
from hourwheel.ports.storage import Blobs
from hourwheel.pull_log.records import PullRow
from hourwheel.retention.kinds import DISPATCHES, MESSAGES, PULLS
from hourwheel.retention.manifests import Manifest, MissingRows, Segment, SegmentPart, Span, commit, sealed
from hourwheel.times import HOUR_MS

RETENTION_MS = 3 * 86_400_000


@dataclass(frozen=True)
class _Row:
    log: str
    row: int
    at_ms: int
    number: int = 0
    messages: Sequence[Message] = ()
    expires_ms: int = 0
    note: bytes = b""
    value: PullRow | Dispatched | None = None

    @property
    def kind(self) -> str:
        if self.value is None:
            return MESSAGES
        return PULLS if isinstance(self.value, PullRow) else DISPATCHES

    @property
    def count(self) -> int:
        """Returns the number of messages that the row holds, was handed or hands over."""
        if self.value is None:
            return len(self.messages)
        if isinstance(self.value, PullRow):
            return self.value.size
        return sum(len(transfer.picks) for transfer in self.value.transfers)


@dataclass
class ArchiveBuilder:
    """Gathers rows, which get the next numbers of their logs, and commits them: a segment for each kind and hour, a
    block for each ``block_rows`` rows."""

    archive: Blobs
    block_rows: int = 100
    number: int = 0
    store: str = "made-up"
    previous: str = ""
    _next: Counter[tuple[str, str]] = field(default_factory=Counter)
    _sequences: Counter[str] = field(default_factory=Counter)
    _rows: list[_Row] = field(default_factory=list)

    def row(
        self, log: str, messages: Sequence[Message], at_ms: int, *, expires_ms: int | None = None, note: bytes = b""
    ) -> int:
        """Adds a row of a log of messages; without messages and note, a filler. Returns its row number."""
        row, number = self._next[MESSAGES, log], self._sequences[log]
        if expires_ms is None:
            expires_ms = 0 if log.startswith("schedule/") else at_ms + RETENTION_MS
        self._rows.append(_Row(log, row, at_ms, number, messages, expires_ms=expires_ms, note=note))
        self._next[MESSAGES, log] += 1
        self._sequences[log] += len(messages)
        return row

    def pull(self, partition: str, pull: PullRow) -> int:
        return self._other(_Row(partition, self._next[PULLS, partition], pull.closed_ms, value=pull))

    def dispatch(self, bucket: str, dispatched: Dispatched) -> int:
        return self._other(_Row(bucket, self._next[DISPATCHES, bucket], dispatched.at_ms, value=dispatched))

    def commit(self, gone: Sequence[MissingRows] = (), alter: Callable[[bytes], bytes] = bytes) -> Manifest:
        """Writes the gathered rows. Returns the manifest that names them. ``alter`` makes of each segment the bytes
        that are written and named in its place."""
        segments = [self._segment(kind, hour_ms, rows, alter) for (kind, hour_ms), rows in self._by_hour().items()]
        manifest = Manifest(
            number=self.number,
            store=self.store,
            previous=self.previous,
            began_ms=min((row.at_ms for row in self._rows), default=0),
            ended_ms=max((row.at_ms for row in self._rows), default=0),
            complete_ms=0,
            segments=segments,
            spans=self._spans(),
            unreadable=[],
            missing=list(gone),
        )
        assert commit(self.archive, manifest)
        self.previous = sealed(manifest).digest
        self.number += 1
        self._rows.clear()
        return manifest

    def _other(self, row: _Row) -> int:
        self._rows.append(row)
        self._next[row.kind, row.log] += 1
        return row.row

    def _by_hour(self) -> dict[tuple[str, int], list[_Row]]:
        found: dict[tuple[str, int], list[_Row]] = {}
        for row in self._rows:
            found.setdefault((row.kind, row.at_ms // HOUR_MS * HOUR_MS), []).append(row)
        return found

    def _segment(self, kind: str, hour_ms: int, rows: Sequence[_Row], alter: Callable[[bytes], bytes]) -> Segment:
        blocks = [_block(kind, rows[at : at + self.block_rows]) for at in range(0, len(rows), self.block_rows)]
        data = alter(join(kind, blocks))
        key = segment_key(kind, hour_ms, f"{self.number:012x}-{kind}")
        self.archive.put(key, data)
        return Segment(
            key=key,
            kind=kind,
            bytes=len(data),
            checksum=zlib.crc32(data),
            rows=len(rows),
            messages=sum(row.count for row in rows),
            earliest_ms=min(row.at_ms for row in rows),
            latest_ms=max(row.at_ms for row in rows),
            parts=[_part(log, [row for row in rows if row.log == log]) for log in dict.fromkeys(r.log for r in rows)],
        )

    def _spans(self) -> list[Span]:
        spans = []
        for kind, log in dict.fromkeys((row.kind, row.log) for row in self._rows):
            rows = [row for row in self._rows if (row.kind, row.log) == (kind, log)]
            messages = sum(row.count for row in rows)
            spans.append(Span(kind=kind, log=log, start=rows[0].row, end=rows[-1].row + 1, messages=messages, behind=0))
        return spans


def _block(kind: str, rows: Sequence[_Row]) -> Block:
    logs = list(dict.fromkeys(row.log for row in rows))
    if kind == MESSAGES:
        entries = [
            Entry(
                logs.index(row.log),
                row.row,
                row.number,
                len(row.messages),
                len(row.messages),
                row.at_ms,
                row.expires_ms,
                row.note,
            )
            for row in rows
        ]
        return encode_messages(logs, entries, [message for row in rows for message in row.messages])
    return encode_rows(kind, logs, [(logs.index(row.log), row.row, row.value) for row in rows if row.value])


def _part(log: str, rows: Sequence[_Row]) -> SegmentPart:
    first, last = rows[0], rows[-1]
    return SegmentPart(
        log=log,
        start=first.row,
        end=last.row + 1,
        first=first.number,
        following=last.number + len(last.messages),
        messages=sum(row.count for row in rows),
    )
