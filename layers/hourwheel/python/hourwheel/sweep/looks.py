"""Looks at one subject: reads its counters and the tails of its pull logs, ends leases, and does what follows.

``sweep/decisions.py`` decides what follows: maintenance, pushes, and whether the subject rests.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

from hourwheel.context import Context
from hourwheel.dead_letters.dead import DeadLetters
from hourwheel.groups.open_ends import LogEnd
from hourwheel.groups.progress import LogLag, lag_of_log
from hourwheel.logs.log import Log
from hourwheel.model.fields import DEAD_RETENTION_MS
from hourwheel.model.groups import Group
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Counter
from hourwheel.pull_log.open_logs import PullLogs
from hourwheel.pull_log.parked_counts import ParkedLag
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.totals import read_missing
from hourwheel.push.waking import start_free
from hourwheel.reach.storages import by_storage
from hourwheel.registry.registry import Registry
from hourwheel.retention.kinds import MESSAGES, PULLS
from hourwheel.settling.leases import Leases
from hourwheel.sweep.decisions import (
    GroupLag,
    LastLook,
    LostRow,
    SubjectSnapshot,
    groups_to_push,
    groups_to_wake,
    is_idle,
    lag_of_group,
    needs_maintenance,
    next_rest_ms,
    unread_of,
)
from hourwheel.sweep.faults import SweepFaults
from hourwheel.sweep.memory import SweepMemory
from hourwheel.sweep.parts import expire_parts, find_moves
from hourwheel.sweep.report import SweepReport, report_unread
from hourwheel.sweep.retention import LogRetention


class _Member(NamedTuple):
    """A group at a look, the pull logs that it has used, and the totals of its dead log."""

    group: Group
    logs: list[PullLog]
    dead: Counter


def end_leases(
    context: Context, leases: Leases, log: PullLog, subject: Subject, contained: AbstractContextManager[None]
) -> int:
    """Ends the expired leases of a pull log, and announces their messages. Returns their number. Errors go to
    ``contained``."""
    ended = 0
    with contained:
        ended = leases.expire(log, subject)
        if ended:
            context.wakeups.announce(subject.name, log.group.shared_name)
    return ended


@dataclass(frozen=True)
class SubjectLook:
    """Looks at subjects of one sweep, and adds what it finds to ``report`` and ``behind``. For one thread."""

    registry: Registry
    leases: Leases
    opener: PullLogs
    memory: SweepMemory
    faults: SweepFaults
    retention: LogRetention
    report: SweepReport
    behind: list[GroupLag]

    @property
    def context(self) -> Context:
        return self.registry.context

    def logs(self, subject: Subject, groups: Sequence[Group]) -> list[str]:
        """Returns the logs whose counters a look at the subject needs."""
        return [*subject.queue_logs(), *_own_logs(groups)]

    def look(self, subject: Subject, groups: list[Group], counted: Mapping[str, Counter]) -> None:
        """Reads the logs of a subject and ends leases, then does what follows from that: fills ends of logs, maintains,
        wakes and pushes. ``counted`` are totals that were read before."""
        # Taken out: a subject whose look fails does not rest, and the next sweep looks again.
        last = self.memory.looks.pop(subject.name, None)
        at_ms = self.context.clock.now_ms()
        totals, members = self._read(subject, groups, counted)
        with self.faults.part(f"moving queues of {subject.name}"):
            find_moves(self.registry, subject, totals)
        self._fill_ends(subject, totals, members)
        snapshot = self._snapshot(at_ms, subject, members, totals)
        maintained_ms = 0 if last is None else last.maintained_ms
        complete = True
        if needs_maintenance(last, snapshot):
            complete = self._maintain(subject, totals, members)
            maintained_ms = at_ms
        lags = [self._lag(member, totals, at_ms) for member in members]
        self.behind.extend(lag for lag in lags if lag is not None)
        self._wake_idle(subject, members, lags)
        self._start_pushes(subject, groups_to_push(subject, groups, lags))
        if longest_ms := self.context.settings.sweep_rest_seconds * 1_000:
            if is_idle(last, snapshot, lags):
                self.report.add_idle(is_known=last is not None)
            rest_ms = next_rest_ms(last, snapshot, lags, longest_ms) if complete else 0
            self.memory.looks[subject.name] = LastLook(snapshot, maintained_ms, rest_ms)

    def _read(
        self, subject: Subject, groups: Sequence[Group], counted: Mapping[str, Counter]
    ) -> tuple[dict[str, Counter], list[_Member]]:
        """Reads the logs of the subject and ends expired leases. Returns the totals of its queues and retry logs, and
        its groups."""
        totals = self._totals(subject.queue_logs(), _own_logs(groups), counted)
        dead_totals = [totals.pop(group.dead_log) for group in groups]
        members = [
            self._member(subject, group, totals, total) for group, total in zip(groups, dead_totals, strict=True)
        ]
        return totals, members

    def _totals(
        self, queues: Sequence[str], others: Sequence[str], counted: Mapping[str, Counter]
    ) -> dict[str, Counter]:
        """Returns the totals of logs by name, perhaps out of date, without those of ``queues`` in a cell that is out of
        reach. One request for each 100 logs of a cell that are not ``counted``. Raises ``Unavailable`` for the
        ``others``, which are in the home cell."""
        totals = read_missing(self.context, others, counted)
        for names in by_storage(queues):
            with self.faults.part(f"reading {', '.join(names)}"):
                totals |= read_missing(self.context, names, counted)
        return totals

    def _member(self, subject: Subject, group: Group, totals: Mapping[str, Counter], dead: Counter) -> _Member:
        """Opens the logs of a group and ends its expired leases."""
        retries, *logs = self.opener.of(self.context, subject, group)
        if totals[group.retry_log].rows:
            logs.insert(0, retries)  # most groups never retry
        logs = [log for log in logs if log.source.name in totals]
        for log in logs:
            contained = self.faults.part(f"ending leases of {log.partition}")
            self.report.ended_leases += end_leases(self.context, self.leases, log, subject, contained)
        return _Member(group, logs, dead)

    def _snapshot(
        self, at_ms: int, subject: Subject, members: list[_Member], totals: Mapping[str, Counter]
    ) -> SubjectSnapshot:
        states = [self.leases.snapshot(log) for member in members for log in member.logs]
        return SubjectSnapshot(
            at_ms=at_ms,
            subject=subject,
            groups=[member.group for member in members],
            totals=totals,
            dead=[member.dead for member in members],
            tails=[state.tail for state in states],
            leased=[state.in_flight for state in states],
        )

    def _fill_ends(self, subject: Subject, totals: Mapping[str, Counter], members: list[_Member]) -> None:
        ends = [LogEnd(self.context.log(name), total, subject.retention_ms) for name, total in totals.items()]
        ends += [LogEnd(self.context.log(member.group.dead_log), member.dead, DEAD_RETENTION_MS) for member in members]
        self.memory.ends.fill(subject.name, ends, self.faults.part(f"the ends of the logs of {subject.name}"))

    def _maintain(self, subject: Subject, totals: Mapping[str, Counter], members: list[_Member]) -> bool:
        """Moves checkpoints and trim marks, extends the expiry of unarchived rows, and expires parts of queues. Returns
        whether no rows are left whose expiry the next sweep has to look at."""
        queues = [self.context.log(name) for name in subject.queue_logs() if name in totals]
        # First: the store may remove a row at any moment once its expiry has passed.
        complete = self.retention.extend_all(_kept_logs(queues, members))
        trimmed = {queue.name: self.retention.trim(queue) for queue in queues}
        for member in members:
            self._maintain_group(subject, member, trimmed)
        with self.faults.part(f"expiring parts of the queues of {subject.name}"):
            expire_parts(self.registry, self.leases, subject, totals)
        return complete

    def _maintain_group(self, subject: Subject, member: _Member, trimmed: dict[str, list[LostRow]]) -> None:
        """Moves the checkpoints of a group, trims its retries, and counts what expired before the group had pulled it.
        ``trimmed`` has the rows that this look trimmed, by the name of the log."""
        group, logs, dead = member
        unread = 0
        for log in logs:
            with self.faults.part(f"the checkpoint of {log.partition}"):
                # Before the checkpoint: rows below it may be removed some days later.
                log.sweep()
                self.leases.checkpoint(log)
            if log.queue is None:
                trimmed[log.source.name] = self.retention.trim(log.source)
            unread += unread_of(trimmed.get(log.source.name, []), self.leases.snapshot(log).tail)
        if unread:
            with self.faults.part(f"counting what expired before {group.member} had pulled it"):
                report_unread(self.context, group, unread)
        if dead.rows:
            with self.faults.part(f"sweeping {group.dead_log}"):
                DeadLetters(self.context, subject, group).sweep()

    def _lag(self, member: _Member, totals: Mapping[str, Counter], since_ms: int) -> GroupLag | None:
        """Returns how far the group is behind; None if that is unknown. Parked messages that were counted since
        ``since_ms`` are not counted again."""
        log_lags: dict[bool, list[LogLag]] = {False: [], True: []}
        in_flight = []
        parked: list[ParkedLag] = []
        with self.faults.part(f"the standing of {member.group.member} on {member.group.subject}"):
            for log in member.logs:
                state = self.leases.snapshot(log)
                if state.tail is None:
                    return None  # the leases of the log could not be read
                log_lags[log.queue is None].append(lag_of_log(log, state.tail, totals[log.source.name], state.kept))
                in_flight.append(state.in_flight)
                if (parked_lag := log.parked(since_ms)) is not None:
                    parked.append(parked_lag)
            return lag_of_group(member.group, log_lags[True], log_lags[False], in_flight, parked)
        return None

    def _wake_idle(self, subject: Subject, members: list[_Member], lags: Sequence[GroupLag | None]) -> None:
        """Wakes the dozing groups in which messages wait that nobody takes."""
        for number in groups_to_wake(subject, [member.group for member in members], lags, self.context.clock.now_ms()):
            group, logs, _ = members[number]
            with self.faults.part(f"waking {group.member} of {subject.name}"):
                # A filter passes over messages that its group will never take.
                if any(log.has_message() for log in logs):
                    self.context.wakeups.announce(subject.name, group.shared_name)

    def _start_pushes(self, subject: Subject, groups: Sequence[Group]) -> None:
        for group in groups:
            with self.faults.part(f"pushing for {group.member} of {subject.name}"):
                self.report.started_pushes += start_free(self.context, group)


def _own_logs(groups: Sequence[Group]) -> list[str]:
    """Returns the retry logs and the dead logs of the groups."""
    return [*(group.retry_log for group in groups), *(group.dead_log for group in groups)]


def _kept_logs(queues: Iterable[Log], members: Iterable[_Member]) -> list[tuple[str, str]]:
    """Returns the logs whose unarchived rows are kept, by kind and name."""
    logs = [(MESSAGES, queue.name) for queue in queues]
    for group, used, dead in members:
        logs += [(PULLS, log.partition) for log in used]
        logs += [(MESSAGES, log.source.name) for log in used if log.queue is None]
        logs += [(MESSAGES, group.dead_log)] if dead.rows else []
    return logs
