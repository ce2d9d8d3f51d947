"""Leases a group to one pusher at a time, and keeps the health of the group's target. Both are stored in one record
(see ``state.py``)."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from hourwheel.context import Context
from hourwheel.logs.cas import Versioned
from hourwheel.model.groups import Group, PushTarget
from hourwheel.model.targets import Outcome
from hourwheel.push.decisions import SETTLING_SECONDS, PusherEnd, TargetHealth, group_lease_ms, taken_by_another
from hourwheel.push.state import PushState, state_record


@dataclass
class PushLease:
    """The lease of the pusher that ``owner`` names, and the health of the target. One thread takes, leaves and retakes
    the lease; several threads may extend it and record deliveries."""

    context: Context
    owner: str
    health: TargetHealth = field(default_factory=TargetHealth)
    _held: Versioned[PushState] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def held(self) -> bool:
        return self._held is not None

    def take(self, group: Group, target: PushTarget, something: Callable[[], bool]) -> PusherEnd | None:
        """Takes the lease and returns None, or returns why there is nothing to push now. ``something`` says whether a
        message waits."""
        record = state_record(self.context, group)
        current = record.load()
        now_ms = self._now_ms()
        before = PushState() if current is None else current.value
        if (ended := taken_by_another(before, now_ms)) is not None:
            return ended
        if not before.overdue(now_ms) and not something():
            return PusherEnd.IDLE  # two wake-ups for the same messages, or a consumer has pulled them
        self.health = TargetHealth.of(before)
        # Read again: the look for messages may have taken seconds.
        until_ms = group_lease_ms(self._now_ms(), target.timeout_seconds)
        taken = msgspec.structs.replace(before, owner=self.owner, until_ms=until_ms, resumes_ms=0)
        stored, current = record.swap(current, taken)
        self._held = current
        return None if stored else PusherEnd.BUSY

    def extend(self, group: Group, target: PushTarget) -> bool:
        """Extends the lease so that it outlasts one more delivery. Returns False when another pusher has the lease."""
        with self._lock:
            current = self._held
            if current is None:
                return False
            if current.value.until_ms > self._now_ms() + 1_000 * (target.timeout_seconds + SETTLING_SECONDS):
                return True
            until_ms = group_lease_ms(self._now_ms(), target.timeout_seconds)
            return self._swap(group, lambda state: msgspec.structs.replace(state, until_ms=until_ms))

    def leave(self, group: Group) -> bool:
        """Gives the lease up and stores the health. Returns False when another pusher has the lease."""
        return self._held is not None and self._swap(group, lambda state: self.health.state)

    def retake(self, group: Group, target: PushTarget) -> bool:
        """Takes the lease again after ``leave``. Returns False when another pusher has taken it since."""
        until_ms = group_lease_ms(self._now_ms(), target.timeout_seconds)
        return self._swap(group, lambda state: msgspec.structs.replace(state, owner=self.owner, until_ms=until_ms))

    def delivered(self, outcome: Outcome, size: int) -> None:
        """Changes the health by the outcome of a delivery of this size."""
        with self._lock:
            self.health = self.health.after_delivery(outcome, size, self._now_ms())

    def failed(self, error: str) -> None:
        """Changes the health after a fault of the pusher itself: the target is paused."""
        self.health = self.health.after_failure(error, self._now_ms(), pause=True)

    def _swap(self, group: Group, change: Callable[[PushState], PushState]) -> bool:
        """Changes the record and returns True. Returns False when another pusher has taken the record: the lease is
        lost then."""
        assert self._held is not None
        record = state_record(self.context, group)
        stored, current = record.swap(self._held, change(self._held.value))
        if not stored and current is not None and current.value.owner == self.owner and current.value.until_ms:
            # Another target was set: that resets the health in the record, and keeps the owner.
            self.health = TargetHealth.of(current.value)
            stored, current = record.swap(current, change(current.value))
        self._held = current if stored else None
        return stored

    def _now_ms(self) -> int:
        return self.context.clock.now_ms()
