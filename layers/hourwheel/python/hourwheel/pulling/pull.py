"""Pulls: carries out the settlements of the request, then claims the next messages: retries and new ones, each a share.

``settlements.py`` opens and applies the settlements, ``source_logs.py`` finds the logs that may have messages,
``claimer.py`` claims them, and ``answers.py`` reads and signs what was claimed.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from hourwheel.context import Context
from hourwheel.dozing.rests import LastWakeups, LookState, Rest, Rests, rests_of
from hourwheel.errors import Broken, GroupRemoved, HourwheelError, NotFound, Unavailable
from hourwheel.model.groups import Group
from hourwheel.model.pulls import (
    CompactPullResult,
    LimitedBy,
    PullRequest,
    PullResult,
    Settled,
    Settlement,
    WakeupQueue,
)
from hourwheel.model.subjects import Subject
from hourwheel.pull_log.claiming.claims import Claim, Nothing
from hourwheel.pull_log.ends import SourceEnds
from hourwheel.pull_log.limits import Limit, pause_of
from hourwheel.pull_log.message_blocks import count_of
from hourwheel.pull_log.open_logs import PullLogs
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pulling.answers import Answers
from hourwheel.pulling.claimer import Claimer, Look
from hourwheel.pulling.flow import FlowControl
from hourwheel.pulling.source_logs import GroupLogs, SourceLogs, Sources
from hourwheel.reach.outages import raise_fault
from hourwheel.registry.registry import Registry
from hourwheel.settling.leases import Leases
from hourwheel.settling.settlements import OpenedSettlement, Settlements, keeps_any, moves_any

A = TypeVar("A")

_logger = logging.getLogger("hourwheel")

_Answer: TypeAlias = Callable[[Answers, PullLog, Claim], A | None]

_LOOKING_MS = 5_000
"""A pull whose wait is over keeps looking this long where there may be more: passing many empty rows takes several
looks, and each look moves the group's position forward."""

_SOON_MS = 20  # a look costs a request: retries that are due one after the other share it


class _LookAnswer(NamedTuple, Generic[A]):
    """The result of one look, as the pull answers it. ``more``: there may be more messages. ``group`` is the name under
    which the pull waits: that of a consumer's group in a broadcast group, where a message is for every consumer."""

    state: LookState
    settled: list[Settled]
    pulls: list[A]
    more: bool
    suspects_wait: bool = False

    @property
    def group(self) -> str:
        return self.state.group.name

    @property
    def limit(self) -> Limit | None:
        return self.state.limit

    @property
    def due_ms(self) -> int | None:
        return self.state.due_ms

    def wait_ms(self, left_ms: int, now_ms: int) -> int:
        """Returns how long to wait for the next look, of the time that is left."""
        if self.limit is not None:
            left_ms = min(left_ms, int(1_000 * self.limit.again_seconds))
        return left_ms if self.due_ms is None else min(left_ms, max(self.due_ms - now_ms, _SOON_MS))


class _Pulled(NamedTuple, Generic[A]):
    """The fields of a ``PullResult``."""

    pulls: list[A]
    settled: list[Settled] | None
    limited_by: LimitedBy | None
    next_pull_seconds: float = 0
    wakeup: WakeupQueue | None = None
    suspects_wait: bool = False


