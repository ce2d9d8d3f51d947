"""Settling: one conditional update of the pull row, guarded by the token under which it was claimed.

Retries and dead letters are handed over: their reservations are written by that same update.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

import msgspec

from hourwheel.buckets.buckets import Bucket
from hourwheel.context import Context
from hourwheel.due import limited_delay_ms
from hourwheel.errors import Rejected, Sealed
from hourwheel.handover.copies import ATTEMPTS, REJECTED, RELEASED, RETRY, read_messages, row_builder
from hourwheel.handover.handover import Transfer, carry_out, release, reserve
from hourwheel.logs.cas import CasResult, Versioned
from hourwheel.logs.entries import DueTimes
from hourwheel.model import DEAD_RETENTION_MS, MAX_LEASE_SECONDS, RetryLater, Settled, Settlement, Subject
from hourwheel.queueing.pulllog import PullLog
from hourwheel.queueing.records import CLOSED, CLOSING, EXPIRED, OPEN, SETTLED, PullRow
from hourwheel.times import rfc3339

_STALE = Settled("stale")


@dataclass(frozen=True)
class Decision:
    """What becomes of messages of a pull, by index: tried again (after a delay of its own, or as the group's policy
    says), given back, dead, the rest of ``named`` acknowledged. Or nothing of that, and the lease is extended.
    ``mark`` recognises the same verdict when it comes again."""

    named: frozenset[int]
    mark: bytes
    retried: frozenset[int] = frozenset()
    delays_ms: Mapping[int, int] = field(default_factory=dict)
    released: frozenset[int] = frozenset()
    dead: frozenset[int] = frozenset()
    extend_seconds: int | None = None

    @property
    def moves(self) -> bool:
        """Whether messages go to another log."""
        return bool(self.retried or self.released or self.dead)


def decide(settlement: Settlement, size: int) -> Decision:
    """What a settlement says about a pull of ``size`` messages; raises ``Rejected`` where it contradicts itself."""
    retried = None if settlement.retry is None else [_index(entry) for entry in settlement.retry]
    lists = {"ack": settlement.ack, "retry": retried, "release": settlement.release, "dead": settlement.dead}
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
        named=frozenset(range(size) if settlement.ack is None else seen),
        retried=frozenset(retried or ()),
        delays_ms=_delays_ms(settlement),
        released=frozenset(settlement.release or ()),
        dead=frozenset(settlement.dead or ()),
        mark=blake2b(
            msgspec.msgpack.encode((settlement.ack, settlement.retry, settlement.release, settlement.dead)),
            digest_size=8,
        ).digest(),
        extend_seconds=settlement.extend_seconds,
    )


def _index(entry: int | RetryLater) -> int:
    return entry if isinstance(entry, int) else entry.index


def _delays_ms(settlement: Settlement) -> dict[int, int]:
    delays = {}
    for at, entry in enumerate(settlement.retry or ()):
        if isinstance(entry, RetryLater):
            field_name = f"retry[{at}].delay"
            delays[entry.index] = limited_delay_ms(entry.delay, field_name)
    return delays


def answer_without_change(row: PullRow, claim: bytes, wish: Decision) -> Settled | None:
    """The answer of a pull row, claimed as ``claim``, which the settlement changes in nothing; None when it has to
    change."""
    if row.claim != claim:
        return _STALE
    ended = row.outcome == EXPIRED
    if wish.extend_seconds is None and row.last == wish.mark:
        # Our own earlier try, or the consumer's: its answer was lost. The lease may have ended since.
        return Settled("open" if row.state == OPEN or ended else "settled")
    if ended or row.state != OPEN:
        return _STALE
    if wish.extend_seconds is None and wish.named <= row.settled:
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

    def settle(self, number: int, seen: Versioned[PullRow], wish: Decision) -> Settled:
        """Carries out what a consumer says of its pull; ``stale`` when the pull is no longer its own."""
        try:
            return self._settle(number, seen, wish)
        except Sealed:
            # The group was deleted since it was looked up: its retry and dead logs take nothing more.
            return _STALE

    def _settle(self, number: int, seen: Versioned[PullRow], wish: Decision) -> Settled:
        claim = seen.value.claim
        held = seen
        while True:
            held = self.finish(number, held)
            answer = answer_without_change(held.value, claim, wish)
            if answer is not None:
                return answer
            value = self._next(held.value, wish)
            if value is None:
                return _STALE
            before = held.value.settled
            outcome = self._swap(number, held, value)
            if outcome.current is None:
                return _STALE
            held = outcome.current
            if outcome.stored and wish.extend_seconds is not None:
                return Settled("extended", lease_until=rfc3339(value.lease_until_ms))
            if outcome.stored:
                self._count("Settled", len(wish.named - before))
                # The answer is what was written, whatever becomes of the rest of the pull meanwhile.
                self.finish(number, held)
                return Settled("open" if value.state == OPEN else "settled")

    def _next(self, row: PullRow, wish: Decision) -> PullRow | None:
        """The row as the consumer wants it; None when it may not be held any longer."""
        if wish.extend_seconds is not None:
            return self._extended(row, wish.extend_seconds)
        return self._settled(row, wish, SETTLED)

    def take_over(self, number: int, held: Versioned[PullRow]) -> bool:
        """``expire`` in one transaction where the store has them. False, too, if the group was deleted."""
        try:
            return self.context.atomically(lambda context: self.on(context).expire(number, held))
        except Sealed:
            return False

    def expire(self, number: int, held: Versioned[PullRow]) -> bool:
        """Takes over a pull whose lease has ended: what is unsettled is tried again. False if it was settled or
        extended meanwhile."""
        held = self.finish(number, held)
        now_ms = self.context.clock.now_ms()
        if held.value.state != OPEN or held.value.lease_until_ms > now_ms:
            return False
        rest = frozenset(held.value.unsettled())
        value = self._settled(held.value, Decision(named=rest, retried=rest, mark=held.value.last), EXPIRED)
        outcome = self._swap(number, held, value)
        if not outcome.stored or outcome.current is None:
            return False
        self.finish(number, outcome.current)
        self._count("EndedLeases", 1)
        return True

    def finish(self, number: int, held: Versioned[PullRow]) -> Versioned[PullRow]:
        """Carries out the transfers that the row names."""
        if not held.value.transfers:
            return held
        row = row_builder(self.context, self.log.source, self.log.queue)
        done = carry_out(self.context, self.log.record(number), held, row)
        # Closed rows vanish days later at the earliest; one that is gone was closed.
        return done or Versioned(msgspec.structs.replace(held.value, state=CLOSED, transfers=()), held.token)

    def _extended(self, row: PullRow, seconds: int) -> PullRow | None:
        """The row with a lease that ends no sooner than before; None when it may not be held any longer."""
        # Held for days, a row would outlive the settled ones behind it, and with them where the next claim goes.
        latest_ms = row.claimed_ms + MAX_LEASE_SECONDS * 1_000
        now_ms = self.context.clock.now_ms()
        if latest_ms <= now_ms:
            return None
        until_ms = max(row.lease_until_ms, min(now_ms + seconds * 1_000, latest_ms))
        return msgspec.structs.replace(row, lease_until_ms=until_ms)

    def _swap(self, number: int, held: Versioned[PullRow], value: PullRow) -> CasResult[PullRow]:
        outcome = self.log.record(number).swap(held.token, value, expires_ms=value.garbage_ms)
        if not outcome.stored:
            release(self.context, value.transfers)
        elif dead := sum(len(one.picks) for one in value.transfers if one.kind in (ATTEMPTS, REJECTED)):
            self._count("DeadLetters", dead)
        return outcome

    def _count(self, name: str, metric: int) -> None:
        # Once it is certain: a transaction may be run anew.
        self.context.afterwards(lambda outside: outside.meter.record(name, metric))

    def _settled(self, row: PullRow, wish: Decision, outcome: int) -> PullRow:
        """The row once the wish is written into it, with a reservation for each transfer."""
        settled = row.settled | wish.named
        closed = len(settled) == row.size
        transfers = self._reserve(row, wish) if wish.moves else ()
        return msgspec.structs.replace(
            row,
            settled=frozenset() if closed else settled,
            transfers=transfers,
            state=OPEN if not closed else CLOSING if transfers else CLOSED,
            outcome=outcome if closed else 0,
            closed_ms=self.context.clock.now_ms() if closed else 0,
            last=wish.mark,
        )

    def _reserve(self, row: PullRow, wish: Decision) -> tuple[Transfer, ...]:
        places = row.places()

        def at(indexes: frozenset[int]) -> list[tuple[int, int]]:
            return [(places[index].row, places[index].index) for index in sorted(indexes - row.settled)]

        picks = {(places[index].row, places[index].index): index for index in sorted(wish.retried - row.settled)}
        again: list[tuple[int, int]] = []
        later: dict[Bucket, list[tuple[tuple[int, int], int]]] = {}
        spent: list[tuple[int, int]] = []
        group = self.log.group
        policy = group.retry or self.context.settings.retry
        now_ms = self.context.clock.now_ms()
        for pick, message in read_messages(self.context, self.log.source, self.log.queue, picks):
            wait_ms = wish.delays_ms.get(picks[pick], policy.delay_ms(message.attempt))
            if message.attempt >= group.max_attempts:
                spent.append(pick)
            elif wait_ms:
                later.setdefault(self._bucket(now_ms + wait_ms), []).append((pick, now_ms + wait_ms))
            else:
                again.append(pick)
        targets = [
            (RETRY, group.retry_log, again, now_ms + self.subject.retention_ms),
            (RELEASED, group.retry_log, at(wish.released), now_ms + self.subject.retention_ms),
            (ATTEMPTS, group.dead_log, spent, now_ms + DEAD_RETENTION_MS),
            (REJECTED, group.dead_log, at(wish.dead), now_ms + DEAD_RETENTION_MS),
        ]
        moved = [
            reserve(self.context, kind=kind, log=log, picks=tuple(picked), expires_ms=expires_ms)
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

    def _bucket(self, due_ms: int) -> Bucket:
        settings = self.context.settings
        return Bucket.at(due_ms, settings.bucket_minutes, int(self.context.ids.jitter() * settings.shards))
