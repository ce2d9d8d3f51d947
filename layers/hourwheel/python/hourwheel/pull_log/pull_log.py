"""Claims a range of a source log for a consumer, by one conditional put into the pull log of the group on that source.

The loser of a race finds the winner's row in the refusal, and so knows where the next range starts. There is no cursor
item, and nothing to rebalance: any number of consumers claim from any queue from the first second on.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from hourwheel.context import Context
from hourwheel.errors import Broken, Corrupt, Unavailable
from hourwheel.handover.handover import Transfer
from hourwheel.logs.cas import CasResult, Versioned
from hourwheel.model.lag import Lag
from hourwheel.ports.storage import transactional
from hourwheel.pull_log.claiming.ahead import first_kept, is_steady, keep_ahead, kept_range, rows_ahead
from hourwheel.pull_log.claiming.claim_range import ClaimRange
from hourwheel.pull_log.claiming.claims import (
    Claim,
    ClaimRequest,
    ClaimResult,
    Nothing,
    SettledClaim,
    SettledRow,
)
from hourwheel.pull_log.claiming.growth import grown, growth_of, may_grow, taken_on
from hourwheel.pull_log.claiming.others import Others
from hourwheel.pull_log.log_rows import SINCE, LogRows, LogTail, behind, first_page
from hourwheel.pull_log.parked_counts import ParkedLag
from hourwheel.pull_log.parsed_settlements import ParsedSettlement
from hourwheel.pull_log.records import (
    CLOSED,
    OPEN,
    PASSED,
    SOUGHT,
    Position,
    PullRow,
    Tail,
)

_RACES = 100  # a claim that has lost this many races gives up, and its pull looks again
_RACES_AT_ONCE = 2  # what the winner tells saves a read: only claims that lose more often than that get out of step
_FIRST_PAUSE_SECONDS = 0.01  # the time in which a winner reads its messages and puts its row
_LONGEST_PAUSE_SECONDS = 0.2  # so that the consumer of a pull that loses still gets its messages soon


@dataclass(frozen=True)
class PullLog(LogRows):
    """A group's progress on one source log: its claims and settlements."""

    def on(self, context: Context) -> "PullLog":
        """Returns this pull log with the store of another context, such as a transaction's."""
        # Not ``replace``, which visits every field: each pull does this for each of its logs.
        source = context.log(self.source.name)
        log = PullLog(context, self.group, source, self.queue, self.origin, self.mapping, self.blobs)
        log.__dict__["partition"] = self.partition
        return log

    def has_message(self) -> bool:
        """Returns whether a claim would find a message now, also one behind a row that is not stored yet. Strongly
        consistent."""
        tail = self.tail()
        now_ms = self.context.clock.now_ms()
        selection = self.selection
        for row_no, row in self.source.stored(tail.position.row_no):
            skip = tail.position.index if row_no == tail.position.row_no else 0
            if selection.offer(row_no, row, skip, now_ms).usable:
                return True
        return False

    @property
    def joins(self) -> bool:
        """Whether a claim may join the transaction of a send, before the counters show its messages."""
        return True

    @property
    def has_retries(self) -> bool:
        """Whether messages that are retried are claimed from this log."""
        return self.queue is None

    @property
    def keeps_failed(self) -> bool:
        """Whether a message that failed stays in its queue until it is retried."""
        return False

    def waits(self) -> bool:
        """Returns whether the log may have a message that no counter tells, as far as this process knows. Reads
        nothing."""
        return False

    def holds(self) -> bool:
        """Returns whether a message before the next claim may be claimed again, as far as this process knows. Reads
        nothing."""
        return False

    def next_due_ms(self) -> int | None:
        """Returns when the next message that failed is tried again from this log, as far as this process knows; None if
        there is none. Reads nothing."""
        return None

    def knows_suspect(self) -> bool:
        """Returns whether the log has a suspect whose time has come, as far as this process knows. Reads nothing."""
        return False

    def comes_to_suspect(self) -> bool:
        """Returns whether the next message to claim is a suspect. Perhaps out of date."""
        request = ClaimRequest("", max_messages=1, max_bytes=0, lease_ms=0)
        return self._range_of(self.tail(), request, self.context.clock.now_ms()).suspects_wait

    def claim(self, request: ClaimRequest) -> ClaimResult:
        """Claims the next messages by one conditional put, and returns the claim. Where no message waits it returns no
        claim, and writes nothing unless it has to pass over many rows without messages. The result is ``limited`` if
        another claim took the row to which the request is bound."""
        assert not self.group.ordered, "not opened by PullLogs: this log has another kind"
        # A request that is bound to one row was counted against limits up to that row: a claim behind it, or behind a
        # row that has grown since, might exceed them.
        end = self._end_for(request)
        if request.only_row is not None and end.tail.row_no != request.only_row:
            return ClaimResult(None, limited=True)
        for race in range(min(_RACES, request.races) if request.only_row is None else 1):
            if race >= _RACES_AT_ONCE:
                end = self._end_after_pause(race - _RACES_AT_ONCE, request)
            result, end = self._claim_at(end, request)
            if result is not None:
                return result
        return ClaimResult(None, limited=True)

    def _end_for(self, request: ClaimRequest) -> LogTail:
        """Returns the end of the log, and whom the consumer meets there, if its claim may depend on that."""
        before = request.before
        if before is None or not self.claims_ahead or not is_steady(before):
            return self.end()
        end = self.end_since(before.row_no, request.consumer)
        if end.others is None or end.others.beside or before.serial:
            return end
        beside = self._holds_before(before, request, end.tail)
        return end._replace(others=end.others._replace(beside=beside))

    def _holds_before(self, before: SettledRow, request: ClaimRequest, tail: Tail) -> bool:
        """Returns whether the consumer may have an open row before the one that it has settled. Reads these rows, if
        they are few, where messages wait that a claim may keep."""
        rows = before.row_no - before.open_from
        if request.source_rows <= tail.position.row_no + 1 or rows > SINCE:
            return True
        read = self.rows(before.open_from, rows) if rows > 0 else []
        return Others().joined((current.value for _, current in read), request.consumer).beside

    def _end_after_pause(self, pauses: int, request: ClaimRequest) -> LogTail:
        """Returns the end of the log after a random pause that is longer after each lost race: many consumers that try
        all the time let each other lose."""
        longest = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**pauses)
        self.context.clock.sleep(longest * (1.0 - self.context.ids.jitter()))
        return self._end_for(request)

    def _claim_at(self, end: LogTail, request: ClaimRequest) -> tuple[ClaimResult | None, LogTail]:
        """Tries to put the next row at this end of the log. Returns the result, or None and the later end where another
        claim came first."""
        tail, now_ms = end.tail, self.context.clock.now_ms()
        ahead = 0 if end.others is None else rows_ahead(request, tail, end.others)
        taken = self._range_of(tail, request, now_ms, ahead)
        if not (taken.total or self._passes(taken, now_ms)):
            nothing = Nothing(tail.row_no, taken.end.row_no, self.filtered and taken.empty > 0)
            return self._result(None, taken, request, nothing=nothing), end
        if end.before is not None:
            final = self.end_growth(tail.row_no - 1, end.before)
            end = self._end_behind(tail.row_no - 1, final.current, end.others, request)
            if not final.stored:
                return None, end  # the row has grown: its end is another one
        value = self._row_of(taken, end, request, now_ms)
        outcome = self.record(end.tail.row_no).swap(None, value, token=value.claim, expires_ms=value.garbage_ms)
        if outcome.current is not None and holds_claim(outcome.current.value, value.claim):
            # A row that only passes others says nothing about the next part of the queue: the pull looks again.
            taken.limited = taken.limited or not taken.total
            return self._result(taken.claim(end.tail.row_no, outcome.current), taken, request), end
        self.context.meter.record("ClaimConflicts", 1)
        return None, self._end_behind(end.tail.row_no, outcome.current, end.others, request)

    def _end_behind(
        self, row_no: int, current: Versioned[PullRow] | None, others: Others | None, request: ClaimRequest
    ) -> LogTail:
        """Returns the end of the log behind this row, which another claim may have put before this one; reads the end
        where the row is not known."""
        if current is None:
            return self._end_for(request)
        met = None if others is None else others.joined([current.value], request.consumer)
        return LogTail.behind(row_no, current, met)

    def _row_of(self, taken: ClaimRange, end: LogTail, request: ClaimRequest, now_ms: int) -> PullRow:
        """Returns the row at this end of the log that claims the range; one that is closed at once if the range has no
        messages."""
        serial = end.others is not None and not end.others.beside
        growth = growth_of(end.tail.row_no, request.before, now_ms, len(taken.ahead), serial=serial)
        value = PullRow(
            consumer=request.consumer,
            first=taken.first,
            counts=(*taken.counts, *taken.ahead),
            end=taken.end,
            end_seq=taken.end_seq,
            # A token for each try: a receipt then names one claim, and no other claim of the same row.
            claim=self.context.ids.token(),
            claimed_ms=now_ms,
            lease_until_ms=now_ms + request.lease_ms,
            picks=taken.packed_picks if self.filtered else None,
            growth=growth if self.claims_behind else None,
        )
        return value if taken.total else value.closed(PASSED, now_ms)

    def claimed_row(self, row_no: int, claimed: Versioned[PullRow]) -> Versioned[PullRow] | None:
        """Returns the row of a claim, which the receipt of its pull contains as ``claimed``: as it was claimed, or a
        later one. Returns None if the row has another claim by now, as far as that is known without it."""
        return claimed

    def decided_in_place(self, row: PullRow, parsed: ParsedSettlement) -> "DecidedRow | None":
        """Returns what becomes of the row if messages that fail stay in their places; None where they go to other
        logs."""
        assert not self.group.ordered, "not opened by PullLogs: this log has another kind"
        return None

    def changed(self, row_no: int, row: PullRow, token: bytes) -> None:
        """Notes that this process has changed an open row, which has this token now."""

    @property
    def claims_behind(self) -> bool:
        """Whether a settlement and the next claim are two writes, of which ``claim_behind`` saves one."""
        # One commit stores both, so a row that grows would save nothing.
        if self.context.later is not None or transactional(self.source.store):
            return False
        return not (self.group.flow_limited or self.filtered)

    @property
    def claims_ahead(self) -> bool:
        """Whether claims of several consumers keep messages for their next pulls."""
        return self.queue is not None and self.mapping.first and self.claims_behind

    def may_claim_behind(self, claimed: PullRow, parsed: ParsedSettlement, consumer: str) -> bool:
        """Returns whether ``claim_behind`` may settle a row, which its receipt contains as ``claimed``, in a pull of
        this consumer. Asked where ``claims_behind`` is true."""
        return may_grow(claimed, parsed, consumer, self.context.clock.now_ms())

    def claim_behind(self, row_no: int, claimed: Versioned[PullRow], request: ClaimRequest) -> SettledClaim:
        """Acknowledges all of the row and claims the messages that are kept for the consumer, or else those behind the
        row, in one write. Changes nothing and returns no claim where no message follows directly, where the row has
        changed since it was claimed, or where the new lease would end before the one that other processes know."""
        row, now_ms = claimed.value, self.context.clock.now_ms()
        if now_ms + request.lease_ms < row.lease_until_ms:
            return SettledClaim(None, claimed)
        try:
            taken = self._kept(row, request) if row.kept else self._behind(row_no, row, request, now_ms)
        except (Corrupt, Unavailable, Broken):
            # The row must be settled whatever stands behind it: the claim that follows raises the error again.
            return SettledClaim(None, claimed)
        if not taken.total:
            return SettledClaim(None, claimed)
        claim = self.context.ids.token()
        lease = (now_ms, now_ms + request.lease_ms)
        value = taken_on(row, taken, claim, lease) if row.kept else grown(row, taken, claim, lease)
        outcome = self.record(row_no).swap(claimed, value, token=claim)
        if outcome.current is None or not holds_claim(outcome.current.value, claim):
            return SettledClaim(None, outcome.current)
        claim_result = self._result(taken.claim(row_no, outcome.current), taken, request)
        return SettledClaim(claim_result, outcome.current)

    def _kept(self, row: PullRow, request: ClaimRequest) -> ClaimRange:
        """Returns the range of the messages kept by a row that the next pull of its consumer takes."""
        start, most = first_kept(row), min(row.ahead, request.max_messages)
        # An eventually consistent read may miss rows that the claim has read.
        rows = self.source.read(start, most) or self.source.read(start, most, consistent=True)
        return kept_range(row, rows, self.selection, request)

    def _behind(self, row_no: int, row: PullRow, request: ClaimRequest, now_ms: int) -> ClaimRange:
        """Returns the range of the messages directly behind a row; an empty one if others come before them."""
        taken = self._range_of(behind(row_no, row), request._replace(suspects=False), now_ms)
        return taken if taken.first == row.end else ClaimRange(row.end, row.end, row.end_seq)

    def end_growth(self, row_no: int, seen: Versioned[PullRow]) -> CasResult[PullRow]:
        """Makes the end of a row that grows final, so that a row may be put behind it. Refused if the row has changed
        since it was seen."""
        return self.record(row_no).swap(seen, seen.value.final())

    def sweep(self) -> None:
        """Saves what must outlive the rows of the log before its checkpoint moves."""

    def parked(self, since_ms: int) -> ParkedLag | None:
        """Returns the numbers of the messages that wait in their places although a claim has passed them; None where
        none ever do. Reads them again unless that was done since ``since_ms``."""
        return None

    def add_parked(self, lag: Lag, *, named: int = 0) -> None:
        """Adds the messages that ``parked`` counts to the lag of the group, and names the first ``named`` keys
        that they hold."""

    def held_retries(self) -> Iterable[tuple[int, int]]:
        """Returns the attempt and the due time of each message that is retried in its place."""
        return ()

    def seek(self, position: Position, seq: int) -> None:
        """Makes ``position``, whose message has the sequence ``seq``, the start of the next claim. One write,
        repeated while claims win the race for the row."""
        while True:
            tail, before, _ = self.end()
            if before is not None and not self.end_growth(tail.row_no - 1, before).stored:
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

    def _range_of(self, tail: Tail, request: ClaimRequest, now_ms: int, ahead: int = 0) -> ClaimRange:
        """Decides which rows a claim covers; without messages, which rows it passes over. Keeps messages of up to
        ``ahead`` further rows."""
        if ahead:
            # A row that cannot be read keeps no claim from the rows before it.
            with suppress(Corrupt):
                return self._read_range(tail, request, now_ms, ahead)
        return self._read_range(tail, request, now_ms, 0)

    def _read_range(self, tail: Tail, request: ClaimRequest, now_ms: int, ahead: int) -> ClaimRange:
        taken = ClaimRange(first=tail.position, end=tail.position, end_seq=tail.seq)
        selection = self.selection
        rows = self.unread(tail.position, now_ms, first_page(tail, request.max_messages) + ahead)
        for row_no, row in rows:
            skip = tail.position.index if row_no == tail.position.row_no else 0
            if not taken.cover(row_no, row, skip, selection.offer(row_no, row, skip, now_ms), request):
                break
        if ahead and taken.total and not taken.end.index:
            keep_ahead(taken, islice(rows, ahead), selection, request)
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


class DecidedRow(NamedTuple):
    """A pull row after a settlement: the indexes of all messages that are decided, and the transfers of those that
    leave the log."""

    row: PullRow
    settled: frozenset[int]
    transfers: tuple[Transfer, ...]


def holds_claim(row: PullRow, claim: bytes) -> bool:
    """Returns whether the row has this claim, also if the answer to its put was lost, and another process has ended the
    row's growth since."""
    return row.claim == claim and (row.state == OPEN or row.outcome == PASSED)
