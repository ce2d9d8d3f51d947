"""Selects what an ordered group's next pull takes: parked messages whose turn has come, then messages that nobody has
seen. Reads rows and writes nothing.

A message is taken only if no earlier message of its digest is in flight or stays parked. Of one digest a pull may take
several messages, in their order.
"""

from bisect import bisect_left
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from operator import itemgetter

from hourwheel.ordered.key_states import KeyStates
from hourwheel.ordered.keyed_range import KeyedRange, RowSpan
from hourwheel.ordered.source_rows import SourceRows
from hourwheel.ordered.suspects import without_suspects
from hourwheel.ordered.turns import Ready, first_turns
from hourwheel.pull_log.claiming import claim_range
from hourwheel.pull_log.claiming.retry_share import NOT_SHARED, RetryShare
from hourwheel.pull_log.keyed_rows import KeyedMessages, KeyedRow, KeyedRowCache
from hourwheel.pull_log.log_rows import first_page
from hourwheel.pull_log.ordered_rows import Order, OrderedMessages, Parked, bits
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.wire.answer_size import message_size

AHEAD = 100
"""A claim looks at least at this many messages, and at three times as many as it may take, for one whose key is not in
flight. The digests of all of them stand in its row, at 6 bytes each."""

_MOST_AHEAD = 1_000  # 6 KB of digests in a pull row


@dataclass(frozen=True)
class ClaimLimits:
    """The limits of a claim. ``strict_bytes``: even the first message must fit into ``max_bytes``. ``share`` bounds the
    messages of keys that are tried again. ``suspects``: the claim may take a suspect, if it takes nothing else."""

    max_messages: int
    max_bytes: int
    strict_bytes: bool
    share: RetryShare = NOT_SHARED
    suspects: bool = True

    @property
    def takes_suspect(self) -> bool:
        """Whether the claim takes a suspect if one is there."""
        return self.suspects and self.share.turn

    @property
    def ahead(self) -> int:
        return min(_MOST_AHEAD, max(AHEAD, 3 * self.max_messages))


