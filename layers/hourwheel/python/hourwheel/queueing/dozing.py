"""Decides how long a consumer rests after a pull without messages, and where: so that waiting holds no function.

A consumer that says how long it has been idle is told when to pull again. One that can wait at a wake-up queue makes
its group doze (``registry/dozing.py`` describes the steps): it pulls once a second until every process that stores
messages knows that the group dozes, this module then looks once more at the ends of all logs, and the answer names the
queue.
"""

import logging
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from hourwheel.context import Context
from hourwheel.errors import Broken, Unavailable
from hourwheel.model.groups import Group
from hourwheel.model.pulls import PullRequest, WakeupQueue
from hourwheel.model.subjects import DozingGroup, Subject
from hourwheel.ports import WakeupQueues
from hourwheel.queueing.key_state_cache import KeyStateCache
from hourwheel.queueing.limits import Limit
from hourwheel.queueing.ordered_claims import has_turn
from hourwheel.queueing.ordered_parts import in_turn
from hourwheel.queueing.pull_log import pull_logs
from hourwheel.registry import dozing
from hourwheel.registry.registry import Registry
from hourwheel.wakeup_names import queue_name

AWAKE_SECONDS = 2.0
"""A consumer that had a message within this time waits in its pulls, as busy consumers do. Longer would cost more than
the steps to the queue: a second in a function costs as much as four pulls."""

_WOKEN_SECONDS = 1.0
"""A pull that follows a wake-up waits this long: its first look may read counters that are out of date."""

SAFETY_SECONDS = 360.0
"""A consumer pulls after this long at a queue without a wake-up, which may have been lost: $0.02 a month."""

_SETTLING_SECONDS = 1.0
"""A pull each second while older copies of the list expire: a message that came meanwhile is this late at most."""

_SHORTEST_WAIT_SECONDS = 2.0
"""A parked message that is due before that is not waited for at the queue, where waits are of whole seconds."""

_SOONEST_SECONDS = 0.05

_PASSING_MS = 1_000
"""Each process passes a wake-up of a group on at most once in this time: each costs its pull some milliseconds."""

_MOST_PASSED = 10_000  # groups that a process remembers

_SKEW_MS = 500
"""The clocks of two processes may differ by this much: one writes ``since_ms``, another compares it."""

_LONGEST_SECONDS = 20.0
_IDLE_SHARE = 4
"""A consumer that waits at no queue is late by a quarter of the time that it was idle, and by 20 s at most."""

_PAUSES = frozenset({"paused", "subject_paused"})

_logger = logging.getLogger("hourwheel")


class Rest(NamedTuple):
    """What a consumer does after a pull without messages: it pulls again after ``seconds``, or waits at ``queue``."""

    seconds: float = 0
    """An int where there is none: that is the default of the answer, which leaves it out."""
    queue: WakeupQueue | None = None


class LookState(NamedTuple):
    """What the last look of a pull without messages has read: the records of the subject and the group, what kept
    messages back, and when the next parked message is due."""

    subject: Subject
    group: Group
    limit: Limit | None
    due_ms: int | None


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


