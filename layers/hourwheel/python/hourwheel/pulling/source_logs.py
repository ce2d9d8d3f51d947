"""Finds the logs that may have messages for a group, without a look into those that have none."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from hourwheel.cells.moves import refresh_route
from hourwheel.context import Context
from hourwheel.errors import Broken, Unavailable
from hourwheel.model.groups import Group
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Counter
from hourwheel.pull_log.claiming.claims import Nothing
from hourwheel.pull_log.ends import SourceEnds
from hourwheel.pull_log.log_rows import erased
from hourwheel.pull_log.open_logs import PullLogs
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.totals import read_totals
from hourwheel.reach.storages import by_storage
from hourwheel.registry.removed_names import RemovedNames, drop_keys
from hourwheel.settling.leases import Leases
from hourwheel.settling.settlements import OpenedSettlement, Settlements

_MOST_GROUPS = 2_000
"""The groups, and consumers of broadcast groups, whose logs a process keeps: they come and go."""


class Sources(NamedTuple):
    """A group's logs, the retry log first, and the totals of their sources by name. The subject and the group are those
    to which the logs belong. ``final_totals``: the totals if they were read strongly consistent, without those of logs
    in which the look itself stores rows later."""

    subject: Subject
    group: Group
    logs: list[PullLog]
    totals: dict[str, Counter]
    final_totals: dict[str, Counter] | None = None

    def outdate(self, log: str) -> None:
        """Drops the final totals of a log in which the look itself stores rows."""
        if self.final_totals is not None:
            self.final_totals.pop(log, None)


@dataclass
class GroupLogs:
    """Keeps the pull logs of each group until the record of the group or of its subject changes. A subject may have 64
    queues, and each look of a pull needs the logs of all of them. Thread-safe."""

    _kept: dict[tuple[str, str, str], tuple[Subject, Group, list[PullLog]]] = field(default_factory=dict)

    def drop(self, deleted: RemovedNames) -> None:
        """Drops the logs of deleted groups."""
        drop_keys(self._kept, [name for name in list(self._kept) if deleted.has_group(*name[:2])])

    def of(self, opener: PullLogs, context: Context, subject: Subject, group: Group) -> list[PullLog]:
        """Returns what ``PullLogs.of`` returns."""
        if subject.routes:
            # Whether a cell can be opened changes without a change of the records.
            return opener.of(context, subject, group)
        name = (subject.name, group.name, group.consumer)
        kept = self._kept.get(name)
        if kept is None or kept[0] is not subject or not (kept[1] is group or kept[1] == group):
            if len(self._kept) >= _MOST_GROUPS:
                self._kept.clear()
            kept = self._kept[name] = (subject, group, opener.of(context, subject, group))
        return kept[2]


@dataclass
class SourceLogs:
    """The logs of one group, as a pull sees them."""

    context: Context
    leases: Leases
    ends: SourceEnds
    opener: PullLogs
    settlements: Settlements
    group_logs: GroupLogs

    def _logs_of(self, subject: Subject, group: Group) -> list[PullLog]:
        return self.group_logs.of(self.opener, self.context, subject, group)

    def joins(self, subject: Subject, group: Group) -> bool:
        """Returns whether the claim of a look joins the transaction that woke the pull, and claims from every queue:
        the totals of the logs do not count the messages of that transaction yet."""
        early = self.context.early_wakeups.is_early(subject.name)
        return early and not (subject.routes or subject.change) and self._logs_of(subject, group)[0].joins

    def read(
        self, subject: Subject, group: Group, opened: Sequence[OpenedSettlement], *, create: bool, consistent: bool
    ) -> Sources:
        """Returns the logs to look into, with their totals, perhaps out of date unless ``consistent``. Brings the route
        up to date when a queue turns out to have moved; the subject and the group are then read again. Raises
        ``GroupRemoved`` where the totals show that another process has deleted the group."""
        # Twice at most: a queue that moves again in this moment is found by the next look.
        sources = self._read(subject, group, consistent)
        if self._may_have_moved(sources):
            with suppress(Unavailable, Broken), self._contained(f"moving queues of {subject.name}"):
                refresh_route(self.settlements.registry, subject)
            subject, group = self.settlements.subject_and_group(opened, create=create, consumer=group.consumer)
            sources = self._read(subject, group, consistent)
        return sources

    def _read(self, subject: Subject, group: Group, consistent: bool) -> Sources:
        """Returns the logs whose totals can be read, without parts of queues that have nothing left for the group."""
        logs = self._logs_of(subject, group)
        if subject.routes:
            logs = [log for log in logs if not self.ends.finished(log, group) or self.leases.due(log)]
        totals = self._totals(logs, consistent)
        if is_erased(group, totals):
            raise erased(group)
        logs = [log for log in logs if log.source.name in totals]
        return Sources(subject, group, logs, totals, totals.copy() if consistent else None)

    @staticmethod
    def _may_have_moved(sources: Sources) -> bool:
        """Returns whether a queue may have moved since the record of its subject was read."""
        if sources.subject.change is not None:
            return True
        return any(_went_on(log, sources.totals) for log in sources.logs)

    def without_totals(self, subject: Subject, group: Group) -> Sources:
        """Returns the logs of a subject that has no routes as if nothing had been stored in them. Reads nothing."""
        logs = self._logs_of(subject, group)
        return Sources(subject, group, logs, dict.fromkeys([log.source.name for log in logs], Counter(0, 0)))

    def with_messages(self, sources: Sources) -> dict[str, PullLog]:
        """Returns the logs, by the name of their source, that may have messages whose turn it is. Reads rows only where
        the parts of a queue have to wait for one another."""
        subject, group, logs, totals, _ = sources
        moved = [log for log in logs if self.ends.moved(log, group, totals[log.source.name]) or log.waits()]
        return {log.source.name: log for log in self.opener.in_turn(self.context, subject, group, moved)}

    def shares(self, sources: Sources, logs: dict[str, PullLog]) -> bool:
        """Returns whether these logs may have both retries and messages that nobody has pulled. Reads nothing."""
        group, totals = sources.group, sources.totals
        if not any(log.has_retries for log in logs.values()):
            return False
        queues = (log for log in logs.values() if log.queue is not None)
        return any(self.ends.moved(log, group, totals[log.source.name]) for log in queues)

    @staticmethod
    def next_due_ms(sources: Sources) -> int | None:
        """Returns when the next message is tried again in its place; None if there is none. Reads nothing."""
        return min(filter(None, [log.next_due_ms() for log in sources.logs]), default=None)

    def end_leases(self, subject: Subject, logs: Sequence[PullLog]) -> int:
        """Ends the leases that are over in these logs, and returns their number."""
        ended = 0
        for log in logs:
            if self.leases.rests(log, subject):
                continue
            # These leases are other consumers': a failure to end them must not fail this pull.
            with suppress(Unavailable, Broken), self._contained(f"ending leases of {log.partition}"):
                ended += self.leases.expire_throttled(log, subject)
        return ended

    def remember(self, log: PullLog, nothing: Nothing, totals: Counter) -> None:
        """Remembers where the log ended, unless another process may have leased messages that this one has not seen:
        the end of such a lease must be looked for."""
        if not self.leases.seen(log, nothing.row_no):
            return
        end = nothing.end
        if end < totals.rows:
            # Rows from ``end`` on are missing: not stored yet, or below the trim mark.
            end = max(end, log.source.trimmed())
        final = totals.sealed and end >= totals.rows and not log.holds()
        self.ends.remember(log, log.group, end, unmatched=nothing.unmatched, final=final)

    def _totals(self, logs: Sequence[PullLog], consistent: bool) -> dict[str, Counter]:
        """Returns the totals of the source logs by name, without those in a cell that is out of reach. Costs one
        request for each ``GET_MANY`` logs of a cell."""
        totals: dict[str, Counter] = {}
        for names in by_storage(log.source.name for log in logs):
            with self.leases.faults.abroad(self.context, names[0], "reading"):
                totals |= read_totals(self.context, names, consistent=consistent)
        return totals

    def _contained(self, what: str) -> AbstractContextManager[None]:
        return self.leases.faults.contained(self.context, what)


def _went_on(log: PullLog, totals: Mapping[str, Counter]) -> bool:
    """Returns whether a log that should take messages is sealed: its queue goes on elsewhere, or was deleted."""
    return log.queue is not None and log.mapping.end is None and totals[log.source.name].sealed


def is_erased(group: Group, totals: Mapping[str, Counter]) -> bool:
    """Returns whether the group was deleted: only a deletion seals a retry log."""
    retries = totals.get(group.retry_log)
    return retries is not None and retries.sealed
