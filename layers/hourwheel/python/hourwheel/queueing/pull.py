"""Pull: settles what the request settles, then claims the next messages, the group's retries first."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import msgspec

from hourwheel.answer_size import PULL_BYTES, TEXT_BYTES, answerable
from hourwheel.context import Context
from hourwheel.errors import Broken, Corrupt, Rejected, Unavailable
from hourwheel.faults import unreadable
from hourwheel.handover.copies import taken_from
from hourwheel.log_names import HOME, LogName, cell_of
from hourwheel.logs.cas import Versioned
from hourwheel.model.groups import Group
from hourwheel.model.messages import Message
from hourwheel.model.pulls import Pulled, PullRequest, PullResult, Settled, Settlement
from hourwheel.model.subjects import Subject
from hourwheel.ports import GET_MANY, Counter
from hourwheel.queueing.ends import SourceEnds
from hourwheel.queueing.flow import FlowControl, is_current
from hourwheel.queueing.leases import Leases
from hourwheel.queueing.limits import Limit, pause_of
from hourwheel.queueing.ordered_claims import claim as claim_in_order
from hourwheel.queueing.ordered_parts import in_turn
from hourwheel.queueing.orders import Orders
from hourwheel.queueing.pull_log import Claim, Nothing, PullLog, pull_logs
from hourwheel.queueing.receipts import Receipt, open_receipt, sign_receipt
from hourwheel.queueing.records import UNREADABLE, PullRow
from hourwheel.queueing.settle import Decision, Settler, decide
from hourwheel.registry.broadcast import consumer_group, group_of_receipt
from hourwheel.registry.moves import catch_up
from hourwheel.registry.registry import Registry
from hourwheel.times import rfc3339

_LOOKING_MS = 5_000
"""A pull whose wait is over keeps looking this long where there may be more: passing many empty rows takes several
looks, and each look moves the group's position forward."""


_SOON_MS = 20  # a look costs a request: retries that are due one after the other share it

_STALE = Settled("stale")


@dataclass(frozen=True)
class _Attempt:
    """The result of one look: the answers to the settlements, the claims, the logs in which nothing waits
    (``nothing``), whether there may be more messages (``limited``), what keeps them from the group (``limit``), and
    when the next parked message is due (``due_ms``). In a group with limits, a claim takes the pull row in ``rows``."""

    subject: Subject
    group: Group
    settled: list[Settled]
    claims: list[tuple[PullLog, Claim]]
    nothing: list[tuple[PullLog, Nothing]]
    limited: bool
    limit: Limit | None = None
    rows: dict[str, int] = field(default_factory=dict)
    due_ms: int | None = None


class _LookResult(NamedTuple):
    """The result of one look, as the pull answers it. ``more``: there may be more messages."""

    settled: list[Settled]
    pulls: list[Pulled]
    more: bool
    limit: Limit | None
    due_ms: int | None

    def wait_ms(self, left_ms: int, now_ms: int) -> int:
        """Returns how long to wait for the next look, of the time that is left."""
        if self.limit is not None:
            left_ms = min(left_ms, int(1_000 * self.limit.again_seconds))
        return left_ms if self.due_ms is None else min(left_ms, max(self.due_ms - now_ms, _SOON_MS))


