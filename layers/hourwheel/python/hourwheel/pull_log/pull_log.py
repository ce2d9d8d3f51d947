"""Claims a range of a source log for a consumer, by one conditional put into the pull log of the group on that source.

The loser of a race finds the winner's row in the refusal, and so knows where the next range starts. There is no cursor
item, and nothing to rebalance: any number of consumers claim from any queue from the first second on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import msgspec

from hourwheel.context import Context
from hourwheel.errors import Broken, Corrupt, GroupRemoved, Unavailable
from hourwheel.logs.cas import CasRecord, CasResult, Versioned
from hourwheel.logs.log import Log
from hourwheel.logs.rows import Row, sort_of
from hourwheel.model.groups import Group
from hourwheel.model.log_names import pull_log
from hourwheel.model.routes import FIRST, Mapping
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Blobs, Key, Record, Table, transactional
from hourwheel.pull_log.claim_range import ClaimRange
from hourwheel.pull_log.claims import Claim, ClaimRequest, ClaimResult, GrowthResult, Nothing
from hourwheel.pull_log.growth import grown, growth_of
from hourwheel.pull_log.ordered_rows import OrderedRow
from hourwheel.pull_log.records import (
    CLOSED,
    OPEN,
    PASSED,
    SETTLED_KEPT_MS,
    SOUGHT,
    Checkpoint,
    Position,
    PullRow,
    Tail,
)
from hourwheel.pull_log.selection import Selection
from hourwheel.reach.outages import all_reached

_FIRST_PAGE = 4  # without a claim before it the size of batches is unknown: a pull reads few rows first
_PAGE = 64  # with rows of up to 12 KB (``inline_bytes``), below the 1 MB of a query of DynamoDB
_ALL = "\U0010ffff"  # sorts behind every row number
_RACES = 100  # a claim that has lost this many races gives up, and its pull looks again


@dataclass(frozen=True)
class PullLog:
    """A group's progress on one source log. Cheap to create: every call reads the store."""

    context: Context
    group: Group
    source: Log
    queue: int | None
    """None for the group's retry log."""
    origin: int = 0
    """The row at which the group begins in the source."""
    mapping: Mapping = FIRST
    """The part of the queue that the source holds."""
    blobs: Blobs | None = None
    """The objects of the source's cell, opened before a transaction in which a claim may have to read a batch, as the
    claims of ordered groups and of filters do; None: those of the context."""

    def on(self, context: Context) -> "PullLog":
        """Returns this pull log with the store of another context, such as a transaction's."""
        # Not ``replace``, which visits every field: each pull does this for each of its logs.
        source = context.log(self.source.name)
        log = PullLog(context, self.group, source, self.queue, self.origin, self.mapping, self.blobs)
        log.__dict__["partition"] = self.partition
        return log

    @cached_property
    def partition(self) -> str:
        return pull_log(self.group.member, self.source.name)

    @property
    def filtered(self) -> bool:
        """Whether the group's filter applies: it does to queues, and not to the retries of messages that it took."""
        return self.group.filter is not None and self.queue is not None

    @property
    def batches(self) -> Blobs:
        """The objects that contain the large batches of the source, for claims."""
        return self.context.blobs if self.blobs is None else self.blobs

    @property
    def selection(self) -> Selection:
        tag_filter = self.group.filter if self.filtered else None
        return Selection(self.context, self.source, tag_filter, self.batches, retries=self.queue is None)

    def record(self, row_no: int) -> CasRecord[PullRow]:
        key = Key(Table.PULL, self.partition, sort_of(row_no))
        return CasRecord(self.source.store, self.context.ids, key, self._kind)

    @property
    def _kind(self) -> type[PullRow]:
        return OrderedRow if self.group.ordered else PullRow

    @property
    def checkpoint_record(self) -> CasRecord[Checkpoint]:
        return CasRecord(self.source.store, self.context.ids, Key(Table.META, "checkpoint", self.partition), Checkpoint)

    def tail(self) -> Tail:
        """Returns where the next claim goes."""
        return self._tail()[0]

    def _tail(self) -> "_LogTail":
        # The tail is a hint for the put: a claim at an old tail is refused, and the refusal returns the newer row.
        newest = self.source.store.scan(Table.PULL, self.partition, limit=1, reverse=True)
        last = [(int(sort), self.opened(int(sort), record)) for sort, record in newest]
        for row_no, current in last:
            # Rows behind this one were claimed later, and are kept for days once closed: none can be removed yet.
            if abs(self.context.clock.now_ms() - current.value.claimed_ms) < SETTLED_KEPT_MS // 2:
                return _LogTail.behind(row_no, current)
        # The checkpoint is read after the rows, because a sweeper saves it before it removes rows.
        checkpoint = self.checkpoint_record.load()
        for row_no, current in last:
            # A store removes expired rows in any order: a row left below the checkpoint is not the last one.
            if checkpoint is None or row_no >= checkpoint.value.row_no:
                return _LogTail.behind(row_no, current)
        return _LogTail(self.beginning(checkpoint), None)

    def has_unpulled(self) -> bool:
        """Returns whether a message for the group was never pulled, also one behind a row that is not stored yet.
        Strongly consistent."""
        tail = self.tail()
        now_ms = self.context.clock.now_ms()
        selection = self.selection
        for row_no, row in self.source.stored(tail.position.row_no):
            skip = tail.position.index if row_no == tail.position.row_no else 0
            if selection.offer(row_no, row, skip, now_ms).usable:
                return True
        return False

    def comes_to_suspect(self) -> bool:
        """Returns whether the next message to claim is a suspect. Perhaps out of date."""
        request = ClaimRequest("", max_messages=1, max_bytes=0, lease_ms=0)
        return self._take(self.tail(), request, self.context.clock.now_ms()).suspects_wait

    def beginning(self, checkpoint: Versioned[Checkpoint] | None = None) -> Tail:
        """Returns the lowest row that may be unsettled: the checkpoint, or where the group began. Raises
        ``GroupRemoved``."""
        checkpoint = checkpoint or self.checkpoint_record.load()
        if checkpoint is None:
            return Tail(0, Position(self.origin), 0)
        if checkpoint.value.erased:
            raise erased(self.group)
        return Tail(checkpoint.value.row_no, checkpoint.value.position, checkpoint.value.seq)

    def erase(self) -> None:
        """Allows the removal of all rows, for a group that is deleted. Idempotent. Marks the log first: a process that
        still has the group's record cached shall not take an empty log for one that never began, and hand out settled
        messages again."""
        current, now_ms = self.checkpoint_record.load(), self.context.clock.now_ms()
        while current is None or not current.value.erased:
            last = Checkpoint(0, Position(self.origin), 0, now_ms) if current is None else current.value
            mark = msgspec.structs.replace(last, erased=True)
            expect = None if current is None else current.token
            # The mark has to last as long as a record may be cached, or a writer may pause.
            current = self.checkpoint_record.swap(expect, mark, expires_ms=now_ms + SETTLED_KEPT_MS).current
        self.source.store.trim(Table.PULL, self.partition, below=_ALL)

    def claim(self, request: ClaimRequest) -> ClaimResult:
        """Claims the next messages by one conditional put, and returns the claim. Where no message waits it returns no
        claim, and writes nothing unless it has to pass over many rows without messages. The result is ``limited`` if
        another claim took the row to which the request is bound."""
        # A request that is bound to one row was counted against limits up to that row: a claim behind it, or behind a
        # row that has grown since, might exceed them.
        tail, growing = self._tail()
        if request.only_row is not None and tail.row_no != request.only_row:
            return ClaimResult(None, limited=True)
        for race in range(_RACES if request.only_row is None else 1):
            now_ms = self.context.clock.now_ms()
            taken = self._take(tail, request, now_ms)
            if not (taken.total or self._passes(taken, now_ms)):
                nothing = Nothing(tail.row_no, taken.end.row_no, self.filtered and taken.empty > 0)
                return self._result(None, taken, request, nothing=nothing)
            if growing is not None:
                outcome = self.end_growth(tail.row_no - 1, growing)
                tail, growing = (
                    self._tail() if outcome.current is None else _LogTail.behind(tail.row_no - 1, outcome.current)
                )
                if not outcome.stored:
                    continue  # the row has grown: its end is another one
            value = PullRow(
                consumer=request.consumer,
                first=taken.first,
                counts=tuple(taken.counts),
                end=taken.end,
                end_seq=taken.end_seq,
                # A token for each try: a receipt then names one claim, and no other claim of the same row.
                claim=self.context.ids.token(),
                claimed_ms=now_ms,
                lease_until_ms=now_ms + request.lease_ms,
                picks=taken.packed_picks if self.filtered else None,
                growth=growth_of(tail.row_no, request.before, now_ms) if self.rows_grow else None,
            )
            if not taken.total:
                value = value.closed(PASSED, now_ms)
            outcome = self.record(tail.row_no).swap(None, value, token=value.claim, expires_ms=value.garbage_ms)
            if outcome.current is not None and holds_claim(outcome.current.value, value.claim):
                # A row that only passes others says nothing about the next part of the queue: the pull looks again.
                taken.limited = taken.limited or not taken.total
                claim = Claim.of(tail.row_no, outcome.current, taken) if taken.total else None
                return self._result(claim, taken, request)
            self.context.meter.record("ClaimConflicts", 1)
            # Row by row while the races are few, as the winner tells where it ends. Otherwise one read finds the far
            # end.
            if outcome.current is None or race > 1:
                tail, growing = self._tail()
            else:
                tail, growing = _LogTail.behind(tail.row_no, outcome.current)
        return ClaimResult(None, limited=True)

    @property
    def rows_grow(self) -> bool:
        """Whether a settlement and the next claim are two writes, of which a row that grows saves one."""
        # One commit stores both, so a row that grows would save nothing.
        if self.context.later is not None or transactional(self.source.store):
            return False
        return not (self.group.ordered or self.group.flow_limited or self.filtered)

    def grow(self, row_no: int, claimed: Versioned[PullRow], request: ClaimRequest) -> GrowthResult:
        """Acknowledges all of the row, which ``may_grow``, and claims the messages behind it, in one write. Changes
        nothing and returns no claim where no message follows directly, where the row has changed since it was claimed,
        or where the new lease would end before the one that other processes know."""
        row, now_ms = claimed.value, self.context.clock.now_ms()
        if now_ms + request.lease_ms < row.lease_until_ms:
            return GrowthResult(None, claimed)
        try:
            taken = self._take(_behind(row_no, row), request._replace(suspects=False), now_ms)
        except (Corrupt, Unavailable, Broken):
            # The row must be settled whatever stands behind it: the claim that follows raises the error again.
            return GrowthResult(None, claimed)
        if not taken.total or taken.first != row.end:
            return GrowthResult(None, claimed)
        claim = self.context.ids.token()
        lease = (now_ms, now_ms + request.lease_ms)
        value = grown(row, tuple(taken.counts), taken.end, taken.end_seq, claim, lease)
        outcome = self.record(row_no).swap(claimed.token, value, token=claim)
        if outcome.current is None or not holds_claim(outcome.current.value, claim):
            return GrowthResult(None, outcome.current)
        claim_result = self._result(Claim.of(row_no, outcome.current, taken), taken, request)
        return GrowthResult(claim_result, outcome.current)

    def end_growth(self, row_no: int, seen: Versioned[PullRow]) -> CasResult[PullRow]:
        """Makes the end of a row that grows final, so that a row may be put behind it. Refused if the row has changed
        since it was seen."""
        return self.record(row_no).swap(seen.token, seen.value.final())

    def seek(self, position: Position, seq: int) -> None:
        """Makes ``position``, whose message has the sequence ``seq``, the start of the next claim. One write,
        repeated while claims win the race for the row."""
        while True:
            tail, growing = self._tail()
            if growing is not None and not self.end_growth(tail.row_no - 1, growing).stored:
                continue
            now_ms = self.context.clock.now_ms()
            value = PullRow(
                consumer="",
                first=position,
                counts=(),
                end=position,
                end_seq=seq,
                claim=self.context.ids.token(),
                claimed_ms=now_ms,
                lease_until_ms=now_ms,
                state=CLOSED,
                outcome=SOUGHT,
                closed_ms=now_ms,
            )
            if self.record(tail.row_no).swap(None, value, expires_ms=value.garbage_ms).stored:
                return

    def rows(self, start: int, limit: int = _PAGE) -> list[tuple[int, Versioned[PullRow]]]:
        """Returns up to ``limit`` pull rows from ``start`` on, in order, each with its number."""
        items = self.source.store.scan(Table.PULL, self.partition, start=sort_of(start), limit=limit)
        return [(int(sort), self.opened(int(sort), record)) for sort, record in items]

    def latest(self, limit: int) -> list[PullRow]:
        """Returns the newest pull rows, up to ``limit``, the last one first."""
        items = self.source.store.scan(Table.PULL, self.partition, limit=limit, reverse=True)
        return [self.opened(int(sort), record).value for sort, record in items]

    def opened(self, row_no: int, record: Record) -> Versioned[PullRow]:
        current = self.record(row_no).opened(record)
        assert current is not None
        return current

    def unread(
        self, start: Position, now_ms: int, page: int = _PAGE, *, consistent: bool = False
    ) -> Iterator[tuple[int, Row]]:
        """Yields the rows of the source log from ``start`` on, up to the first that is not stored yet. Reads page by
        page."""
        row_no = start.row_no
        while True:
            page_rows = self.source.read(row_no, page, consistent=consistent)
            if page_rows and page_rows[0][0] == start.row_no and page_rows[0][1].expires_ms <= now_ms:
                # A group that lags behind retention continues at the trim mark: the rows below have expired.
                trimmed = self.source.trimmed()
                if trimmed > row_no:
                    row_no = trimmed
                    continue
            yield from page_rows
            if len(page_rows) < page:
                return
            row_no, page = page_rows[-1][0] + 1, _PAGE

    def _take(self, tail: Tail, request: ClaimRequest, now_ms: int) -> ClaimRange:
        """Decides which rows a claim covers; without messages, which rows it passes over."""
        taken = ClaimRange(first=tail.position, end=tail.position, end_seq=tail.seq)
        selection, max_messages = self.selection, request.max_messages
        for row_no, row in self.unread(tail.position, now_ms, first_page(tail, max_messages)):
            skip = tail.position.index if row_no == tail.position.row_no else 0
            offer = selection.offer(row_no, row, skip, now_ms)
            # A pull row covers rows without a gap: its counts have no row numbers of their own.
            if taken.total and row_no != taken.rows[-1][0] + 1:
                taken.limited = True  # rows were trimmed between two pages: the next claim takes what follows
                break
            if not offer.usable:
                taken.pass_row(row_no, row, read=offer.read)
                if taken.long:
                    taken.limited = True
                    break
                continue
            if offer.suspect and (taken.total or not request.takes_suspect):
                taken.suspects_wait, taken.limited = True, taken.total > 0
                break
            # The limit does not count for the first messages: a row that is larger would never be claimed.
            bounded = taken.total or request.strict_bytes
            if bounded and taken.size + offer.answer_bytes > request.max_bytes:
                taken.limited = True
                break
            if not taken.total:
                taken.begin(Position(row_no, skip))
            taken.add(row_no, row, skip, min(offer.fitting, max_messages - taken.total), offer)
            taken.suspect = offer.suspect
            if taken.total >= max_messages or offer.fitting < offer.usable or taken.long or taken.suspect:
                taken.limited = True
                break
        return taken

    def _result(
        self, claim: Claim | None, taken: ClaimRange, request: ClaimRequest, *, nothing: Nothing | None = None
    ) -> ClaimResult:
        """Returns the result of a try that came as far as this range. There is no ``nothing`` where messages were
        left."""
        suspect_held = taken.suspects_wait and not taken.total and request.holds_suspects_back
        bounded = self.queue is None and request.share.messages is not None and not taken.suspect
        left = taken.limited or taken.suspects_wait
        return ClaimResult(
            claim,
            limited=taken.limited,
            nothing=None if left else nothing,
            held_back=bounded and (taken.limited or suspect_held),
            suspects_wait=taken.suspects_wait,
        )

    def _passes(self, taken: ClaimRange, now_ms: int) -> bool:
        """Returns whether a claim without messages writes a pull row that passes over the rows without messages."""
        return taken.long or (self.filtered and taken.unmatched.worth_passing(now_ms))


