"""Wakes dozing groups: groups whose consumers wait at a wake-up queue instead of in pulls.

The record of a subject lists its dozing groups. A process that stores messages reads this record anyway, and may use a
copy of it for ``registry_seconds``. It looks at its copy after it has stored a message. If the group was marked longer
ago than that, the copy lists the group, and the process wakes it. A message that was stored earlier is found by the
look in step 3 (``queueing/dozing.py``).

    1  mark   a pull adds the group to the list: one conditional write
    2  settle consumers go on pulling until every older copy has expired
    3  look   a pull looks again at the ends of all logs, strongly consistent; only then do consumers wait at the queue
    4  ring   a process that stored a message sends a wake-up, then notes the time in the list: one conditional write

A process notes a wake-up after it has sent it: if it ends between the two, the next message wakes the group. A woken
group stays in the list for a while, and is woken at most once in ``_QUIET_MS``. If a wake-up is lost, or its consumer
ends, later messages therefore send others. The consumers mark the group again before they wait again.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from hourwheel.context import Context
from hourwheel.errors import Broken, NotFound, Unavailable
from hourwheel.log_names import shared_name
from hourwheel.model.groups import Group
from hourwheel.model.pulls import WakeupQueue
from hourwheel.model.subjects import DozingGroup, Subject
from hourwheel.ports import Clock, WakeupQueues, Wakeups
from hourwheel.registry.registry import Registry, subject_record
from hourwheel.wakeup_names import group_prefix, queue_name

MOST_DOZING = 100
"""At most this many groups of a subject doze, because every process that sends to the subject reads the whole list."""

_QUIET_MS = 10_000
"""A group is woken at most once in this time, however many messages are stored: a wake-up costs a call and a write."""

_RINGS = 37
"""After this many wake-ups the group leaves the list. They take at least 360 s (``SAFETY_SECONDS``), and within this
time every waiting consumer has pulled by itself."""

_LANDING_MS = 200
"""The time of a mark is taken before its write. If the write takes longer than this, consumers would start to wait
while older copies of the list are still in use."""

_MARKS = 3  # after three slow writes the store is slow, and the consumers stay in their pulls

_RINGING_MS = 1_000
"""One request spends at most this long on wake-ups: its message is stored already, and its sender waits."""

_SLOW_MS = 200
"""A failed call that took this long was a time-out, and the next call would probably take as long."""

_AWAY_MS = 5_000
"""A process makes no call to SQS for this long after a time-out, so that senders do not wait for each of them."""

_TRIES = 5  # each needs a change of the subject's record between a read and a write

_logger = logging.getLogger("hourwheel")


def mark(registry: Registry, subject: Subject, queue: str, after_ms: int) -> bool:
    """Adds the group of this queue to the list of its subject. A group that was woken, or was marked at ``after_ms`` or
    before, gets a new mark. Returns False, and adds nothing, if too many groups doze, the subject was deleted
    meanwhile, or the store is slow. One write, unless the store is slow."""
    clock = registry.context.clock
    for _ in range(_MARKS):
        entry, marked_ms = _mark_once(registry, subject, queue, after_ms)
        if entry is None or entry.since_ms != marked_ms or clock.now_ms() - marked_ms <= _LANDING_MS:
            return entry is not None
        after_ms = marked_ms
    unmark(registry, subject, queue)
    return False


def _mark_once(registry: Registry, subject: Subject, queue: str, after_ms: int) -> tuple[DozingGroup | None, int]:
    """Returns the entry of the group after the change (None: it has none), and the time of the mark that this call
    tried to make."""
    now_ms = 0

    def change(groups: tuple[DozingGroup, ...]) -> tuple[DozingGroup, ...]:
        nonlocal now_ms
        now_ms = registry.context.clock.now_ms()  # for each try: a mark must not be older than its write
        if any(dozing.queue == queue and dozing.counts(after_ms, now_ms) for dozing in groups):
            return groups  # another consumer of the group was faster
        others = tuple(dozing for dozing in groups if dozing.queue != queue)
        return groups if len(others) >= MOST_DOZING else (*others, DozingGroup(queue, now_ms))

    changed = _change(registry, subject, change)
    return next((dozing for dozing in changed or () if dozing.queue == queue), None), now_ms


def unmark(registry: Registry, subject: Subject, queue: str) -> None:
    """Removes the group of this queue from the list. Raises ``Unavailable`` and ``Broken``."""
    _change(registry, subject, lambda groups: tuple(dozing for dozing in groups if dozing.queue != queue))


def forget_group(registry: Registry, subject: Subject, group: Group) -> None:
    """Removes a deleted group from the list, and removes its wake-up queue. Logs failures and raises nothing: the next
    message finds that the queue is missing, and removes the group from the list."""
    if registry.context.wakeup_queues is not None:
        try:
            unmark(registry, subject, queue_name(group))
        except (Unavailable, Broken) as error:
            _logger.warning("%s/%s was deleted and still counts as dozing: %s", group.subject, group.name, error)
    remove_queues(registry.context, [group])


def remove_queues(context: Context, groups: Iterable[Group]) -> None:
    """Removes the wake-up queues of deleted groups. SQS answers a waiting consumer that its queue is missing. Logs
    failures and raises nothing: a queue that remains costs nothing, and no later group uses it."""
    queues = context.wakeup_queues
    if queues is None:
        return
    for group in groups:
        try:
            queues.remove(queue_name(group))
        except (Unavailable, Broken) as error:
            _logger.warning("the wake-up queue of %s/%s was not removed: %s", group.subject, group.name, error)


@dataclass
class GuardedWakeupQueues:
    """``WakeupQueues`` that make no call for ``_AWAY_MS`` after one timed out: each call then raises ``Unavailable`` at
    once. A call that SQS refuses quickly costs little, and has no such effect."""

    queues: WakeupQueues
    clock: Clock
    _away_ms: int | None = None

    def open(self, name: str, *, fresh: bool) -> WakeupQueue:
        with self._remembering():
            return self.queues.open(name, fresh=fresh)

    def ring(self, name: str) -> bool:
        with self._remembering():
            return self.queues.ring(name)

    def remove(self, name: str) -> None:
        with self._remembering():
            self.queues.remove(name)

    @contextmanager
    def _remembering(self) -> Iterator[None]:
        began_ms = self.clock.now_ms()
        if self._away_ms is not None and 0 <= began_ms - self._away_ms < _AWAY_MS:
            raise Unavailable("SQS did not answer a few seconds ago")
        try:
            yield
        except (Unavailable, Broken):
            now_ms = self.clock.now_ms()
            if now_ms - began_ms >= _SLOW_MS:
                self._away_ms = now_ms
            raise


@dataclass(frozen=True)
class DozingWakeups:
    """``Wakeups`` that also wake the dozing groups of all processes. ``pulls`` wakes the pulls that wait in this
    process. ``registry`` returns the registry, which is made after the wakeups of its cell."""

    context: Context
    pulls: Wakeups
    queues: WakeupQueues
    registry: Callable[[], Registry]

    def announce(self, subject: str, group: str | None = None) -> None:
        """Announces as ``Wakeups`` does, and sends wake-ups to dozing groups. Raises nothing: the message is stored,
        and its sender must not repeat it because a hint was not sent. Needs no further read or write while no group of
        the subject dozes."""
        self.pulls.announce(subject, group)
        try:
            self._wake(subject, group)
        except NotFound:
            pass  # the subject was deleted: nobody waits for its messages
        except (Unavailable, Broken) as error:
            # The consumers pull by themselves within minutes, and the next message rings again.
            self.context.meter.record("WakesMissed", 1)
            _logger.warning("the consumers of %s that doze were not woken: %s", subject, error)

    def mark(self, subject: str) -> int:
        return self.pulls.mark(subject)

    def wait(self, subject: str, group: str, *, mark: int, tries: int, seconds: float) -> bool:
        return self.pulls.wait(subject, group, mark=mark, tries=tries, seconds=seconds)

    def _wake(self, subject: str, group: str | None) -> None:
        registry = self.registry()
        owner = registry.subject(subject)
        if owner.dozing:
            prefix = "" if group is None else group_prefix(subject, shared_name(group))
            due = due_wakeups(owner.dozing, prefix, self.context.clock.now_ms())
            if due:
                self._ring(registry, owner, due)

    def _ring(self, registry: Registry, subject: Subject, due: list[DozingGroup]) -> None:
        """Sends wake-ups for up to ``_RINGING_MS``, then notes them. The next message wakes the groups that are left. A
        group whose queue is missing leaves the list: it was deleted, or SQS tells its consumers, which mark it
        again."""
        clock = self.context.clock
        until_ms = clock.now_ms() + _RINGING_MS
        sent: list[DozingGroup] = []
        removed: list[DozingGroup] = []
        failed: Unavailable | Broken | None = None
        for dozing in due:
            if clock.now_ms() >= until_ms:
                failed = failed or Unavailable(f"SQS takes wake-ups slowly: {len(due)} groups doze")
                break
            try:
                exists = dozing.rings >= _RINGS or self.queues.ring(dozing.queue)
                (sent if exists else removed).append(dozing)
            except (Unavailable, Broken) as error:
                failed = error
        if sent or removed:
            now_ms = clock.now_ms()
            _change(registry, subject, lambda groups: after_ring(_without(groups, removed), sent, now_ms))
        if failed is not None:
            raise failed


def due_wakeups(groups: Iterable[DozingGroup], prefix: str, now_ms: int) -> list[DozingGroup]:
    """Returns the groups whose queues have this prefix and that were not woken within ``_QUIET_MS``."""
    # A wake-up that was noted for a time in the future came from a process with a wrong clock: it does not count.
    return [
        dozing
        for dozing in groups
        if dozing.queue.startswith(prefix) and not (dozing.rung_ms and 0 <= now_ms - dozing.rung_ms < _QUIET_MS)
    ]


def _without(groups: tuple[DozingGroup, ...], removed: Iterable[DozingGroup]) -> tuple[DozingGroup, ...]:
    """Returns the list without these groups. Keeps those that were marked again since they were read."""
    left_out = {(dozing.queue, dozing.since_ms) for dozing in removed}
    return tuple(dozing for dozing in groups if (dozing.queue, dozing.since_ms) not in left_out)


def after_ring(groups: tuple[DozingGroup, ...], sent: Iterable[DozingGroup], now_ms: int) -> tuple[DozingGroup, ...]:
    """Returns the list after these groups were woken. Does not change a group that was marked again since it was read:
    its consumers may have received this wake-up before they looked at the logs again."""
    rung = {(dozing.queue, dozing.since_ms): dozing.rings for dozing in sent}
    left = []
    for dozing in groups:
        rings = rung.get((dozing.queue, dozing.since_ms))
        if rings is None or rings != dozing.rings:
            left.append(dozing)
        elif rings < _RINGS:
            left.append(msgspec.structs.replace(dozing, rung_ms=now_ms, rings=rings + 1))
    return tuple(left)


def _change(
    registry: Registry, subject: Subject, change: Callable[[tuple[DozingGroup, ...]], tuple[DozingGroup, ...]]
) -> tuple[DozingGroup, ...] | None:
    """Stores the list that ``change`` returns, and returns it. Returns None if the subject was deleted meanwhile, or if
    other processes changed it ``_TRIES`` times in a row."""
    record = subject_record(registry.context, subject.name)
    current = record.load()
    for _ in range(_TRIES):
        if current is None or current.value.deleted or current.value.generation != subject.generation:
            return None
        groups = change(current.value.dozing)
        stored = groups == current.value.dozing
        if not stored:
            stored, current = record.swap(current.token, msgspec.structs.replace(current.value, dozing=groups))
        if stored:
            registry.forget_subject(subject.name)
            return groups
    return None
