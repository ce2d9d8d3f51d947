"""Reads the numbers of the groups of a subject side by side, with few reads for each group.

The counters of all logs come in bulk, and a log to which nothing was ever stored costs no other read. For each other
log one read finds the pull rows that are new since the last look of this process. Every count has a limit.
"""

from collections import Counter as Tally
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from msgspec import UNSET

from hourwheel.context import Context
from hourwheel.dead_letters.dead import NO_LETTERS, DeadLetters
from hourwheel.delay.lists.pending_counts import Address
from hourwheel.errors import GroupRemoved
from hourwheel.groups.consumers import SeenPulls
from hourwheel.groups.progress import LogLag, lag_of_log, lag_of_parts
from hourwheel.model.groups import Group
from hourwheel.model.lag import Lag
from hourwheel.model.overview import GroupOverview
from hourwheel.model.pulls import LimitedBy
from hourwheel.model.routes import counted
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Counter, transactional
from hourwheel.pull_log.limits import pause_of
from hourwheel.pull_log.open_logs import PullLogs
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.totals import read_totals
from hourwheel.pulling.flow import FlowControl
from hourwheel.reach.outages import Outages
from hourwheel.reach.storages import by_storage
from hourwheel.registry.broadcast import with_all_settings
from hourwheel.registry.registry import Registry
from hourwheel.settling.leases import Leases
from hourwheel.times import rfc3339

MOST_GROUPS = 2_000
"""The groups of one subject, consumers of broadcast groups included, whose numbers one call reads."""


class _Limits(NamedTuple):
    """The most that a look reads: ``pages`` of 200 new pull rows and ``open_rows`` open ones of a log, ``dead_rows`` of
    a group. Settled rows drop out, so the next look reads others."""

    pages: int
    open_rows: int
    dead_rows: int


_NEAR = _Limits(pages=25, open_rows=500, dead_rows=20_000)  # on one machine, where 20,000 rows take about 60 ms
_FAR = _Limits(pages=5, open_rows=50, dead_rows=1_000)  # where each read costs money


_OUT_OF_REACH = frozenset({"waiting", "in_flight", "retrying", "settled"})
"""The numbers that lack those of a cell out of reach."""


class SubjectNumbers(NamedTuple):
    """The numbers of the groups of one subject, the totals of the logs that they read, and what could not be
    reached. ``complete`` is False where a count stopped at its limit."""

    groups: list[GroupOverview]
    totals: Mapping[str, Counter]
    outages: Outages
    complete: bool
    pullable_since: Mapping[str, str]
    """The time of the oldest message that a pull would hand out, by group. No key is in its way."""
    seeks: Mapping[str, int]
    """A number for each group that changes with each seek, and with each consumer of a broadcast group that comes or
    leaves."""


