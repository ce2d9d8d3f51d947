"""Puts rows of the archive back at their row numbers. The token of a row follows from its log and number, so a second
try recognises the row."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeAlias

from hourwheel.archive.blocks import Entry
from hourwheel.archive.reading import dispatch_rows, message_rows
from hourwheel.archive.redo_handovers import OWNER, occupied, token_of
from hourwheel.archive.summary import ArchiveSummary, Tally, readable
from hourwheel.context import Context
from hourwheel.delay.outgoing_batches import DROPPED
from hourwheel.delay.ownership import Dispatched, put_dispatched
from hourwheel.errors import Corrupt, Filled
from hourwheel.handover.handover import Transfer
from hourwheel.logs.log import Reservation
from hourwheel.logs.rows import Row
from hourwheel.model.fields import DEAD_RETENTION_MS, MAX_RETENTION_SECONDS
from hourwheel.model.log_names import is_schedule
from hourwheel.model.messages import Message
from hourwheel.ports.storage import Blobs
from hourwheel.retention.kinds import DISPATCHES, MESSAGES
from hourwheel.retention.manifests import Manifest, Segment

_BATCH_ROWS = 100  # the threads put at most this many rows together before the next ones are read: it bounds the memory
_LONGEST_MS = max(MAX_RETENTION_SECONDS * 1_000, DEAD_RETENTION_MS)

Kept: TypeAlias = tuple[str, Entry, list[Message]]


class Restored(NamedTuple):
    """How many rows and messages were put. ``unreadable``: messages that were archived without their bytes."""

    rows: int
    messages: int
    unreadable: int


@dataclass
class Restorer:
    """Restores from these logs and buckets the rows that are live at ``began_ms``, and the ``needed`` ones (log and
    row number). ``unreadable_segments`` collects those that were skipped."""

    context: Context
    archive: Blobs
    summary: ArchiveSummary
    logs: set[str]
    buckets: set[str]
    needed: set[tuple[str, int]]
    began_ms: int
    skip_damaged: bool
    workers: int
    unreadable_segments: set[str] = field(default_factory=set)

    def messages(self, manifest: Manifest) -> Restored:
        """Puts the rows of messages of one manifest."""
        rows = messages = unreadable = 0
        with ThreadPoolExecutor(self.workers) as pool:
            for segment in manifest.segments:
                if not self._worthwhile(segment):
                    continue
                for entries in _batches(self._kept(segment)):
                    # A list waits for all threads, and raises their errors: nothing is read ahead of them.
                    list(pool.map(self._put_rows, _shares(entries, self.workers)))
                    rows += len(entries)
                    messages += sum(entry.present for _, entry, _ in entries)
                    unreadable += sum(entry.count - entry.present for _, entry, _ in entries)
        return Restored(rows, messages, unreadable)

    def dispatches(self) -> None:
        """Puts the dispatch logs of open buckets. Appends to each a row without transfers to targets, so that the next
        owner has nothing to finish: the messages of earlier rows have arrived, or are lost."""
        for manifest in readable(self.archive, self.summary.end_manifest):
            for segment in manifest.segments:
                if segment.kind == DISPATCHES and any(part.log in self.buckets for part in segment.parts):
                    self._dispatched(segment)
        for name in sorted(self.buckets):
            following = self.summary.watermarks.get((DISPATCHES, name), 0)
            if following:
                nothing = Transfer(
                    kind=DROPPED, log="", row_no=0, first_seq=0, token=b"", at_ms=0, expires_ms=0, picks=()
                )
                at_ms = self.summary.tallies.get(name, Tally()).last_ms
                self._put_dispatched(name, following, Dispatched(owner=OWNER, at_ms=at_ms, transfers=(nothing,)))

    def _dispatched(self, segment: Segment) -> None:
        try:
            for name, row_no, dispatched in dispatch_rows(self.archive, segment):
                if name in self.buckets:
                    self._put_dispatched(name, row_no, dispatched)
        except Corrupt as error:
            self._pass_over(segment, error)

    def _put_dispatched(self, name: str, row_no: int, dispatched: Dispatched) -> None:
        if not put_dispatched(self.context, name, row_no, dispatched, token_of(name, row_no)):
            raise occupied(f"the dispatch log of {name}", row_no)

    def _worthwhile(self, segment: Segment) -> bool:
        """Returns whether the segment may have rows that are restored."""
        logs = {part.log for part in segment.parts} & self.logs
        scheduled = any(is_schedule(log) for log in logs)
        live = segment.latest_ms + _LONGEST_MS > self.began_ms
        return segment.kind == MESSAGES and bool(logs) and (scheduled or live)

    def _kept(self, segment: Segment) -> Iterator[Kept]:
        try:
            for log, entry, messages in message_rows(self.archive, segment):
                live = entry.expires_ms == 0 or entry.expires_ms > self.began_ms
                if log in self.logs and (live or (log, entry.row_no) in self.needed):
                    yield log, entry, messages
        except Corrupt as error:
            self._pass_over(segment, error)

    def _pass_over(self, segment: Segment, error: Corrupt) -> None:
        if not self.skip_damaged:
            raise error
        self.unreadable_segments.add(segment.key)

    def _put_rows(self, entries: list[Kept]) -> None:
        """Puts the rows. Does nothing for a row that an earlier try has put."""
        built = [(log, entry, self._row(log, entry, messages)) for log, entry, messages in entries]

        def put(context: Context) -> None:
            for log, entry, row in built:
                try:
                    context.log(log).put(
                        Reservation(log, entry.row_no, entry.first_seq), row, token_of(log, entry.row_no)
                    )
                except Filled:
                    raise occupied(log, entry.row_no) from None

        self.context.atomically(put)

    def _row(self, log: str, entry: Entry, messages: list[Message]) -> Row:
        # A row that was archived without its messages becomes a filler, and has no due times any more.
        meta = entry.meta if messages or not entry.count else b""
        return self.context.build_row(log, messages, at_ms=entry.at_ms, expires_ms=entry.expires_ms, meta=meta)


def _batches(rows: Iterable[Kept]) -> Iterator[list[Kept]]:
    """Yields the rows in lists of up to ``_BATCH_ROWS``."""
    iterator = iter(rows)
    while batch := list(islice(iterator, _BATCH_ROWS)):
        yield batch


def _shares(rows: list[Kept], count: int) -> list[list[Kept]]:
    size = -(-len(rows) // count)
    return [rows[i : i + size] for i in range(0, len(rows), size)]
