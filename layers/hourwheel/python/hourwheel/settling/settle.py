"""Settles messages by one conditional update of the pull row, which succeeds only if nobody changed the row meanwhile.

Retries and dead letters are handed over: the update that settles them also writes the reservations of their rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from hourwheel.buckets.buckets import Bucket
from hourwheel.context import Context
from hourwheel.errors import Sealed
from hourwheel.handover.copies import ATTEMPTS, REJECTED, RELEASED, RETRY, read_messages, row_builder
from hourwheel.handover.handover import Transfer, carry_out, release, reserve
from hourwheel.logs.cas import CasResult, Versioned
from hourwheel.logs.entries import DueTimes
from hourwheel.model.fields import DEAD_RETENTION_MS, DETAILS_BYTES, MAX_LEASE_SECONDS
from hourwheel.model.log_names import HOME
from hourwheel.model.pulls import Settled
from hourwheel.model.subjects import Subject
from hourwheel.ordered.key_state_cache import KeyStateCache
from hourwheel.ordered.settle import settle_in_order, was_settled_otherwise
from hourwheel.pull_log.growth import was_acknowledged
from hourwheel.pull_log.ordered_rows import Order, OrderedRow
from hourwheel.pull_log.parsed_settlements import ParsedSettlement
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import CLOSED, CLOSING, EXPIRED, OPEN, SETTLED, Position, PullRow
from hourwheel.times import rfc3339

_STALE = Settled("stale")


def _details_of(
    picks: Sequence[tuple[int, int]], positions: Sequence[Position], parsed: ParsedSettlement
) -> tuple[str | None, ...]:
    """Returns the detail of each of these picks for their transfer; an empty tuple if none has any."""
    by_pick = {(positions[index].row_no, positions[index].index): detail for index, detail in parsed.details.items()}
    details = tuple([by_pick.get(pick) for pick in picks]) if by_pick else ()
    return details if any(detail is not None for detail in details) else ()


def _stops_of(
    order: Order, stopped: Sequence[int], parsed: ParsedSettlement
) -> tuple[tuple[int, bool, str | None], ...]:
    """Returns ``Order.stops`` with these messages of the pull, whose details share the room of a row with earlier
    ones."""
    stops = list(order.stops)
    left_bytes = DETAILS_BYTES - sum(len((detail or "").encode()) for _, _, detail in stops)
    for index in stopped:
        detail = parsed.details.get(index)
        left_bytes -= len((detail or "").encode())
        stops.append((index, index in parsed.dead, detail if left_bytes >= 0 else None))
    return tuple(stops)


def answer_without_change(row: PullRow, claim: bytes, parsed: ParsedSettlement) -> Settled | None:
    """Returns the answer to a settlement that leaves the pull row as it is; None when the row has to change.

    ``claim`` is the claim that the consumer's receipt names. The answer is ``stale`` when the row has another claim, or
    was taken over when its lease ended, and when the row or a named message was settled otherwise, as far as the row
    tells.
    """
    if row.claim != claim:
        return _STALE
    ended = row.outcome == EXPIRED
    if parsed.extend_seconds is None and row.last == parsed.mark:
        # The same settlement was written before, and its answer was lost. The lease may have ended since.
        return Settled("open" if row.state == OPEN or ended else "settled")
    if ended or row.state != OPEN:
        return _STALE
    if parsed.extend_seconds is None and parsed.named <= row.settled:
        return _STALE if isinstance(row, OrderedRow) and was_settled_otherwise(row, parsed) else Settled("open")
    return None


@dataclass(frozen=True)
class Settler:
    """Settles pulls of one pull log."""

    log: PullLog
    subject: Subject
    key_states: KeyStateCache | None = None
    """In an ordered group: learns which rows change."""

    @property
    def context(self) -> Context:
        return self.log.context

    def on(self, context: Context) -> "Settler":
        return Settler(self.log.on(context), self.subject, self.key_states)

    def apply(
        self,
        row_no: int,
        seen: Versioned[PullRow],
        parsed: ParsedSettlement,
        current: Versioned[PullRow] | None = None,
    ) -> Settled:
        """Settles or extends a pull as a consumer decided, and returns the answer: ``stale`` when the pull is no longer
        the consumer's. ``seen`` is the row as the consumer claimed it, ``current`` a later one, if there is one."""
        try:
            return self._apply_parsed(row_no, seen, parsed, current)
        except Sealed:
            # The group was deleted after its look-up: its retry and dead logs take nothing more.
            return _STALE

    def _apply_parsed(
        self,
        row_no: int,
        seen: Versioned[PullRow],
        parsed: ParsedSettlement,
        current: Versioned[PullRow] | None = None,
    ) -> Settled:
        claimed, current = seen.value, current or seen
        while True:
            # First the transfers that an earlier settlement left behind: the next one writes its own in their place.
            current = self.finish(row_no, current)
            if was_acknowledged(current.value, claimed, parsed):
                return Settled("settled")
            answer = answer_without_change(current.value, claimed.claim, parsed)
            if answer is not None:
                return answer
            value = self._next_row(current.value, parsed)
            if value is None:
                return _STALE
            before = current.value.settled
            outcome = self._swap(row_no, current, value)
            # The row was removed days after it was closed: the receipt is as old.
            if outcome.current is None:
                return _STALE
            current = outcome.current
            if outcome.stored and parsed.extend_seconds is not None:
                return Settled("extended", lease_until=rfc3339(value.lease_until_ms))
            if outcome.stored:
                self._count("Settled", len(parsed.named - before))
                # The answer states the written settlement, also if other messages of the pull are settled meanwhile.
                self.finish(row_no, current)
                return Settled("open" if value.state == OPEN else "settled")

    def _next_row(self, row: PullRow, parsed: ParsedSettlement) -> PullRow | None:
        """Returns the row after the settlement; None when its lease can be extended no further."""
        if parsed.extend_seconds is not None:
            return self._extended(row, parsed.extend_seconds)
        return self._settled_row(row, parsed, SETTLED)

    def take_over(self, row_no: int, current: Versioned[PullRow]) -> bool:
        """Calls ``expire``, in one transaction where the store has them. Returns False also if the group was
        deleted."""
        try:
            # The retry log is in the home cell.
            logs = [HOME, self.log.source.name]
            return self.context.atomically(lambda context: self.on(context).expire(row_no, current), logs)
        except Sealed:
            return False

    def expire(self, row_no: int, current: Versioned[PullRow]) -> bool:
        """Takes over a pull whose lease has ended: its unsettled messages come again as suspects. Only a suspect that
        was pulled alone counts an attempt: of several messages nobody knows which one ended the consumer. Returns
        False, and changes nothing, if the pull was settled or extended meanwhile."""
        current = self.finish(row_no, current)
        now_ms = self.context.clock.now_ms()
        if current.value.state != OPEN or current.value.lease_until_ms > now_ms:
            return False
        rest = frozenset(current.value.unsettled())
        # The digest of the last settlement stays: a consumer that repeats it gets its answer.
        value = self._settled_row(
            current.value, ParsedSettlement(named=rest, retried=rest, mark=current.value.last, ended=True), EXPIRED
        )
        outcome = self._swap(row_no, current, value)
        if not outcome.stored or outcome.current is None:
            return False
        self.finish(row_no, outcome.current)
        self._count("EndedLeases", 1)
        return True

    def finish(self, row_no: int, current: Versioned[PullRow]) -> Versioned[PullRow]:
        """Carries out the transfers that the pull row names, and returns the row without them."""
        if not current.value.transfers:
            return current
        value = current.value
        attempts = (
            {(message.row_no, message.in_row): message.attempt for _, message in value.messages()}
            if isinstance(value, OrderedRow)
            else None
        )
        row = row_builder(self.context, self.log.source, self.log.queue, attempts=attempts)
        done = carry_out(self.context, self.log.record(row_no), current, row)
        # Only closed rows are removed, days later: a row that is missing was closed.
        return done or Versioned(msgspec.structs.replace(current.value, state=CLOSED, transfers=()), current.token)

    def _extended(self, row: PullRow, seconds: int) -> PullRow | None:
        """Returns the row with a lease that ends no sooner than before; None when it is at its longest already."""
        # A pull that stays open for days would outlive the settled rows behind it, which say where the next claim goes.
        latest_ms = row.claimed_ms + MAX_LEASE_SECONDS * 1_000
        now_ms = self.context.clock.now_ms()
        if latest_ms <= now_ms:
            return None
        until_ms = max(row.lease_until_ms, min(now_ms + seconds * 1_000, latest_ms))
        return msgspec.structs.replace(row, lease_until_ms=until_ms, growth=row.final_growth)

    def _swap(self, row_no: int, current: Versioned[PullRow], value: PullRow) -> CasResult[PullRow]:
        outcome = self.log.record(row_no).swap(current.token, value, expires_ms=value.garbage_ms)
        if not outcome.stored:
            # No record names these rows: the readers of their logs would wait for each until its grace is over.
            release(self.context, value.transfers)
        elif dead := sum(len(transfer.picks) for transfer in value.transfers if transfer.kind in (ATTEMPTS, REJECTED)):
            self._count("DeadLetters", dead)
        if outcome.stored and outcome.current is not None and self.key_states is not None:
            self.key_states.changed(self.log, row_no, value, outcome.current.token)
        return outcome

    def _count(self, name: str, amount: int) -> None:
        # Counted after the transaction: it may run more than once.
        self.context.afterwards(lambda outside: outside.meter.record(name, amount))

    def _settled_row(self, row: PullRow, parsed: ParsedSettlement, outcome: int) -> PullRow:
        """Returns the row with the settlement written into it; reserves a row in the target log for each transfer.
        ``outcome`` says how the row is closed, if the settlement closes it."""
        settled = row.settled | parsed.named
        if isinstance(row, OrderedRow):
            earlier = 0 if row.order is None else len(row.order.failed)
            row, transfers = self._in_order(row, parsed)
            # Messages behind one that failed are released with it, also unnamed ones.
            settled |= {index for index, _, _ in row.order.failed[earlier:]} if row.order is not None else set()
        else:
            transfers = self._reserve(row, parsed) if parsed.moves else ()
        closed = len(settled) == row.claimed
        return msgspec.structs.replace(
            row,
            # The outcome of a closed row says that all are settled; the row is kept for days without the set.
            settled=frozenset() if closed else settled,
            transfers=transfers,
            # Only a closed row may expire: one with transfers stays until their rows are stored.
            state=OPEN if not closed else CLOSING if transfers else CLOSED,
            outcome=outcome if closed else 0,
            closed_ms=self.context.clock.now_ms() if closed else 0,
            last=parsed.mark,
            growth=row.final_growth,
        )

    def _reserve(self, row: PullRow, parsed: ParsedSettlement) -> tuple[Transfer, ...]:
        """Reserves rows for the messages that leave the pull, and returns the transfers: retries without a delay and
        released messages go to the retry log, retries with a delay to the buckets of their times, messages without
        attempts left and rejected ones to the dead log."""
        positions = row.positions()

        def picks_of(indexes: frozenset[int]) -> list[tuple[int, int]]:
            return [(positions[index].row_no, positions[index].index) for index in sorted(indexes - row.settled)]

        picks = {
            (positions[index].row_no, positions[index].index): index for index in sorted(parsed.retried - row.settled)
        }
        returned: dict[str, list[tuple[int, int]]] = {RETRY: [], RELEASED: picks_of(parsed.released)}
        later: dict[tuple[str, Bucket], list[tuple[tuple[int, int], int]]] = {}
        spent: list[tuple[int, int]] = []
        group = self.log.group
        policy = group.retry or self.context.settings.retry
        now_ms = self.context.clock.now_ms()
        # Read for their attempts, which decide between a retry and a dead letter, and how long a retry waits.
        for pick, message in read_messages(self.context, self.log.source, self.log.queue, picks):
            uncounted = parsed.ended and not (message.suspect and row.claimed == 1)
            kind = RELEASED if uncounted else RETRY
            if kind == RETRY and message.attempt >= group.max_attempts:
                spent.append(pick)
                continue
            delay_ms = parsed.delays_ms.get(picks[pick], policy.delay_ms(message.attempt))
            wait_ms = group.redelivery_ms if uncounted else delay_ms
            if wait_ms:
                later.setdefault((kind, self._bucket(now_ms + wait_ms)), []).append((pick, now_ms + wait_ms))
            else:
                returned[kind].append(pick)
        targets = [
            *((kind, group.retry_log, picked, now_ms + self.subject.retention_ms) for kind, picked in returned.items()),
            (ATTEMPTS, group.dead_log, spent, now_ms + DEAD_RETENTION_MS),
            (REJECTED, group.dead_log, picks_of(parsed.dead), now_ms + DEAD_RETENTION_MS),
        ]
        moved = [
            reserve(
                self.context,
                kind=kind,
                log=log,
                picks=tuple(picked),
                expires_ms=expires_ms,
                details=_details_of(picked, positions, parsed),
                suspects=parsed.ended and log == group.retry_log,
            )
            for kind, log, picked, expires_ms in targets
            if picked
        ]
        for (kind, bucket), waiting in later.items():
            dues = [due_ms for _, due_ms in waiting]
            due_times = DueTimes.of(group.subject, group.subject_generation, group.member, dues)
            delayed = tuple(pick for pick, _ in waiting)
            details = _details_of(delayed, positions, parsed)
            moved.append(
                reserve(
                    self.context,
                    kind=kind,
                    log=bucket.log,
                    picks=delayed,
                    expires_ms=0,
                    due_times=due_times,
                    details=details,
                    suspects=parsed.ended,
                )
            )
        return tuple(moved)

    def _in_order(self, row: OrderedRow, parsed: ParsedSettlement) -> tuple[OrderedRow, tuple[Transfer, ...]]:
        """Returns the row with the messages that are parked again, and a transfer for each kind of dead letters."""
        if not parsed.moves or row.order is None:
            return row, ()
        now_ms, group = self.context.clock.now_ms(), self.log.group
        outcome = settle_in_order(row, parsed, group, group.retry or self.context.settings.retry, now_ms)
        stops = _stops_of(row.order, outcome.stopped, parsed) if outcome.stopped else row.order.stops
        order = msgspec.structs.replace(
            row.order,
            failed=(*row.order.failed, *outcome.failed),
            stops=stops,
            suspects=(*row.order.suspects, *outcome.suspects),
        )
        positions = row.positions()
        targets = [
            (kind, tuple([(positions[index].row_no, positions[index].index) for index in indexes]))
            for kind, indexes in ((ATTEMPTS, outcome.spent), (REJECTED, outcome.rejected))
            if indexes
        ]
        transfers = tuple(
            reserve(
                self.context,
                kind=kind,
                log=group.dead_log,
                picks=picks,
                expires_ms=now_ms + DEAD_RETENTION_MS,
                details=_details_of(picks, positions, parsed),
            )
            for kind, picks in targets
        )
        return msgspec.structs.replace(row, order=order), transfers

    def _bucket(self, due_ms: int) -> Bucket:
        settings = self.context.settings
        # A random shard: retries have no batch whose name could choose one, as it does for a producer's messages.
        return Bucket.at(due_ms, settings.bucket_minutes, int(self.context.ids.jitter() * settings.shards))
