"""Settles what a pull settles and claims what it asks for, from the logs that may have messages."""

import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec

from hourwheel.context import Context
from hourwheel.errors import Broken, Corrupt, Unavailable
from hourwheel.faults import unreadable
from hourwheel.model.groups import Group
from hourwheel.model.log_names import HOME
from hourwheel.model.pulls import PullRequest, Settled
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Counter
from hourwheel.pull_log.claiming.claims import Claim, ClaimRequest, ClaimResult, Nothing, SettledRow
from hourwheel.pull_log.claiming.retry_share import NOT_SHARED, RetryShare, share_of
from hourwheel.pull_log.limits import Limit
from hourwheel.pull_log.open_logs import PullLogs
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pulling.flow import FlowControl, is_current
from hourwheel.reach.storages import at_home, by_storage
from hourwheel.settling.leases import Leases
from hourwheel.settling.settlements import OpenedSettlement, SettlementAnswers, Settlements, are_at_home, settled_logs
from hourwheel.wire.answer_size import PULL_BYTES

_logger = logging.getLogger("hourwheel")

_STAYS = 7 / 8
"""The share of the pulls that look first into the queue whose messages they settle. Consumers that have found different
queues then keep out of each other's way, and the next claim may grow the row of the former one. The other pulls leave
the queue, so that no queue waits for ever while its consumers are fewer than the queues."""

_RACES = 2  # where there are other queues: they have messages that fewer consumers may be after


@dataclass(frozen=True)
class Look:
    """What one look of a pull has settled and claimed so far. ``nothing``: the logs in which no message waits;
    ``limited``: there may be more messages; ``limit``: what keeps them from the group; ``due_ms``: when the next parked
    message is due. In a group with limits, a claim takes the pull row in ``rows``. ``share`` bounds the retries (None:
    not drawn yet), ``held_back``: the logs with more. ``suspects``: the logs where a claim left a suspect. ``totals``:
    those of all logs, if the look read them strongly consistent."""

    subject: Subject
    group: Group
    settled: list[Settled] = field(default_factory=list)
    claims: list[tuple[PullLog, Claim]] = field(default_factory=list)
    nothing: list[tuple[PullLog, Nothing]] = field(default_factory=list)
    limited: bool = False
    limit: Limit | None = None
    rows: dict[str, int] = field(default_factory=dict)
    due_ms: int | None = None
    share: RetryShare | None = None
    held_back: dict[str, PullLog] = field(default_factory=dict)
    suspects: list[PullLog] = field(default_factory=list)
    totals: Mapping[str, Counter] | None = None

    def copied(self, settled: list[Settled], *, limited: bool) -> "Look":
        """Returns the look with collections of its own. Not by ``replace``, as that visits each field."""
        claims, nothing, held_back = [*self.claims], [*self.nothing], self.held_back.copy()
        head = (self.subject, self.group, settled, claims, nothing, limited)
        return Look(*head, self.limit, self.rows, self.due_ms, self.share, held_back, [*self.suspects], self.totals)

    @property
    def retries(self) -> int:
        """The number of retries among the claims, as far as they count for the share."""
        return sum(claim.pull_row.value.claimed if log.queue is None else claim.retries for log, claim in self.claims)

    @property
    def share_left(self) -> RetryShare:
        """The share of the retries that the next claim may use."""
        return NOT_SHARED if self.share is None else self.share.after(self.retries)

    def record(self, unbound: PullLog, log: PullLog, result: ClaimResult) -> None:
        """Adds what a claim from this log found; ``unbound`` is the log outside of its transaction."""
        if result.held_back:
            self.held_back[log.source.name] = unbound
        if result.nothing is not None:
            self.nothing.append((log, result.nothing))
        if result.suspects_wait:
            self.suspects.append(log)
        if result.claim is not None:
            self.claims.append((log, result.claim))

    def cut_off(self, pull: str, error: Unavailable | Broken) -> "Look":
        """Returns the look as far as it came: the messages claimed so far must be handed out, because nobody else gets
        them before their lease ends. Without any, raises the error."""
        if not self.claims:
            raise error
        _logger.warning("%s ended early: %s", pull, error)
        return replace(self, limited=True)

    def left_out(self, logs: Sequence[PullLog]) -> dict[str, PullLog]:
        """Returns the retry log if the next claims leave it out, because the share of the retries is used up."""
        if not self.share_left.is_empty:
            return {}
        return {log.source.name: log for log in logs if log.queue is None}


