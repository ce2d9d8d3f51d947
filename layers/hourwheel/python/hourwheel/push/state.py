"""Defines the record of a group's pushing: the pusher that has the lease, and how the last deliveries went.

    table      meta
    partition  pushes
    sort       {subject}~{generation}/{group}~{generation}
    value      PushState, msgpack array

Each group with a target has one record. After a message was stored for the group, ``waking.py`` reads the record and
starts a pusher unless one runs: a running pusher looks for messages once more after it has left (see ``pusher.py``).
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

import msgspec

from hourwheel.context import Context
from hourwheel.errors import Unavailable
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.model.groups import Group, PushTarget
from hourwheel.model.log_names import LogKind, LogName, Member
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Key, Table, items_of

_PARTITION = "pushes"
_LONGEST_LEASE_MS = 3_600_000  # no lease or pause lasts this long: a later end was written under a wrong clock
_LAPSED = 1  # an end that has passed, and not 0: the owner has not left of its own accord


class PushState(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The state of a group's pushing. ``until_ms``: the end of the owner's lease; 0 when the owner has left of its own
    accord. ``failures``: how many deliveries in a row failed as a whole; ``error`` is the error of the last one.
    ``resumes_ms``: the end of the pause (0: not paused). ``pauses``: how many pauses there were in a row."""

    owner: str = ""
    until_ms: int = 0
    failures: int = 0
    resumes_ms: int = 0
    error: str = ""
    pauses: int = 0

    def alive(self, now_ms: int) -> bool:
        # The clock that gave a lease of hours has been set back since.
        return now_ms < self.until_ms <= now_ms + _LONGEST_LEASE_MS

    def paused(self, now_ms: int) -> bool:
        return now_ms < self.resumes_ms <= now_ms + _LONGEST_LEASE_MS

    def free(self, now_ms: int) -> bool:
        """Returns whether a pusher may begin."""
        return not self.alive(now_ms) and not self.paused(now_ms)

    def overdue(self, now_ms: int) -> bool:
        """Returns whether a pusher should begin: a pause is over, or the last owner stopped without leaving."""
        return self.free(now_ms) and (self.until_ms > 0 or self.resumes_ms > 0)

    def lapsed(self) -> "PushState":
        """Returns the state as if the owner had stopped without leaving."""
        return msgspec.structs.replace(self, until_ms=_LAPSED)


class Pushed(NamedTuple):
    """The record of a group with a target; its key names the group."""

    key: Key
    current: Versioned[PushState]

    @property
    def subject(self) -> str:
        return self.key.sort.partition("~")[0]

    @property
    def group(self) -> str:
        return Member.parse(self.key.sort.partition("/")[2]).group


def target_of(subject: Subject, group: Group) -> PushTarget | None:
    """Returns the target to which the group's messages are delivered now; None also while a pause keeps them back."""
    return None if subject.paused or group.paused else group.push


def state_record(context: Context, group: Group) -> CasRecord[PushState]:
    name = f"{group.subject}~{group.subject_generation}/{group.member}"
    return CasRecord(context.store, context.ids, Key(Table.META, _PARTITION, name), PushState)


def pushed_groups(context: Context, log: str = "", *, consistent: bool = True) -> Iterator[Pushed]:
    """Yields the records of all groups with a target, or only of those that read the consume or retry log ``log``.
    Without ``consistent`` it may miss recent changes."""
    name = LogName.parse(log) if log else None
    one_group = name is not None and name.kind is LogKind.RETRY
    prefix = f"{name.subject}~{name.generation}/{name.member if one_group else ''}" if name else ""
    template = CasRecord(context.store, context.ids, Key(Table.META, _PARTITION, "-"), PushState)
    for record_name, record in items_of(
        context.store, Table.META, _PARTITION, start=prefix, page=100, consistent=consistent
    ):
        if not record_name.startswith(prefix):
            return
        current = template.opened(record)
        assert current is not None
        if not one_group or record_name == prefix:
            yield Pushed(template.key._replace(sort=record_name), current)


def listen(context: Context, on: bool) -> bool:
    """Switches the reading of the stream of stored rows on or off. If that fails, counts the failure and returns False:
    the next sweep tries again, and finds the messages that wait meanwhile."""
    try:
        context.stream.listen(on)
    except Unavailable:
        context.meter.record("WakesMissed", 1)
        return False
    return True


def retarget(context: Context, subject: Subject, group: Group, *, changed: bool) -> None:
    """Creates, resets or removes the record of a group whose target was set; ``changed``: to another target. A pause
    counts as no target, so that stored rows start no pusher meanwhile. The sweeper finds a new record, and starts a
    pusher for the messages that wait.

    Switches the stream of stored rows on for a target. After the last target was removed, only the sweeper switches the
    stream off, because no new target can slip past it."""
    if target_of(subject, group) is None:
        forget(context, group)
    else:
        _renew(context, group, changed=changed)
        listen(context, True)


def _renew(context: Context, group: Group, *, changed: bool) -> None:
    record = state_record(context, group)
    current = record.load()
    while current is None or changed:
        # A new target is tried at once. A pusher that runs now finds the target by itself.
        alive = current is not None and current.value.alive(context.clock.now_ms())
        fresh = (
            PushState()
            if current is None
            else msgspec.structs.replace(current.value, failures=0, pauses=0, resumes_ms=0, error="")
        )
        # Lapsed, it counts as overdue: the next sweep starts a pusher for the messages that wait.
        stored, current = record.swap(current, fresh if alive else fresh.lapsed())
        if stored:
            return


def expire_push_leases(context: Context, living: Collection[str] = ()) -> None:
    """Ends the leases of all owners that are not in ``living``, so that other pushers can begin at once. For a start
    before which all other owners have stopped."""
    for pushed in pushed_groups(context):
        if pushed.current.value.until_ms and pushed.current.value.owner not in living:
            CasRecord(context.store, context.ids, pushed.key, PushState).swap(
                pushed.current, pushed.current.value.lapsed()
            )


def forget(context: Context, group: Group) -> None:
    """Removes the record of a group that has no target any more, or was deleted."""
    key = state_record(context, group).key
    record = context.store.get(key)
    while record is not None:
        refused = context.store.delete(key, expect=record.token)
        record = None if refused is None else refused.current
