"""Lists the delayed messages of a span of time, page by page.

The messages come bucket by bucket, those of a bucket in stretches, and those of a stretch by their due time. A stretch
is a run of rows of the bucket's schedule log: a thousand rows, or fewer that hold a thousand messages of the list. So a
bucket with fewer comes in the order of its due times, and one of millions is never read as a whole.

    cursor     {start of the bucket, s, hex}-{minutes}-{shard}-{first row}-{end row}-{due, ms}-{row}-{index}-{MAC}

The cursor names the stretch and the last message of the page before. End row 0 begins a stretch. The MAC, the first 16
hex digits of an HMAC-SHA-256, also covers the subject and the span that were asked for: a cursor goes on with its own
list only.
"""

import hashlib
import hmac
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeAlias

import msgspec

from hourwheel.buckets.buckets import Bucket, buckets
from hourwheel.buckets.scheduled_ids import SchedulePosition, sign_scheduled_id
from hourwheel.context import Context
from hourwheel.delay.lists.delayed_request import ANY_MESSAGE, DelayedRequest
from hourwheel.delay.lists.delayed_states import states_of
from hourwheel.errors import Corrupt, Rejected
from hourwheel.logs.codec import decode_one
from hourwheel.logs.entries import DueTimes, decode_entry
from hourwheel.logs.large_batches import raw_messages_of, with_ids
from hourwheel.logs.log import Log
from hourwheel.logs.rows import Row
from hourwheel.model.messages import Message, message_bytes
from hourwheel.model.pages import DelayedMessage, DelayedPage
from hourwheel.model.subjects import Subject
from hourwheel.times import HOUR_MS, rfc3339, within

_STRETCH_ROWS = 1_000
_STRETCH_MESSAGES = 1_000
_STRETCH_BYTES = 4 << 20  # of rows: what a call of Lambda reads from DynamoDB within a second
_FIRST_PAGE, _LARGEST_PAGE = 16, 128  # rows of a read; most buckets have few, and 128 rows of 12 KB are 1.5 MB
_BUCKETS = 100  # a call that has found a message looks into at most this many buckets: each costs two reads or three
_SEARCH_MS = 5_000
"""A call that has found no message looks on, whatever the number of buckets and rows, until this time is over: an
empty page would look like the end of the list. On one machine the buckets of two years take less."""

_BODIES_BYTES = 16 << 20  # rows that one call decodes: more than a page of messages of ordinary size needs
_SHOWN = 1_000
"""The characters, or bytes, that are shown of a body. A hundred of them fit into an answer, whatever they are."""

_DIGITS = 16  # as of a scheduled id
Address: TypeAlias = tuple[str, int]
"""The name and the generation of a subject."""

Span: TypeAlias = tuple[int, int]
"""When the first messages are due, and before when the last ones (Unix milliseconds)."""

_CURSOR = re.compile(
    r"([0-9a-f]{1,10})-(\d{1,2})-(\d{1,3})-(\d{1,16})-(\d{1,16})-(\d{1,16})-(\d{1,16})-(\d{1,4})", re.ASCII
)


class _ListedMessage(msgspec.Struct, frozen=True, order=True):
    """A message of a stretch; entries sort as they are listed."""

    due_ms: int
    row_no: int
    index: int


_BEGIN = _ListedMessage(0, 0, 0)


class _PagePosition(NamedTuple):
    """Where a page begins: behind ``last`` in a stretch, or with ``end_row`` 0 at a stretch that begins at
    ``first_row``."""

    bucket: Bucket
    first_row: int = 0
    end_row: int = 0
    last: _ListedMessage = _BEGIN

    def sign(self, secret: bytes, name: str) -> str:
        bucket, last = self.bucket, self.last
        numbers = (bucket.minutes, bucket.shard, self.first_row, self.end_row, last.due_ms, last.row_no, last.index)
        text = "-".join([f"{bucket.start_ms // 1_000:x}", *map(str, numbers)])
        return f"{text}-{_digest(secret, name, text)}"

    @classmethod
    def read(cls, secret: bytes, name: str, cursor: str) -> "_PagePosition":
        """Parses a cursor. Raises ``Rejected`` for one of another list, or of none."""
        text, _, digest = cursor.rpartition("-")
        parts = _CURSOR.fullmatch(text)
        if parts is None or not hmac.compare_digest(digest.encode(), _digest(secret, name, text).encode()):
            raise Rejected(
                "field-invalid",
                "after must be the next of an earlier page with the same subject, from and to",
                field="after",
            )
        minutes, shard, first_row, end_row, due_ms, row_no, index = map(int, parts.groups()[1:])
        bucket = Bucket(int(parts[1], 16) * 1_000, minutes, shard)
        return cls(bucket, first_row, end_row, _ListedMessage(due_ms, row_no, index))


