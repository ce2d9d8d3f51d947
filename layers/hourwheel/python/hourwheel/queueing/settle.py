"""Settles messages by one conditional update of the pull row, which succeeds only if nobody changed the row meanwhile.

Retries and dead letters are handed over: the update that settles them also writes the reservations of their rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b

import msgspec

from hourwheel.buckets.buckets import Bucket
from hourwheel.context import Context
from hourwheel.due import limited_delay_ms
from hourwheel.errors import Rejected, Sealed
from hourwheel.handover.copies import ATTEMPTS, REJECTED, RELEASED, RETRY, read_messages, row_builder
from hourwheel.handover.handover import Transfer, carry_out, release, reserve
from hourwheel.log_names import HOME
from hourwheel.logs.cas import CasResult, Versioned
from hourwheel.logs.entries import DueTimes
from hourwheel.model.fields import BATCH_MESSAGES, DEAD_RETENTION_MS, DETAILS_BYTES, MAX_LEASE_SECONDS
from hourwheel.model.pulls import Rejection, RetryLater, Settled, Settlement
from hourwheel.model.subjects import Subject
from hourwheel.queueing.ordered_rows import OrderedRow
from hourwheel.queueing.ordered_settle import OutcomeRequest, decide_in_order
from hourwheel.queueing.pull_log import PullLog
from hourwheel.queueing.records import CLOSED, CLOSING, EXPIRED, OPEN, SETTLED, PullRow
from hourwheel.times import rfc3339

_STALE = Settled("stale")


@dataclass(frozen=True)
class Decision:
    """The decision of a settlement about the messages of a pull, by their index.

    ``retried`` messages are tried again, after their delay in ``delays_ms`` or else as the group's policy says.
    ``released`` messages are given back without an attempt being counted, ``dead`` ones become dead letters, which
    ``details`` may explain, and every other message of ``named`` is acknowledged. With ``extend_seconds`` the lease is
    extended, and nothing is settled. ``mark`` is a digest by which a repeated settlement is recognised.
    """

    named: frozenset[int]
    mark: bytes
    retried: frozenset[int] = frozenset()
    delays_ms: Mapping[int, int] = field(default_factory=dict)
    released: frozenset[int] = frozenset()
    dead: frozenset[int] = frozenset()
    details: Mapping[int, str] = field(default_factory=dict)
    extend_seconds: int | None = None

    @property
    def moves(self) -> bool:
        """Whether messages go to another log."""
        return bool(self.retried or self.released or self.dead)


def decide(settlement: Settlement, size: int) -> Decision:
    """Returns what a settlement does with a pull of ``size`` messages. Raises ``Rejected`` when the settlement names an
    index beyond the pull, names one twice, or both extends the lease and settles messages."""
    if settlement.ack is settlement.retry is settlement.release is settlement.dead is None:
        # Nearly every settlement acknowledges a whole pull.
        return Decision(named=_all_of(size), mark=_ALL_ACKED, extend_seconds=settlement.extend_seconds)
    retried = None if settlement.retry is None else [_index(entry) for entry in settlement.retry]
    dead = None if settlement.dead is None else [_index(entry) for entry in settlement.dead]
    lists = {"ack": settlement.ack, "retry": retried, "release": settlement.release, "dead": dead}
    seen: set[int] = set()
    for name, indexes in lists.items():
        if indexes is not None and settlement.extend_seconds is not None:
            raise Rejected("field-invalid", "extend_seconds stands alone: leave out the lists", field=name)
        for index in indexes or ():
            if index >= size:
                raise Rejected("field-invalid", f"index {index} is beyond the pull's {size} messages", field=name)
            if index in seen:
                raise Rejected("field-invalid", f"index {index} is named twice: settle a message one way", field=name)
            seen.add(index)
    return Decision(
        named=_all_of(size) if settlement.ack is None else frozenset(seen),
        retried=frozenset(retried or ()),
        delays_ms=_delays_ms(settlement),
        released=frozenset(settlement.release or ()),
        dead=frozenset(dead or ()),
        details=_details(settlement),
        mark=_digest(settlement.ack, settlement.retry, settlement.release, settlement.dead),
        extend_seconds=settlement.extend_seconds,
    )


@lru_cache(BATCH_MESSAGES)
def _all_of(size: int) -> frozenset[int]:
    return frozenset(range(size))


def _digest(*lists: object) -> bytes:
    return blake2b(msgspec.msgpack.encode(lists), digest_size=8).digest()


_ALL_ACKED = _digest(None, None, None, None)
"""Of a settlement that acknowledges all messages of a pull."""


def _index(entry: int | RetryLater | Rejection) -> int:
    return entry if isinstance(entry, int) else entry.index


def _details(settlement: Settlement) -> dict[int, str]:
    """Returns the details of rejected messages, as many as fit into the record of the pull. The others stay without:
    a refusal would keep a consumer from giving these messages up."""
    details: dict[int, str] = {}
    left_bytes = DETAILS_BYTES
    for entry in settlement.dead or ():
        if isinstance(entry, Rejection):
            left_bytes -= len(entry.detail.encode())
            if left_bytes < 0:
                break
            details[entry.index] = entry.detail
    return details


def _delays_ms(settlement: Settlement) -> dict[int, int]:
    delays = {}
    for i, entry in enumerate(settlement.retry or ()):
        if isinstance(entry, RetryLater):
            field_name = f"retry[{i}].delay"
            delays[entry.index] = limited_delay_ms(entry.delay, field_name)
    return delays


def _details_of(indexes: Sequence[int], decision: Decision) -> tuple[str | None, ...]:
    """Returns the details of these messages for their transfer: nothing if none has any."""
    return tuple(decision.details.get(index) for index in indexes) if decision.details else ()


def answer_without_change(row: PullRow, claim: bytes, decision: Decision) -> Settled | None:
    """Returns the answer to a settlement that leaves the pull row as it is; None when the row has to change.

    ``claim`` is the claim that the consumer's receipt names. The answer is ``stale`` when the row
    has another claim, was settled otherwise, or was taken over when its lease ended.
    """
    if row.claim != claim:
        return _STALE
    ended = row.outcome == EXPIRED
    if decision.extend_seconds is None and row.last == decision.mark:
        # The same settlement was written before, and its answer was lost. The lease may have ended since.
        return Settled("open" if row.state == OPEN or ended else "settled")
    if ended or row.state != OPEN:
        return _STALE
    if decision.extend_seconds is None and decision.named <= row.settled:
        return Settled("open")
    return None


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

    def apply(self, row_no: int, seen: Versioned[PullRow], decision: Decision) -> Settled:
        """Settles or extends a pull as a consumer decided, and returns the answer: ``stale`` when the pull is no longer
        the consumer's."""
        try:
            return self._apply_decision(row_no, seen, decision)
        except Sealed:
            # The group was deleted after its look-up: its retry and dead logs take nothing more.
            return _STALE

    def _apply_decision(self, row_no: int, seen: Versioned[PullRow], decision: Decision) -> Settled:
        claim = seen.value.claim
        current = seen
        while True:
            # First the transfers that an earlier settlement left behind: the next one writes its own in their place.
            current = self.finish(row_no, current)
            answer = answer_without_change(current.value, claim, decision)
            if answer is not None:
                return answer
            value = self._next_row(current.value, decision)
            if value is None:
                return _STALE
            before = current.value.settled
            outcome = self._swap(row_no, current, value)
            # The row was removed days after it was closed: the receipt is as old.
            if outcome.current is None:
                return _STALE
            current = outcome.current
            if outcome.stored and decision.extend_seconds is not None:
                return Settled("extended", lease_until=rfc3339(value.lease_until_ms))
            if outcome.stored:
                self._count("Settled", len(decision.named - before))
                # The answer states the written settlement, also if other messages of the pull are settled meanwhile.
                self.finish(row_no, current)
                return Settled("open" if value.state == OPEN else "settled")

    def _next_row(self, row: PullRow, decision: Decision) -> PullRow | None:
        """Returns the row after the consumer's decision; None when its lease can be extended no further."""
        if decision.extend_seconds is not None:
            return self._extended(row, decision.extend_seconds)
        return self._with_decision(row, decision, SETTLED)

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
        """Takes over a pull whose lease has ended: its unsettled messages are retried. Returns False, and changes
        nothing, if the pull was settled or extended meanwhile."""
        current = self.finish(row_no, current)
        now_ms = self.context.clock.now_ms()
        if current.value.state != OPEN or current.value.lease_until_ms > now_ms:
            return False
        rest = frozenset(current.value.unsettled())
        # The digest of the last settlement stays: a consumer that repeats it gets its answer.
        value = self._with_decision(current.value, Decision(named=rest, retried=rest, mark=current.value.last), EXPIRED)
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
        return msgspec.structs.replace(row, lease_until_ms=until_ms)

    def _swap(self, row_no: int, current: Versioned[PullRow], value: PullRow) -> CasResult[PullRow]:
        outcome = self.log.record(row_no).swap(current.token, value, expires_ms=value.garbage_ms)
        if not outcome.stored:
            # No record names these rows: the readers of their logs would wait for each until its grace is over.
            release(self.context, value.transfers)
        elif dead := sum(len(transfer.picks) for transfer in value.transfers if transfer.kind in (ATTEMPTS, REJECTED)):
            self._count("DeadLetters", dead)
        return outcome

    def _count(self, name: str, amount: int) -> None:
        # Counted after the transaction: it may run more than once.
        self.context.afterwards(lambda outside: outside.meter.record(name, amount))

    def _with_decision(self, row: PullRow, decision: Decision, outcome: int) -> PullRow:
        """Returns the row with the decision written into it; reserves a row in the target log for each transfer.
        ``outcome`` says how the row is closed, if the decision closes it."""
        settled = row.settled | decision.named
        closed = len(settled) == row.size
        if isinstance(row, OrderedRow):
            row, transfers = self._in_order(row, decision)
        else:
            transfers = self._reserve(row, decision) if decision.moves else ()
        return msgspec.structs.replace(
            row,
            # The outcome of a closed row says that all are settled; the row is kept for days without the set.
            settled=frozenset() if closed else settled,
            transfers=transfers,
            # Only a closed row may expire: one with transfers stays until their rows are stored.
            state=OPEN if not closed else CLOSING if transfers else CLOSED,
            outcome=outcome if closed else 0,
            closed_ms=self.context.clock.now_ms() if closed else 0,
            last=decision.mark,
        )

    def _reserve(self, row: PullRow, decision: Decision) -> tuple[Transfer, ...]:
        positions = row.positions()

        def picks_of(indexes: frozenset[int]) -> list[tuple[int, int]]:
            return [(positions[index].row_no, positions[index].index) for index in sorted(indexes - row.settled)]

        picks = {
            (positions[index].row_no, positions[index].index): index for index in sorted(decision.retried - row.settled)
        }
        retried: list[tuple[int, int]] = []
        later: dict[Bucket, list[tuple[tuple[int, int], int]]] = {}
        spent: list[tuple[int, int]] = []
        group = self.log.group
        policy = group.retry or self.context.settings.retry
        now_ms = self.context.clock.now_ms()
        for pick, message in read_messages(self.context, self.log.source, self.log.queue, picks):
            wait_ms = decision.delays_ms.get(picks[pick], policy.delay_ms(message.attempt))
            if message.attempt >= group.max_attempts:
                spent.append(pick)
            elif wait_ms:
                later.setdefault(self._bucket(now_ms + wait_ms), []).append((pick, now_ms + wait_ms))
            else:
                retried.append(pick)
        targets = [
            (RETRY, group.retry_log, retried, now_ms + self.subject.retention_ms),
            (RELEASED, group.retry_log, picks_of(decision.released), now_ms + self.subject.retention_ms),
            (ATTEMPTS, group.dead_log, spent, now_ms + DEAD_RETENTION_MS),
            (REJECTED, group.dead_log, picks_of(decision.dead), now_ms + DEAD_RETENTION_MS),
        ]
        moved = [
            reserve(
                self.context,
                kind=kind,
                log=log,
                picks=tuple(picked),
                expires_ms=expires_ms,
                details=_details_of(sorted(decision.dead - row.settled), decision) if kind == REJECTED else (),
            )
            for kind, log, picked, expires_ms in targets
            if picked
        ]
        for bucket, waiting in later.items():
            dues = [due_ms for _, due_ms in waiting]
            due_times = DueTimes.of(group.subject, group.subject_generation, group.member, dues)
            waits = tuple(pick for pick, _ in waiting)
            moved.append(
                reserve(self.context, kind=RETRY, log=bucket.log, picks=waits, expires_ms=0, due_times=due_times)
            )
        return tuple(moved)

    def _in_order(self, row: OrderedRow, decision: Decision) -> tuple[OrderedRow, tuple[Transfer, ...]]:
        """Returns the row with the messages that are parked again, and a transfer for each kind of dead letters."""
        if not decision.moves or row.order is None:
            return row, ()
        now_ms, group = self.context.clock.now_ms(), self.log.group
        asked = OutcomeRequest(decision.named, decision.retried, decision.released, decision.dead, decision.delays_ms)
        decided = decide_in_order(row, asked, group, group.retry or self.context.settings.retry, now_ms)
        order = msgspec.structs.replace(row.order, failed=(*row.order.failed, *decided.failed))
        positions = row.positions()
        transfers = tuple(
            reserve(
                self.context,
                kind=kind,
                log=group.dead_log,
                picks=tuple((positions[index].row_no, positions[index].index) for index in indexes),
                expires_ms=now_ms + DEAD_RETENTION_MS,
                details=_details_of(indexes, decision) if kind == REJECTED else (),
            )
            for kind, indexes in ((ATTEMPTS, decided.spent), (REJECTED, decided.rejected))
            if indexes
        )
        return msgspec.structs.replace(row, order=order), transfers

    def _bucket(self, due_ms: int) -> Bucket:
        settings = self.context.settings
        return Bucket.at(due_ms, settings.bucket_minutes, int(self.context.ids.jitter() * settings.shards))