@dataclass
class Puller:
    """Pulls and settles for one group of one subject."""

    context: Context
    registry: Registry
    leases: Leases
    ends: SourceEnds
    group_logs: GroupLogs
    flow: FlowControl
    opener: PullLogs
    secret: bytes
    subject: str
    group: str
    passed_on: LastWakeups

    def __post_init__(self) -> None:
        self._settlements = Settlements(self.registry, self.opener, self.secret, self.subject, self.group)
        self._source_logs = SourceLogs(
            self.context, self.leases, self.ends, self.opener, self._settlements, self.group_logs
        )

    def pull(self, request: PullRequest, *, pushing: bool = False) -> PullResult:
        """Settles, then claims messages, and waits for them as long as the request allows.

        Creates a subject, group or consumer that does not exist, if the request says so; else raises ``NotFound``.
        Raises ``Rejected`` for a receipt that was not issued to this group or a settlement that contradicts itself;
        nothing is settled then. ``pushing`` is for push: the pull claims from one log only, because a pusher delivers
        those messages before it leases others, and never creates a subject or group.
        """
        pulled = self._pull(request, Answers.pulled, pushing=pushing)
        self._count(sum(len(pull.messages) for pull in pulled.pulls))
        return PullResult(*pulled)

    def pull_blocks(self, request: PullRequest) -> CompactPullResult:
        """Pulls as ``pull`` does, and returns the messages in blocks, as they are stored."""
        pulled = self._pull(request, Answers.blocks, pushing=False)
        self._count(sum(count_of(block) for pull in pulled.pulls for block in pull.blocks))
        return CompactPullResult(*pulled)

    def _pull(self, request: PullRequest, answer: _Answer[A], *, pushing: bool) -> "_Pulled[A]":
        """Returns the answers to the claims, and to the settlements of the request, what kept messages back, and how
        the consumer rests."""
        opened = self._settlements.open(request.settle or ())
        began_ms = self.context.clock.now_ms()
        seen = self.context.wakeups.announcements(self.subject)
        rests = rests_of(
            self.context, self.registry, self.opener, self.leases, self.ends, self.passed_on, request, began_ms=began_ms
        )
        last = rests.may_look_last and self._looks_last(request, opened, rests)
        first = self._look(request, opened, answer, pushing, consistent=last)
        until_ms = began_ms + int(rests.wait_seconds(first.state) * 1_000)
        look = self._wait(first, lambda: self._look(request, [], answer, pushing), seen, until_ms)
        rest = Rest()
        if look.more:
            # This pull stopped at a limit: another one looks for the rest.
            rests.pass_on(look.state)
        elif look.pulls:
            rest = rests.busy(look.state)
        elif not look.suspects_wait:
            rest = rests.rest(look.state)
        settled = None if request.settle is None else first.settled
        limited_by = None if look.limit is None else look.limit.name
        return _Pulled(look.pulls, settled, limited_by, *rest, suspects_wait=look.suspects_wait)

    def _looks_last(self, request: PullRequest, opened: Sequence[OpenedSettlement], rests: Rests) -> bool:
        """Returns whether the consumer waits at its queue after the first look, unless that finds a message."""
        with suppress(NotFound):
            named = self._settlements.subject_and_group(opened, create=False, consumer=request.consumer)
            return rests.looks_last(*named)
        return False

    def _wait(
        self, look: _LookAnswer[A], look_again: Callable[[], _LookAnswer[A]], seen: int, until_ms: int
    ) -> _LookAnswer[A]:
        """Looks again until a look finds something, or the time is over. ``seen``: the announcements before the first
        look. Returns the last look."""
        wakeups, tries = self.context.wakeups, 0
        # A consumer that takes no suspect learns at once that one waits: it lets its messages go, and asks for it.
        while not look.pulls and not look.suspects_wait:
            now_ms = self.context.clock.now_ms()
            left_ms = until_ms - now_ms
            if look.more:
                looks = left_ms > -_LOOKING_MS
            else:
                seconds = look.wait_ms(left_ms, now_ms) / 1_000
                looks = left_ms > 0 and wakeups.wait(self.subject, look.group, since=seen, tries=tries, seconds=seconds)
            if not looks:
                break
            seen = wakeups.announcements(self.subject)
            try:
                look = look_again()
            except BaseException:
                # The message that woke this pull still waits: another pull gets the chance.
                wakeups.announce(self.subject, look.group)
                raise
            tries += 1
        return look

    def _count(self, messages: int) -> None:
        if messages:
            self.context.meter.record("Delivered", messages)

    def settle(self, settlements: list[Settlement]) -> list[Settled]:
        """Carries out settlements in order, and returns the answer to each. Raises ``Rejected``, and settles nothing,
        when a receipt was not issued to this group or a settlement contradicts itself. Raises ``NotFound`` when there
        is no subject or group, and ``ReceiptsUnavailable`` when every settlement needs a cell that is out of reach."""
        opened = self._settlements.open(settlements)
        subject, group = self._settlements.subject_and_group(opened, create=False)
        settled = self._settlements.settle(self.context, subject, group, opened)
        self._settlements.check_reached(settled)
        if group.settling_frees or moves_any(opened) or keeps_any(opened):
            self.context.wakeups.announce(self.subject, self.group)
        return settled

    def _look(
        self,
        request: PullRequest,
        opened: Sequence[OpenedSettlement],
        answer: _Answer[A],
        pushing: bool,
        *,
        consistent: bool = False,
    ) -> _LookAnswer[A]:
        """Settles and claims once, and reads the messages that it claimed."""
        look = self._settle_and_claim(request, opened, pushing, consistent)
        answers = Answers(self.context, self.secret, look.subject, look.group)
        pulls, failed = self._answered(look, partial(answer, answers))
        more = look.limited or len(pulls) + failed < len(look.claims)
        state = LookState(look.subject, look.group, look.limit, look.due_ms, look.totals)
        return _LookAnswer(state, look.settled, pulls, more, bool(look.suspects))

    def _answered(self, look: Look, answer: Callable[[PullLog, Claim], A | None]) -> tuple[list[A], int]:
        """Returns the answers to the claims whose messages can be read, and the number of claims of which a storage did
        not answer: the messages of those come again when their leases end. Raises if the storage is that of the home
        cell, and no claim can be answered."""
        pulls: list[A] = []
        errors: list[HourwheelError] = []
        for log, claim in look.claims:
            try:
                pulled = answer(log, claim)
            except (Unavailable, Broken) as error:
                _logger.warning("messages that were pulled from %s cannot be read now: %s", log.source.name, error)
                errors.append(error)
            else:
                pulls += [] if pulled is None else [pulled]
        if not pulls:
            raise_fault(errors)
        return pulls, len(errors)

    def _settle_and_claim(
        self, request: PullRequest, opened: Sequence[OpenedSettlement], pushing: bool, consistent: bool
    ) -> Look:
        """Settles and claims once."""
        try:
            return self._look_at_group(request, opened, pushing, consistent)
        except GroupRemoved:
            # Deleted through another process, which has stored so before it erased the logs.
            self.registry.forget(self.subject)
            return self._look_at_group(request, opened, pushing, consistent)

    def _look_at_group(
        self, request: PullRequest, opened: Sequence[OpenedSettlement], pushing: bool, consistent: bool
    ) -> Look:
        """Settles and claims once, with the records of the subject and the group as they are cached."""
        # Looked up for each look: during a wait the subject may get more queues, or be deleted and created again.
        create = request.create and not pushing
        subject, group = self._settlements.subject_and_group(opened, create=create, consumer=request.consumer)
        pause = pause_of(subject, group, self.context.settings)
        if pause is not None:
            return self._paused(subject, group, opened, pause)
        joins = self._source_logs.joins(subject, group)
        if joins:
            sources = self._source_logs.without_totals(subject, group)
        else:
            sources = self._source_logs.read(subject, group, opened, create=create, consistent=consistent)
        logs = self._logs_with_messages(sources, opened, joins=joins)
        look = Look(sources.subject, sources.group, totals=sources.final_totals)
        if opened or logs:
            claimer = self._claimer(request, sources, logs, single=pushing)
            look = self._claim_retries_last(claimer, look, opened, sources, logs)
        self._remember(look, sources)
        if opened and not look.claims:
            look = self._with_later_parts(look, sources, logs)
        due_ms = self._source_logs.next_due_ms(sources)
        return look if due_ms is None else replace(look, due_ms=due_ms)

    def _with_later_parts(self, look: Look, sources: Sources, logs: dict[str, PullLog]) -> Look:
        """Returns the look, which is limited if settlements have finished a part of a queue: then the next part has its
        turn, which is not among these logs."""
        if not sources.subject.routes:
            return look
        begun = self._source_logs.with_messages(sources).keys() - logs.keys()
        return replace(look, limited=look.limited or bool(begun))

    def _claimer(self, request: PullRequest, sources: Sources, logs: dict[str, PullLog], *, single: bool) -> Claimer:
        return Claimer(
            self.context,
            self.flow,
            self.opener,
            self.leases,
            self._settlements,
            request,
            single=single,
            shares=self._source_logs.shares(sources, logs),
            totals=sources.totals,
        )

    def _logs_with_messages(
        self, sources: Sources, opened: Sequence[OpenedSettlement], *, joins: bool
    ) -> dict[str, PullLog]:
        """Returns the logs to claim from, by the name of their source. Ends leases that are over before."""
        subject, group, logs = sources[:3]
        moved = self._source_logs.with_messages(sources)
        leased = [log for log in logs if log.source.name in moved or self.leases.due(log)]
        if self._source_logs.end_leases(subject, leased) or moves_any(opened) or keeps_any(opened):
            # The totals were read before these retries were stored.
            moved[group.retry_log] = logs[0]
            sources.outdate(group.retry_log)
        if joins:
            moved |= {log.source.name: log for log in logs if log.queue is not None}
        return moved | self._settlements.keeping(opened, logs, subject, group)

    def _remember(self, look: Look, sources: Sources) -> None:
        """Remembers the claims of the look, and where logs have no message left."""
        ended = [*look.nothing]
        for log, claim in look.claims:
            self.leases.record_claim(log, claim.row_no, claim.pull_row.value)
            if log.queue is None:
                self.leases.record_pull(log.on(self.context), sources.subject)
            if claim.log_end is not None:
                ended.append((log, Nothing(claim.row_no + 1, claim.log_end)))
        for log, nothing in ended:
            # What is not remembered costs a look; an error here would lose what was claimed.
            with suppress(Unavailable, Broken):
                self._source_logs.remember(log.on(self.context), nothing, sources.totals[log.source.name])

    def _claim_retries_last(
        self,
        claimer: Claimer,
        look: Look,
        opened: Sequence[OpenedSettlement],
        sources: Sources,
        logs: dict[str, PullLog],
    ) -> Look:
        """Settles, and claims from these logs: retries beyond their share last, where there is room for them."""
        look = self._claim_by_parts(claimer, look, opened, sources, logs)
        if look.held_back:
            try:
                look = claimer.claim_held_back(look)
            except (Unavailable, Broken) as error:
                look = look.cut_off(f"a pull of {self.subject}/{self.group}", error)
        return replace(look, limited=True) if look.held_back and not look.limited else look

    def _claim_by_parts(
        self,
        claimer: Claimer,
        look: Look,
        opened: Sequence[OpenedSettlement],
        sources: Sources,
        logs: dict[str, PullLog],
    ) -> Look:
        """Settles, and claims from these logs. A part of a queue has its turn when the parts before it have no message
        left, so that messages of a key come in order."""
        if not sources.subject.routes:
            return claimer.claim_messages(look, opened, logs)
        left = list(logs.values())
        while True:
            first, later = self.opener.first_parts(sources.group, left)
            before = len(look.claims), len(look.nothing)
            try:
                look = claimer.claim_messages(look, opened, {log.source.name: log for log in first})
            except (Unavailable, Broken) as error:
                return look.cut_off(f"a pull of {self.subject}/{self.group}", error)
            opened = ()
            left = [] if not later or claimer.is_satisfied(look) else _left_behind(look, *before, left)
            if not left:
                # Of the queues from which this look claimed, other pulls may claim the next parts.
                return replace(look, limited=look.limited or bool(later and look.claims))

    def _paused(self, subject: Subject, group: Group, opened: Sequence[OpenedSettlement], pause: Limit) -> Look:
        """Ends leases and settles, and claims nothing. Reads nothing where there is nothing to settle."""
        logs = self.opener.of(self.context, subject, group)
        self._source_logs.end_leases(subject, [log for log in logs if self.leases.due(log)])
        settled = self._settlements.settle(self.context, subject, group, opened) if opened else []
        return Look(subject, group, settled, limit=pause)


def _left_behind(look: Look, claims: int, nothing: int, left: Sequence[PullLog]) -> list[PullLog]:
    """Returns the logs that are left behind those from which the look has claimed, or in which no message waits,
    since it had this number of claims and of logs with nothing."""
    ended = [log for log, _ in look.nothing[nothing:]]
    names = {log.source.name for log in ended}
    # Another claim may have come first, or the cell is out of reach: such a part keeps the turn of its queue.
    goes_on = {log.queue for log in (*ended, *(log for log, _ in look.claims[claims:]))}
    return [log for log in left if log.queue in goes_on and log.source.name not in names]
