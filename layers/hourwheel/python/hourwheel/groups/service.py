"""Makes the calls of operators on the groups of a subject."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from hourwheel.errors import NotFound, Rejected, Sealed
from hourwheel.groups.consumers import ConsumerStates, LeaveResult
from hourwheel.groups.deletions import delete_group
from hourwheel.groups.group_progress import GroupProgress
from hourwheel.groups.settings import changed
from hourwheel.model.groups import Group, PushTarget
from hourwheel.model.lag import Lag
from hourwheel.model.subjects import Subject
from hourwheel.model.targets import Targets
from hourwheel.ordered.key_state_cache import KeyStateCache
from hourwheel.ordered.stopped_keys import KeyDecision, key_not_stopped, not_stopped
from hourwheel.pull_log.open_logs import pull_logs
from hourwheel.push.pauses import pause_group
from hourwheel.push.state import PushState, retarget, state_record, target_of
from hourwheel.push.waking import start_free
from hourwheel.registry.broadcast import consumer_groups
from hourwheel.registry.records import unknown_group
from hourwheel.registry.registry import Registry

if TYPE_CHECKING:
    from hourwheel.groups.early_retries import DelayedRetries
    from hourwheel.groups.state import GroupState


@dataclass(frozen=True)
class GroupService:
    """Creates, changes, shows and deletes groups. Every method raises ``NotFound`` for an unknown subject or group,
    unless it creates them."""

    registry: Registry
    targets: Targets
    progress: GroupProgress
    key_states: KeyStateCache

    def put(self, subject: str, name: str, **settings: Any) -> Group:
        """Creates or changes a group and returns it. None keeps the value of a setting, except that it removes
        ``push`` and ``filter``. Raises ``Conflict`` for another ``start``, ``broadcast`` or
        ``ordered``, ``Rejected`` for a target that this deployment cannot reach, and for settings that exclude one
        another."""
        push = settings.get("push")
        # Before anything is stored: a target that cannot be reached refuses the whole request.
        if isinstance(push, PushTarget):
            self.targets.check(push, subject)
        before: PushTarget | None = None

        def change(group: Group) -> Group:
            nonlocal before
            before = group.push
            return changed(group, settings)

        # A cached subject may have fewer queues, and ``latest`` must know them all.
        self.registry.forget(subject)
        owner = self.registry.subject(subject, create=True)
        group = self.registry.change_group(
            owner,
            name,
            change,
            start=settings.get("start") or "earliest",
            broadcast=settings.get("broadcast") or False,
            ordered=settings.get("ordered") or False,
        )
        limits = settings.get("max_in_flight"), settings.get("messages_per_second")
        if limits != (None, None) or "filter" in settings:
            # There may be room for more, or messages that the former filter passed over.
            self.registry.context.wakeups.announce(subject, name)
        if "push" in settings:
            retarget(self.registry.context, owner, group, changed=group.push != before)
        return group

    def get(self, subject: str, name: str) -> Group:
        """Returns the group as it is now, not as this process cached it."""
        return self.registry.group(self.registry.current_subject(subject), name)

    def page(self, subject: str, after: str = "", limit: int = 100) -> tuple[list[Group], str | None]:
        """Returns up to ``limit`` groups behind the name ``after``, and the ``after`` of the next page (None: there is
        none)."""
        return self.registry.group_page(self.registry.current_subject(subject), after, limit)

    def records(self, subject: str, name: str) -> tuple[Subject, Group]:
        """Returns the records of the subject and the group, as this process knows them."""
        owner = self.registry.subject(subject)
        return owner, self.registry.group(owner, name)

    def delete(self, subject: str, name: str) -> list[str]:
        """Removes the group, its progress, retries and dead letters; a broadcast group with all its consumers. Returns
        the cells in which the sweeper does this once they can be reached."""
        owner = self.registry.current_subject(subject)
        return delete_group(self.registry, owner, name)

    def pause(self, subject: str, name: str, *, paused: bool) -> Group:
        """Pauses or resumes the delivery to the group, and returns the group."""
        return pause_group(self.registry.context, self.registry, subject, name, paused=paused)

    def push_state(self, subject: str, name: str) -> tuple[Group, PushState]:
        """Returns the group and the state of its pushes; raises ``NotFound`` for a group without a target. The group
        counts as paused, too, while its subject is."""
        owner = self.registry.current_subject(subject)
        group = self.registry.group(owner, name)
        state = state_record(self.registry.context, group).load()
        if group.push is None:
            raise NotFound("push-unknown", f"group {name!r} of subject {subject!r} has no target: set push")
        if owner.paused:
            group = msgspec.structs.replace(group, paused=True)
        return group, PushState() if state is None else state.value

    def lag(self, subject: str, name: str) -> Lag:
        """Returns what the group has left to do, in total and by queue."""
        return self.progress.lag(*self.records(subject, name))

    def consumers(self, subject: str, group: str) -> ConsumerStates:
        """Returns the consumers of the group that pulled lately or hold leases, by name."""
        return self.progress.consumers(*self.records(subject, group))

    def leave(self, subject: str, group: str, consumer: str, *, forget: bool = False) -> LeaveResult:
        """Ends the leases of a consumer, or forgets it. Returns how many messages it held: see ``GroupProgress``."""
        return self.progress.leave(*self.records(subject, group), consumer, forget=forget)

    def decide(self, subject: str, group: str, keys: frozenset[str] | None, then: Literal["retry", "dead"]) -> int:
        """Decides about the stopped ``keys`` of an ordered group (None: about all of them). The first message of each
        key is tried again as a first attempt, or becomes a dead letter. Returns the number of keys that were stopped.
        Raises ``Rejected`` for a group that is not ordered, and ``Conflict`` if one of ``keys`` is not stopped: then
        nothing is decided, unless another decision came first while this one ran."""
        owner, member = self.records(subject, group)
        if not member.ordered:
            raise Rejected(
                "group-unordered",
                f"group {group!r} of subject {subject!r} is not ordered: only ordered groups have stopped keys",
                field="group",
            )
        logs = pull_logs(self.registry.context, owner, member)
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
        self.registry.context.wakeups.announce(subject, group)
        # No row of a queue or retry log was stored: nothing else starts a pusher.
        if decided and target_of(owner, member) is not None:
            start_free(self.registry.context, member)
        return decided

    def backing_off(self, subject: str, group: str) -> "DelayedRetries":
        """Returns the call that retries the messages of the group which wait for their delay.

        Raises:
            NotFound: there is no such subject or group.
            Rejected: the group is ordered. It retries a failed message in its place, and other messages of the key wait
                behind it.
        """
        from hourwheel.groups.early_retries import DelayedRetries  # for operators alone

        owner, member = self.records(subject, group)
        if member.ordered:
            detail = "an ordered group retries each key in its order: decide about keys that have stopped"
            raise Rejected("field-invalid", detail, field="group")
        members = consumer_groups(self.registry, owner, member) if member.broadcast else [member]
        return DelayedRetries(self.registry.context, owner, members, self.progress.pending_counts)

    def state(self, subject: str, group: str) -> "GroupState":
        """Returns the calls that show the retries and the open leases of the group."""
        from hourwheel.groups.state import GroupState  # for operators alone

        owner, member = self.records(subject, group)
        members = consumer_groups(self.registry, owner, member) if member.broadcast else [member]
        return GroupState(self.registry.context, owner, members)