@dataclass(frozen=True)
class GroupNumbers:
    """Reads the numbers of groups."""

    registry: Registry
    leases: Leases
    opener: PullLogs
    flow: FlowControl
    seen_pulls: SeenPulls

    @property
    def context(self) -> Context:
        return self.registry.context

    @property
    def _limits(self) -> _Limits:
        return _NEAR if transactional(self.context.store) else _FAR

    def read(self, subject: Subject, pending: Tally[Address]) -> SubjectNumbers:
        """Reads the numbers of all groups of the subject. ``pending`` has the delayed retries.

        On DynamoDB: a query for each 100 groups, and a batch for each 100 logs. For each log of a group to which
        anything was ever written: a query, another one where messages wait, and a read for each of up to 50 open pulls.
        For each such log of an ordered group also what its state takes, and a read where messages are parked. For each
        such log of a group whose messages nobody holds a query, and where it holds keys what a claim reads, and for a
        group with limits what they take.
        """
        records = with_all_settings(self.registry.all_groups(subject, consistent=False))
        groups = list(islice((group for group in records if not group.deleted), MOST_GROUPS + 1))
        return self.read_groups(subject, groups[:MOST_GROUPS], pending, complete=len(groups) <= MOST_GROUPS)

    def read_groups(
        self, subject: Subject, groups: Sequence[Group], pending: Tally[Address], *, complete: bool = True
    ) -> SubjectNumbers:
        """Reads the numbers of these groups, those of consumers behind their broadcast group."""
        logs = subject.queue_logs() + [log for group in groups for log in _counters_of(group)]
        totals, outages = read_counters(self.context, logs)
        numbers: dict[str, GroupOverview] = {}
        pullable_since: dict[str, str] = {}
        seeks = Tally[str]()
        for group in groups:
            shared = numbers.get(group.shared_name)
            if shared is None:
                shared = numbers[group.shared_name] = _settings_of(group)
            seeks[group.shared_name] += group.seeks + 1
            # A broadcast group has no logs of its own: its numbers are the sums over its consumers.
            if not group.broadcast:
                backing_off = max(0, pending[subject.name, subject.generation, group.member])
                try:
                    member = self._numbers(subject, group, totals, outages)
                    _add(shared, member, backing_off=backing_off)
                    _note_first(pullable_since, group.shared_name, member.pullable_since)
                except GroupRemoved:  # deleted since it was listed
                    if not group.consumer:
                        del numbers[group.shared_name]
        complete = complete and all(entry.complete for entry in numbers.values())
        return SubjectNumbers(list(numbers.values()), totals, outages, complete, pullable_since, seeks)

    def _numbers(
        self, subject: Subject, group: Group, totals: Mapping[str, Counter], outages: Outages
    ) -> "_MemberNumbers":
        """Reads the numbers of a group, or of a consumer of a broadcast group, without the retries that wait for their
        delay. Adds cells that fail meanwhile to ``outages``, and leaves out what is not read by then."""
        opened = self.opener.of(self.context, subject, group)
        logs = [log for log in opened if log.source.name in totals]
        parts: dict[int | None, list[tuple[LogLag, int]]] = {None: []}
        inexact: set[str] = set()
        for log in logs:
            with outages.noted(log.source.name):
                lag, in_flight, read = self._lag_of_log(log, totals[log.source.name])
                parts.setdefault(log.queue, []).append((lag, in_flight))
                inexact |= set() if read else {"in_flight"}
        dead = NO_LETTERS
        if totals[group.dead_log].rows:
            dead = DeadLetters(self.context, subject, group).count_up_to(self._limits.dead_rows)
            inexact |= set() if dead.complete else {"dead"}
        total = lag_of_parts(parts, dead.messages)
        for log in logs:
            with outages.noted(log.source.name):
                log.add_parked(total)
        total.expired_unread = totals[group.expired_counter].numbers
        if any(outages.has(log.source.name) for log in opened):
            inexact |= _OUT_OF_REACH
        total.limited_by = self._limit(subject, group, logs, total)
        pulled_ms = self._pulled_ms(subject, group, logs, total, outages)
        since = self._pullable_since(logs, total, outages)
        return _MemberNumbers(total, dead.since_ms, pulled_ms, inexact, since)

    def _lag_of_log(self, log: PullLog, totals: Counter) -> tuple[LogLag, int, bool]:
        if not totals.rows:
            return LogLag(0, None, totals.numbers, totals.numbers), 0, True
        count = self.leases.counted(log, pages=self._limits.pages, most=self._limits.open_rows)
        assert count.tail is not None
        return lag_of_log(log, count.tail, totals, count.kept), count.in_flight, count.complete

    def _limit(self, subject: Subject, group: Group, logs: Sequence[PullLog], lag: Lag) -> LimitedBy | None:
        """Returns what keeps the group from its messages: a pause, or a limit that it has reached."""
        limit = pause_of(subject, group, self.context.settings)
        if limit is None and logs and group.flow_limited and lag.waiting + lag.retrying:
            allowance = self.flow.allowance(logs, 1)
            limit = None if allowance.messages else allowance.limit
        return None if limit is None else limit.name

    def _pullable_since(self, logs: Sequence[PullLog], lag: Lag, outages: Outages) -> str | None:
        """Returns since when a message waits that a pull would hand out; None if each one waits for its key. Looks at
        the keys only where nobody holds messages: else there are consumers."""
        if lag.oldest_at is None or not _holds_keys_alone(lag):
            return lag.oldest_at
        now_ms, pullable, turn_ms = self.context.clock.now_ms(), False, 0
        for log in logs:
            with outages.noted(log.source.name):
                pullable = pullable or log.has_message()
                turn_ms = max(turn_ms, _last_turn_ms(log, now_ms))
        return max(lag.oldest_at, rfc3339(turn_ms)) if pullable else None

    def _pulled_ms(self, subject: Subject, group: Group, logs: Sequence[PullLog], lag: Lag, outages: Outages) -> int:
        """Returns the time of the last pull of a group that has messages which nobody holds; 0 if none is known."""
        if lag.in_flight or not lag.waiting + lag.retrying:
            return 0
        pulled_ms = self.seen_pulls.latest_ms(subject.name, group.shared_name)
        for log in logs:
            with outages.noted(log.source.name):
                pulled_ms = max(pulled_ms, max((row.claimed_ms for row in log.latest(1)), default=0))
        return pulled_ms