@dataclass
class _Stretch:
    """Rows of a schedule log and their messages in the list."""

    bucket: Bucket
    first_row: int
    end_row: int = 0
    is_last: bool = False
    rows: dict[int, tuple[Row, DueTimes]] = field(default_factory=dict)
    entries: list[_ListedMessage] = field(default_factory=list)
    decoded: dict[int, list[msgspec.Raw] | Corrupt] = field(default_factory=dict)
    read_rows: int = 0
    read_bytes: int = 0

    def add(self, row_no: int, row: Row | Corrupt, subject: Address | None, span: Span) -> None:
        """Reads a row into the stretch, and adds its messages that go to this subject and are due in the span."""
        self.end_row, self.read_rows = row_no + 1, self.read_rows + 1
        if isinstance(row, Corrupt):
            return  # the wheel reports the damage
        self.read_bytes += len(row.block) + len(row.meta)
        due_times = _due_times(row, subject)
        if due_times is None:
            return
        entries = [_ListedMessage(due_times.due_ms(index), row_no, index) for index in range(row.count)]
        # A message that came too late for its bucket waits in this one: it counts as due when this one begins.
        start_ms = self.bucket.start_ms
        entries = [entry for entry in entries if span[0] <= max(entry.due_ms, start_ms) < span[1]]
        if entries:
            self.rows[row_no] = row, due_times
            self.entries += entries

    @property
    def is_full(self) -> bool:
        return (
            self.read_rows >= _STRETCH_ROWS
            or len(self.entries) >= _STRETCH_MESSAGES
            or self.read_bytes >= _STRETCH_BYTES
        )


