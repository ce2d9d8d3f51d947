"""Selects the messages of a row that a claim may take by the group's filter. The claim passes over the others.

The summary of the row's tags decides (``logs/tags.py``); if the summary lacks a tag, the messages themselves decide.
Messages that a filter does not take are settled when a claim passes over them. A claim without any other message writes
a row of the pull log for that only if it is worth a write: see ``worth_passing``.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from hourwheel.context import Context
from hourwheel.errors import Corrupt
from hourwheel.faults import unreadable
from hourwheel.logs.index_sets import indexes_of, set_of
from hourwheel.logs.large_batches import tags_of
from hourwheel.logs.log import Log
from hourwheel.logs.rows import Row
from hourwheel.logs.suspects import suspects_of
from hourwheel.logs.tags import TagSummary, decode_summary, has_none_of
from hourwheel.model.groups import TagFilter
from hourwheel.ports.storage import Blobs

PASSED_MS = 10_000
"""A claim passes over rows without a match at the latest when one of them is this old, so that the group's lag does not
count them for longer."""

_PASSED_ROWS = 64  # as many as one look reads
_PASSED_BYTES = 64 << 10
"""Passing over rows costs one write of DynamoDB. Reading this many bytes again at the next look costs nearly as
much."""

MOST_BODIES = 32
"""A claim reads at most this many batches for want of a complete summary: each may be a request to S3."""


class RowSelection(NamedTuple):
    """The messages that a row offers a claim: ``usable`` messages, of which ``fitting`` fit into one answer, where
    they take at most ``answer_bytes``. ``indexes`` names them; None: they follow one another, from the start of the
    claim. ``read``: the batch had to be read. ``suspect``: the first of them is a suspect, and the only ``fitting``
    one; otherwise these end before the next suspect."""

    usable: int
    fitting: int
    answer_bytes: int
    indexes: Sequence[int] | None = None
    read: bool = False
    suspect: bool = False

    def end(self, skip: int, count: int) -> int:
        """Returns the index behind the first ``count`` of these messages."""
        return skip + count if self.indexes is None else self.indexes[count - 1] + 1

    def picked(self, skip: int, count: int) -> Sequence[int] | None:
        """Returns the indexes of the first ``count`` messages; None where they follow one another from ``skip`` on."""
        if self.indexes is None or self.end(skip, count) == skip + count:
            return None
        return self.indexes[:count]


_NOTHING = RowSelection(0, 0, 0)
_NONE_READ = RowSelection(0, 0, 0, read=True)


@dataclass(frozen=True)
class Selection:
    """Selects messages of a log by a filter (None: all of them). ``retries``: the log is a retry log, whose rows name
    their suspects."""

    context: Context
    source: Log
    tag_filter: TagFilter | None
    blobs: Blobs
    retries: bool = False

    def offer(self, row_no: int, row: Row, skip: int, now_ms: int) -> RowSelection:
        """Returns what the row offers from index ``skip`` on. Reports a batch that has to be read and cannot be, and
        offers nothing of it."""
        if row.expires_ms <= now_ms or skip >= row.count:
            return _NOTHING
        return self._all(row, skip) if self.tag_filter is None else self._matching(row_no, row, skip, self.tag_filter)

    def _all(self, row: Row, skip: int) -> RowSelection:
        """Offers all messages of a row from index ``skip`` on."""
        usable = row.count - skip
        fitting = min(usable, row.together(skip))
        if self.retries and row.meta:
            suspect = next((index for index in suspects_of(row) if index >= skip), row.count)
            fitting = min(fitting, max(1, suspect - skip))
            return RowSelection(usable, fitting, row.answer_bytes, suspect=suspect == skip)
        return RowSelection(usable, fitting, row.answer_bytes)

    def _matching(self, row_no: int, row: Row, skip: int, tag_filter: TagFilter) -> RowSelection:
        """Offers the messages of a row from index ``skip`` on that the filter takes."""
        if row.meta and self._any_tags and has_none_of(row.meta, self._any_tags):
            return _NOTHING
        summary = decode_summary(row.meta) if row.meta else TagSummary(row.answer_bytes, (), ())
        stated = summary.matching(tag_filter, row.count)
        read = stated is None
        matches = self._read(row_no, row) if stated is None else stated
        indexes = indexes_of(matches >> skip << skip)
        if not indexes:
            return _NONE_READ if read else _NOTHING
        fitting = len(indexes)
        if row.cuts:
            fitting = bisect_left(indexes, indexes[0] + row.together(indexes[0]))
        return RowSelection(len(indexes), fitting, min(row.answer_bytes, fitting * summary.largest), indexes, read)

    @cached_property
    def _any_tags(self) -> list[bytes]:
        """The tags of which a message needs one, if the filter names any."""
        return [] if self.tag_filter is None else [tag.encode() for tag in self.tag_filter.tags_any]

    def _read(self, row_no: int, row: Row) -> int:
        assert self.tag_filter is not None
        try:
            tags = tags_of(row, self.blobs)
        except Corrupt as error:
            unreadable(self.context, self.source.name, row_no, row.count, error)
            return 0
        # The messages of a batch mostly share a few lists of tags.
        taken = {message_tags for message_tags in set(tags) if self.tag_filter.takes(message_tags)}
        return set_of([index for index, message_tags in enumerate(tags) if message_tags in taken])


@dataclass
class Unmatched:
    """The rows without a match that a claim has passed over since its last match."""

    rows: int = 0
    size: int = 0
    bodies: int = 0
    oldest_ms: int = 0

    def add(self, row: Row, *, read: bool) -> None:
        self.rows += 1
        self.size += len(row.block) + len(row.meta)
        self.bodies += read
        if not self.oldest_ms:
            self.oldest_ms = row.at_ms

    def worth_passing(self, now_ms: int) -> bool:
        """Returns whether it is cheaper to pass over these rows with one write than to look at them again, or time to
        do so."""
        if not self.rows:
            return False
        # Any batch that had to be read counts: the next look would read it again.
        costly = self.rows >= _PASSED_ROWS or self.size >= _PASSED_BYTES or bool(self.bodies)
        # abs: a clock that is behind must not keep rows from being passed.
        return costly or abs(now_ms - self.oldest_ms) >= PASSED_MS