@dataclass
class Claimer:
    """Settles and claims for one request. ``totals``: what each log has given out. ``single``: a claim of one log is
    enough. ``shares``: there may be new messages beside retries."""

    context: Context
    flow: FlowControl
    opener: PullLogs
    leases: Leases
    settlements: Settlements
    request: PullRequest
    totals: Mapping[str, Counter]
    single: bool
    shares: bool = False

    def claim_messages(self, look: Look, opened: Sequence[OpenedSettlement], logs: Mapping[str, PullLog]) -> Look:
        """Carries out the settlements, then claims from these logs, which are given by the name of their source."""
        if look.group.flow_limited:
            return self._within_limits(look, opened, logs)
        return self._by_storage(self._shared(look, logs), opened, logs)

    def claim_held_back(self, look: Look) -> Look:
        """Claims the retries that exceed their share, where new messages have left room. A suspect has room only in a
        pull without other messages; where none is taken, notes the logs that would have given one."""
        if look.limit is not None:
            return look
        logs = dict(look.held_back)
        if look.claims:
            look = self._with_suspects(look)
            for log in look.suspects:
                if log.queue is None:
                    logs.pop(log.source.name, None)
        if not logs or self.is_satisfied(look):
            return look
        suspects = [log for log in look.suspects if log.source.name not in logs]
        return self.claim_messages(replace(look, share=NOT_SHARED, held_back={}, suspects=suspects), (), logs)

    def _with_suspects(self, look: Look) -> Look:
        """Returns the look with the logs in which a suspect comes next, of those that no claim has looked into."""
        if look.share is None or not look.share.is_empty:
            return look
        suspects = [log for log in look.held_back.values() if log.queue is None and self._comes_to_suspect(log)]
        return replace(look, suspects=[*look.suspects, *suspects])

    def _comes_to_suspect(self, log: PullLog) -> bool:
        # The messages claimed before must be handed out: the next claim from this log raises the error again.
        with suppress(Corrupt, Unavailable, Broken):
            return log.comes_to_suspect()
        return False

    def is_satisfied(self, look: Look) -> bool:
        """Returns whether the look has claimed as much as the request asks for or as fits into an answer, or has
        claimed a suspect, which comes alone."""
        return bool(look.claims) and (self.single or look.claims[-1][1].suspect or self._full(look))

    def _within_limits(self, look: Look, opened: Sequence[OpenedSettlement], logs: Mapping[str, PullLog]) -> Look:
        """Claims no more messages than the limits of the group leave. Settles in a transaction of its own before: that
        makes room for this pull, and for others that wait."""
        if opened:
            look = self._by_storage(look, opened, {})
            self.context.wakeups.announce(self.settlements.subject, self.settlements.group)
        if not logs:
            return look
        # Earlier parts of the queues have taken a share already.
        room, _ = self._room(look)
        allowance = self.flow.allowance(self.opener.of(self.context, look.subject, look.group), room)
        if not allowance.messages:
            return replace(look, limit=allowance.limit)
        most = self.request.max_messages - room + allowance.messages
        request = msgspec.structs.replace(self.request, max_messages=most)
        within = replace(self, request=request)
        look = within._by_storage(within._shared(replace(look, rows=allowance.rows), logs), [], logs)
        return replace(look, limit=allowance.limit) if within._full(look) else look

    def _by_storage(self, look: Look, opened: Sequence[OpenedSettlement], logs: Mapping[str, PullLog]) -> Look:
        if self.context.has_one_storage and are_at_home(opened):
            return self._settle_and_claim(look, opened, list(logs.values()))
        # A settled log may wait as well.
        names = dict.fromkeys([*settled_logs(opened, look.subject, look.group), *logs])
        first = next(iter(names), HOME)
        if len(by_storage(names)) <= 1 and (opened or not logs or at_home(first)):
            return self._settle_and_claim_together(look, opened, list(logs.values()), first)
        return self._settle_and_claim_apart(look, opened, logs)

    def _settle_and_claim_apart(
        self, look: Look, opened: Sequence[OpenedSettlement], logs: Mapping[str, PullLog]
    ) -> Look:
        """Settles, and claims from logs of several storages, which take a transaction each."""
        if opened:
            settled = self.settlements.settle(self.context, look.subject, look.group, opened)
            look = look.copied(settled, limited=look.limited)
        for names_of_turn in self._turns(look, logs):
            if look.rows and look.limited:
                break  # what the limits of the group leave may have changed
            look = self._claim_together(look, [logs[name] for name in names_of_turn])
        return look

    def _turns(self, look: Look, logs: Mapping[str, PullLog]) -> list[list[str]]:
        """Returns the names of the logs, each list from one storage, in the order of their claims: the retry log, then
        the storages from a random one on, so that none is always last. Before all of them those in which a suspect
        waits, because it comes only before other messages. Within limits the home cell claims retries and new messages
        in one transaction: only there the limits leave what they left before."""
        retries = look.group.retry_log
        alone = retries in logs and not look.rows
        others = dict(logs)
        if alone:
            del others[retries]
        turns = by_storage(others)
        first = int(self.context.ids.jitter() * len(turns))
        turns = [*turns[first:], *turns[:first]]
        turns.sort(key=lambda names: retries not in names)
        if alone:
            turns.insert(0, [retries])
        if len(turns) > 1 and self._takes_suspects_first(look):
            having = self._having_suspects(logs.values())
            turns.sort(key=lambda names: having.isdisjoint(names))
        return turns

    def _takes_suspects_first(self, look: Look) -> bool:
        """Returns whether the logs that are known to have suspects come before the others: a suspect is taken only if
        nothing was claimed before it."""
        return self.request.suspects and look.share_left.turn and not look.claims

    def _having_suspects(self, logs: Iterable[PullLog]) -> set[str]:
        """Returns the names of the logs that have suspects, as far as this process knows."""
        return {log.source.name for log in logs if log.knows_suspect()}

    def _settle_and_claim_together(
        self, look: Look, opened: Sequence[OpenedSettlement], logs: Sequence[PullLog], first: str
    ) -> Look:
        """Settles, and claims from logs of the same storage, which holds the log ``first``. A storage that is out of
        reach has nothing."""
        with self.settlements.outages.noted(first):
            return self._settle_and_claim(look, opened, logs)
        return look.copied(self.settlements.unreached(self.context, opened), limited=look.limited)

    def _claim_together(self, look: Look, logs: Sequence[PullLog]) -> Look:
        """Claims from logs of one storage what the request still has room for. A storage that is out of reach has
        nothing."""
        if not logs or self.is_satisfied(look):
            return look
        if at_home(logs[0].source.name):
            return self._claim_at_home(look, logs)
        with self.leases.faults.abroad(self.context, logs[0].source.name, "pulling from"):
            return self._settle_and_claim(look, [], logs)
        return look

    def _claim_at_home(self, look: Look, logs: Sequence[PullLog]) -> Look:
        """Claims from logs of the home cell. An error passes through, unless another cell has given messages: these
        must be handed out, because nobody else gets them before their lease ends."""
        try:
            return self._settle_and_claim(look, [], logs)
        except (Unavailable, Broken) as error:
            return look.cut_off(f"a pull from {logs[0].source.name}", error)

    def _settle_and_claim(self, look: Look, opened: Sequence[OpenedSettlement], logs: Sequence[PullLog]) -> Look:
        """Settles, then claims from these logs, in one transaction where all of them are in one cell."""
        # Not within the transaction: a cell is looked up in the home store.
        all_logs = self.opener.of(self.context, look.subject, look.group) if look.rows else []

        def work(context: Context) -> Look:
            # A transaction may run more than once: each run begins with what was claimed before it.
            left_out = look.left_out(logs)
            in_turn = self._in_turn(look, opened, [log for log in logs if log.source.name not in left_out])
            applied = self._apply(look, opened, in_turn, context)
            settled = applied.answers if opened else look.settled
            after = look.copied(settled, limited=True)
            after.held_back.update(left_out)
            if not self._is_current(look, all_logs, context):
                return after
            limited = self._claim(after, in_turn, applied, context)
            return after if limited or look.limited else after.copied(settled, limited=False)

        if self.context.has_one_storage:
            return self.context.atomically(work)
        names = [*settled_logs(opened, look.subject, look.group), *(log.source.name for log in logs)]
        return self.context.atomically(work, names)

    def _is_current(self, look: Look, all_logs: Sequence[PullLog], context: Context) -> bool:
        """Returns whether no pull row was added since the limits were computed, as far as the transaction can tell: to
        the logs of its cell. Outside of a transaction each claim looks at its own log."""
        if not look.rows or context is self.context:
            return True
        return is_current([log.on(context) for log in all_logs if context.reads(log.source.name)], look.rows)

    def _shared(self, look: Look, logs: Mapping[str, PullLog]) -> Look:
        """Returns the look with the share of its retries."""
        if look.share is not None or not logs:
            return look
        if not self.shares:
            return replace(look, share=NOT_SHARED)
        room, _ = self._room(look)
        chance = self.context.ids.jitter()
        return replace(look, share=share_of(look.group, room, single=self.single, chance=chance, fills=len(logs) == 1))

    def _in_turn(self, look: Look, opened: Sequence[OpenedSettlement], logs: Sequence[PullLog]) -> list[PullLog]:
        """Returns the logs in the order of their claims: those that keep messages for this pull, those with a suspect,
        which comes only before other messages, then retries, then the queues."""
        retries = [log for log in logs if log.queue is None]
        in_turn = [*retries, *self._queues_in_turn(look, opened, [log for log in logs if log.queue is not None])]
        if len(logs) > 1 and self._takes_suspects_first(look):
            having = self._having_suspects(logs)
            in_turn.sort(key=lambda log: log.source.name not in having)
        return self.settlements.keeping_first(opened, in_turn, look.subject, look.group)

    def _queues_in_turn(
        self, look: Look, opened: Sequence[OpenedSettlement], queues: Sequence[PullLog]
    ) -> list[PullLog]:
        """Returns the queues from a random one on, so that none is always last. In most pulls the queues come first
        whose messages the pull settles."""
        first = int(self.context.ids.jitter() * len(queues))
        in_turn = [*queues[first:], *queues[:first]]
        if opened and len(queues) > 1 and self.context.ids.jitter() < _STAYS:
            settled = set(settled_logs(opened, look.subject, look.group))
            in_turn.sort(key=lambda log: log.source.name not in settled)
        return in_turn

    def _apply(
        self, look: Look, opened: Sequence[OpenedSettlement], logs: Sequence[PullLog], context: Context
    ) -> SettlementAnswers:
        """Carries out the settlements. One of them may claim from the first log."""
        if not opened:
            return SettlementAnswers([], {}, None)
        first = logs[0].on(context) if logs and not look.claims else None
        request = self._claim_request(look, first)
        return self.settlements.apply_and_claim(context, look.subject, look.group, opened, first, request)

    def _claim_request(
        self,
        look: Look,
        log: PullLog | None,
        only_row: int | None = None,
        before: SettledRow | None = None,
        races: int = sys.maxsize,
    ) -> ClaimRequest:
        request = ClaimRequest(
            self.request.consumer,
            *self._room(look),
            self.request.lease_seconds * 1_000,
            strict_bytes=bool(look.claims),
            only_row=only_row,
            before=before,
            share=look.share_left,
            suspects=self.request.suspects and not look.claims,
            races=races,
            source_rows=0 if log is None else self.totals[log.source.name].rows,
        )
        return request if log is None or log.queue is not None else request.of_retries()

    def _claim(self, look: Look, logs: Sequence[PullLog], applied: SettlementAnswers, context: Context) -> bool:
        """Claims from the logs until the request is full, and adds the claims. Returns whether there may be more."""
        more = False
        for at, unbound in enumerate(logs):
            log = unbound.on(context)
            result = applied.claimed if at == 0 else None
            if result is None:
                before = self.leases.bounded(unbound, applied.acknowledged, self.request.consumer)
                request = self._claim_request(look, log, look.rows.get(log.partition), before, _races(logs))
                result = self._claim_from(log, request, alone=not look.claims)
            if result is None:
                return True
            look.record(unbound, log, result)
            goes_on = result.limited and not result.held_back
            more = more or goes_on
            # Without a claim another one came first: the limits of the group leave fewer messages now.
            if self.is_satisfied(look) if result.claim is not None else goes_on and look.rows:
                return True
        return more

    def _claim_from(self, log: PullLog, request: ClaimRequest, *, alone: bool) -> ClaimResult | None:
        """Claims from one log. An error passes through where the claim is ``alone``. Otherwise returns None,
        because the messages claimed before must be handed out: nobody else gets them before their lease ends."""
        try:
            return log.claim(request)
        except Corrupt as error:
            if alone:
                raise
            unreadable(log.context, log.source.name, log.tail().position.row_no, 0, error)
        except (Unavailable, Broken) as error:
            # A transaction that failed has claimed nothing.
            if alone or log.context.later is not None:
                raise
            _logger.warning("a pull from %s ended early: %s", log.source.name, error)
        return None

    def _room(self, look: Look) -> tuple[int, int]:
        """Returns how many messages, and how many bytes of them, fit into the answer beside those claimed so far."""
        messages = self.request.max_messages - sum(claim.pull_row.value.claimed for _, claim in look.claims)
        return messages, PULL_BYTES - sum(claim.answer_bytes for _, claim in look.claims)

    def _full(self, look: Look) -> bool:
        return min(self._room(look)) <= 0


def _races(logs: Sequence[PullLog]) -> int:
    """Returns how many races a claim may lose before the next log has its turn."""
    return _RACES if len(logs) > 1 else sys.maxsize