@dataclass(frozen=True)
class Dozes:
    """Lets the consumer of one pull rest. ``idle_seconds`` is the time without messages at the beginning of the
    pull."""

    context: Context
    queues: WakeupQueues
    registry: Registry
    key_states: KeyStateCache
    passed_on: LastWakeups
    request: PullRequest
    idle_seconds: float
    began_ms: int

    def wait_seconds(self, state: LookState) -> float:
        """Returns how long the pull waits for messages here, of the time that its request allows."""
        if not _rests(state):
            return self.request.wait_seconds
        least_seconds = _WOKEN_SECONDS if self.request.wakeup == "woken" else 0.0
        return min(self.request.wait_seconds, max(AWAKE_SECONDS - self.idle_seconds, least_seconds))

    def pass_on(self, state: LookState) -> None:
        """Wakes another consumer for what this one could not take, if others doze: a group that was woken is not woken
        by messages for a while, and one consumer may be too slow for all of them."""
        name = queue_name(state.group)
        if _entry(state.subject, name) is None or not self.passed_on.turn(name, self.context.clock.now_ms()):
            return
        try:
            self.queues.ring(name)
        except (Unavailable, Broken) as error:
            self._missed(state.group, error)

    def rest(self, state: LookState) -> Rest:
        """Returns how the consumer rests after a pull without messages. Never fails: where the group cannot doze, the
        consumer pulls again."""
        now_ms = self.context.clock.now_ms()
        idle_seconds = self.idle_seconds + max(0, now_ms - self.began_ms) / 1_000
        if not _rests(state) or idle_seconds < AWAKE_SECONDS:
            return Rest()
        otherwise = Rest(min(_LONGEST_SECONDS, idle_seconds / _IDLE_SHARE))
        if self.request.wakeup is None or not _dozes(state.group):
            return otherwise
        try:
            return self._doze(state, now_ms, now_ms - round(1_000 * idle_seconds)) or otherwise
        except (Unavailable, Broken) as error:
            self._missed(state.group, error)
            return otherwise

    def _doze(self, state: LookState, now_ms: int, last_ms: int) -> Rest | None:
        """Takes the next step to the queue. Returns None where the group cannot doze. ``last_ms``: when the consumer
        had its last message."""
        name = queue_name(state.group)
        entry = _entry(state.subject, name)
        missing = self.request.wakeup == "missing"
        # A mark from before a wake-up may be noted as woken at any time, by a producer that was slow after it sent the
        # wake-up: the consumer would wait while no message wakes its group.
        marked_after_ms = now_ms if self.request.wakeup == "woken" else last_ms + _SKEW_MS
        if entry is None or missing or not entry.counts(marked_after_ms, now_ms + _SKEW_MS):
            self.queues.open(name, fresh=missing)  # before the mark: a wake-up must find it
            marked = dozing.mark(self.registry, state.subject, name, marked_after_ms)
            return Rest(_SETTLING_SECONDS) if marked else None
        left_ms = entry.since_ms + self._settle_ms - now_ms
        if left_ms > 0:
            return Rest(min(_SETTLING_SECONDS, left_ms / 1_000))
        seconds = SAFETY_SECONDS
        if state.due_ms is not None:
            due_seconds = (state.due_ms - now_ms) / 1_000
            if due_seconds < _SHORTEST_WAIT_SECONDS:
                return Rest(max(_SOONEST_SECONDS, due_seconds))
            seconds = min(seconds, due_seconds)
        self.registry.forget(state.subject.name)  # the group, too: it may have been deleted meanwhile
        subject = self.registry.subject(state.subject.name)
        group = self.registry.group(subject, state.group.name)
        if _entry(subject, name) != entry or self._waits(subject, group, state.limit):
            return Rest(_SETTLING_SECONDS)
        return Rest(queue=msgspec.structs.replace(self.queues.open(name, fresh=False), wait_seconds=seconds))

    @property
    def _settle_ms(self) -> int:
        return int(self.context.settings.registry_seconds * 1_000) + _SKEW_MS

    def _waits(self, subject: Subject, group: Group, limit: Limit | None) -> bool:
        """Returns whether a message may wait for the group. Strongly consistent. A paused group has none until it is
        resumed, which wakes it."""
        if limit is not None:
            return not (subject.paused or group.paused)
        logs = pull_logs(self.context, subject, group)
        if len(logs) <= len(subject.queue_logs()):
            return True  # a cell is out of reach: nobody knows what waits there
        if group.ordered:
            logs = [*in_turn(self.context, self.key_states, subject, group, logs)]
            return any(has_turn(self.key_states, log) for log in logs)
        return any(log.has_unpulled() for log in logs)

    def _missed(self, group: Group, error: Exception) -> None:
        self.context.meter.record("WakesMissed", 1)
        _logger.warning("the wake-up queue of %s/%s cannot be used: %s", group.subject, group.name, error)


def _rests(state: LookState) -> bool:
    """Returns whether nothing but time keeps messages from the consumer. A limit leaves messages again soon; a target
    takes them; a queue that moves is looked for by each pull."""
    limited = state.limit is not None and state.limit.name not in _PAUSES
    return not limited and state.group.push is None and state.subject.change is None


def _dozes(group: Group) -> bool:
    """Returns whether the group has one queue for all its consumers: in a broadcast group each would need its own, and
    the names of consumers come and go."""
    return not (group.broadcast or group.consumer)


def _entry(subject: Subject, name: str) -> DozingGroup | None:
    return next((entry for entry in subject.dozing if entry.queue == name), None)
