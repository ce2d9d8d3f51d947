"""Decides how long and where a consumer rests after a pull without messages, so that no function runs while it waits.

A pull says how long its consumer has been idle; the answer says when to pull again. A consumer that can wait at a
wake-up queue makes its group doze (``dozing/dozing.py`` describes the steps). It pulls once a second until every
process that stores messages knows that the group dozes. This module then looks again at the ends of all logs, and the
answer names the queue. After a wake-up the mark still counts: one pull takes the messages, and the next one settles
them, looks, and its answer names the queue again.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from hourwheel.context import Context
from hourwheel.dozing import dozing
from hourwheel.dozing.dozing import LOOK_AGAIN_SECONDS, RENEW_MS
from hourwheel.errors import Broken, Unavailable
from hourwheel.model.groups import Group
from hourwheel.model.pulls import PullRequest, WakeupQueue
from hourwheel.model.subjects import DozingGroup, Subject
from hourwheel.model.wakeup_names import queue_name
from hourwheel.ports.storage import Counter
from hourwheel.ports.waking import WakeupQueues
from hourwheel.pull_log.ends import SourceEnds
from hourwheel.pull_log.limits import Limit
from hourwheel.pull_log.open_logs import PullLogs
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.totals import read_totals
from hourwheel.registry.broadcast import with_settings
from hourwheel.registry.registry import Registry
from hourwheel.settling.leases import Leases

AWAKE_SECONDS = 2.0
"""A consumer that had a message within this time waits in its pulls, as busy consumers do. A longer time would cost
more than the steps to the queue, because a second in a function costs as much as four pulls."""

_DOZING_AWAKE_SECONDS = 0.5
"""In a group whose mark counts, a consumer that had a message within this time waits in its pulls. It goes back to the
queue by one pull, and a second in a function costs twice as much as a wake-up. The time is at least the pause between
two wake-ups of a process: the look that follows finds the messages stored in that pause."""

_WOKEN_SECONDS = 0.3
"""A pull that follows a wake-up waits this long, because its first look may read outdated counters. Another pull
follows in any case."""

_BUSY_SECONDS = 1.0
"""A consumer is busy if it gets messages within this time of those before, without a wake-up."""

_BUSY_SHARE = 0.02
"""This share of the pulls of busy consumers records that the group is busy. A record costs a write, and then the steps
to the queue, which is too much for a short burst."""

SAFETY_SECONDS = 360.0
"""A consumer without a wake-up pulls after this long at its queue, because the wake-up may have been lost. These pulls
cost $0.02 a month."""

_EXPIRING_SECONDS = 1.0
"""The time between two pulls while older copies of the list expire: a message that comes then is this late at most."""

_KEPT_SECONDS = 1.0
"""The time between two pulls while messages are kept for another consumer: if that one stops, the messages are late by
this at most."""

_SHORTEST_WAIT_SECONDS = 2.0
"""If a parked message is due sooner than this, the consumer does not wait at the queue: SQS waits for whole seconds."""

_SOONEST_SECONDS = 0.05  # the shortest pause, so that a parked message that is due now causes no busy loop

_PASSING_MS = 1_000
"""Each process passes on at most one wake-up of a group in this time, because each costs its pull some milliseconds."""

_MOST_PASSED = 10_000  # groups that a process remembers: one or two megabytes

_SKEW_MS = 500
"""The clocks of two processes may differ by this much: one writes ``since_ms``, another compares it."""

_LONGEST_SECONDS = 20.0  # as late as a pull each 20 s, for $0.3 a month (docs/decisions/0040)
_IDLE_SHARE = 4
"""A consumer that waits at no queue is late by a quarter of the time that it was idle, and by 20 s at most."""

_PAUSES = frozenset({"paused", "subject_paused"})

_logger = logging.getLogger("hourwheel")


class Rest(NamedTuple):
    """Tells a consumer how to rest after a pull without messages: to pull again after ``seconds``, or to wait at
    ``queue``."""

    seconds: float = 0
    """0 as an int where there is no pause: that is the default of the answer's field, which encoders leave out."""
    queue: WakeupQueue | None = None


