"""Counts what groups have left to do, and shows and ends the leases of their consumers."""

from collections.abc import Sequence
from dataclasses import dataclass

from hourwheel.context import Context
from hourwheel.dead_letters.dead import DeadLetters
from hourwheel.delay.lists.pending_counts import PendingCounts
from hourwheel.errors import Rejected
from hourwheel.groups import progress
from hourwheel.groups.consumers import ConsumerStates, LeaveResult, SeenPulls, consumer_states, end_leases
from hourwheel.groups.deletions import delete_consumer
from hourwheel.groups.seeks import unopened
from hourwheel.model.groups import Group
from hourwheel.model.lag import ConsumerLag, Lag, QueueLag
from hourwheel.model.subjects import Subject
from hourwheel.pull_log.limits import pause_of
from hourwheel.pull_log.open_logs import PullLogs, group_parts
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pulling.flow import FlowControl
from hourwheel.reach.outages import Outages
from hourwheel.registry.broadcast import consumer_group_name, consumer_groups
from hourwheel.registry.registry import Registry
from hourwheel.settling.leases import Leases

_BACKING_OFF_MS = 86_400_000
"""Retries that are due within this time count as backing off, also if the longest delay of the policy is shorter: a
consumer may have asked for a longer one."""


@dataclass(frozen=True)
class GroupProgress:
    """Reads the lag and the consumers of groups; for a broadcast group, of each of its consumers."""

    registry: Registry
    leases: Leases
    flow: FlowControl
    opener: PullLogs
    pending_counts: PendingCounts
    seen_pulls: SeenPulls

    @property
    def context(self) -> Context:
        return self.registry.context

    def lag(self, owner: Subject, member: Group) -> Lag:
        if member.broadcast:
            members = consumer_groups(self.registry, owner, member)
            return _total_lag([(consumer, self._lag(owner, consumer)) for consumer in members])
        return self._lag(owner, member)

    def _lag(self, owner: Subject, member: Group) -> Lag:
        # A message that leaves its delay while the rest is counted is counted twice rather than not at all.
        before = self._backing_off(owner, member)
        logs = self.opener.of(self.context, owner, member)
        outages = unopened(owner, logs, range(owner.queues))
        lag = progress.lag_of(logs, self.leases, DeadLetters(self.context, owner, member), outages)
        if names := outages.names:
            lag.cells_out, lag.queues = names, _with_outages(lag, owner, member, outages)
        lag.backing_off += max(before, self._backing_off(owner, member))
        lag.expired_unread = self.context.store.counter(member.expired_counter).numbers
        limit = pause_of(owner, member, self.context.settings)
        if limit is None and member.flow_limited and not (allowance := self.flow.allowance(logs, 1)).messages:
            limit = allowance.limit
        lag.limited_by = None if limit is None else limit.name
        return lag

    def consumers(self, owner: Subject, member: Group) -> ConsumerStates:
        """Returns the consumers of the group that pulled lately or hold leases, by name."""
        now_ms = self.context.clock.now_ms()
        seen = self.seen_pulls.of(owner.name, member.name, now_ms)
        if member.broadcast:
            members = consumer_groups(self.registry, owner, member)
            # Consumers that a process has seen and the registry has forgotten are left out.
            seen = {consumer.consumer: max(consumer.seen_ms, seen.get(consumer.consumer, 0)) for consumer in members}
        logs = self._consumer_logs(owner, member)
        outages = unopened(owner, logs, range(owner.queues))
        return ConsumerStates(consumer_states(logs, self.leases, seen, outages), outages.names)

    def leave(self, owner: Subject, member: Group, consumer: str, *, forget: bool = False) -> LeaveResult:
        """Ends the leases of a consumer at once, and returns how many messages were released. With ``forget``
        deletes the consumer's group below a broadcast group, with its progress and dead letters. Raises ``Rejected``
        for ``forget`` in a group whose consumers share their messages."""
        if forget:
            return self._forget(owner, member, consumer)
        logs = self._consumer_logs(owner, member)
        outages = unopened(owner, logs, range(owner.queues))
        released = end_leases(owner, logs, self.leases, consumer, outages)
        self.seen_pulls.forget(owner.name, member.name, consumer)
        if released:
            self.context.wakeups.announce(owner.name, member.name)
        return LeaveResult(released, outages.names)

    def _forget(self, owner: Subject, member: Group, consumer: str) -> LeaveResult:
        if not member.broadcast:
            detail = "the consumers of this group share their messages, and none of them has messages of its own"
            raise Rejected("field-invalid", f"{detail}: leave out forget", field="forget")
        self.seen_pulls.forget(owner.name, member.name, consumer)
        name = consumer_group_name(member, consumer)
        group = self.registry.known_group(owner, name)
        if group is None:
            return LeaveResult(0, [])
        logs, released = self.opener.of(self.context, owner, group), 0
        outages = unopened(owner, logs, range(owner.queues))
        for log in logs:
            with outages.noted(log.source.name):
                released += self.leases.in_flight(log)
        delete_consumer(self.registry, owner, group)
        return LeaveResult(released, outages.names)

    def _consumer_logs(self, owner: Subject, member: Group) -> list[PullLog]:
        groups = consumer_groups(self.registry, owner, member) if member.broadcast else [member]
        return [log for group in groups for log in self.opener.of(self.context, owner, group)]

    def _backing_off(self, subject: Subject, group: Group) -> int:
        policy = group.retry or self.context.settings.retry
        within_ms = self.context.clock.now_ms() + max(policy.longest_ms, _BACKING_OFF_MS)
        return self.pending_counts.retries(
            self.context, subject.name, subject.generation, group.member, within_ms=within_ms
        )


