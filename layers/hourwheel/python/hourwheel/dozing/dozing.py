"""Wakes dozing groups: groups whose consumers wait at a wake-up queue instead of in pulls.

The record of a subject lists its dozing groups. A process that stores messages reads this record anyway, and may use a
copy of it for ``registry_seconds``. It looks at its copy after it has stored a message. If the group was marked longer
ago than that, the copy lists the group, and the process wakes it. A message that was stored earlier is found by the
look in step 3 (``dozing/rests.py``).

    1  mark   a pull adds the group to the list: one conditional write
    2  pull   consumers go on pulling until every older copy has expired
    3  look   a pull looks at the ends of all logs, strongly consistent, with records that it has read itself; only then
              do consumers wait at the queue
    4  wake   a process that stored a message sends a wake-up, and writes nothing: the mark stays
    5  again  a woken consumer pulls, and looks again ``LOOK_AGAIN_SECONDS`` later; it waits again under the same mark

A process wakes a group at most once in ``_WAKE_PAUSE_MS``. A message that it stores in this time after a wake-up is
found in step 5, which comes later. A mark counts for ``_MARK_MS``, and consumers that wait renew it. So a group without
consumers leaves the list.

A group is *busy* if its consumers get messages without wake-ups. A process wakes a busy group at most once in
``_BUSY_WAKE_PAUSE_MS``. After ``_BUSY_MS`` the group leaves the list: by then every consumer that waited has pulled. No
consumer begins to wait under the mark of a busy group; it marks the group again.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import msgspec

from hourwheel.context import Context
from hourwheel.errors import Broken, NotFound, Unavailable
from hourwheel.model.groups import Group
from hourwheel.model.log_names import shared_name
from hourwheel.model.pulls import WakeupQueue
from hourwheel.model.subjects import DozingGroup, Subject
from hourwheel.model.wakeup_names import group_prefix, queue_name
from hourwheel.ports.machine import Clock
from hourwheel.ports.waking import WakeupQueues, Wakeups
from hourwheel.registry.records import subject_record
from hourwheel.registry.registry import Registry
from hourwheel.times import within

MOST_DOZING = 100
"""At most this many groups of a subject doze, because every process that sends to the subject reads the whole list."""

LOOK_AGAIN_SECONDS = 0.75
"""A consumer looks again this long after a wake-up, and sends its settlements with that pull: before their linger of a
second is over, so that they need no call of their own."""

_WAKE_PAUSE_MS = 100
"""A process wakes a group at most once in this time, so that a burst does not wait for SQS with each message. It is
shorter than ``LOOK_AGAIN_SECONDS``, and than an idle consumer stays in its pulls: the look that follows a wake-up comes
after it. A longer time would hide messages from consumers that wait, while the woken one handles others."""

_BUSY_WAKE_PAUSE_MS = 10_000
"""A process wakes a busy group at most once in this time. A consumer that still waits comes this much later to help,
and costs little."""

_BUSY_MS = 400_000
"""A busy group leaves the list after this long: longer than any consumer waits at a queue (``SAFETY_SECONDS``)."""

_MARK_MS = 43_200_000
"""A mark counts for this long, so that messages do not wake a group without consumers for ever."""

RENEW_MS = _MARK_MS // 2  # consumers that wait pull every six minutes, and so renew the mark in time

_MOST_REMEMBERED = 10_000  # queues that a process remembers

_LANDING_MS = 200
"""The time of a mark is taken before its write. If the write takes longer than this, consumers would start to wait
while older copies of the list are still in use."""

_MARKS = 3  # after three slow writes the store is slow, and the consumers stay in their pulls

_WAKING_MS = 1_000
"""One request spends at most this long on wake-ups: its message is stored already, and its sender waits."""

_SLOW_MS = 200
"""A failed call that took this long was a time-out, and the next call would probably take as long."""

_AWAY_MS = 5_000
"""A process makes no call to SQS for this long after a time-out, so that senders do not wait for each of them."""

_TRIES = 5  # each needs a change of the subject's record between a read and a write

_logger = logging.getLogger("hourwheel")

T = TypeVar("T")


def mark(registry: Registry, subject: Subject, queue: str, after_ms: int) -> bool:
    """Adds the group of this queue to the list of its subject. A group that is busy, or was marked at ``after_ms`` or
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
        own = _of_queue(groups, queue)
        if own is not None and own.counts(after_ms, now_ms):
            return groups  # another consumer of the group was faster
        others = tuple(dozing for dozing in groups if dozing.queue != queue and is_live(dozing, now_ms))
        return groups if len(others) >= MOST_DOZING else (*others, DozingGroup(queue, now_ms))

    changed = _change(registry, subject, change)
    return _of_queue(changed or (), queue), now_ms


def _of_queue(groups: Iterable[DozingGroup], queue: str) -> DozingGroup | None:
    return next((dozing for dozing in groups if dozing.queue == queue), None)