class LookState(NamedTuple):
    """The state that the last look of a pull has read: the records of the subject and the group, the limit that kept
    messages back, and when the next parked message is due. ``totals``: those of source logs that were read
    strongly consistent since the pull began, as the records were; None if they were not."""

    subject: Subject
    group: Group
    limit: Limit | None
    due_ms: int | None
    totals: Mapping[str, Counter] | None = None


@dataclass
class LastWakeups:
    """Remembers when this process last passed wake-ups on, by queue."""

    _at_ms: dict[str, int] = field(default_factory=dict)

    def turn(self, name: str, now_ms: int) -> bool:
        """Returns whether a wake-up may be passed on now, and counts it: one in ``_PASSING_MS``."""
        if 0 <= now_ms - self._at_ms.get(name, -_PASSING_MS) < _PASSING_MS:
            return False
        if len(self._at_ms) >= _MOST_PASSED:
            self._at_ms.clear()
        self._at_ms[name] = now_ms
        return True


class Rests(Protocol):
    """Decides how the consumer of one pull waits, in the pull and after it. Raises nothing."""

    @property
    def may_look_last(self) -> bool:
        """Whether ``looks_last`` may return True, as far as the request tells."""
        ...

    def looks_last(self, subject: Subject, group: Group) -> bool:
        """Returns whether the consumer waits at the queue after the first look, unless that finds a message: then the
        look has to be strongly consistent. Drops the cached records that were read before the pull began in this case.
        Reads nothing."""
        ...

    def wait_seconds(self, state: LookState) -> float:
        """Returns how long the pull waits for messages here, of the time that its request allows."""
        ...

    def pass_on(self, state: LookState) -> None:
        """Lets another consumer look for the messages that this pull leaves."""
        ...

    def busy(self, state: LookState) -> Rest:
        """Returns how the consumer rests after a pull with messages."""
        ...

    def rest(self, state: LookState) -> Rest:
        """Returns how the consumer rests after a pull without messages."""
        ...


@dataclass(frozen=True)
class WaitsInPulls:
    """Lets a consumer wait in its pulls."""

    context: Context
    request: PullRequest

    @property
    def may_look_last(self) -> bool:
        return False

    def looks_last(self, subject: Subject, group: Group) -> bool:
        return False

    def wait_seconds(self, state: LookState) -> float:
        return self.request.wait_seconds

    def pass_on(self, state: LookState) -> None:
        self.context.wakeups.announce(state.subject.name, state.group.name)

    def busy(self, state: LookState) -> Rest:
        return Rest()

    def rest(self, state: LookState) -> Rest:
        return Rest()


def rests_of(
    context: Context,
    registry: Registry,
    opener: PullLogs,
    leases: Leases,
    ends: SourceEnds,
    passed_on: LastWakeups,
    request: PullRequest,
    *,
    began_ms: int,
) -> Rests:
    """Returns what lets the consumer of a pull rest, which began at this time."""
    queues = context.wakeup_queues
    if queues is None or request.idle_seconds is None:
        return WaitsInPulls(context, request)
    return Dozes(context, queues, registry, opener, leases, ends, passed_on, request, request.idle_seconds, began_ms)