@dataclass
class OrderedSelection:
    """What the next pull takes, as far as ``select`` has come. ``limited``: there may be more."""

    log: PullLog
    state: KeyStates
    limits: ClaimLimits
    now_ms: int
    decoded_rows: KeyedRowCache
    parked: list[tuple[bytes, Parked]] = field(default_factory=list)
    dropped: list[tuple[bytes, int, int]] = field(default_factory=list)
    count: int = 0
    """The number of messages that the pull takes."""
    limited: bool = False
    retries: int = 0
    """The number of messages that the pull takes of keys that are tried again, if these are bounded."""
    held_back: bool = False
    """Whether the bound has left such messages."""
    suspect: bool = False
    """Whether the pull takes a suspect."""
    suspects_wait: bool = False
    """Whether a suspect was left, because the claim takes none."""
    size: int = 0
    _rows: dict[int, KeyedRow] = field(default_factory=dict)
    """The rows of the parked messages that the pull takes."""
    _charged: set[int] = field(default_factory=set)
    _free: set[bytes] = field(default_factory=set)
    """The digests of which the pull takes every parked message."""
    _room: int = 0
    """The number of messages that the group may still park."""
    covered: KeyedRange = field(init=False)
    source: SourceRows = field(init=False)

    def __post_init__(self) -> None:
        self.source = SourceRows(self.log, self.decoded_rows, self.now_ms)

    def select(self) -> None:
        state, limits = self.state, self.limits
        self.covered = KeyedRange(state.position, state.position, state.seq)
        ready = state.ready(self.now_ms, limits.max_messages)
        # A message that was never handed out is no suspect.
        ready, suspect = without_suspects(ready) if state.retries else (ready, None)
        if suspect is not None and limits.takes_suspect:
            self._take_alone(suspect)
            return
        self.suspects_wait = suspect is not None
        retries = self._take_retries(ready)
        self._take_others(_without(ready, state.retries) if retries else ready)
        if self.held_back and limits.share.fills:
            self._fill_up(retries)
        if suspect is not None and limits.suspects:
            self._leave(suspect)
        if retries:
            self.parked.sort(key=lambda parked: (parked[1].row_no, parked[1].in_row))

    @property
    def writes(self) -> bool:
        """Whether there is a row to write: for a pull, or to pass over what nobody can be given."""
        passes = self.covered.digests or self.covered.empty >= claim_range.EMPTY_ROWS or self.source.unreadable
        return bool(self.count or self.dropped or passes)

    @property
    def divided(self) -> OrderedMessages:
        """What the row says about its messages."""
        digests = [digest for digest, _ in self.parked]
        return OrderedMessages(self.parked, self.covered.parks, frozenset([*digests, *self.covered.taken]))

    @property
    def taken(self) -> tuple[KeyedMessages, ...]:
        """The messages of the pull in their order. Those of one row and attempt that follow one another are one
        part."""
        parts: list[KeyedMessages] = []
        last: tuple[int, int] | None = None
        for _, message in self.parked:
            of = (message.row_no, message.attempt)
            if of != last:
                parts.append(KeyedMessages(self._rows[message.row_no], [], message.attempt))
                last = of
            parts[-1].indexes.append(message.in_row)
        covered = self.covered.parts
        if parts and covered and parts[-1].row is covered[0].row and parts[-1].attempt == 1:
            parts[-1].indexes.extend(covered[0].indexes)
            covered = covered[1:]
        return (*parts, *covered)

    @property
    def order(self) -> Order:
        return Order(
            digests=b"".join([digest for digest, _ in self.parked]) + self.covered.digests,
            taken=bits(self.covered.takes, self.covered.size),
            parked=tuple([(parked.row_no, parked.in_row, parked.attempt) for _, parked in self.parked]),
            dropped=tuple(self.dropped),
            suspect=self.suspect,
        )

    @property
    def uncovered_row(self) -> int:
        """The first row that may hold a message which the row does not cover."""
        return self.covered.end.row_no

    # Parked messages

    def _leave(self, suspect: tuple[bytes, Parked]) -> None:
        """Leaves a suspect for the retries' turn where it waits beside other messages."""
        if self.count:
            self.limited = True
        elif self.limits.share.fills:
            self.suspects_wait = False
            self._take_alone(suspect)
        else:
            self.held_back = True

    def _take_alone(self, suspect: tuple[bytes, Parked]) -> None:
        """Takes this suspect, or drops it if it has expired, and covers nothing."""
        self._take_parked([(suspect[0], (suspect[1],))], 1, self.limits.max_bytes)
        self.suspect, self.limited = self.count == 1, True
        self.retries = self.count
        self.covered.cut(self.state.position, self.state.seq)

    def _take_others(self, ready: Ready) -> None:
        """Takes parked messages whose turn it is, then messages that nobody has seen."""
        limits = self.limits
        self.limited = not self._take_parked(ready, limits.max_messages - self.count, limits.max_bytes)
        if not self.limited and self.count < limits.max_messages:
            self._look_ahead(self.covered)
        self.covered.cut(self.state.position, self.state.seq)

    def _take_retries(self, ready: Ready) -> Ready:
        """Takes messages of the keys that are tried again, as many as their share allows, and returns all of these
        keys; none where nothing bounds them. Of a key whose turn ends within, the messages behind stay parked, and so
        do those that nobody has seen."""
        limits, share = self.limits, self.limits.share
        if share.messages is None or not self.state.retries:
            return []
        retries = [key for key in ready if key[0] in self.state.retries]
        most = min(share.messages, limits.max_messages)
        max_bytes = share.bytes_of(limits.max_bytes, limits.max_messages)
        self.held_back = not self._take_parked(retries, most, max_bytes, strict=not share.turn)
        self.retries = self.count
        return retries

    def _fill_up(self, retries: Ready) -> None:
        """Takes retries that exceed their share, where new messages have left room."""
        before = self.count
        done = {(message.row_no, message.in_row) for _, message in self.parked}
        done.update((row_no, in_row) for _, row_no, in_row in self.dropped)
        rests = (
            (key, [message for message in parked if (message.row_no, message.in_row) not in done])
            for key, parked in retries
        )
        left = [(key, tuple(rest)) for key, rest in rests if rest]
        self.held_back = not self._take_parked(left, self.limits.max_messages - before, self.limits.max_bytes)
        self.retries += self.count - before

    def _take_parked(self, ready: Ready, most: int, max_bytes: int, *, strict: bool = False) -> bool:
        """Takes the first of these messages, at most this many, and returns whether these are all."""
        taken, before, start = self.parked, len(self.parked), 0
        turns, complete = first_turns(ready, most)
        rows = self.source.read(map(itemgetter(0), turns[:most]))
        while start < len(turns):
            row_no, _, digest, parked = turns[start]
            room = most - (len(taken) - before)
            if room <= 0 or row_no not in rows:
                break
            if row_no in self._charged and row_no in self._rows:
                # There is room for all messages of the row: they are taken at once.
                end = min(bisect_left(turns, (row_no + 1,), start), start + room)
                taken += [turn[2:] for turn in turns[start:end]]
                start = end
            elif self._take(digest, parked, rows[row_no], max_bytes, strict=strict):
                start += 1
            else:
                break
        self.count += len(taken) - before
        if not complete or start < len(turns):
            return False
        self._free_all(ready)
        return True

    def _free_all(self, ready: Ready) -> None:
        """Notes the digests of which nothing stays parked: what follows of them may come in the same pull."""
        self._free.update(digest for digest, entries in ready if len(entries) == self.state.parked_of(digest))

    def _take(
        self, digest: bytes, parked: Parked, row: KeyedRow | None, max_bytes: int, *, strict: bool = False
    ) -> bool:
        """Takes or drops a parked message. Returns False if it does not fit into the answer."""
        if row is None or row.row.expires_ms <= self.now_ms:
            self.dropped.append((digest, parked.row_no, parked.in_row))
            return True
        first = not (strict or self.parked or self.covered.taken)
        if not self._fits(parked.row_no, row, parked.in_row, max_bytes, first=first):
            return False
        self._rows[parked.row_no] = row
        self.parked.append((digest, parked))
        return True

    # Messages that nobody has seen

    def _look_ahead(self, covered: KeyedRange) -> None:
        """Covers messages until the pull is full. Keeps what lies before the last one that it takes: what follows is
        left for the next claim, unless this one has looked as far as it may."""
        if self.state.held_keys >= self.log.group.max_held:
            return  # the queue waits: messages of further keys might fail as well
        self._room = self.state.room
        for row_no, row, skip in self._rows_ahead(covered):
            covered.begin_row(row_no, skip)
            run = self._run(row_no, row, skip)
            covered.add(row_no, row, run)
            self.count += len(run.takes)
            if self._room == 0 and covered.digests:
                # Parked up to the bound, so that the lag says why the queue waits.
                covered.keep(len(covered.parks))
            # Checked before the next row is read.
            if self.limited or run.end < row.row.count:
                return
        if not covered.digests:
            covered.keep(0)

    def _run(self, row_no: int, row: KeyedRow, start: int) -> RowSpan:
        """Chooses from the messages of a row. Ends before its last message where the pull is full, the claim looks no
        further ahead, or the group may park no more: the queue waits then until a parked message is settled."""
        messages, ahead = self.limits.max_messages - self.count, start + self.limits.ahead - self.covered.size
        end, digests = min(row.row.count, ahead), row.digests
        busy, parked, free = self.state.busy, self.state.parked, self._free
        takes: list[int] = []
        parks: list[int] = []
        whole = False
        for index in range(start, end):
            digest = digests[index]
            if digest in busy or (digest in parked and digest not in free):
                if len(parks) >= self._room:
                    end = index
                    break
                parks.append(index)
                continue
            first = not (self.count or takes)
            if not (whole or self._fits(row_no, row, index, self.limits.max_bytes, first=first)):
                self.limited, end = True, index
                break
            whole = row_no in self._charged
            takes.append(index)
            if len(takes) == messages:
                end = index + 1
                break
        self._room -= len(parks)
        return self._span(RowSpan(start, end, end, takes, parks), messages, ahead)

    def _span(self, looked: RowSpan, messages: int, ahead: int) -> RowSpan:
        """Returns the messages that the claim has looked at, kept in full where it takes ``messages`` of them, or has
        looked up to the index ``ahead``: these are its limits."""
        if len(looked.takes) == messages or looked.end == ahead:
            self.limited = True
            return looked
        return looked._replace(kept=looked.takes[-1] + 1 if looked.takes else looked.start)

    def _rows_ahead(self, covered: KeyedRange) -> Iterator[tuple[int, KeyedRow, int]]:
        """Yields the rows from the state's position on, each with the index from which the claim looks at it."""
        start = self.state.position
        page = first_page(self.state.tail, self.limits.max_messages)
        for row_no, row in self.source.unread(self.state.position, page):
            if covered.counts and row_no != covered.last_row + 1:
                self._end_early(covered)  # rows were trimmed between two pages: the next claim takes what follows
                return
            skip = start.index if row_no == start.row_no else 0
            live = row.expires_ms > self.now_ms and row.count > skip
            decoded = self.source.decoded(row_no, row) if live else None
            if decoded is not None:
                yield row_no, decoded, skip
                continue
            covered.pass_row(row_no, row)
            if covered.empty >= claim_range.EMPTY_ROWS or row_no in self.source.unreadable:
                self._end_early(covered)
                return

    def _end_early(self, covered: KeyedRange) -> None:
        self.limited = True
        covered.keep(len(covered.parks))

    def _fits(self, row_no: int, keyed: KeyedRow, index: int, max_bytes: int, *, first: bool) -> bool:
        """Returns whether there is room for the message in this many bytes of the answer, and takes the room. A row
        counts in full while there is room for all of it: its messages need not be measured then. ``first``: the pull
        takes none before it."""
        if row_no in self._charged:
            return True
        answer_bytes = keyed.row.answer_bytes
        if answer_bytes and self.size + answer_bytes <= max_bytes:
            self.size += answer_bytes
            self._charged.add(row_no)
            return True
        size = message_size(keyed.message(index))
        if self.size + size <= max_bytes or (first and not self.limits.strict_bytes):
            self.size += size
            return True
        return False


def _without(ready: Ready, digests: Container[bytes]) -> Ready:
    return [key for key in ready if key[0] not in digests]