@dataclass
class DelayedList:
    """Makes one page of a list."""

    context: Context
    secret: bytes
    subject: Subject | None
    request: DelayedRequest
    _messages: list[DelayedMessage] = field(default_factory=list)
    _began_ms: int = 0
    _rows: int = 0
    _bytes: int = 0
    _decoded_bytes: int = 0

    def page(self) -> DelayedPage:
        """Returns up to ``limit`` messages. There may be fewer though ``next`` is set: a call reads a bounded number of
        rows. It has none only at the end of the list, or after a search of ``_SEARCH_MS``. Raises ``Rejected`` for an
        empty span, and for a cursor of another list.

        On DynamoDB: a query for each 500 buckets, and for each of up to 100 of them one for each 128 of its rows, up to
        2,000 rows in all. Before the first message is found, there are as many as the time allows. For each bucket with
        messages on the page a batch of gets, and where messages are due the search of the dispatch log. An object for
        each row of the page that is stored as one, and with a filter for each such row that is read.
        """
        self._began_ms = self.context.clock.now_ms()
        first_ms, end_ms = self._span
        if first_ms >= end_ms:
            raise Rejected(
                "field-invalid", "to must be later than from, which is the current hour if it is left out", field="to"
            )
        after = self.request.after
        following = self._fill(None if after is None else _PagePosition.read(self.secret, self._name, after))
        return DelayedPage(self._messages, following and following.sign(self.secret, self._name))

    @cached_property
    def _span(self) -> Span:
        since_ms, until_ms = self.request.since_ms, self.request.until_ms
        first_ms = self.context.clock.now_ms() // HOUR_MS * HOUR_MS if since_ms is None else since_ms
        return first_ms, sys.maxsize if until_ms is None else until_ms

    @property
    def _name(self) -> str:
        """The name of the list in its cursors: what the caller asked for, as a default moves with the clock."""
        name = "" if self.subject is None else self.subject.name
        which = self.request.which
        chosen = "" if which == ANY_MESSAGE else f" {tuple(which)}"
        return f"{name} {self.request.since_ms} {self.request.until_ms}{chosen}"

    @property
    def _address(self) -> Address | None:
        return None if self.subject is None else (self.subject.name, self.subject.generation)

    def _fill(self, start: _PagePosition | None) -> _PagePosition | None:
        """Adds messages until the page is full; returns where the next one begins."""
        for looked, (position, closed) in enumerate(self._positions(start)):
            if looked >= _BUCKETS and self._may_end:
                return position
            following = self._add_bucket(position, closed=closed)
            if following is not None:
                return following
        return None

    def _positions(self, start: _PagePosition | None) -> Iterator[tuple[_PagePosition, bool]]:
        """Yields where the page begins in each bucket from ``start`` on, and whether the bucket is closed."""
        first_ms, _ = self._span
        first_ms = first_ms if start is None else max(first_ms, start.bucket.start_ms)
        for bucket, record in buckets(self.context, from_ms=first_ms, before_ms=self.request.until_ms):
            if start is not None and bucket == start.bucket:
                yield start, record.closed_ms != 0
            elif start is None or bucket > start.bucket:
                yield _PagePosition(bucket), record.closed_ms != 0

    def _add_bucket(self, start: _PagePosition, *, closed: bool) -> _PagePosition | None:
        """Adds the messages of a bucket from a position on. Returns where the next page begins; None if this one goes
        on behind the bucket."""
        position: _PagePosition | None = start
        while position is not None:
            # A stretch that is begun is read to its end, so that pages agree on where it ends.
            if self._is_over and not position.end_row:
                return position
            position, is_full = self._add_stretch(position, closed=closed)
            if is_full:
                return position
        return None

    @property
    def _is_over(self) -> bool:
        """Whether the page is full, or this call has read as much as it may."""
        has_read = self._rows >= _STRETCH_ROWS or self._bytes >= _STRETCH_BYTES
        return len(self._messages) >= self.request.limit or (has_read and self._may_end)

    @property
    def _may_end(self) -> bool:
        """Whether the page may end before the list does."""
        return bool(self._messages) or not within(self._began_ms, self.context.clock.now_ms(), _SEARCH_MS)

    def _add_stretch(self, position: _PagePosition, *, closed: bool) -> tuple[_PagePosition | None, bool]:
        """Adds the messages of a stretch. Returns the position of what follows in the bucket, and whether the page ends
        there."""
        stretch = self._read(position)
        entries = sorted(stretch.entries)
        if position.end_row:
            entries = [entry for entry in entries if entry > position.last]
        chosen, looked = self._choose(stretch, entries)
        shown = self._show(stretch, chosen, closed=closed)
        if shown < len(chosen):
            last = chosen[shown - 1] if shown else position.last
        elif looked < len(entries):
            last = entries[looked - 1]
        else:
            return None if stretch.is_last else _PagePosition(position.bucket, stretch.end_row), False
        return _PagePosition(position.bucket, position.first_row, stretch.end_row, last), True

    def _choose(self, stretch: _Stretch, entries: Sequence[_ListedMessage]) -> tuple[list[_ListedMessage], int]:
        """Returns the messages that the page shows, unless their rows take too many bytes, and the number of those that
        it has looked at. Looks at one at least, and then until the page is full or the time is over."""
        room = self.request.limit - len(self._messages)
        if self.request.which == ANY_MESSAGE:
            return list(entries[:room]), min(room, len(entries))
        chosen: list[_ListedMessage] = []
        for looked, entry in enumerate(entries):
            over = not within(self._began_ms, self.context.clock.now_ms(), _SEARCH_MS)
            if len(chosen) >= room or (looked and over):
                return chosen, looked
            if self._takes(stretch, entry):
                chosen.append(entry)
        return chosen, len(entries)

    def _read(self, position: _PagePosition) -> _Stretch:
        stretch = _Stretch(position.bucket, position.first_row)
        for row_no, row in _stored(self.context.log(position.bucket.log), position.first_row):
            # Where an earlier page has begun the stretch, the cursor has its end.
            if stretch.is_full if not position.end_row else row_no >= position.end_row:
                break
            stretch.add(row_no, row, self._address, self._span)
        else:
            stretch.is_last = True
        stretch.end_row = max(stretch.end_row, position.end_row)
        self._rows += stretch.read_rows
        self._bytes += stretch.read_bytes
        return stretch

    def _show(self, stretch: _Stretch, entries: Sequence[_ListedMessage], *, closed: bool) -> int:
        """Adds the messages; returns how many, which are fewer where their rows take too many bytes."""
        states = states_of(self.context, stretch.bucket, entries, closed=closed) if entries else []
        for number, (entry, state) in enumerate(zip(entries, states, strict=True)):
            row, due_times = stretch.rows[entry.row_no]
            if entry.row_no not in stretch.decoded:
                if self._messages and self._decoded_bytes + row.raw_bytes > _BODIES_BYTES:
                    return number
                self._decoded_bytes += row.raw_bytes
                stretch.decoded[entry.row_no] = self._raw(row)
            scheduled = SchedulePosition(stretch.bucket, entry.row_no, entry.index)
            listed = DelayedMessage(
                scheduled_id=sign_scheduled_id(self.secret, scheduled),
                subject=due_times.subject,
                deliver_at=rfc3339(entry.due_ms),
                state=state,
                precision="minute" if due_times.minute else None,
            )
            self._describe(listed, row, entry.index, stretch.decoded[entry.row_no])
            self._messages.append(listed)
        return len(entries)

    def _takes(self, stretch: _Stretch, entry: _ListedMessage) -> bool:
        """Returns whether the filter takes a message. It takes none that cannot be read."""
        row, _ = stretch.rows[entry.row_no]
        raw = stretch.decoded.get(entry.row_no)
        if raw is None:
            raw = stretch.decoded[entry.row_no] = self._raw(row)
        try:
            return not isinstance(raw, Corrupt) and self.request.which.takes(_message_of(row, entry.index, raw))
        except Corrupt:
            return False

    def _raw(self, row: Row) -> list[msgspec.Raw] | Corrupt:
        try:
            return raw_messages_of(row, self.context.blobs)
        except Corrupt as error:
            return error

    def _describe(self, listed: DelayedMessage, row: Row, index: int, raw: list[msgspec.Raw] | Corrupt) -> None:
        """Adds what the stored message says, or why it cannot be read."""
        listed.produced_at = rfc3339(row.at_ms)
        try:
            if isinstance(raw, Corrupt):
                raise raw
            message = _message_of(row, index, raw)
        except Corrupt as error:
            listed.damaged = str(error)
            return
        listed.id, listed.key, listed.tags = message.id, message.key, message.tags
        listed.produced_at = message.produced_at or listed.produced_at
        listed.size = message_bytes(message)
        if self.request.bodies:
            _add_body(listed, message)