def unmark(registry: Registry, subject: Subject, queue: str) -> None:
    """Removes the group of this queue from the list. Raises ``Unavailable`` and ``Broken``."""
    _change(registry, subject, lambda groups: tuple(dozing for dozing in groups if dozing.queue != queue))


def record_busy(registry: Registry, subject: Subject, seen: DozingGroup) -> None:
    """Records that the group is busy, or removes it from the list if it has been busy for long. Changes nothing if the
    group got a new mark since the entry ``seen`` was read, because consumers may wait under the new mark. May raise
    ``Unavailable`` or ``Broken``."""
    now_ms = registry.context.clock.now_ms()
    if is_due_busy(seen, now_ms):
        _change(registry, subject, lambda groups: after_busy(groups, seen, now_ms))


def is_due_busy(dozing: DozingGroup, now_ms: int) -> bool:
    """Returns whether the list changes when the group is found busy."""
    return not (dozing.busy_ms and within(dozing.busy_ms, now_ms, _BUSY_MS))


def after_busy(groups: tuple[DozingGroup, ...], seen: DozingGroup, now_ms: int) -> tuple[DozingGroup, ...]:
    """Returns the list after a group was found busy."""
    if seen not in groups:
        return groups
    if seen.busy_ms:
        return tuple(dozing for dozing in groups if dozing != seen)
    busy = msgspec.structs.replace(seen, busy_ms=now_ms)
    return tuple(busy if dozing == seen else dozing for dozing in groups)


def is_live(dozing: DozingGroup, now_ms: int) -> bool:
    """Returns whether the mark still counts. A mark of the future does, because this process' clock may be behind; but
    not one of a clock that is wrong by more than a mark counts."""
    return abs(now_ms - dozing.since_ms) < _MARK_MS


def forget_groups(registry: Registry, subject: Subject, groups: Sequence[Group]) -> None:
    """Removes deleted groups from the list, and removes their wake-up queues. Logs failures and raises nothing: the
    next message finds that a queue is missing, and removes its group from the list."""
    if registry.context.wakeup_queues is not None and groups:
        names = {queue_name(group) for group in groups}
        try:
            _change(registry, subject, lambda listed: tuple(dozing for dozing in listed if dozing.queue not in names))
        except (Unavailable, Broken) as error:
            _logger.warning("groups of %s were deleted and still count as dozing: %s", subject.name, error)
    remove_queues(registry.context, groups)


def remove_queues(context: Context, groups: Iterable[Group]) -> None:
    """Removes the wake-up queues of deleted groups, side by side. SQS answers a waiting consumer that its queue is
    missing. Logs failures and raises nothing: a queue that remains costs nothing, and no later group uses it."""
    queues = context.wakeup_queues
    if queues is None:
        return
    deleted = list(groups)
    errors = queues.side_by_side([partial(_remove, queues, queue_name(group)) for group in deleted])
    for group, error in zip(deleted, errors, strict=True):
        if error is not None:
            _logger.warning("the wake-up queue of %s/%s was not removed: %s", group.subject, group.name, error)


def _remove(queues: WakeupQueues, name: str) -> Unavailable | Broken | None:
    """Removes one queue, and returns the error of a failure. Runs in a thread of the queues."""
    try:
        queues.remove(name)
    except (Unavailable, Broken) as error:
        return error
    return None


@dataclass
class WakeupTimes:
    """Remembers when this process last woke each group."""

    _at_ms: dict[str, int] = field(default_factory=dict)

    def is_due(self, dozing: DozingGroup, now_ms: int) -> bool:
        pause_ms = _BUSY_WAKE_PAUSE_MS if dozing.busy_ms else _WAKE_PAUSE_MS
        return not 0 <= now_ms - self._at_ms.get(dozing.queue, -pause_ms) < pause_ms

    def record(self, name: str, at_ms: int) -> None:
        """Records a wake-up that was sent. ``at_ms`` is a time before it was sent: consumers count from its
        receipt."""
        if len(self._at_ms) >= _MOST_REMEMBERED:
            self._at_ms.clear()
        self._at_ms[name] = at_ms


class _SkippedCall(Unavailable):
    """Says that a call to SQS was not made, because calls before it took long."""


