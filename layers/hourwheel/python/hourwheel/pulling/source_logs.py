"""Finds the logs that may have messages for a group, without a look into those that have none."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from hourwheel.cells.moves import refresh_route
from hourwheel.context import Context
from hourwheel.errors import Broken, Unavailable
from hourwheel.model.groups import Group
from hourwheel.model.subjects import Subject
from hourwheel.ordered.key_state_cache import KeyStateCache
from hourwheel.ordered.parts import in_turn
from hourwheel.ports.storage import Counter
from hourwheel.pull_log.claims import Nothing
from hourwheel.pull_log.ends import SourceEnds
from hourwheel.pull_log.pull_log import PullLog, erased, pull_logs
from hourwheel.pull_log.totals import read_totals
from hourwheel.reach.storages import by_storage
from hourwheel.registry.removed_names import RemovedNames, drop_keys
from hourwheel.settling.leases import Leases
from hourwheel.settling.settlements import OpenedSettlement, Settlements

_MOST_GROUPS = 2_000
"""The groups, and consumers of broadcast groups, whose logs a process keeps: they come and go."""


class Sources(NamedTuple):
    """A group's logs, the retry log first, and the totals of their sources by name. The subject and the group are those
    to which the logs belong."""

    subject: Subject
    group: Group
    logs: list[PullLog]
    totals: dict[str, Counter]


@dataclass
class GroupLogs:
    """Keeps the pull logs of each group until the record of the group or of its subject changes: a subject may have 64
    queues, and each look of a pull needs the logs of all of them. Thread-safe."""

    _kept: dict[tuple[str, str, str], tuple[Subject, Group, list[PullLog]]] = field(default_factory=dict)

    def drop(self, deleted: RemovedNames) -> None:
        """Drops the logs of deleted groups."""
        drop_keys(self._kept, [name for name in list(self._kept) if deleted.has_group(*name[:2])])

    def of(self, context: Context, subject: Subject, group: Group) -> list[PullLog]:
        """Returns what ``pull_logs`` returns."""
        if subject.routes:
            # Whether a cell can be opened changes without a change of the records.
            return pull_logs(context, subject, group)
        name = (subject.name, group.name, group.consumer)
        kept = self._kept.get(name)
        if kept is None or kept[0] is not subject or not (kept[1] is group or kept[1] == group):
            if len(self._kept) >= _MOST_GROUPS:
                self._kept.clear()
            kept = self._kept[name] = (subject, group, pull_logs(context, subject, group))
        return kept[2]


@dataclass
class SourceLogs:
    """The logs of one group, as a pull sees them."""

    context: Context
    leases: Leases
    ends: SourceEnds
    key_states: KeyStateCache
    settlements: Settlements
    group_logs: GroupLogs

    def read(self, subject: Subject, group: Group, opened: Sequence[OpenedSettlement], *, create: bool) -> Sources:
        """Returns the logs to look into, with their totals. Brings the route up to date when a queue turns out to have
        moved; the subject and the group are then read again. Raises ``GroupRemoved`` where the totals show that another
        process has deleted the group."""
        # Twice at most: a queue that moves again in this moment is found by the next look.
        for last in (False, True):
            logs = self.group_logs.of(self.context, subject, group)
            if subject.routes:
                logs = [log for log in logs if not self.ends.finished(log, group) or self.leases.due(log)]
            totals = self._totals(logs)
            if is_erased(group, totals):
                raise erased(group)
            logs = [log for log in logs if log.source.name in totals]
            if last or (subject.change is None and not any(_went_on(log, totals) for log in logs)):
                break
            with suppress(Unavailable, Broken), self._contained(f"moving queues of {subject.name}"):
                refresh_route(self.settlements.registry, subject)
            subject, group = self.settlements.subject_and_group(opened, create=create, consumer=group.consumer)
        return Sources(subject, group, logs, totals)

    def without_totals(self, subject: Subject, group: Group) -> Sources:
        """Returns the logs of a subject that has no routes as if nothing had been stored in them. Reads nothing."""
        logs = self.group_logs.of(self.context, subject, group)
        return Sources(subject, group, logs, dict.fromkeys([log.source.name for log in logs], Counter(0, 0)))

    def with_messages(self, sources: Sources) -> dict[str, PullLog]:
        """Returns the logs, by the name of their source, that may have messages whose turn it is. Reads rows only where
        an ordered group has queues with several parts."""
        subject, group, logs, totals = sources
        moved = [
            log
            for log in logs
            if self.ends.moved(log, group, totals[log.source.name]) or (group.ordered and self.key_states.waits(log))
        ]
        return {log.source.name: log for log in in_turn(self.context, self.key_states, subject, group, moved)}

    def shares(self, sources: Sources, logs: dict[str, PullLog]) -> bool:
        """Returns whether these logs may have both retries and messages that nobody has pulled. Reads nothing."""
        _, group, _, totals = sources
        if not group.ordered and group.retry_log not in logs:
            return False
        queues = (log for log in logs.values() if log.queue is not None)
        return any(self.ends.moved(log, group, totals[log.source.name]) for log in queues)

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
        final = totals.sealed and end >= totals.rows and not self.key_states.holds(log)
        self.ends.remember(log, log.group, end, unmatched=nothing.unmatched, final=final)

    def next_due_ms(self, group: Group, logs: Sequence[PullLog]) -> int | None:
        """Returns when the next parked message is due; None if none has a time."""
        states = [self.key_states.cached(log) for log in logs] if group.ordered else []
        now_ms = self.context.clock.now_ms()
        dues = [state.next_due_ms(now_ms) for state in states if state is not None]
        return min((due_ms for due_ms in dues if due_ms is not None), default=None)

    def _totals(self, logs: Sequence[PullLog]) -> dict[str, Counter]:
        """Returns the totals of the source logs by name, perhaps out of date, without those in a cell that is out of
        reach. Costs one request for each ``GET_MANY`` logs of a cell."""
        totals: dict[str, Counter] = {}
        for names in by_storage(log.source.name for log in logs):
            with self.leases.faults.abroad(self.context, names[0], "reading"):
                totals |= read_totals(self.context, names)
        return totals

    def _contained(self, what: str) -> AbstractContextManager[None]:
        return self.leases.faults.contained(self.context, what)


def first_parts(logs: Iterable[PullLog]) -> tuple[dict[str, PullLog], list[PullLog]]:
    """Returns the first log of each queue, by the name of its source, and the other logs. The logs of a queue come in
    the order of its parts."""
    first: dict[int | None, PullLog] = {}
    later = [log for log in logs if first.setdefault(log.queue, log) is not log]
    return {log.source.name: log for log in first.values()}, later


def _went_on(log: PullLog, totals: Mapping[str, Counter]) -> bool:
    """Returns whether a log that should take messages is sealed: its queue goes on elsewhere, or was deleted."""
    return log.queue is not None and log.mapping.end is None and totals[log.source.name].sealed


def is_erased(group: Group, totals: Mapping[str, Counter]) -> bool:
    """Returns whether the group was deleted: only a deletion seals a retry log."""
    retries = totals.get(group.retry_log)
    return retries is not None and retries.sealed
