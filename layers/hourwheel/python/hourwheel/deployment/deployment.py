"""Offers all calls on a deployment: one storage with its subjects, groups and messages.

The HTTP functions parse a request, make one call of ``Deployment`` or of one of its services, and answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from hourwheel.buckets.buckets import Bucket
from hourwheel.buckets.scheduled_ids import SchedulePosition, sign_scheduled_id
from hourwheel.buckets.starts import order_start
from hourwheel.cells.operations import CellOperations
from hourwheel.cells.requests import Routes
from hourwheel.context import Context
from hourwheel.dead_letters.dead import DeadLetters
from hourwheel.delay.lists.pending_counts import PendingCounts
from hourwheel.delay.wheel import Pause, Wheel, WheelEnd
from hourwheel.deployment.delayed import DelayedService
from hourwheel.deployment.messages import MessageService
from hourwheel.deployment.subjects import SubjectService
from hourwheel.dozing.dozing import DozingWakeups, GuardedWakeupQueues
from hourwheel.dozing.rests import LastWakeups
from hourwheel.groups.broadcast import BroadcastDeadLetters
from hourwheel.groups.consumers import SeenPulls
from hourwheel.groups.group_progress import GroupProgress
from hourwheel.groups.seeks import Seeks
from hourwheel.groups.service import GroupService
from hourwheel.model.messages import AddressedMessage, NewMessage, SendResult
from hourwheel.model.pulls import CompactPullResult, PullRequest, PullResult, Settled, Settlement
from hourwheel.model.targets import NoTargets, Targets
from hourwheel.ordered.key_state_cache import KeyStateCache
from hourwheel.ordered.ordered_log import KeyedPullLogs
from hourwheel.producing.idempotency import IdempotencyKey
from hourwheel.producing.produce import produce, produce_many
from hourwheel.producing.stored_batches import StoredBatch
from hourwheel.pull_log.ends import SourceEnds
from hourwheel.pull_log.open_logs import PullLogs
from hourwheel.pull_log.receipts import deployment_secret
from hourwheel.pulling.flow import FlowControl
from hourwheel.pulling.pull import Puller
from hourwheel.pulling.source_logs import GroupLogs
from hourwheel.registry.broadcast import consumer_groups
from hourwheel.registry.registry import Registry
from hourwheel.registry.removed_names import RemovedNames
from hourwheel.settling.leases import Leases
from hourwheel.sweep.erasure import make_registry

if TYPE_CHECKING:
    from hourwheel.operations.attention import Attention
    from hourwheel.operations.background import Background
    from hourwheel.operations.overview import Overview
    from hourwheel.sweep.sweep import Sweeper

_Once: TypeAlias = IdempotencyKey | None


@dataclass
class Deployment:
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
    def sweeper(self) -> "Sweeper":
        from hourwheel.sweep.sweep import Sweeper  # most functions never sweep, and each import delays a cold start

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

        numbers = GroupNumbers(self.registry, self.leases, self.opener, self.flow, self.seen_pulls)
        return Overview(self.registry, numbers, self.pending_counts)

    @cached_property
    def attention(self) -> "Attention":
        """Tells what needs an operator."""
        from hourwheel.operations.attention import Attention  # for operators alone

        return Attention(self.overview, self.background, self.cells.out_of_reach)

    @property
    def background(self) -> "Background":
        """Shows delayed messages by time, the wheels, and the archive."""
        from hourwheel.operations.background import Background  # for operators alone

        return Background(self.context, self.pending_counts)

    @property
    def subjects(self) -> SubjectService:
        """Creates, changes, shows and deletes subjects."""
        return SubjectService(self.registry)

    @property
    def groups(self) -> GroupService:
        """Creates, changes, shows and deletes groups."""
        progress = GroupProgress(
            self.registry, self.leases, self.flow, self.opener, self.pending_counts, self.seen_pulls
        )
        return GroupService(self.registry, self.targets, progress, self.key_states)

    @property
    def delayed(self) -> DelayedService:
        """Shows, cancels and reschedules delayed messages."""
        return DelayedService(self.registry, self.pending_counts, lambda: self.secret)

    @property
    def messages(self) -> MessageService:
        """Peeks into queues, and traces messages."""
        return MessageService(self.registry, lambda: self.secret)  # a peek does without the secret

    def dead_letters(self, subject: str, group: str) -> DeadLetters | BroadcastDeadLetters:
        """Returns the dead letters of a group; for a broadcast group, those of all its consumers."""
        owner = self.registry.subject(subject)
        member = self.registry.group(owner, group)
        if not member.broadcast:
            return DeadLetters(self.context, owner, member)
        members = consumer_groups(self.registry, owner, member)
        return BroadcastDeadLetters([(consumer, DeadLetters(self.context, owner, consumer)) for consumer in members])

    def seeks(self, *, dry_run: bool = False) -> Seeks:
        """Returns the calls that move groups; with ``dry_run`` they only count what a seek would do."""
        return Seeks(self.registry, dry_run)

    @cached_property
    def secret(self) -> bytes:
        """The secret of the deployment, which signs receipts, scheduled ids and deliveries."""
        return deployment_secret(self.context)

    def drop(self, deleted: RemovedNames) -> None:
        """Drops what this process keeps by the names of deleted subjects and groups. No other place lists the
        tables."""
        made = [vars(self)[name] for name in ("sweeper", "overview") if name in vars(self)]
        tables = self.registry, self.leases, self.ends, self.group_logs, self.flow, self.key_states, self.seen_pulls
        for table in (*tables, *made):
            table.drop(deleted)

    def prepare(self) -> None:
        """Reads the secret, or draws it, before several threads and greenlets need it at once."""
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
        self.registry.subject_and_group(subject, group)
        return self._puller(subject, group).settle(settlements)

    def turn_wheel(self, bucket: str, owner: str, pause: Pause, *, leaves_ms: int = 0) -> WheelEnd:
        """Turns the wheel of a bucket until it has nothing to do, ``pause`` ends it, or it has to leave at
        ``leaves_ms`` (0: never). Returns why the wheel ended."""
        return Wheel(self.context, self.registry, Bucket.parse(bucket), owner, leaves_ms).run(pause)

    def start_wheel(self, bucket: str, wakes_ms: int) -> None:
        """Orders a start of the bucket's wheel at that time, or at once if the time has come: for a timer that came
        early. Raises ``Unavailable`` and ``Broken``; the caller then has its timer repeated."""
        order_start(self.context, wakes_ms, Bucket.parse(bucket).name)

    def _scheduled_id(self, position: SchedulePosition) -> str:
        return sign_scheduled_id(self.secret, position)

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