def _message_of(row: Row, index: int, raw: list[msgspec.Raw]) -> Message:
    (message,) = with_ids(row, [decode_one(raw[index])], [index])
    return message


def _add_body(listed: DelayedMessage, message: Message) -> None:
    whole = message.body if message.body is not None else message.body_base64 or b""
    shown = whole[:_SHOWN]
    if isinstance(shown, str):
        listed.body = shown
    else:
        listed.body_base64 = shown
    listed.shortened = len(shown) < len(whole)


def _stored(log: Log, start: int) -> Iterator[tuple[int, Row | Corrupt]]:
    page = _FIRST_PAGE
    while True:
        rows = log.stored_page(start, page)
        yield from rows
        if len(rows) < page:
            return
        start, page = rows[-1][0] + 1, min(2 * page, _LARGEST_PAGE)


def _due_times(row: Row, subject: Address | None) -> DueTimes | None:
    """Returns the due times of a row whose messages go to the queues of the subject; None for other rows."""
    try:
        entry = decode_entry(row.meta) if row.meta and not row.filler else None
    except Corrupt:
        return None  # the wheel reports the damage
    return entry if isinstance(entry, DueTimes) and entry.is_for(subject) else None


def _digest(secret: bytes, name: str, text: str) -> str:
    return hmac.digest(secret, f"delayed {name} {text}".encode(), hashlib.sha256).hex()[:_DIGITS]
