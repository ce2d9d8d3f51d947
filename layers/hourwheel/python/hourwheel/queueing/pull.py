"""Pull: settles what the request settles, then claims the next messages, the group's retries first."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from hourwheel.answer_size import PULL_BYTES, TEXT_BYTES, answerable
from hourwheel.context import Context
from hourwheel.errors import Broken, Corrupt, Rejected, Unavailable
from hourwheel.faults import unreadable
from hourwheel.handover.copies import taken_from
from hourwheel.logs.cas import Versioned
from hourwheel.model import Group, Message, Pulled, PullRequest, PullResult, Settled, Settlement, Subject
from hourwheel.ports import GET_MANY, Counter
from hourwheel.queueing.ends import SourceEnds
from hourwheel.queueing.leases import Leases
from hourwheel.queueing.limits import Limit, pause_of
from hourwheel.queueing.pull_log import Claim, Nothing, PullLog, pull_logs
from hourwheel.queueing.receipts import Receipt, open_receipt, sign_receipt
from hourwheel.queueing.records import UNREADABLE, PullRow
from hourwheel.queueing.settle import Decision, Settler, decide
from hourwheel.registry.registry import Registry
from hourwheel.times import rfc3339

_LOOKING_MS = 5_000
"""A pull whose wait is over keeps looking this long where there may be more: passing many empty rows takes several
looks, and each look moves the group's position forward."""


@dataclass(frozen=True)
class _Attempt:
    """The result of one look: the answers to the settlements, the claims, the logs in which nothing waits
    (``nothing``), whether there may be more messages (``limited``), and what keeps them from the group (``limit``)."""

    subject: Subject
    group: Group
    settled: list[Settled]
    claims: list[tuple[PullLog, Claim]]
    nothing: list[tuple[PullLog, Nothing]]
    limited: bool
    limit: Limit | None = None


class _Look(NamedTuple):
    """The result of one look, as the pull answers it. ``more``: there may be more messages."""

    settled: list[Settled]
    pulls: list[Pulled]
    more: bool
    limit: Limit | None