class _LogTail(NamedTuple):
    """Where the next claim goes, and the row before it, if that row still grows: its end must be final first."""

    tail: Tail
    growing: Versioned[PullRow] | None

    @classmethod
    def behind(cls, row_no: int, current: Versioned[PullRow]) -> "_LogTail":
        return cls(_behind(row_no, current.value), current if current.value.grows else None)


def holds_claim(row: PullRow, claim: bytes) -> bool:
    """Returns whether the row has this claim, also if the answer to its put was lost, and another process has ended the
    row's growth since."""
    return row.claim == claim and (row.state == OPEN or row.outcome == PASSED)


def _behind(row_no: int, value: PullRow) -> Tail:
    return Tail(row_no + 1, value.end, value.end_seq, len(value.counts), value.size)


def erased(group: Group) -> GroupRemoved:
    """Returns the error for a group that was deleted since its record was read."""
    return GroupRemoved("group-unknown", f"group {group.shared_name!r} was deleted meanwhile", field="group")


def first_page(tail: Tail, max_messages: int) -> int:
    """Returns the number of rows to read first: as many as the last claim needed for this number of messages, plus one
    that it may have covered in part."""
    if not tail.messages:
        return min(_FIRST_PAGE, max_messages)
    return min(_PAGE, -(-max_messages * tail.rows // tail.messages) + (tail.position.index > 0))


def pull_logs(context: Context, subject: Subject, group: Group) -> list[PullLog]:
    """Returns the group's pull logs: that of its retry log, then those of the queues, each queue's oldest part first.
    Leaves out logs in cells that cannot be opened."""
    retries = PullLog(context, group, context.log(group.retry_log), None)
    if not subject.routes:
        origins = [*group.origins, *[0] * (subject.queues - len(group.origins))]
        return [
            retries,
            *(
                PullLog(context, group, context.log(subject.log(queue)), queue, origins[queue])
                for queue in range(subject.queues)
            ),
        ]
    return [retries, *(log for queue in range(subject.queues) for log in _queue_logs(context, subject, group, queue))]


def _queue_logs(context: Context, subject: Subject, group: Group, queue: int) -> list[PullLog]:
    return all_reached(partial(_part_log, context, group, queue), group_parts(subject, group, queue))


def _part_log(context: Context, group: Group, queue: int, part: tuple[Mapping, str, int]) -> PullLog:
    mapping, name, origin = part
    blobs = context.blobs_of(name) if group.ordered or group.filter is not None else None
    return PullLog(context, group, context.log(name), queue, origin, mapping, blobs)


def group_parts(subject: Subject, group: Group, queue: int) -> list[tuple[Mapping, str, int]]:
    """Returns the parts of a queue, oldest first, each with the name of its log and the row at which the group begins
    there. A group that started at the latest message begins behind the parts that were closed then."""
    parts = subject.parts(queue)
    if group.start == "earliest" or queue >= len(group.origins):
        return [(mapping, log, 0) for mapping, log in parts]
    # The part that was open then may have expired: the latest one that is left need not be it.
    begun = group.origin_logs[queue] if group.origin_logs else subject.log_of(queue, FIRST)

    def origin(mapping: Mapping, log: str) -> int:
        if mapping.epoch > group.origin_epoch:
            return 0
        return group.origins[queue] if log == begun else mapping.rows

    return [(mapping, log, origin(mapping, log)) for mapping, log in parts]