@dataclass(frozen=True)
class Dozes:
    """Lets the consumer of one pull rest. ``idle_seconds`` is the time without messages at the beginning of the
    pull."""

    context: Context
    queues: WakeupQueues
    registry: Registry
    opener: PullLogs
    leases: Leases
    ends: SourceEnds
    passed_on: LastWakeups
    request: PullRequest
    idle_seconds: float
    began_ms: int

    @property
    def may_look_last(self) -> bool:
        return self.request.wakeup == "able" and self.idle_seconds >= _DOZING_AWAKE_SECONDS

    def looks_last(self, subject: Subject, group: Group) -> bool:
        """Returns whether the first look of the pull is that of step 3, so that no other one need precede it."""
        state = LookState(subject, group, None, None)
        if not self._stands(state) or not _rests(state):
            return False
        self.registry.forget_older(subject.name, self.began_ms)
        return True

    def wait_seconds(self, state: LookState) -> float:
        """Returns how long the pull waits for messages here, of the time that its request allows."""
        if not _rests(state):
            return self.request.wait_seconds
        least_seconds = _WOKEN_SECONDS if self._woken else 0.0
        return min(self.request.wait_seconds, max(self._awake_seconds(state) - self.idle_seconds, least_seconds))

    def busy(self, state: LookState) -> Rest:
        """Returns how the consumer rests after a pull with messages. After a wake-up it pulls again a moment later,
        because messages that are stored meanwhile may send no wake-up. Otherwise this method records for a share of the
        pulls that the group is busy. Raises nothing."""
        if self._woken:
            return Rest(LOOK_AGAIN_SECONDS)
        entry = _entry(state.subject, queue_name(state.group))
        if entry is None or self.idle_seconds >= _BUSY_SECONDS or self.context.ids.jitter() >= _BUSY_SHARE:
            return Rest()
        try:
            dozing.record_busy(self.registry, state.subject, entry)
        except (Unavailable, Broken) as error:
            _logger.warning("%s/%s counts as dozing and is busy: %s", state.group.subject, state.group.name, error)
        return Rest()

    def pass_on(self, state: LookState) -> None:
        """Wakes another consumer of a dozing group if this one leaves messages: stored messages do not wake a group
        again for a while, and one consumer may be too slow for all of them."""
        name = queue_name(state.group)
        if _entry(state.subject, name) is None or not self.passed_on.turn(name, self.context.clock.now_ms()):
            return
        try:
            self.queues.wake(name)
        except (Unavailable, Broken) as error:
            self._missed(state.group, error)

    def rest(self, state: LookState) -> Rest:
        """Returns how the consumer rests after a pull without messages. Raises nothing: if the group cannot doze, the
        consumer pulls again."""
        if self._woken:
            return Rest(LOOK_AGAIN_SECONDS)
        now_ms = self.context.clock.now_ms()
        idle_seconds = self.idle_seconds + max(0, now_ms - self.began_ms) / 1_000
        if not _rests(state) or idle_seconds < self._awake_seconds(state):
            return Rest()
        otherwise = Rest(min(_LONGEST_SECONDS, idle_seconds / _IDLE_SHARE))
        try:
            if self._keeps(state):
                return Rest(min(_KEPT_SECONDS, otherwise.seconds))
            if self.request.wakeup is None:
                return otherwise
            return self._doze(state, now_ms) or otherwise
        except (Unavailable, Broken) as error:
            self._missed(state.group, error)
            return otherwise

    @property
    def _woken(self) -> bool:
        return self.request.wakeup == "woken"

    def _awake_seconds(self, state: LookState) -> float:
        """Returns for how long after its last message the consumer stays in its pulls."""
        dozes = self.request.wakeup is not None and self._stands(state)
        return _DOZING_AWAKE_SECONDS if dozes else AWAKE_SECONDS

    def _stands(self, state: LookState) -> bool:
        """Returns whether the mark of the group counts, and is in all copies of the subject."""
        entry = _entry(state.subject, queue_name(state.group))
        now_ms = self.context.clock.now_ms()
        return entry is not None and entry.counts(now_ms - RENEW_MS, now_ms - self._expiring_ms)

    def _keeps(self, state: LookState) -> bool:
        """Returns whether messages may be kept for another consumer of the group. If that consumer stops, nobody sends
        a wake-up for them."""
        logs = self.opener.of(self.context, state.subject, state.group)
        return any(self.leases.keeps(log) for log in logs)

    def _doze(self, state: LookState, now_ms: int) -> Rest | None:
        """Takes the next step towards waiting at the queue. Returns None if the group cannot doze."""
        name = queue_name(state.group)
        entry = _entry(state.subject, name)
        missing = self.request.wakeup == "missing"
        # A producer that found the queue missing may take the mark from the list at any time, but no later mark.
        marked_after_ms = now_ms if missing else now_ms - RENEW_MS
        if entry is None or missing or not entry.counts(marked_after_ms, now_ms + _SKEW_MS):
            self.queues.open(name, fresh=missing)  # before the mark: a wake-up must find it
            marked = dozing.mark(self.registry, state.subject, name, marked_after_ms)
            return Rest(_EXPIRING_SECONDS) if marked else None
        left_ms = entry.since_ms + self._expiring_ms - now_ms
        if left_ms > 0:
            return Rest(min(_EXPIRING_SECONDS, left_ms / 1_000))
        due_seconds = SAFETY_SECONDS if state.due_ms is None else (state.due_ms - now_ms) / 1_000
        if due_seconds < _SHORTEST_WAIT_SECONDS:
            return Rest(max(_SOONEST_SECONDS, due_seconds))
        return self._wait_at_queue(state, entry, min(SAFETY_SECONDS, due_seconds))

    def _wait_at_queue(self, state: LookState, entry: DozingGroup, seconds: float) -> Rest:
        """Lets the consumer wait at the queue if no message waits. Looks once more before, with records that are read
        again, unless this look was the last one."""
        name = entry.queue
        if state.totals is None:
            self.registry.forget(state.subject.name)  # the group, too: it may have been deleted meanwhile
            state = self._read_again(state)
        if _entry(state.subject, name) != entry or self._waits(state):
            return Rest(_EXPIRING_SECONDS)
        return Rest(queue=msgspec.structs.replace(self.queues.open(name, fresh=False), wait_seconds=seconds))

    def _read_again(self, state: LookState) -> LookState:
        """Reads the records of the subject and the group, and for the group of a consumer that of its broadcast group.
        Raises ``NotFound`` for a group that was deleted."""
        subject, group = self.registry.subject_and_group(state.subject.name, state.group.shared_name)
        if state.group.consumer:
            group = with_settings(self.registry.group(subject, state.group.name), group)
        return state._replace(subject=subject, group=group)

    @property
    def _expiring_ms(self) -> int:
        return int(self.context.settings.registry_seconds * 1_000) + _SKEW_MS

    def _waits(self, state: LookState) -> bool:
        """Returns whether a message may wait for the group. Strongly consistent. A paused group has none until it is
        resumed, which wakes it."""
        subject, group = state.subject, state.group
        if state.limit is not None:
            return not (subject.paused or group.paused)
        logs = self.opener.of(self.context, subject, group)
        if len(logs) <= len(subject.queue_logs()):
            return True  # a cell is out of reach, and messages may wait in it
        logs = self._moved(state, self.opener.in_turn(self.context, subject, group, logs))
        return any(log.has_message() for log in logs)

    def _moved(self, state: LookState, logs: Sequence[PullLog]) -> list[PullLog]:
        """Returns the logs that have a row behind the end which the looks of pulls remember, or a message that no
        counter tells: the others have no message for the group."""
        group = state.group
        logs = [log for log in logs if not self.ends.finished(log, group)]
        totals = dict(state.totals or {})
        totals |= read_totals(self.context, {log.source.name for log in logs} - totals.keys(), consistent=True)
        return [log for log in logs if self.ends.moved(log, group, totals[log.source.name]) or log.waits()]

    def _missed(self, group: Group, error: Exception) -> None:
        self.context.meter.record("WakesMissed", 1)
        _logger.warning("the wake-up queue of %s/%s cannot be used: %s", group.subject, group.name, error)


def _rests(state: LookState) -> bool:
    """Returns whether the consumer may rest outside of its pulls. It may not if the group is at a limit, which soon
    leaves room again; if a target takes the messages; or while a queue moves, because each pull looks for its new
    part."""
    limited = state.limit is not None and state.limit.name not in _PAUSES
    return not limited and state.group.push is None and state.subject.change is None


def _entry(subject: Subject, name: str) -> DozingGroup | None:
    return next((entry for entry in subject.dozing if entry.queue == name), None)
