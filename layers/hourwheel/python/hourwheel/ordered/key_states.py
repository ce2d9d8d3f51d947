"""Keeps the state of an ordered group on one log: which messages are parked, which are in flight. Reads and writes
nothing.

The state is what the pull rows say, read in their order. It may be behind the store, and is safe to use then. A message
that it shows as settled stays settled, and one that it shows as parked stays parked until a later row takes it. A claim
is refused where the state does not know the last row.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from hourwheel.logs.index_sets import pack_indexes, unpack_indexes
from hourwheel.ordered.in_flight import InFlight, OpenRows
from hourwheel.ordered.parked_messages import ParkedMessages
from hourwheel.pull_log.ordered_rows import (
    STOPPED_MS,
    LastFailure,
    Order,
    OrderedMessages,
    OrderedRow,
    Parked,
    Snapshot,
    SnapshotRow,
)
from hourwheel.pull_log.parked_counts import SOON_MS, ParkedCounts
from hourwheel.pull_log.records import OPEN, SOUGHT, Position, Tail


@dataclass
class KeyStates(ParkedMessages, OpenRows):
    """``row_no`` is the next pull row, ``position`` and ``seq`` where it begins. ``rows`` and ``messages`` are those
    that the last row covers. ``saved_row`` and ``saved_ms`` belong to the last snapshot that this process has seen, or
    tried to save."""

    row_no: int
    position: Position
    seq: int
    rows: int = 0
    messages: int = 0
    saved_row: int = 0
    saved_ms: int = 0
    at_ms: int = 0
    """When the state was last brought up to date."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> "KeyStates":
        """Returns the state at a snapshot, without its open rows: see ``reopen``."""
        state = cls(
            snapshot.row_no,
            snapshot.position,
            snapshot.seq,
            stops=dict(snapshot.stops),
            stops_bytes=sum(stop.stored_bytes for _, stop in snapshot.stops),
            saved_row=snapshot.row_no,
            saved_ms=snapshot.saved_ms,
        )
        for key in snapshot.parked:
            state._open_parked(key)
        return state

    def copy(self) -> "KeyStates":
        """Returns a state that changes by itself."""
        # A copy of the collections is enough: what they hold is never changed, only replaced.
        names = ("parked", "later", "open", "busy", "shared", "retries", "stops")
        own = {name: getattr(self, name).copy() for name in names}
        return KeyStates(**{**vars(self), **own})

    def snapshot(self, now_ms: int) -> Snapshot:
        rows = tuple(
            SnapshotRow(row_no, pack_indexes(sorted(flight.decided)), flight.again_below)
            for row_no, flight in sorted(self.open.items())
        )
        parked, checksum = self._parked_keys()
        return Snapshot(self.row_no, self.position, self.seq, parked, rows, now_ms, tuple(self.stops.items()), checksum)

    @property
    def tail(self) -> Tail:
        return Tail(self.row_no, self.position, self.seq, self.rows, self.messages)

    def ready(self, now_ms: int, most: int) -> list[tuple[bytes, tuple[Parked, ...]]]:
        """Returns the digests of which no message is in flight, and the first ones may be handed out now, each with
        these messages; of a digest with many, at least the first ``most``."""
        turns = self._ready(now_ms)
        return [(digest, self._with_later(digest, entries, most)) for digest, entries in turns] if self.later else turns

    def _ready(self, now_ms: int) -> list[tuple[bytes, tuple[Parked, ...]]]:
        """Returns what ``ready`` returns, without the later messages."""
        if not self.retries:
            busy = self.busy
            return [(digest, entries) for digest, entries in self.parked.items() if digest not in busy]
        # Nearly all of many held keys wait for their time: nothing but this time is looked at for those.
        due = [digest for digest, due_ms in self.retries.items() if due_ms <= now_ms]
        unseen = self.parked.keys() - self.retries.keys() if len(self.retries) < len(self.parked) else ()
        turns: list[tuple[bytes, tuple[Parked, ...]]] = []
        for digest in (*due, *unseen):
            if digest not in self.busy:
                entries = self.parked[digest]
                turns.append((digest, entries if len(entries) == 1 else _until_one_waits(entries, now_ms)))
        return turns

    def counts(self, now_ms: int, trimmed: int) -> ParkedCounts:
        """Returns the numbers of the parked messages by what they wait for. Those below the trim mark have expired."""
        heads = self.held()
        counts = ParkedCounts(held=len(heads))
        counts.stopped = sum(head.due_ms == STOPPED_MS for head, _, _ in heads)
        later = dict[bytes, int]()
        for digest, messages in self.later.items():
            later[digest], first_row = messages.from_row(trimmed)
            counts.waiting += later[digest]
            counts.note_row(first_row)
        for digest, entries in self._ready(now_ms + SOON_MS):
            counts.pullable += sum(entry.row_no >= trimmed for entry in entries)
            if later and len(entries) == len(self.parked[digest]):
                counts.pullable += later.get(digest, 0)
        for digest, entries in self.parked.items():
            _count(counts, entries, now_ms, trimmed, free=digest not in self.busy)
        return counts

    def held(self) -> list[tuple[Parked, int, bytes]]:
        """Returns the first message of each held key, in the order of their positions, how many messages are parked
        behind it, and the digest of the key. The key of an earlier message in flight is not held."""
        flying = self.first_in_flight()
        failed = ((digest, entries[0]) for digest, entries in self.parked.items() if entries[0].failed)
        heads = ((digest, head) for digest, head in failed if head <= flying.get(digest, head))
        return sorted((head, self.parked_of(digest) - 1, digest) for digest, head in heads)

    # Rows

    def follow(self, row_no: int, row: OrderedRow, token: bytes, divided: OrderedMessages | None = None) -> None:
        """Adds the next row, which has this token now, or a later one if the rows between were removed. ``divided`` is
        ``row.divided()``, for a caller that knows it."""
        if row.outcome == SOUGHT:
            self._seek(row.end)
        divided = divided or row.divided()
        if row.order is not None:
            if row.order.dropped:
                self._take_and_drop(divided.parked, row.order.dropped)
            else:
                self._take_parked(divided.parked)
            # A seek hands messages out again that are still in flight: from now on the later row has them.
            if sought := self._sought():
                for _, taken in row.messages()[len(divided.parked) :]:
                    self._leave_earlier(taken.row_no, taken.in_row, sought)
        self._park_fresh(divided.parks)
        if divided.taken:
            self._set_open(row_no, InFlight(row, divided.taken, token=token))
            self.see(row_no, row, token)
        self.row_no, self.position, self.seq = row_no + 1, row.end, row.end_seq
        if row.covered:
            self.rows, self.messages = len(row.counts), row.covered

    def reopen(self, seen: SnapshotRow, row: OrderedRow, token: bytes) -> None:
        """Adds a row that was open at the snapshot, as it is now."""
        whole = InFlight(row, frozenset(), again_below=seen.again_below)
        self._set_open(seen.row_no, whole.without(frozenset(unpack_indexes(seen.done)), token))
        self.see(seen.row_no, row, token)

    def see(self, row_no: int, row: OrderedRow, token: bytes) -> None:
        """Notes which messages of an open row are decided by now."""
        flight = self.open[row_no]
        decided = row.settled - flight.decided
        if row.order is not None and row.order.failed:
            self._park_failed(flight, row.order, None if row.state != OPEN else decided)
        if row.state != OPEN:
            self.close(row_no)
        elif decided:
            self._set_open(row_no, flight.without(decided, token))
        elif flight.token != token:
            self.open[row_no] = replace(flight, token=token)

    def _park_failed(self, flight: InFlight, order: Order, decided: Set[int] | None) -> None:
        """Parks the messages of an open row that have failed, of those that are decided now (None: of all)."""
        stops = {index: (rejected, detail) for index, rejected, detail in order.stops}
        for index, attempt, due_ms in order.failed:
            # A seek hands out the messages behind it again: parked here as well, they would come twice.
            if (decided is None or index in decided) and self._parks_again(flight, index):
                digest, message = flight.messages[index]
                self._park(digest, Parked(message.row_no, message.in_row, attempt, due_ms, index in order.suspects))
                if index in stops:
                    self._note_stop(digest, LastFailure(message.row_no, message.in_row, *stops[index]))

    @staticmethod
    def _parks_again(flight: InFlight, index: int) -> bool:
        """Returns whether a message that failed was undecided so far, and no seek hands it out again."""
        return index in flight.messages and flight.parks(flight.messages[index][1])

    def _take_parked(self, messages: Sequence[tuple[bytes, Parked]]) -> None:
        """Removes the parked messages that a row takes."""
        parked, retries = self.parked, self.retries
        for digest, message in messages:
            entries = parked.get(digest)
            # A claim of this process takes the very objects of this state, and mostly the only one of a key.
            if entries is not None and entries[0] is message and len(entries) == 1 and not (retries or self.later):
                del parked[digest]
                self.total -= 1
            else:
                self._take(digest, message.row_no, message.in_row)

    def _take_and_drop(self, taken: Sequence[tuple[bytes, Parked]], dropped: Sequence[tuple[bytes, int, int]]) -> None:
        """Removes the parked messages that a row takes, and those that it drops, in their order: the later ones of a
        key come into reach only once all before them have left."""
        removed = [(message.row_no, message.in_row, digest) for digest, message in taken]
        removed += [(row_no, index, digest) for digest, row_no, index in dropped]
        for row_no, index, digest in sorted(removed):
            self._take(digest, row_no, index)

    def _take(self, digest: bytes, row_no: int, index: int) -> None:
        """Removes a message that a row takes or drops: from the parked ones, or from an open row in which it has failed
        since this state saw that row."""
        entries = self.parked.get(digest, ())
        if entries and (first := entries[0]).in_row == index and first.row_no == row_no:
            if len(entries) == 1:
                self._unpark(digest)
            elif self.retries or entries[1].due_ms:
                self._put(digest, entries[1:])
            else:
                self.parked[digest] = entries[1:]
                self.total -= 1
            return
        left = tuple(entry for entry in entries if not entry.at(row_no, index))
        self._put(digest, left)
        if len(left) == len(entries):
            self._leave_earlier(row_no, index, list(self.open))

    def _seek(self, position: Position) -> None:
        """Forgets the parked messages that the group will get again after the seek, and those that the seek skips. A
        message that failed before the new position is still tried again."""
        self.total -= sum(later.total for later in self.later.values())
        self.later.clear()
        for digest, entries in list(self.parked.items()):
            self._put(digest, tuple(entry for entry in entries if entry.due_ms and entry.position < position))
        self._seek_open(position)


def _until_one_waits(entries: tuple[Parked, ...], now_ms: int) -> tuple[Parked, ...]:
    """Returns the messages of a key before the first that waits for its time."""
    return entries[: next((at for at, entry in enumerate(entries) if entry.due_ms > now_ms), len(entries))]


def _count(counts: ParkedCounts, entries: tuple[Parked, ...], now_ms: int, trimmed: int, *, free: bool) -> None:
    """Counts the parked messages of a key by what they wait for. ``free``: none of its messages is in flight."""
    for entry in entries:
        # Behind a message that waits for its time, all others of the key wait for their turn.
        free = free and entry.due_ms <= now_ms
        if entry.row_no < trimmed:
            continue
        counts.note_row(entry.row_no)
        if entry.due_ms > now_ms:
            counts.backing_off += entry.due_ms < STOPPED_MS
        elif entry.due_ms and free:
            counts.due += 1
        else:
            counts.waiting += 1
