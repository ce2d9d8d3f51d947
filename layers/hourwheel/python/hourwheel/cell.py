"""Offers all operations on a cell, which is one deployment of the storage.

The HTTP functions parse a request, call one method of ``Cell``, and answer.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias, Unpack

import msgspec

from hourwheel.buckets.buckets import Bucket
from hourwheel.buckets.scheduled_ids import SchedulePosition, read_scheduled_id, sign_scheduled_id
from hourwheel.buckets.starts import order_start
from hourwheel.cells.moves import request_change
from hourwheel.cells.operations import CellOperations
from hourwheel.cells.plans import fewer_queues, plan_queues, queues_to_be
from hourwheel.cells.requests import Routes
from hourwheel.context import Context
from hourwheel.dead_letters.dead import ANY_LETTER, DeadFilter, DeadLetters
from hourwheel.delay.changes import Scheduled, ScheduledMessages
from hourwheel.delay.delayed_list import DelayedList, DelayedRequest
from hourwheel.delay.orphans import orphans
from hourwheel.delay.pending_counts import PendingCounts
from hourwheel.delay.wheel import Pause, Wheel, WheelEnd
from hourwheel.dozing.dozing import DozingWakeups, GuardedWakeupQueues, remove_queues
from hourwheel.dozing.rests import LastWakeups
from hourwheel.errors import NotFound, Rejected, Sealed
from hourwheel.groups.broadcast import BroadcastDeadLetters
from hourwheel.groups.consumers import ConsumerState, SeenPulls
from hourwheel.groups.group_progress import GroupProgress
from hourwheel.groups.groups import GroupOperations, GroupSettings
from hourwheel.groups.peek import PeekStart, peek
from hourwheel.groups.seeks import Seeks, offsets
from hourwheel.model.due import check_limit, limited_delay_ms
from hourwheel.model.fields import Delay
from hourwheel.model.groups import Group
from hourwheel.model.lag import Lag
from hourwheel.model.messages import AddressedMessage, Message, NewMessage, ScheduledMessage, SendResult
from hourwheel.model.pages import DeadPage, DelayedPage, PeekPage
from hourwheel.model.pulls import CompactPullResult, PullRequest, PullResult, Settled, Settlement
from hourwheel.model.subjects import Subject
from hourwheel.model.targets import NoTargets, Targets
from hourwheel.model.traces import TracePage
from hourwheel.ordered.key_state_cache import KeyStateCache
from hourwheel.ordered.ordered_log import KeyedPullLogs
from hourwheel.ordered.stopped_keys import KeyDecision, key_not_stopped, not_stopped
from hourwheel.producing.idempotency import IdempotencyKey
from hourwheel.producing.produce import produce, produce_many
from hourwheel.producing.stored_batches import StoredBatch
from hourwheel.pull_log.ends import SourceEnds
from hourwheel.pull_log.open_logs import PullLogs, pull_logs
from hourwheel.pull_log.receipts import deployment_secret
from hourwheel.pull_log.records import Position
from hourwheel.pulling.flow import FlowControl
from hourwheel.pulling.pull import Puller
from hourwheel.pulling.source_logs import GroupLogs
from hourwheel.push.pauses import pause_group, pause_subject
from hourwheel.push.state import PushState, target_of
from hourwheel.push.waking import start_free
from hourwheel.registry.broadcast import consumer_groups
from hourwheel.registry.registry import Registry, unknown_group
from hourwheel.registry.removed_names import RemovedNames
from hourwheel.settling.leases import Leases
from hourwheel.sweep.erasure import make_registry
from hourwheel.sweep.sweep import Sweeper, SweepReport
from hourwheel.times import parse_rfc3339, rfc3339
from hourwheel.trace.messages import GROUPS, MessagePosition, SearchSpan, Trace

if TYPE_CHECKING:
    from hourwheel.groups.state import GroupState
    from hourwheel.operations.background import Background
    from hourwheel.operations.overview import Overview

_Once: TypeAlias = IdempotencyKey | None


@dataclass
class Cell:
    """Makes the calls of producers, consumers and operators. Thread-safe. Every method may raise ``Rejected`` if the
    caller must change the request, and ``Unavailable`` if the caller may repeat it."""

    context: Context
    targets: Targets = field(default_factory=NoTargets)
    leases: Leases = field(default_factory=Leases)
    ends: SourceEnds = field(default_factory=SourceEnds)
    group_logs: GroupLogs = field(default_factory=GroupLogs)
    flow: FlowControl = field(default_factory=FlowControl)
    key_states: KeyStateCache = field(default_factory=KeyStateCache)
    pending_counts: PendingCounts = field(default_factory=PendingCounts)
    seen_pulls: SeenPulls = field(default_factory=SeenPulls)
    passed_on: LastWakeups = field(default_factory=LastWakeups)

    def __post_init__(self) -> None:
        queues, pulls = self.context.wakeup_queues, self.context.wakeups
        if queues is not None:
            queues = GuardedWakeupQueues(queues, self.context.clock)
            # A function, as the registry is made from the context that these wakeups become part of.
            wakeups = DozingWakeups(self.context, pulls, queues, lambda: self.registry)
            self.context = replace(self.context, wakeups=wakeups, wakeup_queues=queues)

    @cached_property
    def opener(self) -> PullLogs:
        """Opens the pull logs of groups."""
        return KeyedPullLogs(self.key_states)

    @cached_property
    def registry(self) -> Registry:
        return make_registry(self.context, self.drop)

    @cached_property
    def sweeper(self) -> Sweeper:
        return Sweeper(self.context, self.registry, self.leases, self.opener)

    @cached_property
    def routes(self) -> Routes:
        """Moves queues, and shows routes."""
        return Routes(self.registry)

    @cached_property
    def cells(self) -> CellOperations:
        """Adds, shows, drains and removes cells."""
        return CellOperations(self.registry)

    @cached_property
    def overview(self) -> "Overview":
        """Shows subjects and groups with their numbers side by side."""
        # Imported here: most functions on AWS never need these modules, and start faster without them.
        from hourwheel.groups.numbers import GroupNumbers
        from hourwheel.operations.overview import Overview

        return Overview(self.registry, GroupNumbers(self.registry, self.leases, self.opener), self.pending_counts)

    @property
    def background(self) -> "Background":
        """Shows delayed messages by time, the wheels, and the archive."""
        from hourwheel.operations.background import Background  # for operators alone

        return Background(self.context, self.pending_counts)

    @property
    def _groups(self) -> GroupOperations:
        return GroupOperations(self.registry, self.targets)

    def seeks(self, *, dry_run: bool = False) -> Seeks:
        """Returns the calls that move groups; with ``dry_run`` they only count what a seek would do."""
        return Seeks(self.registry, dry_run)

    @property
    def _progress(self) -> GroupProgress:
        return GroupProgress(self.registry, self.leases, self.flow, self.opener, self.pending_counts, self.seen_pulls)

    @cached_property
    def secret(self) -> bytes:
        """The cell's secret, which signs receipts, scheduled ids and deliveries."""
        return deployment_secret(self.context)

    def drop(self, deleted: RemovedNames) -> None:
        """Drops what this process keeps by the names of deleted subjects and groups. No other place lists the
        tables."""
        made = (self.overview,) if "overview" in vars(self) else ()
        tables = self.registry, self.leases, self.ends, self.group_logs, self.flow, self.key_states, self.seen_pulls
        for table in (*tables, self.sweeper, *made):
            table.drop(deleted)

    def prepare(self) -> None:
        """Reads the cell's secret, or draws it, before several threads and greenlets need it at once."""
        _ = self.secret

    def produce(self, subject: str, messages: Sequence[NewMessage], idempotency: _Once = None) -> list[SendResult]:
        """Stores a batch and returns the position of each message. Creates the subject if there is none."""
        return self.send_results(self.store_batch(subject, messages, idempotency))

    def store_batch(
        self, subject: str, messages: Sequence[NewMessage], idempotency: _Once = None, *, create: bool = True
    ) -> StoredBatch:
        """Stores a batch as ``produce`` does, and returns where its parts are."""
        return produce(self.context, self.registry, subject, messages, idempotency, create=create)

    def send_results(self, stored: StoredBatch) -> list[SendResult]:
        """Returns the position of each message of a stored batch."""
        return stored.send_results(self._scheduled_id)

    def produce_many(self, messages: Sequence[AddressedMessage], idempotency: _Once = None) -> list[SendResult]:
        """Stores a batch that spans subjects and returns the position of each message. Creates missing subjects."""
        return self.send_results(self.store_many(messages, idempotency))

    def store_many(
        self, messages: Sequence[AddressedMessage], idempotency: _Once = None, *, create: bool = True
    ) -> StoredBatch:
        """Stores a batch as ``produce_many`` does, and returns where its parts are."""
        return produce_many(self.context, self.registry, messages, idempotency, create=create)

    def pull(self, subject: str, group: str, request: PullRequest, *, pushing: bool = False) -> PullResult:
        """Leases messages to a consumer of the group and returns them. Creates a missing subject and group, unless with
        ``pushing``: see ``Puller.pull``."""
        self.seen_pulls.record(subject, group, request.consumer, self.context.clock.now_ms())
        return self._puller(subject, group).pull(request, pushing=pushing)

    def pull_blocks(self, subject: str, group: str, request: PullRequest) -> CompactPullResult:
        """Leases messages as ``pull`` does, and returns them in blocks, as they are stored."""
        self.seen_pulls.record(subject, group, request.consumer, self.context.clock.now_ms())
        return self._puller(subject, group).pull_blocks(request)

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
            if queues is not None and queues < queues_to_be(subject):
                raise fewer_queues(subject)
            return msgspec.structs.replace(
                subject,
                retention_seconds=subject.retention_seconds if retention_seconds is None else retention_seconds,
                clamp_delays=subject.clamp_delays if clamp_delays is None else clamp_delays,
                read_only=subject.read_only if read_only is None else read_only,
            )

        subject = self.registry.change_subject(name, change, queues=queues or 1)
        # More queues are not one write: each old queue is sealed and goes on in a new log (``cells/moves.py``).
        if queues is None or queues <= queues_to_be(subject):
            return subject
        return request_change(self.registry, name, plan_queues(queues))[1]

    def pause_subject(self, name: str, *, paused: bool) -> Subject:
        """Pauses or resumes the delivery to all groups of the subject, and returns the subject."""
        return pause_subject(self.context, self.registry, name, paused=paused)

    def subject(self, name: str) -> Subject:
        # A caller that looks wants the record as it is now, not as this process cached it.
        self.registry.forget(name)
        return self.registry.subject(name)

    def subjects(self, after: str, limit: int) -> tuple[list[Subject], str | None]:
        return self.registry.subjects(after, limit)

    def peek(self, subject: str, queue: int, start: PeekStart, limit: int) -> PeekPage:
        """Returns messages of a queue without being a group: see ``groups.peek``."""
        return peek(self.context, self.subject(subject), queue, start, limit)

    def trace(self, subject: str, message: str, span: SearchSpan, group: str | None = None) -> TracePage:
        """Returns the traces of a message, which is named by ``queue:offset``, by its scheduled id or by its id: in
        ``group``, or without it in the first groups of the subject. Raises ``NotFound`` for an unknown message."""
        owner = self.subject(subject)
        if group is None:
            groups, following = self.registry.group_page(owner, "", GROUPS)
        else:
            groups, following = [self.registry.group(owner, group)], None
        members = [
            member
            for record in groups
            for member in (consumer_groups(self.registry, owner, record) if record.broadcast else [record])
        ]
        more = following is not None or len(members) > GROUPS
        trace = Trace(self.context, owner, members[:GROUPS], more, self._scheduled_id)
        target = MessagePosition.parse(message)
        if target is not None:
            return TracePage([trace.by_offset(target)], None)
        try:
            position = self._position(message)
        except Rejected:
            return trace.by_id(message, span)  # no scheduled id of this cell
        scheduled = ScheduledMessages(self.context).look(position)
        if scheduled.subject != subject:
            raise NotFound(
                "message-unknown",
                f"this delayed message is of subject {scheduled.subject!r}: name that subject instead of {subject!r}",
                field="subject",
            )
        return TracePage([trace.by_scheduled(scheduled, message)], None)

    def delete_subject(self, name: str) -> list[str]:
        """Removes the subject, its groups and messages; returns the cells in which the sweeper does this once they can
        be reached. Messages that are sent meanwhile go to a new subject of that name."""
        # Before the deletion: afterwards a new subject may have this name.
        groups = self.registry.groups_with_queues(name)
        cells_out = self.registry.delete_subject(name)
        remove_queues(self.context, groups)
        return cells_out

    def put_group(self, subject: str, name: str, **settings: Unpack[GroupSettings]) -> Group:
        """Creates or changes a group and returns it: see ``GroupOperations.put``."""
        return self._groups.put(subject, name, settings)

    def pause_group(self, subject: str, name: str, *, paused: bool) -> Group:
        """Pauses or resumes the delivery to the group, and returns the group."""
        return pause_group(self.context, self.registry, subject, name, paused=paused)

    def push_state(self, subject: str, group: str) -> tuple[Group, PushState]:
        """Returns the group and the state of its pushes: see ``GroupOperations.push_state``."""
        return self._groups.push_state(subject, group)

    def group(self, subject: str, name: str) -> Group:
        self.registry.forget(subject)  # as for ``subject``
        return self._group(subject, name)[1]

    def groups(self, subject: str, after: str = "", limit: int = 100) -> tuple[list[Group], str | None]:
        """Returns up to ``limit`` groups behind the name ``after``, and the ``after`` of the next page (None: there is
        none)."""
        return self.registry.group_page(self.subject(subject), after, limit)

    def delete_group(self, subject: str, name: str) -> list[str]:
        """Removes the group and what it has, and returns the cells that are out of reach: see ``GroupOperations``."""
        return self._groups.delete(subject, name)

    def seek(self, subject: str, group: str, *, to: Literal["start", "end"]) -> dict[int, int]:
        """Moves the group on every queue; returns the offset of its next message, by queue."""
        return offsets(self.seeks().seek(subject, group, to))

    def seek_time(self, subject: str, group: str, at_ms: int) -> dict[int, int]:
        return offsets(self.seeks().seek_time(subject, group, at_ms))

    def seek_offset(self, subject: str, group: str, queue: int, offset: int) -> dict[int, int]:
        return offsets(self.seeks().seek_offset(subject, group, queue, offset))

    def lag(self, subject: str, group: str) -> Lag:
        return self._progress.lag(*self._group(subject, group))

    def consumers(self, subject: str, group: str) -> list[ConsumerState]:
        """Returns the consumers of the group that pulled lately or hold leases, by name."""
        return self._progress.consumers(*self._group(subject, group))

    def leave(self, subject: str, group: str, consumer: str, *, forget: bool = False) -> int:
        """Ends the leases of a consumer, or forgets it. Returns how many messages it held: see ``GroupProgress``."""
        return self._progress.leave(*self._group(subject, group), consumer, forget=forget)

    def decide_held(self, subject: str, group: str, keys: frozenset[str] | None, then: Literal["retry", "dead"]) -> int:
        """Decides about the stopped ``keys`` of an ordered group (None: about all of them). The first message of each
        key is tried again as a first attempt, or becomes a dead letter. Returns the number of keys that were stopped.
        Raises ``Rejected`` for a group that is not ordered, and ``Conflict`` if one of ``keys`` is not stopped: then
        nothing is decided, unless another decision came first while this one ran."""
        owner, member = self._group(subject, group)
        if not member.ordered:
            raise Rejected(
                "group-unordered",
                f"group {group!r} of subject {subject!r} is not ordered: only ordered groups have stopped keys",
                field="group",
            )
        logs = pull_logs(self.context, owner, member)
        if keys is not None and (going := not_stopped(self.key_states, logs, keys)):
            raise key_not_stopped(member, going)
        # No counter tells of a decision: a process that saw the key stop looks again because the seeks have changed.
        began_ms = self.registry.begin_seek(owner, member)
        try:
            decided = sum(KeyDecision(self.key_states, log, owner, keys, then).decide() for log in logs)
        except Sealed:
            raise unknown_group(subject, group) from None  # it was deleted meanwhile
        self.registry.end_seek(owner, member, began_ms)
        if keys is not None and not decided:
            raise key_not_stopped(member, keys)
        self.context.wakeups.announce(subject, group)
        # No row of a queue or retry log was stored: nothing else starts a pusher.
        if decided and target_of(owner, member) is not None:
            start_free(self.context, member)
        return decided

    def state(self, subject: str, group: str) -> "GroupState":
        """Returns the calls that show the retries and the open leases of the group."""
        from hourwheel.groups.state import GroupState  # for operators alone

        owner, member = self._group(subject, group)
        members = consumer_groups(self.registry, owner, member) if member.broadcast else [member]
        return GroupState(self.context, owner, members)

    def dead(
        self,
        subject: str,
        group: str,
        *,
        after: str | None,
        limit: int,
        which: DeadFilter = ANY_LETTER,
        newest: bool = False,
    ) -> DeadPage:
        return self._dead(subject, group).page(after=after, limit=limit, which=which, newest=newest)

    def dead_positions(self, subject: str, group: str, which: DeadFilter) -> frozenset[Position]:
        """Returns the positions of all dead letters that the filter takes."""
        return self._dead(subject, group).positions(which)

    def dead_letters(self, subject: str, group: str) -> Iterator[Message]:
        """Yields the dead letters of the group, the oldest first."""
        return self._dead(subject, group).alive()

    def dead_letter(self, subject: str, group: str, dead_id: str) -> Message:
        return self._dead(subject, group).get(dead_id)

    def redrive(self, subject: str, group: str, choose: Callable[[Position, int], bool]) -> int:
        """Redrives the dead letters that ``choose`` takes, and returns their number: see ``DeadLetters.redrive``."""
        return self._dead(subject, group).redrive(choose)

    def drop_dead(self, subject: str, group: str, choose: Callable[[Position, int], bool]) -> int:
        """Drops the dead letters that ``choose`` takes, and returns their number: see ``DeadLetters.drop``."""
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

    def delayed(self, subject: str | None, request: DelayedRequest) -> DelayedPage:
        """Returns a page of the delayed messages of a subject (None: of all): see ``DelayedList.page``."""
        owner = None if subject is None else self.subject(subject)
        return DelayedList(self.context, self.secret, owner, request).page()

    def orphans(self, subject: str, *, after: str | None, limit: int) -> DeadPage:
        """Returns messages that waited for their time when the subject was deleted."""
        return orphans(self.context, subject, after=after, limit=limit)

    def pending(self, subject: str, *, hours: int) -> list[tuple[int, int]]:
        """Returns the number of delayed messages of the subject for each of the next ``hours`` hours, as pairs of the
        hour's start in Unix milliseconds and the number."""
        owner = self.registry.subject(subject)
        return self.pending_counts.hours(self.context, owner.name, owner.generation, hours=hours)

    def turn_wheel(self, bucket: str, owner: str, pause: Pause, *, leaves_ms: int = 0) -> WheelEnd:
        """Turns the wheel of a bucket until it has nothing to do, ``pause`` ends it, or it has to leave at
        ``leaves_ms`` (0: never). Returns why the wheel ended."""
        return Wheel(self.context, self.registry, Bucket.parse(bucket), owner, leaves_ms).run(pause)

    def start_wheel(self, bucket: str, wakes_ms: int) -> None:
        """Orders a start of the bucket's wheel at that time, or at once if the time has come: for a timer that came
        early. Raises ``Unavailable`` and ``Broken``; the caller then has its timer repeated."""
        order_start(self.context, wakes_ms, Bucket.parse(bucket).name)

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
        return Puller(
            self.context,
            self.registry,
            self.leases,
            self.ends,
            self.group_logs,
            self.flow,
            self.opener,
            self.secret,
            subject,
            group,
            self.passed_on,
        )

    def _dead(self, subject: str, group: str) -> DeadLetters | BroadcastDeadLetters:
        owner, member = self._group(subject, group)
        if not member.broadcast:
            return DeadLetters(self.context, owner, member)
        members = consumer_groups(self.registry, owner, member)
        return BroadcastDeadLetters([(consumer, DeadLetters(self.context, owner, consumer)) for consumer in members])
