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
from hourwheel.dead_letters.dead import DeadLetters
from hourwheel.delay.lists.pending_counts import Address
from hourwheel.errors import GroupRemoved
from hourwheel.groups.progress import LogLag, lag_of_log, lag_of_parts
from hourwheel.model.groups import Group
from hourwheel.model.lag import Lag
from hourwheel.model.overview import GroupOverview
from hourwheel.model.routes import counted
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Counter
from hourwheel.pull_log.open_logs import PullLogs
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.totals import read_totals
from hourwheel.reach.outages import Outages
from hourwheel.reach.storages import by_storage
from hourwheel.registry.broadcast import with_all_settings
from hourwheel.registry.registry import Registry
from hourwheel.settling.leases import Leases

MOST_GROUPS = 2_000
"""The groups of one subject, consumers of broadcast groups included, whose numbers one call reads."""

_PAGES = 5  # of 200 pull rows each: the checkpoint is at most 1,000 settled rows behind
_OPEN_ROWS = 50  # open rows of a log that are read again; settled ones drop out, so the next look reads other rows
_DEAD_ROWS = 1_000  # four reads; a larger number needs no exact count in an overview


class SubjectNumbers(NamedTuple):
    """The numbers of the groups of one subject, the totals of the logs that they read, and what could not be
    reached. ``complete`` is False where a count stopped at its limit."""

    groups: list[GroupOverview]
    totals: Mapping[str, Counter]
    outages: Outages
    complete: bool


@dataclass(frozen=True)
class GroupNumbers:
    """Reads the numbers of groups."""

    registry: Registry
    leases: Leases
    opener: PullLogs

    @property
    def context(self) -> Context:
        return self.registry.context

    def read(self, subject: Subject, pending: Tally[Address]) -> SubjectNumbers:
        """Reads the numbers of all groups of the subject. ``pending`` has the delayed retries.

        On DynamoDB: a query for each 100 groups, and a batch for each 100 logs. For each log of a group to which
        anything was ever written: a query, another one where messages wait, and a read for each of up to 50 open pulls.
        For each such log of an ordered group also what its state takes, and a read where messages are parked.
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
        for group in groups:
            shared = numbers.get(group.shared_name)
            if shared is None:
                shared = numbers[group.shared_name] = _settings_of(group)
            # A broadcast group has no logs of its own: its numbers are the sums over its consumers.
            if not group.broadcast:
                backing_off = max(0, pending[subject.name, subject.generation, group.member])
                try:
                    _add(shared, *self._lag(subject, group, totals, outages), backing_off=backing_off)
                except GroupRemoved:  # deleted since it was listed
                    if not group.consumer:
                        del numbers[group.shared_name]
        complete = complete and all(entry.complete for entry in numbers.values())
        return SubjectNumbers(list(numbers.values()), totals, outages, complete)

    def _lag(self, subject: Subject, group: Group, totals: Mapping[str, Counter], outages: Outages) -> tuple[Lag, bool]:
        """Returns the lag of a group, without the retries that wait for their delay, and whether it is complete. Adds
        cells that fail meanwhile to ``outages``, and leaves out what is not read by then."""
        logs = [log for log in self.opener.of(self.context, subject, group) if log.source.name in totals]
        parts: dict[int | None, list[tuple[LogLag, int]]] = {None: []}
        complete = True
        for log in logs:
            with outages.noted(log.source.name):
                lag, in_flight, read = self._lag_of_log(log, totals[log.source.name])
                parts.setdefault(log.queue, []).append((lag, in_flight))
                complete = complete and read
        dead, all_dead = 0, True
        if totals[group.dead_log].rows:
            dead, all_dead = DeadLetters(self.context, subject, group).count_up_to(_DEAD_ROWS)
        total = lag_of_parts(parts, dead)
        for log in logs:
            with outages.noted(log.source.name):
                log.add_parked(total)
        total.expired_unread = totals[group.expired_counter].numbers
        return total, complete and all_dead and not any(outages.has(log.source.name) for log in logs)

    def _lag_of_log(self, log: PullLog, totals: Counter) -> tuple[LogLag, int, bool]:
        if not totals.rows:
            return LogLag(0, None, totals.numbers, totals.numbers), 0, True
        count = self.leases.counted(log, pages=_PAGES, most=_OPEN_ROWS)
        return lag_of_log(log, count.tail, totals), count.in_flight, count.complete


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


def _add(group: GroupOverview, lag: Lag, complete: bool, *, backing_off: int) -> None:
    """Adds the lag of a group, or of a consumer of a broadcast group."""
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
    group.oldest_at = min(filter(None, (group.oldest_at, lag.oldest_at)), default=None)
    group.complete = group.complete and complete