@dataclass(frozen=True)
class Puller:
    """Pulls and settles for one group of one subject."""

    context: Context
    registry: Registry
    leases: Leases
    ends: SourceEnds
    secret: bytes
    subject: str
    group: str

    def pull(self, request: PullRequest, *, pushing: bool = False) -> PullResult:
        """Settles, then claims messages, and waits for them as long as the request allows.

        Creates a subject or group that does not exist. Raises ``Rejected`` for a receipt that was not issued to this
        group or a settlement that contradicts itself; nothing is settled then. ``pushing`` is for push: the pull claims
        from one log only, because a pusher delivers those messages before it leases others, and raises ``NotFound``
        instead of creating a subject or group.
        """
        opened = self._open(request.settle or ())
        until_ms = self.context.clock.now_ms() + int(request.wait_seconds * 1_000)
        wakeups = self.context.wakeups
        seen = wakeups.mark(self.subject)
        look = first = self._look(request, opened, pushing)
        tries = 0
        while not look.pulls:
            left_ms = until_ms - self.context.clock.now_ms()
            if look.more:
                looks = left_ms > -_LOOKING_MS
            else:
                seconds = left_ms / 1_000 if look.limit is None else min(left_ms / 1_000, look.limit.again_seconds)
                looks = left_ms > 0 and wakeups.wait(self.subject, self.group, mark=seen, tries=tries, seconds=seconds)
            if not looks:
                break
            seen = wakeups.mark(self.subject)
            try:
                look = self._look(request, [], pushing)
            except BaseException:
                # The message that woke this pull still waits: another pull gets the chance.
                wakeups.announce(self.subject, self.group)
                raise
            tries += 1
        if look.more:
            # This pull stopped at a limit: the next pull that waits looks for the rest.
            wakeups.announce(self.subject, self.group)
        if look.pulls:
            self.context.meter.record("Delivered", sum(len(pulled.messages) for pulled in look.pulls))
        settled = None if request.settle is None else first.settled
        return PullResult(look.pulls, settled, None if look.limit is None else look.limit.name)

    def settle(self, settlements: list[Settlement]) -> list[Settled]:
        """Carries out settlements in order, and returns the answer to each. Raises ``Rejected``, and settles nothing,
        when a receipt was not issued to this group or a settlement contradicts itself; ``NotFound`` when there is no
        subject or group."""
        opened = self._open(settlements)
        subject, group = self._names(opened, create=False)
        settled = self.context.atomically(lambda context: self._apply_settlements(context, subject, group, opened))
        if any(decision.moves for _, decision in opened):
            self.context.wakeups.announce(self.subject, self.group)
        return settled

    def _open(self, settlements: Sequence[Settlement]) -> list[tuple[Receipt, Decision]]:
        opened = []
        for index, settlement in enumerate(settlements):
            try:
                receipt = open_receipt(self.secret, settlement.receipt, subject=self.subject, group=self.group)
                opened.append((receipt, decide(settlement, receipt.value.size)))
            except Rejected as error:
                error.field = f"settle[{index}].{error.field}"
                raise
        return opened

    def _apply_settlements(
        self, context: Context, subject: Subject, group: Group, opened: list[tuple[Receipt, Decision]]
    ) -> list[Settled]:
        def settle(receipt: Receipt, decision: Decision) -> Settled:
            if (subject.generation, group.generation) != (receipt.subject_generation, receipt.group_generation):
                return Settled("stale")
            source = context.log(group.retry_log if receipt.queue is None else subject.log(receipt.queue))
            settler = Settler(PullLog(context, group, source, receipt.queue), subject)
            return settler.apply(receipt.row_no, receipt.pull_row, decision)

        return [settle(receipt, decision) for receipt, decision in opened]

    def _names(self, opened: Sequence[tuple[Receipt, Decision]], *, create: bool) -> tuple[Subject, Group]:
        """Returns the subject and the group. Reads them again when a receipt names a later generation than the cached
        one."""
        for _ in range(2):
            subject = self.registry.subject(self.subject, create=create)
            group = self.registry.group(subject, self.group, create=create)
            if not any(
                receipt.subject_generation > subject.generation or receipt.group_generation > group.generation
                for receipt, _ in opened
            ):
                break
            self.registry.forget(self.subject)
        return subject, group

    def _look(self, request: PullRequest, opened: list[tuple[Receipt, Decision]], pushing: bool) -> _Look:
        """Makes one attempt and reads the messages that it claimed."""
        attempt = self._attempt(request, opened, pushing)
        pulls = [self._pulled(attempt, log, claim) for log, claim in attempt.claims]
        readable = [pulled for pulled in pulls if pulled is not None]
        return _Look(attempt.settled, readable, attempt.limited or len(readable) < len(pulls), attempt.limit)

    def _attempt(self, request: PullRequest, opened: list[tuple[Receipt, Decision]], pushing: bool) -> _Attempt:
        # Looked up for each attempt: during a wait the subject may get more queues, or be deleted and created again.
        subject, group = self._names(opened, create=not pushing)
        logs = pull_logs(self.context, subject, group)
        pause = pause_of(subject, group, self.context.settings)
        if pause is not None:
            return self._paused(subject, group, logs, opened, pause)
        totals = self._totals(logs)
        moved = {log.queue: log for log in logs if self.ends.moved(log, group, totals[log.source.name])}
        ended = self._end_leases(subject, [log for log in logs if log.queue in moved or self.leases.due(log)])
        if ended or any(decision.moves for _, decision in opened):
            # The totals were read before these retries were stored.
            moved[None] = logs[0]

        def work(context: Context) -> _Attempt:
            attempt = _Attempt(
                subject, group, self._apply_settlements(context, subject, group, opened), [], [], limited=False
            )
            limited = self._claim(attempt, request, [log.on(context) for log in moved.values()], single=pushing)
            return replace(attempt, limited=limited)

        if not (opened or moved):
            return _Attempt(subject, group, [], [], [], limited=False)
        attempt = self.context.atomically(work)
        for log, _ in attempt.claims:
            if log.queue is None:
                self.leases.record_pull(log.on(self.context), subject)
        for log, nothing in attempt.nothing:
            self._remember(log.on(self.context), nothing, totals[log.source.name])
        return attempt

    def _paused(
        self,
        subject: Subject,
        group: Group,
        logs: Sequence[PullLog],
        opened: list[tuple[Receipt, Decision]],
        pause: Limit,
    ) -> _Attempt:
        """Ends leases and settles, and claims nothing. Reads nothing where there is nothing to settle."""
        self._end_leases(subject, [log for log in logs if self.leases.due(log)])
        settled: list[Settled] = []
        if opened:
            settled = self.context.atomically(lambda context: self._apply_settlements(context, subject, group, opened))
        return _Attempt(subject, group, settled, [], [], limited=False, limit=pause)

    def _totals(self, logs: Sequence[PullLog]) -> dict[str, Counter]:
        """Returns the totals of the source logs by name, perhaps out of date. Costs one request for each ``GET_MANY``
        logs."""
        names = [log.source.name for log in logs]
        totals: dict[str, Counter] = {}
        for start in range(0, len(names), GET_MANY):
            totals |= self.context.store.counters(names[start : start + GET_MANY])
        return totals

    def _end_leases(self, subject: Subject, logs: Sequence[PullLog]) -> int:
        """Ends the leases that are over in these logs, and returns their number."""
        ended = 0
        for log in logs:
            # These leases are other consumers': a failure to end them must not fail this pull.
            ending = f"ending leases of {log.partition}"
            with suppress(Unavailable, Broken), self.leases.faults.contained(self.context, ending):
                ended += self.leases.expire_throttled(log, subject)
        return ended

    def _remember(self, log: PullLog, nothing: Nothing, totals: Counter) -> None:
        """Remembers where the log ended, unless another process may have leased messages that this one has not seen:
        the end of such a lease must be looked for."""
        if not self.leases.seen(log, nothing.row_no):
            return
        end = nothing.end
        if end < totals.rows:
            # Rows from ``end`` on are missing: not stored yet, or below the trim mark.
            end = max(end, log.source.trimmed())
        self.ends.remember(log, log.group, end, unmatched=nothing.unmatched)

    def _claim(self, attempt: _Attempt, request: PullRequest, logs: Sequence[PullLog], *, single: bool) -> bool:
        """Claims from the logs, retries first, until the request is full. Adds the claims to the attempt, and returns
        whether there may be more. The first queue is random, so that no queue is always last."""
        retries = [log for log in logs if log.queue is None]
        queues = [log for log in logs if log.queue is not None]
        turn = int(self.context.ids.jitter() * len(queues))
        messages, size = request.max_messages, PULL_BYTES
        more = False
        for log in [*retries, *queues[turn:], *queues[:turn]]:
            try:
                result = log.claim(
                    consumer=request.consumer,
                    max_messages=messages,
                    max_bytes=size,
                    lease_ms=request.lease_seconds * 1_000,
                    strict_bytes=bool(attempt.claims),
                )
            except Corrupt as error:
                if not attempt.claims:
                    raise
                # The messages claimed so far must be handed out: nobody else gets them before their lease ends.
                unreadable(log.context, log.source.name, log.tail().position.row_no, 0, error)
                return True
            more = more or result.limited
            if result.nothing is not None:
                attempt.nothing.append((log, result.nothing))
            if result.claim is not None:
                attempt.claims.append((log, result.claim))
                messages -= result.claim.pull_row.value.size
                size -= result.claim.answer_bytes
                if messages <= 0 or size <= 0 or single:
                    return True
        return more

    def _pulled(self, attempt: _Attempt, log: PullLog, claim: Claim) -> Pulled | None:
        """Returns the claim as an answer; None when none of its messages can be read, or the claim was taken over."""
        counts, messages = self._read(log, claim)
        pull_row: Versioned[PullRow] | None = claim.pull_row
        if counts != claim.pull_row.value.counts:
            pull_row = self._exclude_unreadable(log, claim, counts)
        if pull_row is None or not messages:
            return None
        receipt = Receipt(
            attempt.subject.name,
            attempt.subject.generation,
            attempt.group.name,
            attempt.group.generation,
            log.queue,
            claim.row_no,
            pull_row.token,
            pull_row.value,
        )
        return Pulled(
            sign_receipt(self.secret, receipt),
            "retry" if log.queue is None else log.queue,
            rfc3339(pull_row.value.lease_until_ms),
            messages,
        )

    def _read(self, log: PullLog, claim: Claim) -> tuple[tuple[int, ...], list[Message]]:
        """Returns the number of messages from each row of a claim, and the messages. A row that cannot be read is
        reported and counts 0."""
        value = claim.pull_row.value
        counts, delivered = list(value.counts), list[Message]()
        for step, ((row_no, row), count) in enumerate(zip(claim.rows, value.counts, strict=True)):
            if not count:
                continue
            try:
                taken = taken_from(row, value.indexes(step), self.context.blobs, log.queue)
            except Corrupt as error:
                unreadable(self.context, log.source.name, row_no, count, error)
                counts[step] = 0
                continue
            delivered += taken if row.raw_bytes <= TEXT_BYTES else [answerable(message) for message in taken]
        return tuple(counts), delivered

    def _exclude_unreadable(self, log: PullLog, claim: Claim, counts: tuple[int, ...]) -> Versioned[PullRow] | None:
        """Removes unreadable messages from the claim, so that its indexes match the answer's; returns the changed pull
        row, or None when the claim was taken over meanwhile. The messages stay in their log: a seek delivers them once
        the row is repaired."""
        value = msgspec.structs.replace(claim.pull_row.value, counts=counts)
        if not any(counts):
            value = value.closed(UNREADABLE, self.context.clock.now_ms())
        outcome = log.record(claim.row_no).swap(claim.pull_row.token, value, expires_ms=value.garbage_ms)
        return outcome.current if outcome.stored else None