class _MemberNumbers(NamedTuple):
    """The lag of a group, or of a consumer of a broadcast group. Its first dead letter died, and it was pulled last, at
    these times (0: not known). ``inexact`` names the numbers that are not exact. A pull would hand out messages that
    wait since ``pullable_since``."""

    lag: Lag
    dead_since_ms: int
    pulled_ms: int
    inexact: set[str]
    pullable_since: str | None


def read_counters(context: Context, logs: Iterable[str]) -> tuple[dict[str, Counter], Outages]:
    """Returns the totals of the logs without those that cannot be reached, and the outages."""
    totals: dict[str, Counter] = {}
    outages = Outages()
    for names in by_storage(logs):
        with outages.noted(names[0]):
            totals |= read_totals(context, names)
    return totals, outages


def _counters_of(group: Group) -> tuple[str, str, str]:
    return group.retry_log, group.dead_log, group.expired_counter


def _settings_of(group: Group) -> GroupOverview:
    return GroupOverview(
        group=group.shared_name,
        paused=group.paused,
        broadcast=group.broadcast or bool(group.consumer),
        ordered=group.ordered,
        pushed=group.push is not None,
    )


def _add(group: GroupOverview, numbers: _MemberNumbers, *, backing_off: int) -> None:
    """Adds the numbers of a group, or of a consumer of a broadcast group."""
    lag = numbers.lag
    group.waiting += lag.waiting
    group.in_flight += lag.in_flight
    group.retrying += lag.retrying
    group.backing_off += lag.backing_off + backing_off
    group.dead += lag.dead
    group.expired_unread += lag.expired_unread
    if lag.held is not UNSET:
        group.held += lag.held.keys
        group.stopped += lag.held.stopped
    group.settled += sum(counted(queue.offset or 0) for queue in lag.queues)
    group.oldest_at = _first(group.oldest_at, lag.oldest_at)
    group.dead_since = _first(group.dead_since, _time(numbers.dead_since_ms))
    group.pulled_at = max(filter(None, (group.pulled_at, _time(numbers.pulled_ms))), default=None)
    group.limited_by = group.limited_by or lag.limited_by
    group.inexact = sorted(numbers.inexact.union(group.inexact))
    group.complete = not group.inexact


def _first(first: str | None, second: str | None) -> str | None:
    """Returns the earlier of two times. The texts of times have one form, in UTC, so they sort as the times do."""
    return min(filter(None, (first, second)), default=None)


def _holds_keys_alone(lag: Lag) -> bool:
    """Returns whether messages of an ordered group wait, keys of it are held, and no consumer holds messages."""
    return lag.held is not UNSET and lag.held.keys > 0 and not lag.in_flight and lag.waiting + lag.retrying > 0


def _last_turn_ms(log: PullLog, now_ms: int) -> int:
    """Returns when the last retry of a held key came due; 0 if all are still to come."""
    return max((due_ms for _, due_ms in log.held_retries() if due_ms <= now_ms), default=0)


def _note_first(times: dict[str, str], name: str, at: str | None) -> None:
    """Notes the time, if there is one, under this name unless an earlier one is noted."""
    if at is not None:
        times[name] = min(at, times.get(name, at))


def _time(ms: int) -> str | None:
    return rfc3339(ms) if ms else None
