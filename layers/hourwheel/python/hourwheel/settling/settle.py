"""Settles messages by one conditional update of the pull row, which succeeds only if nobody changed the row meanwhile.

Retries and dead letters are handed over: the update that settles them also writes the reservations of their rows.
"""

from dataclasses import dataclass, field, replace
from typing import TypeAlias

import msgspec

from hourwheel.buckets.buckets import Bucket
from hourwheel.context import Context
from hourwheel.errors import Sealed
from hourwheel.handover.copies import ATTEMPTS, REJECTED, RELEASED, RETRY, read_messages
from hourwheel.handover.handover import Transfer, release, reserve
from hourwheel.logs.cas import CasResult, Versioned
from hourwheel.logs.entries import DueTimes
from hourwheel.model.fields import DEAD_RETENTION_MS, MAX_LEASE_SECONDS
from hourwheel.model.log_names import HOME
from hourwheel.model.pulls import Settled
from hourwheel.model.subjects import Subject
from hourwheel.pull_log.parsed_settlements import ParsedSettlement
from hourwheel.pull_log.pull_log import DecidedRow, PullLog
from hourwheel.pull_log.records import CLOSED, CLOSING, EXPIRED, OPEN, SETTLED, PullRow
from hourwheel.pull_log.transfers import finish
from hourwheel.times import rfc3339

_STALE = Settled("stale")


def answer_without_change(row: PullRow, claim: bytes, parsed: ParsedSettlement) -> Settled | None:
    """Returns the answer to a settlement that leaves the pull row as it is; None when the row has to change.

    ``claim`` is the claim that the consumer's receipt names. The answer is ``stale`` when the row has another claim, or
    was taken over when its lease ended. It is ``stale`` also when the row or a named message was settled otherwise, as
    far as the row tells. A row that is closed tells which of its messages were acknowledged, and no more.
    """
    if row.claim != claim:
        return _STALE
    ended = row.outcome == EXPIRED
    if parsed.extend_seconds is None and row.last == parsed.mark:
        # The same settlement was written before, and its answer was lost. The lease may have ended since.
        return Settled("open" if row.state == OPEN or ended else "settled")
    if row.state != OPEN:
        return _answer_closed(row, parsed)
    return _answer_again(row, parsed) if parsed.extend_seconds is None and parsed.named <= row.settled else None


def _answer_closed(row: PullRow, parsed: ParsedSettlement) -> Settled:
    """Returns the answer to a settlement of a row that is closed."""
    if not row.tells_acknowledged(parsed):
        return _STALE
    return Settled("open" if row.outcome == EXPIRED else "settled")


def _answer_again(row: PullRow, parsed: ParsedSettlement) -> Settled:
    """Returns the answer to a settlement of messages that are settled already."""
    return _STALE if row.was_settled_otherwise(parsed) else Settled("open")


_Pick: TypeAlias = tuple[int, int]
"""The row and the index of a message in its log."""


@dataclass
class _MovedMessages:
    """The messages that leave a pull, by where they go."""

    retried: list[_Pick] = field(default_factory=list)
    ended: list[_Pick] = field(default_factory=list)
    released: list[_Pick] = field(default_factory=list)
    spent: list[_Pick] = field(default_factory=list)
    rejected: list[_Pick] = field(default_factory=list)
    later: dict[tuple[str, str], tuple[Bucket, list[tuple[_Pick, int]]]] = field(default_factory=dict)
    """Those that wait in a bucket, with their times, by the kind of their transfer and the name of the bucket's
    log."""

    def add(self, kind: str, pick: _Pick, bucket: Bucket | None, due_ms: int) -> None:
        """Adds a message that is handed out again: at once, or from its bucket."""
        if bucket is not None:
            self.later.setdefault((kind, bucket.log), (bucket, []))[1].append((pick, due_ms))
        else:
            (self.ended if kind == RELEASED else self.retried).append(pick)