class _FailedWakeups(Unavailable):
    """Says that wake-ups were not sent. ``errors``: why, by the name of the queue."""

    def __init__(self, errors: dict[str, Unavailable | Broken]) -> None:
        super().__init__(f"{len(errors)} wake-ups were not sent")
        self.errors = errors

    def lines(self) -> Iterator[str]:
        """Yields a line for each reason, with the queues that SQS refused for it. Queues that were not tried are
        counted only: there may be a hundred with each message while SQS does not answer."""
        queues = defaultdict(list)
        for queue, error in self.errors.items():
            queues[isinstance(error, _SkippedCall), str(error)].append(queue)
        for (skipped, reason), names in queues.items():
            yield f"{reason} ({len(names)} queues)" if skipped else f"{reason} ({', '.join(names)})"


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

    def wake(self, name: str) -> bool:
        with self._remembering():
            return self.queues.wake(name)

    def remove(self, name: str) -> None:
        with self._remembering():
            self.queues.remove(name)

    def side_by_side(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        return self.queues.side_by_side(calls)

    @contextmanager
    def _remembering(self) -> Iterator[None]:
        began_ms = self.clock.now_ms()
        if self._away_ms is not None and 0 <= began_ms - self._away_ms < _AWAY_MS:
            raise _SkippedCall("SQS did not answer a few seconds ago")
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
    sent: WakeupTimes = field(default_factory=WakeupTimes)

    def announce(self, subject: str, group: str | None = None) -> None:
        """Announces as ``Wakeups`` does, and sends wake-ups to dozing groups. Raises nothing: the message is stored,
        and its sender must not repeat it because a hint was not sent. Needs no further read or write while no group of
        the subject dozes."""
        self.pulls.announce(subject, group)
        try:
            self._wake(subject, group)
        except NotFound:
            pass  # the subject was deleted: nobody waits for its messages
        except _FailedWakeups as failed:
            # The consumers pull by themselves within minutes, and the next message wakes again.
            self.context.meter.record("WakesMissed", len(failed.errors))
            for line in failed.lines():
                _logger.warning("consumers of %s that doze were not woken: %s", subject, line)
        except (Unavailable, Broken) as error:
            self.context.meter.record("WakesMissed", 1)
            _logger.warning("the consumers of %s that doze were not woken: %s", subject, error)

    def announcements(self, subject: str) -> int:
        return self.pulls.announcements(subject)

    def wait(self, subject: str, group: str, *, since: int, tries: int, seconds: float) -> bool:
        return self.pulls.wait(subject, group, since=since, tries=tries, seconds=seconds)

    def _wake(self, subject: str, group: str | None) -> None:
        registry = self.registry()
        owner = registry.subject(subject)
        if owner.dozing:
            prefix = "" if group is None else group_prefix(subject, shared_name(group))
            now_ms = self.context.clock.now_ms()
            due = [wakeup for wakeup in due_wakeups(owner.dozing, prefix, now_ms) if self.sent.is_due(wakeup, now_ms)]
            if due:
                self._send(registry, owner, due)

    def _send(self, registry: Registry, subject: Subject, due: list[DozingGroup]) -> None:
        """Sends the wake-ups side by side, and begins none after ``_WAKING_MS``. A group whose wake-up was not sent is
        woken by the next message. A group whose queue is missing leaves the list: the group was deleted, or its
        consumers learn that the queue is missing, and mark the group again."""
        until_ms = self.context.clock.now_ms() + _WAKING_MS
        answers = self.queues.side_by_side([partial(self._send_one, dozing.queue, until_ms) for dozing in due])
        errors: dict[str, Unavailable | Broken] = {}
        removed: list[DozingGroup] = []
        for dozing, answer in zip(due, answers, strict=True):
            if isinstance(answer, int):
                self.sent.record(dozing.queue, answer)
            elif answer is None:
                removed.append(dozing)
            else:
                errors[dozing.queue] = answer
        if removed:
            try:
                _change(registry, subject, lambda groups: _without(groups, removed))
            except (Unavailable, Broken) as error:
                errors |= dict.fromkeys((dozing.queue for dozing in removed), error)
        if errors:
            raise _FailedWakeups(errors)

    def _send_one(self, queue: str, until_ms: int) -> int | Unavailable | Broken | None:
        """Sends one wake-up, and returns a time just before it was sent; None if the queue is missing. Runs in a thread
        of the queues, and changes nothing of this object."""
        now_ms = self.context.clock.now_ms()
        if now_ms >= until_ms:
            return _SkippedCall("SQS takes wake-ups slowly")
        try:
            return now_ms if self.queues.wake(queue) else None
        except (Unavailable, Broken) as error:
            return error


def due_wakeups(groups: Iterable[DozingGroup], prefix: str, now_ms: int) -> list[DozingGroup]:
    """Returns the groups whose queues have this prefix and whose marks count."""
    return [dozing for dozing in groups if dozing.queue.startswith(prefix) and is_live(dozing, now_ms)]


def _without(groups: tuple[DozingGroup, ...], removed: Iterable[DozingGroup]) -> tuple[DozingGroup, ...]:
    """Returns the list without these groups. Keeps those that were marked again since they were read."""
    left_out = {(dozing.queue, dozing.since_ms) for dozing in removed}
    return tuple(dozing for dozing in groups if (dozing.queue, dozing.since_ms) not in left_out)


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
            stored, current = record.swap(current, msgspec.structs.replace(current.value, dozing=groups))
        if stored:
            registry.forget_subject(subject.name)
            return groups
    return None
