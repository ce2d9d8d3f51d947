"""Who pushes for a group, and how it went.

    table      meta
    partition  pushes
    sort       {subject}~{generation}/{group}~{generation}
    value      PushState, msgpack array

Each group with a target has one. Who stores a message for it looks at its record then: where somebody pushes, nothing
is to be done, because they look once more after they have left (see ``pusher.py``).
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

import msgspec

from hourwheel.context import Context
from hourwheel.errors import Unavailable
from hourwheel.lognames import LogKind, LogName, Member
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.model import Group
from hourwheel.ports import Key, Table, items_of

_PARTITION = "pushes"
_LONGEST_LEASE_MS = 3_600_000
_LAPSED = 1


class PushState(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """``until_ms``: end of the lease; 0 when the owner has left of its own accord.
    ``failures``: deliveries in a row of which all failed, ``error`` being the last one's. ``resumes_ms``: until then
    nothing is pushed (0: not paused), for the time of that number of ``pauses`` in a row."""

    owner: str = ""
    until_ms: int = 0
    failures: int = 0
    resumes_ms: int = 0
    error: str = ""
    pauses: int = 0

    def alive(self, now_ms: int) -> bool:
        # A lease of hours was given by a clock that has been set back since.
        return now_ms < self.until_ms <= now_ms + _LONGEST_LEASE_MS

    def paused(self, now_ms: int) -> bool:
        return now_ms < self.resumes_ms <= now_ms + _LONGEST_LEASE_MS

    def free(self, now_ms: int) -> bool:
        """Whether somebody may begin to push."""
        return not self.alive(now_ms) and not self.paused(now_ms)

    def overdue(self, now_ms: int) -> bool:
        """Whether somebody should: a pause is over, or who pushed went without a word."""
        return self.free(now_ms) and (self.until_ms > 0 or self.resumes_ms > 0)

    def lapsed(self) -> "PushState":
        """As if the owner had gone without a word."""
        return msgspec.structs.replace(self, until_ms=_LAPSED)


class Pushed(NamedTuple):
    """A group with a target, as its record names it."""

    key: Key
    held: Versioned[PushState]

    @property
    def subject(self) -> str:
        return self.key.sort.partition("~")[0]

    @property
    def group(self) -> str:
        return Member.parse(self.key.sort.partition("/")[2]).group


def state_record(context: Context, group: Group) -> CasRecord[PushState]:
    name = f"{group.subject}~{group.subject_generation}/{group.member}"
    return CasRecord(context.store, context.ids, Key(Table.META, _PARTITION, name), PushState)


def pushed_groups(context: Context, log: str = "") -> Iterator[Pushed]:
    """The groups with a target, all of them or those that read the consume or retry log of that name; strongly
    consistent."""
    name = LogName.parse(log) if log else None
    one = name is not None and name.kind is LogKind.RETRY
    prefix = f"{name.subject}~{name.generation}/{name.member if one else ''}" if name else ""
    slot = CasRecord(context.store, context.ids, Key(Table.META, _PARTITION, "-"), PushState)
    for record_name, record in items_of(context.store, Table.META, _PARTITION, start=prefix, page=100):
        if not record_name.startswith(prefix):
            return
        held = slot.opened(record)
        assert held is not None
        if not one or record_name == prefix:
            yield Pushed(slot.key._replace(sort=record_name), held)


def listen(context: Context, wanted: bool) -> None:
    """Has the stream of what is stored read, or no longer. The next sweep asks again where that was not possible, and
    finds what waits meanwhile."""
    try:
        context.stream.listen(wanted)
    except Unavailable:
        context.meter.record("WakesMissed", 1)


def retarget(context: Context, group: Group, *, changed: bool) -> None:
    """Makes, renews or removes the record of a group whose target was set, to another one if ``changed``. What waits
    for it is pushed once the sweeper has seen the record. Has the stream of what is stored read; that it is no longer
    read after the last target is gone is left to the sweeper, which no new target can slip past."""
    if group.push is None:
        forget(context, group)
    else:
        _renew(context, group, changed=changed)
        listen(context, True)


def _renew(context: Context, group: Group, *, changed: bool) -> None:
    record = state_record(context, group)
    held = record.load()
    while held is None or changed:
        # A new target is tried at once. Who pushes now finds it by itself.
        alive = held is not None and held.value.alive(context.clock.now_ms())
        fresh = (
            PushState()
            if held is None
            else msgspec.structs.replace(held.value, failures=0, pauses=0, resumes_ms=0, error="")
        )
        stored, held = record.swap(None if held is None else held.token, fresh if alive else fresh.lapsed())
        if stored:
            return


def expire_all(context: Context, living: Collection[str] = ()) -> None:
    """Ends the leases of all owners but those that live, where the others are gone: pushing begins anew at once."""
    for pushed in pushed_groups(context):
        if pushed.held.value.until_ms and pushed.held.value.owner not in living:
            CasRecord(context.store, context.ids, pushed.key, PushState).swap(
                pushed.held.token, pushed.held.value.lapsed()
            )


def forget(context: Context, group: Group) -> None:
    """Removes the record of a group that has no target, or is no more."""
    key = state_record(context, group).key
    record = context.store.get(key)
    while record is not None:
        refused = context.store.delete(key, expect=record.token)
        record = None if refused is None else refused.current