def _total_lag(lags: Sequence[tuple[Group, Lag]]) -> Lag:
    """Returns the sums of the lags of all consumers of a broadcast group, and each consumer's own lag. The offset of a
    queue is that of the consumer that is furthest behind."""
    queues: dict[int, QueueLag] = {}
    total = Lag(0, 0, 0, 0, None, [], cells_out=[], consumers=[_consumer_lag(group, lag) for group, lag in lags])
    for _, lag in lags:
        for queue in lag.queues:
            queues[queue.queue] = _beside(queues[queue.queue], queue) if queue.queue in queues else queue
        total.waiting += lag.waiting
        total.in_flight += lag.in_flight
        total.retrying += lag.retrying
        total.dead += lag.dead
        total.backing_off += lag.backing_off
        total.expired_unread += lag.expired_unread
        # The texts of times have one form, in UTC, so they sort as the times do.
        total.oldest_at = min(filter(None, (total.oldest_at, lag.oldest_at)), default=None)
        total.limited_by = total.limited_by or lag.limited_by
        total.cells_out = sorted({*total.cells_out, *lag.cells_out})
    total.queues = [queues[number] for number in sorted(queues)]
    return total


def _consumer_lag(group: Group, lag: Lag) -> ConsumerLag:
    return ConsumerLag(
        consumer=group.consumer,
        waiting=lag.waiting,
        in_flight=lag.in_flight,
        retrying=lag.retrying,
        dead=lag.dead,
        backing_off=lag.backing_off,
        expired_unread=lag.expired_unread,
    )


def _beside(first: QueueLag, other: QueueLag) -> QueueLag:
    """Returns the lag of two consumers in one queue."""
    return QueueLag(
        first.queue,
        first.waiting + other.waiting,
        first.in_flight + other.in_flight,
        None if first.offset is None or other.offset is None else min(first.offset, other.offset),
        None if first.end is None or other.end is None else max(first.end, other.end),
        sorted({*first.cells_out, *other.cells_out}),
    )


def _with_outages(lag: Lag, subject: Subject, group: Group, outages: Outages) -> list[QueueLag]:
    """Returns the lag of every queue, also of those with a part out of reach. Leaves out the offsets that only such a
    part knows."""
    counted = {row.queue: row for row in lag.queues}
    queues = []
    for queue in range(subject.queues):
        parts = group_parts(subject, group, queue)
        row = counted.get(queue, QueueLag(queue, 0, 0, None, None))
        if missing := [(mapping, log) for mapping, log, _ in parts if outages.has(log)]:
            row.cells_out = outages.names_of(log for _, log in missing)
            row.offset = None if row.offset is None or row.offset >= missing[0][0].start else row.offset
            row.end = None if outages.has(parts[-1][1]) else row.end
        queues.append(row)
    return queues