@dataclass(frozen=True)
class Settler:
    """Settles pulls of one pull log."""

    log: PullLog
    subject: Subject

    @property
    def context(self) -> Context:
        return self.log.context

    def on(self, context: Context) -> "Settler":
        return Settler(self.log.on(context), self.subject)

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
            if parsed.only_acknowledges and current.value.goes_on_behind(claimed):
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
            if outcome.stored:
                return self._answer_to(parsed, row_no, current, value, before)

    def _answer_to(
        self,
        parsed: ParsedSettlement,
        row_no: int,
        stored: Versioned[PullRow],
        value: PullRow,
        before: frozenset[int],
    ) -> Settled:
        """Returns the answer to a settlement that was written into the row, of which the messages ``before`` were
        settled already. Carries out its transfers."""
        if parsed.extend_seconds is not None:
            return Settled("extended", lease_until=rfc3339(value.lease_until_ms))
        self._count("Settled", len(parsed.named - before))
        # The answer states the written settlement, also if other messages of the pull are settled meanwhile.
        self.finish(row_no, stored)
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
        was pulled alone counts an attempt: of several messages nobody knows which one ended the consumer. Releases the
        messages that are kept for a consumer that is too slow. Returns False, and changes nothing, if the pull was
        settled or extended meanwhile."""
        current = self.finish(row_no, current)
        row, now_ms = current.value, self.context.clock.now_ms()
        if row.state != OPEN or row.due_ms > now_ms:
            return False
        ended = row.lease_until_ms <= now_ms
        rest = frozenset(row.unsettled()) if ended else frozenset[int]()
        # The digest of the last settlement stays: a consumer that repeats it gets its answer.
        over = ParsedSettlement(named=rest, retried=rest, mark=row.last, ended=ended)
        value = self._settled_row(row, over, EXPIRED if ended else SETTLED)
        outcome = self._swap(row_no, current, value)
        if not outcome.stored or outcome.current is None:
            return False
        self.finish(row_no, outcome.current)
        if ended:
            self._count("EndedLeases", 1)
        return True

    def finish(self, row_no: int, current: Versioned[PullRow]) -> Versioned[PullRow]:
        """Carries out the transfers that the pull row names, and returns the row without them."""
        return finish(self.log, row_no, current)

    def _extended(self, row: PullRow, seconds: int) -> PullRow | None:
        """Returns the row with a lease that ends no sooner than before; None when it is at its longest already."""
        # A pull that stays open for days would outlive the settled rows behind it, which say where the next claim goes.
        latest_ms = row.claimed_ms + MAX_LEASE_SECONDS * 1_000
        now_ms = self.context.clock.now_ms()
        if latest_ms <= now_ms:
            return None
        until_ms = max(row.lease_until_ms, min(now_ms + seconds * 1_000, latest_ms))
        return msgspec.structs.replace(row.final(), lease_until_ms=until_ms)

    def _swap(self, row_no: int, current: Versioned[PullRow], value: PullRow) -> CasResult[PullRow]:
        outcome = self.log.record(row_no).swap(current, value, expires_ms=value.garbage_ms)
        if not outcome.stored:
            # No record names these rows: the readers of their logs would wait for each until its grace is over.
            release(self.context, value.transfers)
        elif dead := sum(len(transfer.picks) for transfer in value.transfers if transfer.kind in (ATTEMPTS, REJECTED)):
            self._count("DeadLetters", dead)
        if (written := outcome.written) is not None:
            self.log.changed(row_no, value, written.token)
        return outcome

    def _count(self, name: str, amount: int) -> None:
        # Counted after the transaction: it may run more than once.
        self.context.afterwards(lambda outside: outside.meter.record(name, amount))

    def _settled_row(self, row: PullRow, parsed: ParsedSettlement, outcome: int) -> PullRow:
        """Returns the row with the settlement written into it; reserves a row in the target log for each transfer.
        Releases the messages that are kept for the consumer as well. ``outcome`` says how the row is closed, if the
        settlement closes it."""
        if kept := row.kept - parsed.named:
            parsed = replace(parsed, named=parsed.named | kept, released=parsed.released | kept)
        decided = self.log.decided_in_place(row, parsed)
        if decided is None:
            transfers = self._reserve(row, parsed) if parsed.moves else ()
            decided = DecidedRow(row, row.settled | parsed.named, transfers)
        row, settled, transfers = decided
        closed = len(settled) == row.leased
        return msgspec.structs.replace(
            row.final(),
            # The outcome of a closed row says that all are settled; the row is kept for days without the set.
            settled=frozenset() if closed else settled,
            transfers=transfers,
            # Only a closed row may expire: one with transfers stays until their rows are stored.
            state=OPEN if not closed else CLOSING if transfers else CLOSED,
            outcome=outcome if closed else 0,
            closed_ms=self.context.clock.now_ms() if closed else 0,
            last=parsed.mark,
        )

    def _reserve(self, row: PullRow, parsed: ParsedSettlement) -> tuple[Transfer, ...]:
        """Reserves rows for the messages that leave the pull, and returns the transfers. Retries without a delay and
        released messages go to the retry log, retries with a delay to the buckets of their times. Messages without
        attempts left and rejected ones to the dead log."""
        leaving, group = self._leaving(row, parsed), self.log.group
        now_ms = self.context.clock.now_ms()
        again_ms, dead_ms = now_ms + self.subject.retention_ms, now_ms + DEAD_RETENTION_MS
        targets = [
            (RETRY, group.retry_log, leaving.retried, again_ms, parsed.ended),
            (RELEASED, group.retry_log, leaving.ended, again_ms, True),
            (RELEASED, group.retry_log, leaving.released, again_ms, False),
            (ATTEMPTS, group.dead_log, leaving.spent, dead_ms, False),
            (REJECTED, group.dead_log, leaving.rejected, dead_ms, False),
        ]
        moved = [
            reserve(
                self.context,
                kind=kind,
                log=log,
                picks=tuple(picks),
                expires_ms=expires_ms,
                details=row.details_of(picks, parsed),
                suspects=suspects,
            )
            for kind, log, picks, expires_ms, suspects in targets
            if picks
        ]
        moved += [self._reserve_later(row, parsed, kind, *waiting) for (kind, _), waiting in leaving.later.items()]
        return tuple(moved)

    def _reserve_later(
        self, row: PullRow, parsed: ParsedSettlement, kind: str, bucket: Bucket, waiting: "list[tuple[_Pick, int]]"
    ) -> Transfer:
        """Reserves a row in the schedule log of a bucket for messages that wait there, each until its time."""
        group = self.log.group
        picks = tuple(pick for pick, _ in waiting)
        dues = [due_ms for _, due_ms in waiting]
        return reserve(
            self.context,
            kind=kind,
            log=bucket.log,
            picks=picks,
            expires_ms=0,
            due_times=DueTimes.of(group.subject, group.subject_generation, group.member, dues),
            details=row.details_of(picks, parsed),
            suspects=parsed.ended,
        )

    def _leaving(self, row: PullRow, parsed: ParsedSettlement) -> "_MovedMessages":
        """Decides where each message goes that leaves the pull."""
        positions = row.positions()

        def picks_of(indexes: frozenset[int]) -> "list[_Pick]":
            return [(positions[index].row_no, positions[index].index) for index in sorted(indexes - row.settled)]

        retried = dict(zip(picks_of(parsed.retried), sorted(parsed.retried - row.settled), strict=True))
        leaving = _MovedMessages(released=picks_of(parsed.released), rejected=picks_of(parsed.dead))
        now_ms = self.context.clock.now_ms()
        # Read for their attempts, which decide between a retry and a dead letter, and how long a retry waits.
        for pick, message in read_messages(self.context, self.log.source, self.log.queue, retried):
            uncounted = parsed.ended and not (message.suspect and row.claimed == 1)
            if uncounted:
                kind, wait_ms = RELEASED, self.log.group.redelivery_ms
            elif message.attempt >= self.log.group.max_attempts:
                leaving.spent.append(pick)
                continue
            else:
                kind, wait_ms = RETRY, self._delay_ms(parsed, retried[pick], message.attempt)
            bucket = self._bucket(now_ms + wait_ms) if wait_ms else None
            leaving.add(kind, pick, bucket, now_ms + wait_ms)
        return leaving

    def _delay_ms(self, parsed: ParsedSettlement, index: int, attempt: int) -> int:
        """Returns how long the retry of a message waits: as its consumer says, or else as the policy does."""
        policy = self.log.group.retry or self.context.settings.retry
        return parsed.delays_ms.get(index, policy.delay_ms(attempt))

    def _bucket(self, due_ms: int) -> Bucket:
        settings = self.context.settings
        # A random shard: retries have no batch whose name could choose one, as it does for a producer's messages.
        return Bucket.at(due_ms, settings.bucket_minutes, int(self.context.ids.jitter() * settings.shards))
