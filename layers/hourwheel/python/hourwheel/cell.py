"""Offers all operations on a cell, which is one deployment of the storage.

The HTTP functions parse a request, call one method of ``Cell``, and answer.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, partial
from typing import Any, Literal

import msgspec

from hourwheel.buckets.buckets import Bucket
from hourwheel.buckets.scheduled_ids import SchedulePosition, read_scheduled_id, sign_scheduled_id
from hourwheel.context import Context
from hourwheel.delay.changes import Scheduled, ScheduledMessages
from hourwheel.delay.orphans import orphans
from hourwheel.delay.pending_counts import PendingCounts
from hourwheel.delay.wheel import Pause, Wheel, WheelEnd
from hourwheel.due import check_limit, limited_delay_ms
from hourwheel.errors import CellUnavailable, Conflict, NotFound, Rejected, Sealed
from hourwheel.log_names import cell_of
from hourwheel.model.fields import Delay
from hourwheel.model.groups import KEEP_VERSION, Group, PushTarget, RetryPolicy, TagFilter, WhenDead
from hourwheel.model.lag import Lag
from hourwheel.model.messages import AddressedMessage, Message, NewMessage, Placed, ScheduledMessage
from hourwheel.model.pages import DeadPage, PeekPage
from hourwheel.model.pulls import PullRequest, PullResult, Settled, Settlement
from hourwheel.model.subjects import Subject
from hourwheel.model.traces import TracePage
from hourwheel.operations.cells import CellOperations
from hourwheel.operations.routes import Routes
from hourwheel.push.pauses import pause_group, pause_subject
from hourwheel.push.state import PushState, retarget, state_record
from hourwheel.queueing import progress
from hourwheel.queueing.broadcast import BroadcastDeadLetters, total_lag
from hourwheel.queueing.consumers import ConsumerState, SeenPulls, consumer_states, end_leases
from hourwheel.queueing.dead import DeadLetters
from hourwheel.queueing.decisions import KeyDecision
from hourwheel.queueing.ends import SourceEnds
from hourwheel.queueing.flow import FlowControl
from hourwheel.queueing.idempotency import IdempotencyKey
from hourwheel.queueing.leases import Leases
from hourwheel.queueing.limits import pause_of
from hourwheel.queueing.orders import Orders
from hourwheel.queueing.peek import PeekStart, peek
from hourwheel.queueing.produce import produce, produce_many
from hourwheel.queueing.pull import Puller
from hourwheel.queueing.pull_log import PullLog, pull_logs
from hourwheel.queueing.receipts import cell_secret
from hourwheel.queueing.records import Position
from hourwheel.registry.broadcast import (
    broadcast_settings,
    check_pulled,
    consumer_groups,
    delete_consumer_groups,
)
from hourwheel.registry.moves import request_change
from hourwheel.registry.plans import plan_queues
from hourwheel.registry.registry import Registry, group_record, unknown_group
from hourwheel.sweep.erasure import make_registry
from hourwheel.sweep.sweep import Sweeper, SweepReport
from hourwheel.targets import NoTargets, Targets
from hourwheel.times import parse_rfc3339, rfc3339
from hourwheel.trace.messages import GROUPS, QueueOffset, SearchSpan, Trace

_BACKING_OFF_MS = 86_400_000
"""Retries that are due within this time count as backing off, also if the longest delay of the policy is shorter: a
consumer may have asked for a longer one."""


class Keep(Enum):
    """The type of ``KEEP``, which leaves a setting unchanged where None means something else."""

    KEEP = "keep"


KEEP = Keep.KEEP


@dataclass
class Cell:
    """A cell. Thread-safe. Every method may raise ``Rejected`` if the caller must change the request, and
    ``Unavailable`` if the caller may repeat it."""

    context: Context
    targets: Targets = field(default_factory=NoTargets)
    leases: Leases = field(default_factory=Leases)
    ends: SourceEnds = field(default_factory=SourceEnds)
    flow: FlowControl = field(default_factory=FlowControl)
    orders: Orders = field(default_factory=Orders)
    pending_counts: PendingCounts = field(default_factory=PendingCounts)
    seen_pulls: SeenPulls = field(default_factory=SeenPulls)

    @cached_property
    def registry(self) -> Registry:
        return make_registry(self.context)

    @cached_property
    def sweeper(self) -> Sweeper:
        return Sweeper(self.context, self.registry, self.leases, self.orders)

    @cached_property
    def routes(self) -> Routes:
        """Moves queues, and shows routes."""
        return Routes(self.registry)

    @cached_property
    def cells(self) -> CellOperations:
        """Adds, shows, drains and removes cells."""
        return CellOperations(self.registry)

    @cached_property
    def secret(self) -> bytes:
        """The cell's secret, which signs receipts, scheduled ids and deliveries."""
        return cell_secret(self.context)

    def prepare(self) -> None:
        """Reads the cell's secret, or draws it, before several threads and greenlets need it at once."""
        self.secret  # noqa: B018 - read for its effect: it is loaded and kept

    def produce(
        self, subject: str, messages: Sequence[NewMessage], idempotency: IdempotencyKey | None = None
    ) -> list[Placed]:
        """Stores a batch and returns the position of each message. Creates the subject if there is none."""
        return produce(self.context, self.registry, subject, messages, idempotency, scheduled_id=self._scheduled_id)

    def produce_many(
        self, messages: Sequence[AddressedMessage], idempotency: IdempotencyKey | None = None
    ) -> list[Placed]:
        """Stores a batch that spans subjects and returns the position of each message. Creates missing subjects."""
        return produce_many(self.context, self.registry, messages, idempotency, scheduled_id=self._scheduled_id)

    def pull(self, subject: str, group: str, request: PullRequest, *, pushing: bool = False) -> PullResult:
        """Leases messages to a consumer of the group and returns them. Creates a missing subject and group, unless with
        ``pushing``: see ``Puller.pull``."""
        self.seen_pulls.record(subject, group, request.consumer, self.context.clock.now_ms())
        return self._puller(subject, group).pull(request, pushing=pushing)

    def settle(self, subject: str, group: str, settlements: list[Settlement]) -> list[Settled]:
        """Acknowledges, retries or gives up messages, or extends leases; raises ``NotFound`` for an unknown group."""
        self._group(subject, group)
        return self._puller(subject, group).settle(settlements)

    def put_subject(
        self,
        name: str,
        *,
        queues: int | None = None,
        retention_seconds: int | None = None,
        clamp_delays: bool | None = None,
        read_only: bool | None = None,
    ) -> Subject:
        """Creates or changes a subject and returns it; None keeps a setting. Raises ``Conflict`` for fewer queues."""

        def change(subject: Subject) -> Subject:
            if queues is not None and queues < _queues_of(subject):
                raise Conflict(
                    "setting-fixed",
                    f"subject {name!r} has {subject.queues} queues and cannot have fewer",
                    field="queues",
                )
            return msgspec.structs.replace(
                subject,
                retention_seconds=subject.retention_seconds if retention_seconds is None else retention_seconds,
                clamp_delays=subject.clamp_delays if clamp_delays is None else clamp_delays,
                read_only=subject.read_only if read_only is None else read_only,
            )

        subject = self.registry.change_subject(name, change, queues=queues or 1)
        if queues is None or queues <= _queues_of(subject):
            return subject
        return request_change(self.registry, name, plan_queues(queues))[1]

    def pause_subject(self, name: str, *, paused: bool) -> Subject:
        """Pauses or resumes the delivery to all groups of the subject, and returns the subject."""
        return pause_subject(self.context, self.registry, name, paused=paused)

    def subject(self, name: str) -> Subject:
        self.registry.forget(name)
        return self.registry.subject(name)

    def subjects(self, after: str, limit: int) -> tuple[list[Subject], str | None]:
        return self.registry.subjects(after, limit)

    def peek(self, subject: str, queue: int, start: PeekStart, limit: int) -> PeekPage:
        """Returns messages of a queue without being a group: see ``queueing.peek``."""
        return peek(self.context, self.subject(subject), queue, start, limit)

    def trace(self, subject: str, message: str, span: SearchSpan, group: str | None = None) -> TracePage:
        """Returns what became of a message, which is named by ``queue:offset``, by its scheduled id or by its id, in
        ``group`` or in the first groups of the subject."""
        owner = self.subject(subject)
        if group is None:
            groups, following = self.registry.group_page(owner, "", GROUPS)
        else:
            groups, following = [self.registry.group(owner, group)], None
        members = [
            each
            for record in groups
            for each in (consumer_groups(self.registry, owner, record) if record.broadcast else [record])
        ]
        more = following is not None or len(members) > GROUPS
        trace = Trace(self.context, owner, members[:GROUPS], more)
        target = QueueOffset.parse(message)
        if target is not None:
            return TracePage([trace.by_offset(target)], None)
        try:
            position = self._position(message)
        except Rejected:
            return trace.by_id(message, span)
        scheduled = ScheduledMessages(self.context).look(position)
        if scheduled.subject != subject:
            raise NotFound("message-unknown", f"this delayed message is of subject {scheduled.subject!r}")
        return TracePage([trace.by_scheduled(scheduled, message)], None)

    def delete_subject(self, name: str) -> None:
        """Removes the subject, its groups and messages. Messages that are sent meanwhile go to a new subject of that
        name."""
        self.registry.delete_subject(name)

    def put_group(
        self,
        subject: str,
        name: str,
        *,
        start: Literal["earliest", "latest"] | None = None,
        max_attempts: int | None = None,
        retry: RetryPolicy | None = None,
        push: PushTarget | Keep | None = KEEP,
        filter: TagFilter | Keep | None = KEEP,  # noqa: A002 - the field's name in requests
        broadcast: bool | None = None,
        consumer_expires_seconds: int | None = None,
        max_in_flight: int | None = None,
        messages_per_second: float | None = None,
        ordered: bool | None = None,
        when_dead: WhenDead | None = None,
        max_held: int | None = None,
    ) -> Group:
        """Creates or changes a group and returns it. None keeps a setting, except that ``push=None`` removes the
        target, and ``filter=None`` the filter. A filter applies from the next claim. Raises ``Conflict`` for another
        ``start``, ``broadcast`` or ``ordered``, ``Rejected`` for a target that this deployment cannot reach, and for
        settings that exclude one another."""
        if isinstance(push, PushTarget):
            self.targets.check(push)
        before: PushTarget | None = None

        def change(group: Group) -> Group:
            nonlocal before
            before = group.push
            if start is not None and group.start != start:
                raise Conflict(
                    "setting-fixed", f"group {name!r} began at {group.start!r}: use seek to move it", field="start"
                )
            broadcasts = broadcast_settings(group, broadcast, consumer_expires_seconds)
            order = _order_settings(group, ordered, when_dead, max_held)
            if group.ordered and (group.broadcast or isinstance(filter, TagFilter)):
                name_of = "broadcast" if group.broadcast else "filter"
                raise Rejected("field-invalid", f"an ordered group has no {name_of}: leave it out", field=name_of)
            target = group.push if isinstance(push, Keep) else _versioned(push, group.push_secret)
            check_pulled(group, target)
            return msgspec.structs.replace(
                group,
                max_attempts=group.max_attempts if max_attempts is None else max_attempts,
                retry=group.retry if retry is None else retry,
                max_in_flight=group.max_in_flight if max_in_flight is None else max_in_flight,
                messages_per_second=group.messages_per_second if messages_per_second is None else messages_per_second,
                push=target,
                push_secret=group.push_secret if target is None else max(group.push_secret, target.secret_version),
                **_refiltered(group, filter),
                **broadcasts,
                **order,
            )

        # A cached subject may have fewer queues, and ``latest`` must know them all.
        self.registry.forget(subject)
        owner = self.registry.subject(subject, create=True)
        kind = {"broadcast": broadcast or False, "ordered": ordered or False}
        group = self.registry.change_group(owner, name, change, start=start or "earliest", **kind)
        if max_in_flight is not None or messages_per_second is not None:
            self.context.wakeups.announce(subject, name)  # there may be room for more
        if not isinstance(push, Keep):
            retarget(self.context, owner, group, changed=group.push != before)
        return group

    def pause_group(self, subject: str, name: str, *, paused: bool) -> Group:
        """Pauses or resumes the delivery to the group, and returns the group."""
        return pause_group(self.context, self.registry, subject, name, paused=paused)

    def push_state(self, subject: str, group: str) -> tuple[Group, PushState]:
        """Returns the group and the state of its pushes; raises ``NotFound`` for a group without a target. The group
        counts as paused, too, while its subject is."""
        record = self.group(subject, group)
        state = state_record(self.context, record).load()
        if record.push is None:
            raise NotFound("push-unknown", f"group {group!r} of subject {subject!r} has no target: set push")
        if self.registry.subject(subject).paused:
            record = msgspec.structs.replace(record, paused=True)
        return record, PushState() if state is None else state.value

    def group(self, subject: str, name: str) -> Group:
        self.registry.forget(subject)
        return self._group(subject, name)[1]

    def groups(self, subject: str, after: str = "", limit: int = 100) -> tuple[list[Group], str | None]:
        """Returns up to ``limit`` groups behind the name ``after``, and the ``after`` of the next page (None: there is
        none)."""
        return self.registry.group_page(self.subject(subject), after, limit)

    def delete_group(self, subject: str, name: str) -> None:
        """Removes the group, its progress, retries and dead letters; a broadcast group with all its consumers."""
        self.registry.forget(subject)
        owner = self.registry.subject(subject)
        current = group_record(self.context, subject, name).load()
        self.registry.delete_group(owner, name)
        if current is not None and current.value.broadcast:
            # After the group, so that no consumer comes back. The sweeper deletes those that are left.
            delete_consumer_groups(self.registry, owner, current.value)

    def seek(self, subject: str, group: str, *, to: Literal["start", "end"]) -> dict[int, int]:
        """Moves the group on every queue; returns the offset of its next message, by queue."""
        move = progress.seek_start if to == "start" else progress.seek_end
        return self._seek(subject, group, lambda parts: progress.seek_queue(parts, move))

    def seek_time(self, subject: str, group: str, at_ms: int) -> dict[int, int]:
        move = partial(progress.seek_time, at_ms=at_ms)
        return self._seek(subject, group, lambda parts: progress.seek_queue(parts, move))

    def seek_offset(self, subject: str, group: str, queue: int, offset: int) -> dict[int, int]:
        return self._seek(subject, group, lambda parts: progress.seek_queue_offset(parts, offset), queue)

    def lag(self, subject: str, group: str) -> Lag:
        owner, member = self._group(subject, group)
        if member.broadcast:
            members = consumer_groups(self.registry, owner, member)
            return total_lag([(each, self._lag(owner, each)) for each in members])
        return self._lag(owner, member)

    def _lag(self, owner: Subject, member: Group) -> Lag:
        # A message that leaves its delay while the rest is counted is counted twice rather than not at all.
        before = self._backing_off(owner, member)
        logs = pull_logs(self.context, owner, member)
        lag = progress.lag_of(logs, self.leases, DeadLetters(self.context, owner, member), self.orders)
        lag.cells_out = sorted({*lag.cells_out, *_cells_out(owner, logs)})
        lag.backing_off += max(before, self._backing_off(owner, member))
        limit = pause_of(owner, member, self.context.settings)
        if limit is None and member.flow_limited and not (allowance := self.flow.allowance(logs, 1)).messages:
            limit = allowance.limit
        lag.limited_by = None if limit is None else limit.name
        return lag

    def consumers(self, subject: str, group: str) -> list[ConsumerState]:
        """Returns the consumers of the group that pulled lately or hold leases, by name."""
        owner, member = self._group(subject, group)
        now_ms = self.context.clock.now_ms()
        seen = self.seen_pulls.of(subject, group, now_ms)
        if member.broadcast:
            members = consumer_groups(self.registry, owner, member)
            seen = {each.consumer: max(each.seen_ms, seen.get(each.consumer, 0)) for each in members}
        return consumer_states(self._consumer_logs(owner, member), self.leases, seen)

    def leave(self, subject: str, group: str, consumer: str) -> int:
        """Ends the leases of a consumer at once, and returns the number of messages that were released."""
        owner, member = self._group(subject, group)
        released = end_leases(owner, self._consumer_logs(owner, member), self.leases, consumer)
        self.seen_pulls.forget(subject, group, consumer)
        if released:
            self.context.wakeups.announce(subject, group)
        return released

    def _consumer_logs(self, owner: Subject, member: Group) -> list[PullLog]:
        groups = consumer_groups(self.registry, owner, member) if member.broadcast else [member]
        return [log for each in groups for log in pull_logs(self.context, owner, each)]

    def _backing_off(self, subject: Subject, group: Group) -> int:
        policy = group.retry or self.context.settings.retry
        within_ms = self.context.clock.now_ms() + max(policy.longest_ms, _BACKING_OFF_MS)
        return self.pending_counts.retries(
            self.context, subject.name, subject.generation, group.member, within_ms=within_ms
        )

    def decide_held(self, subject: str, group: str, keys: frozenset[str] | None, then: Literal["retry", "dead"]) -> int:
        """Decides about stopped ``keys`` of an ordered group, or about all: their first message is tried again as a
        first attempt, or becomes a dead letter. Returns the number of keys. Raises ``Rejected`` for another group."""
        owner, member = self._group(subject, group)
        if not member.ordered:
            raise Rejected("group-unordered", f"group {group!r} of subject {subject!r} is not ordered", field="group")
        logs = pull_logs(self.context, owner, member)
        try:
            decided = sum(KeyDecision(self.orders, log, owner, keys, then).decide() for log in logs)
        except Sealed:
            raise unknown_group(subject, group) from None
        self.context.wakeups.announce(subject, group)
        return decided

    def dead(self, subject: str, group: str, *, after: str | None, limit: int) -> DeadPage:
        return self._dead(subject, group).page(after=after, limit=limit)

    def dead_letter(self, subject: str, group: str, dead_id: str) -> Message:
        return self._dead(subject, group).get(dead_id)

    def redrive(self, subject: str, group: str, choose: Callable[[Position, int], bool]) -> int:
        return self._dead(subject, group).redrive(choose)

    def drop_dead(self, subject: str, group: str, choose: Callable[[Position, int], bool]) -> int:
        return self._dead(subject, group).drop(choose)

    def scheduled(self, scheduled_id: str) -> ScheduledMessage:
        """Returns the state of a delayed message. Raises ``NotFound`` long after its time."""
        return self._scheduled(ScheduledMessages(self.context).look(self._position(scheduled_id)))

    def cancel(self, scheduled_id: str) -> ScheduledMessage:
        """Cancels a delayed message if it was not sent yet, and returns its state, which is final."""
        return self._scheduled(ScheduledMessages(self.context).cancel(self._position(scheduled_id)))

    def reschedule(
        self, scheduled_id: str, *, deliver_at: str | None = None, delay: Delay | None = None
    ) -> ScheduledMessage:
        """Moves a delayed message to another time if it was neither sent nor cancelled, and returns its state:
        ``moved`` if the move succeeded."""
        position = self._position(scheduled_id)
        now_ms = self.context.clock.now_ms()
        if deliver_at is not None:
            due_ms = check_limit(parse_rfc3339(deliver_at, "deliver_at"), now_ms, "deliver_at")
        else:
            assert delay is not None
            due_ms = now_ms + limited_delay_ms(delay, "delay")
        return self._scheduled(ScheduledMessages(self.context).reschedule(position, due_ms))

    def orphans(self, subject: str, *, after: str | None, limit: int) -> DeadPage:
        """Returns messages that waited for their time when the subject was deleted."""
        return orphans(self.context, subject, after=after, limit=limit)

    def pending(self, subject: str, *, hours: int) -> list[tuple[int, int]]:
        """Returns the number of delayed messages of the subject for each of the next ``hours`` hours, as pairs of the
        hour's start in Unix milliseconds and the number."""
        owner = self.registry.subject(subject)
        return self.pending_counts.hours(self.context, owner.name, owner.generation, hours=hours)

    def turn_wheel(self, bucket: str, owner: str, pause: Pause, *, leaves_ms: int = 0) -> WheelEnd:
        """Turns the wheel of a bucket until it has nothing to do, or ``pause`` ends it."""
        return Wheel(self.context, self.registry, Bucket.parse(bucket), owner, leaves_ms).run(pause)

    def sweep(self) -> SweepReport:
        return self.sweeper.sweep()

    def _scheduled_id(self, position: SchedulePosition) -> str:
        return sign_scheduled_id(self.secret, position)

    def _position(self, scheduled_id: str) -> SchedulePosition:
        return read_scheduled_id(self.secret, scheduled_id)

    def _scheduled(self, scheduled: Scheduled) -> ScheduledMessage:
        return ScheduledMessage(
            scheduled_id=self._scheduled_id(scheduled.position),
            state=scheduled.state,
            id=scheduled.message_id,
            subject=scheduled.subject,
            deliver_at=rfc3339(scheduled.due_ms),
            dispatched_at=None if scheduled.dispatched_ms is None else rfc3339(scheduled.dispatched_ms),
            queue=scheduled.queue,
            offset=scheduled.offset,
        )

    def _group(self, subject: str, name: str) -> tuple[Subject, Group]:
        owner = self.registry.subject(subject)
        return owner, self.registry.group(owner, name)

    def _puller(self, subject: str, group: str) -> Puller:
        orders = self.orders
        return Puller(
            self.context, self.registry, self.leases, self.ends, self.flow, orders, self.secret, subject, group
        )

    def _dead(self, subject: str, group: str) -> DeadLetters | BroadcastDeadLetters:
        owner, member = self._group(subject, group)
        if not member.broadcast:
            return DeadLetters(self.context, owner, member)
        members = consumer_groups(self.registry, owner, member)
        return BroadcastDeadLetters([(each, DeadLetters(self.context, owner, each)) for each in members])

    def _seek(
        self, subject: str, group: str, move: Callable[[list[PullLog]], int], queue: int | None = None
    ) -> dict[int, int]:
        # A cached subject may lack the part of a queue that was added a moment ago.
        self.registry.forget(subject)
        owner, member = self._group(subject, group)
        if queue is not None and queue >= owner.queues:
            detail = f"subject {subject!r} has {owner.queues} queues, numbered from 0"
            raise Rejected("field-invalid", detail, field="queue")
        if member.broadcast:
            members = consumer_groups(self.registry, owner, member)
            positions: dict[int, int] = {}
            for each in members:
                with suppress(NotFound):  # the consumer is forgotten in this moment
                    positions = self._seek_group(owner, each, move, queue)
        else:
            positions = self._seek_group(owner, member, move, queue)
        self.context.wakeups.announce(subject, group)
        return positions

    def _seek_group(
        self, owner: Subject, member: Group, move: Callable[[list[PullLog]], int], queue: int | None
    ) -> dict[int, int]:
        logs = pull_logs(self.context, owner, member)[1:]
        if out := _cells_out(owner, logs):
            raise CellUnavailable(f"cell {', '.join(out)} cannot be reached: seek again once it can")
        numbers = range(owner.queues) if queue is None else [queue]
        began_ms = self.registry.begin_seek(owner, member)
        moved = {number: move([log for log in logs if log.queue == number]) for number in numbers}
        # After the rows: a waiting pull that sees the new count looks at all queues again.
        self.registry.end_seek(owner, member, began_ms)
        return moved