@dataclass(frozen=True)
class Puller:
    """Pulls and settles for one group of one subject."""

    context: Context
    registry: Registry
    leases: Leases
    ends: SourceEnds
    flow: FlowControl
    orders: Orders
    secret: bytes
    subject: str
    group: str
    consumers: dict[tuple[str, int], Group | None] = field(default_factory=dict)
    """In a broadcast group, the groups of consumers that the receipts of this request name."""

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
            now_ms = self.context.clock.now_ms()
            left_ms = until_ms - now_ms
            if look.more:
                looks = left_ms > -_LOOKING_MS
            else:
                seconds = look.wait_ms(left_ms, now_ms) / 1_000
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
        settled = self.context.atomically(
            lambda context: self._apply_settlements(context, subject, group, opened),
            _settled_logs(opened, subject, group),
        )
        # In an ordered group each settlement may free a key.
        if group.ordered or group.max_in_flight or any(decision.moves for _, decision in opened):
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
            member = self._group_of(receipt, group)
            if member is None or subject.generation != receipt.subject_generation:
                return _STALE
            source = context.log(_source_of(receipt, subject, member))
            log = PullLog(context, member, source, receipt.queue)
            row = _stored_row(log, receipt) if member.ordered else receipt.pull_row
            return _STALE if row is None else Settler(log, subject).apply(receipt.row_no, row, decision)

        return [settle(receipt, decision) for receipt, decision in opened]

    def _group_of(self, receipt: Receipt, group: Group) -> Group | None:
        """Returns the group that a receipt names, which in a broadcast group is that of a consumer; None if it is
        gone."""
        if receipt.group == group.name:
            return group if receipt.group_generation == group.generation else None
        return self.consumers.get((receipt.group, receipt.group_generation))

    def _names(
        self, opened: Sequence[tuple[Receipt, Decision]], *, create: bool, consumer: str = ""
    ) -> tuple[Subject, Group]:
        """Returns the subject and the group; of a broadcast group that of the consumer, if one is named. Reads them
        again when a receipt names a later generation than the cached one."""
        for _ in range(2):
            subject = self.registry.subject(self.subject, create=create)
            group = self.registry.group(subject, self.group, create=create)
            if not any(
                receipt.subject_generation > subject.generation
                or (receipt.group == group.name and receipt.group_generation > group.generation)
                for receipt, _ in opened
            ):
                break
            self.registry.forget(self.subject)
        if not group.broadcast:
            return subject, group
        # Here and not when the receipts are settled, which may be in a transaction.
        for receipt, _ in opened:
            named = (receipt.group, receipt.group_generation)
            self.consumers[named] = group_of_receipt(self.registry, subject, group, *named)
        member = consumer_group(self.registry, subject, group, consumer, create=create) if consumer else None
        return subject, member or group

    def _look(self, request: PullRequest, opened: list[tuple[Receipt, Decision]], pushing: bool) -> _LookResult:
        """Makes one attempt and reads the messages that it claimed."""
        attempt = self._attempt(request, opened, pushing)
        pulls = [self._pulled(attempt, log, claim) for log, claim in attempt.claims]
        readable = [pulled for pulled in pulls if pulled is not None]
        more = attempt.limited or len(readable) < len(pulls)
        return _LookResult(attempt.settled, readable, more, attempt.limit, attempt.due_ms)

    def _attempt(self, request: PullRequest, opened: list[tuple[Receipt, Decision]], pushing: bool) -> _Attempt:
        # Looked up for each attempt: during a wait the subject may get more queues, or be deleted and created again.
        subject, group = self._names(opened, create=not pushing, consumer=request.consumer)
        pause = pause_of(subject, group, self.context.settings)
        if pause is not None:
            return self._paused(subject, group, pull_logs(self.context, subject, group), opened, pause)
        subject, group, logs, totals = self._sources(subject, group, opened, create=not pushing)
        moved = {log.source.name: log for log in logs if self._may_have_more(log, group, totals)}
        moved = {log.source.name: log for log in in_turn(self.context, self.orders, subject, group, [*moved.values()])}
        ended = self._end_leases(subject, [log for log in logs if log.source.name in moved or self.leases.due(log)])
        if ended or any(decision.moves for _, decision in opened):
            # The totals were read before these retries were stored.
            moved[group.retry_log] = logs[0]
        attempt = _Attempt(subject, group, [], [], [], limited=False)
        if not (opened or moved):
            return replace(attempt, due_ms=self._due_ms(group, logs))
        take = self._settle_and_claim_within_limits if group.flow_limited else self._settle_and_claim_in_cells
        attempt = take(attempt, request, opened, moved, pushing)
        for log, _ in attempt.claims:
            if log.queue is None:
                self.leases.record_pull(log.on(self.context), subject)
        for log, nothing in attempt.nothing:
            self._remember(log.on(self.context), nothing, totals[log.source.name])
        return replace(attempt, due_ms=self._due_ms(group, logs)) if group.ordered else attempt

    def _may_have_more(self, log: PullLog, group: Group, totals: dict[str, Counter]) -> bool:
        return self.ends.moved(log, group, totals[log.source.name]) or (group.ordered and self.orders.waits(log))

    def _due_ms(self, group: Group, logs: Sequence[PullLog]) -> int | None:
        """Returns when the next parked message is due; None if none has a time."""
        states = [self.orders.cached(log) for log in logs] if group.ordered else []
        now_ms = self.context.clock.now_ms()
        dues = [state.next_due_ms(now_ms) for state in states if state is not None]
        return min((due_ms for due_ms in dues if due_ms is not None), default=None)

    def _settle_and_claim_in_cells(
        self,
        attempt: _Attempt,
        request: PullRequest,
        opened: list[tuple[Receipt, Decision]],
        moved: Mapping[str, PullLog],
        pushing: bool,
    ) -> _Attempt:
        groups = _by_cell([*_settled_logs(opened, attempt.subject, attempt.group), *moved])
        if len(groups) <= 1:
            return self._settle_and_claim(attempt, request, opened, list(moved.values()), pushing)
        # A settlement and a claim in several cells take a transaction each.
        if opened:
            attempt = self._settle_and_claim(attempt, request, opened, [], pushing)
        for names in groups:
            inside = [moved[name] for name in names if name in moved]
            attempt = self._claim_in_cell(attempt, request, inside, pushing)
        return attempt

    def _settle_and_claim_within_limits(
        self,
        attempt: _Attempt,
        request: PullRequest,
        opened: list[tuple[Receipt, Decision]],
        moved: Mapping[str, PullLog],
        pushing: bool,
    ) -> _Attempt:
        """Claims no more messages than the limits of the group leave. Settles in a transaction of its own before: that
        makes room for this pull, and for others that wait."""
        if opened:
            attempt = self._settle_and_claim_in_cells(attempt, request, opened, {}, pushing)
            self.context.wakeups.announce(self.subject, self.group)
        if not moved:
            return attempt
        allowance = self.flow.allowance(pull_logs(self.context, attempt.subject, attempt.group), request.max_messages)
        if not allowance.messages:
            return replace(attempt, limit=allowance.limit)
        request = msgspec.structs.replace(request, max_messages=allowance.messages)
        attempt = replace(attempt, rows=allowance.rows)
        attempt = self._settle_and_claim_in_cells(attempt, request, [], moved, pushing)
        return replace(attempt, limit=allowance.limit) if _full(attempt, request) else attempt

    def _is_current(self, attempt: _Attempt, context: Context) -> bool:
        """Returns whether no pull row was added since the limits were computed. Looks only inside of a transaction
        that has all logs; elsewhere each claim looks at its own log."""
        if not attempt.rows or context is self.context or context.cells is not None:
            return True
        logs = pull_logs(context, attempt.subject, attempt.group)
        return is_current(logs, attempt.rows)

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
            settled = self.context.atomically(
                lambda context: self._apply_settlements(context, subject, group, opened),
                _settled_logs(opened, subject, group),
            )
        return _Attempt(subject, group, settled, [], [], limited=False, limit=pause)

    def _settle_and_claim(
        self,
        attempt: _Attempt,
        request: PullRequest,
        opened: list[tuple[Receipt, Decision]],
        logs: Sequence[PullLog],
        pushing: bool,
    ) -> _Attempt:
        """Settles, then claims from these logs, in one transaction where all of them are in one cell."""
        subject, group = attempt.subject, attempt.group

        def work(context: Context) -> _Attempt:
            # A transaction may run more than once: each run begins with what was claimed before it.
            settled = self._apply_settlements(context, subject, group, opened) if opened else attempt.settled
            after = replace(attempt, settled=settled, claims=[*attempt.claims], nothing=[*attempt.nothing])
            if not self._is_current(attempt, context):
                return replace(after, limited=True)
            limited = self._claim(after, request, [log.on(context) for log in logs], single=pushing)
            return replace(after, limited=attempt.limited or limited)

        names = [*_settled_logs(opened, subject, group), *(log.source.name for log in logs)]
        return self.context.atomically(work, names)

    def _claim_in_cell(
        self, attempt: _Attempt, request: PullRequest, logs: Sequence[PullLog], pushing: bool
    ) -> _Attempt:
        """Claims from logs of one cell what the request still has room for. A cell that is out of reach has nothing."""
        if not logs or (attempt.claims and (pushing or _full(attempt, request))):
            return attempt
        if cell_of(logs[0].source.name) == HOME:
            return self._settle_and_claim(attempt, request, [], logs, pushing)
        with suppress(Unavailable, Broken), self._contained(f"pulling from cell {cell_of(logs[0].source.name)}"):
            return self._settle_and_claim(attempt, request, [], logs, pushing)
        return attempt

    def _sources(
        self, subject: Subject, group: Group, opened: list[tuple[Receipt, Decision]], *, create: bool
    ) -> tuple[Subject, Group, list[PullLog], dict[str, Counter]]:
        """Returns the subject and the group, the logs to look into, and their totals. Brings the route up to date when
        a queue turns out to have moved."""
        for last in (False, True):
            logs = pull_logs(self.context, subject, group)
            if subject.routes:
                logs = [log for log in logs if not self.ends.finished(log, group) or self.leases.due(log)]
            totals = self._totals(logs)
            logs = [log for log in logs if log.source.name in totals]
            if last or (subject.change is None and not any(_went_on(log, totals) for log in logs)):
                break
            with suppress(Unavailable, Broken), self._contained(f"moving queues of {subject.name}"):
                catch_up(self.registry, subject)
            subject, group = self._names(opened, create=create, consumer=group.consumer)
        return subject, group, logs, totals

    def _contained(self, what: str) -> AbstractContextManager[None]:
        return self.leases.faults.contained(self.context, what)

    def _totals(self, logs: Sequence[PullLog]) -> dict[str, Counter]:
        """Returns the totals of the source logs by name, perhaps out of date, without those in a cell that is out of
        reach. Costs one request for each ``GET_MANY`` logs of a cell."""
        totals: dict[str, Counter] = {}
        for names in _by_cell([log.source.name for log in logs]):
            if cell_of(names[0]) == HOME:
                totals |= self._read_totals(names)
            else:
                with suppress(Unavailable, Broken), self._contained(f"reading cell {cell_of(names[0])}"):
                    totals |= self._read_totals(names)
        return totals

    def _read_totals(self, names: Sequence[str]) -> dict[str, Counter]:
        totals: dict[str, Counter] = {}
        for start in range(0, len(names), GET_MANY):
            totals |= self.context.store_of(names[0]).counters(names[start : start + GET_MANY])
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
        final = totals.sealed and end >= totals.rows and not self.orders.holds(log)
        self.ends.remember(log, log.group, end, unmatched=nothing.unmatched, final=final)

    def _claim(self, attempt: _Attempt, request: PullRequest, logs: Sequence[PullLog], *, single: bool) -> bool:
        """Claims from the logs, retries first, until the request is full. Adds the claims to the attempt, and returns
        whether there may be more. The first queue is random, so that no queue is always last."""
        retries = [log for log in logs if log.queue is None]
        queues = [log for log in logs if log.queue is not None]
        turn = int(self.context.ids.jitter() * len(queues))
        messages, size = _room(attempt, request)
        more = False
        for log in [*retries, *queues[turn:], *queues[:turn]]:
            try:
                claim = partial(claim_in_order, self.orders, log) if log.group.ordered else log.claim
                result = claim(
                    consumer=request.consumer,
                    max_messages=messages,
                    max_bytes=size,
                    lease_ms=request.lease_seconds * 1_000,
                    strict_bytes=bool(attempt.claims),
                    only_row=attempt.rows.get(log.partition),
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
        if attempt.group.ordered:
            # A settlement reads the row: its receipt stays short, however many keys the row names.
            return self._answer(attempt, log, claim.row_no, _shortened(claim), [*claim.messages])
        counts, messages = self._read(log, claim)
        pull_row: Versioned[PullRow] | None = claim.pull_row
        if counts != claim.pull_row.value.counts:
            pull_row = self._exclude_unreadable(log, claim, counts)
        return (
            None if pull_row is None or not messages else self._answer(attempt, log, claim.row_no, pull_row, messages)
        )

    def _answer(
        self, attempt: _Attempt, log: PullLog, row_no: int, pull_row: Versioned[PullRow], messages: list[Message]
    ) -> Pulled:
        receipt = Receipt(
            attempt.subject.name,
            attempt.subject.generation,
            attempt.group.name,
            attempt.group.generation,
            log.queue,
            row_no,
            pull_row.token,
            pull_row.value,
            "" if log.mapping.first else log.source.name,
        )
        return Pulled(
            sign_receipt(self.secret, receipt),
            "retry" if log.queue is None else log.queue,
            rfc3339(pull_row.value.lease_until_ms),
            messages,
            ordered=attempt.group.ordered,
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
                taken = taken_from(row, value.indexes(step), self.context.blobs_of(log.source.name), log.queue)
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


def _source_of(receipt: Receipt, subject: Subject, group: Group) -> str:
    """Returns the name of the log from which the messages of a receipt were pulled."""
    if receipt.queue is None:
        return group.retry_log
    return receipt.source or str(LogName.of_queue(subject.name, subject.generation, receipt.queue))


def _settled_logs(opened: Sequence[tuple[Receipt, Decision]], subject: Subject, group: Group) -> list[str]:
    """Returns the logs that settlements need: those of the pulls, and the retry log for messages that are retried."""
    logs = [_source_of(receipt, subject, group) for receipt, _ in opened]
    return [*logs, group.retry_log] if any(decision.moves for _, decision in opened) else logs


def _by_cell(logs: Iterable[str]) -> list[list[str]]:
    """Returns the names of the logs by cell, in their order."""
    cells: dict[str, list[str]] = {}
    for log in logs:
        cells.setdefault(cell_of(log), []).append(log)
    return list(cells.values())


def _went_on(log: PullLog, totals: Mapping[str, Counter]) -> bool:
    """Returns whether a log that should take messages is sealed: its queue goes on elsewhere, or was deleted."""
    return log.queue is not None and log.mapping.end is None and totals[log.source.name].sealed


def _room(attempt: _Attempt, request: PullRequest) -> tuple[int, int]:
    """Returns how many messages, and how many bytes of them, fit into the answer beside those claimed so far."""
    messages = request.max_messages - sum(claim.pull_row.value.size for _, claim in attempt.claims)
    return messages, PULL_BYTES - sum(claim.answer_bytes for _, claim in attempt.claims)


def _full(attempt: _Attempt, request: PullRequest) -> bool:
    return min(_room(attempt, request)) <= 0


def _stored_row(log: PullLog, receipt: Receipt) -> Versioned[PullRow] | None:
    """Returns the pull row of a receipt as it is stored; None if it has another claim, or was removed."""
    row = log.record(receipt.row_no).load()
    return row if row is not None and row.value.claim == receipt.value.claim else None


def _shortened(claim: Claim) -> Versioned[PullRow]:
    """Returns what the receipt of an ordered pull contains of its row."""
    row = claim.pull_row.value
    short = PullRow(
        consumer="",
        first=row.first,
        counts=(len(claim.messages),),
        end=row.end,
        end_seq=row.end_seq,
        claim=row.claim,
        claimed_ms=row.claimed_ms,
        lease_until_ms=row.lease_until_ms,
    )
    return Versioned(short, claim.pull_row.token)