def _queues_of(subject: Subject) -> int:
    """Returns the number of queues that the subject has, or has after the change that is under way."""
    return subject.queues if subject.change is None else subject.change.queues


def _cells_out(subject: Subject, logs: Sequence[PullLog]) -> list[str]:
    """Returns the cells of which no log could be opened."""
    opened = {log.source.name for log in logs}
    return sorted({cell_of(log) for log in subject.queue_logs() if log not in opened})


def _order_settings(
    group: Group, ordered: bool | None, when_dead: WhenDead | None, max_held: int | None
) -> dict[str, Any]:
    """Returns the fields of the group that change. Raises ``Conflict`` if the group would become ordered or unordered,
    ``Rejected`` for settings that an unordered group does not have."""
    if ordered is not None and group.ordered != ordered:
        state = "ordered" if group.ordered else "not ordered"
        raise Conflict(
            "setting-fixed",
            f"group {group.name!r} is {state}, and messages are in flight by that rule: delete the group and create it"
            " again, or create another one",
            field="ordered",
        )
    changes = {"when_dead": when_dead, "max_held": max_held}
    for field_name, value in changes.items():
        if value is not None and not group.ordered:
            raise Rejected("field-invalid", f"{field_name} is a setting of ordered groups", field=field_name)
    return {name: value for name, value in changes.items() if value is not None}


def _versioned(target: PushTarget | None, latest: int) -> PushTarget | None:
    """Returns the target with a version of its secret; raises ``Rejected`` for a version that was replaced."""
    if target is None:
        return None
    if target.secret_version == KEEP_VERSION:
        return msgspec.structs.replace(target, secret_version=max(latest, 1))
    if target.secret_version < latest:
        detail = f"secret_version {target.secret_version} was replaced: it is {latest} now, a new one is higher"
        raise Rejected("field-invalid", f"push.secret_version: {detail}", field="push.secret_version")
    return target


def _refiltered(group: Group, tag_filter: TagFilter | Keep | None) -> dict[str, Any]:
    """Returns the fields of the group that the filter changes. A change counts as a seek, so that waiting pulls look
    again at the rows that they have seen with the former filter."""
    if isinstance(tag_filter, Keep) or tag_filter == group.filter:
        return {}
    return {"filter": tag_filter, "seeks": group.seeks + 1}
