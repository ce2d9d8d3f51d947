"""The lease of a group's pushing, as one pusher holds it in the group's record, and the health of the target."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from hourwheel.context import Context
from hourwheel.logs.cas import Versioned
from hourwheel.model import Group, PushTarget
from hourwheel.push.decisions import SETTLING_SECONDS, Ended, TargetHealth, group_lease_ms, taken_by_another
from hourwheel.push.state import PushState, state_record
from hourwheel.targets import Outcome


@dataclass
class PushLease:
    """``owner`` names who pushes. Thread-safe while it is held; begun and left by one thread."""

    context: Context
    owner: str
    health: TargetHealth = field(default_factory=TargetHealth)
    _held: Versioned[PushState] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def held(self) -> bool:
        return self._held is not None

    def take(self, group: Group, target: PushTarget, something: Callable[[], bool]) -> Ended | None:
        """Takes the lease where somebody is to push; else returns the reason. ``something``: whether a message
        waits."""
        record = state_record(self.context, group)
        held = record.load()
        now_ms = self._now_ms()
        before = PushState() if held is None else held.value
        if (ended := taken_by_another(before, now_ms)) is not None:
            return ended
        if not before.overdue(now_ms) and not something():
            return Ended.IDLE  # woken twice for the same messages, or somebody has pulled them
        self.health = TargetHealth.of(before)
        until_ms = group_lease_ms(self._now_ms(), target.timeout_seconds)
        ours = msgspec.structs.replace(before, owner=self.owner, until_ms=until_ms, resumes_ms=0)
        stored, held = record.swap(None if held is None else held.token, ours)
        self._held = held
        return None if stored else Ended.BUSY

    def extend(self, group: Group, target: PushTarget) -> bool:
        """Has the lease outlast one more delivery; False when it is somebody else's."""
        with self._lock:
            held = self._held
            if held is None:
                return False
            if held.value.until_ms > self._now_ms() + 1_000 * (target.timeout_seconds + SETTLING_SECONDS):
                return True
            until_ms = group_lease_ms(self._now_ms(), target.timeout_seconds)
            return self._swap(group, lambda state: msgspec.structs.replace(state, until_ms=until_ms))

    def leave(self, group: Group) -> bool:
        """Gives the lease up, and stores the health; False when the lease is somebody else's."""
        return self._held is not None and self._swap(group, lambda state: self.health.state)

    def retake(self, group: Group, target: PushTarget) -> bool:
        """Takes the lease again that was given up a moment ago; False when it is somebody else's."""
        until_ms = group_lease_ms(self._now_ms(), target.timeout_seconds)
        return self._swap(group, lambda state: msgspec.structs.replace(state, owner=self.owner, until_ms=until_ms))

    def delivered(self, outcome: Outcome, size: int) -> None:
        """Notes how the target took a delivery of this size."""
        with self._lock:
            self.health = self.health.after_delivery(outcome, size, self._now_ms())

    def failed(self, error: str) -> None:
        """Notes a fault of the pusher itself, which makes a pause."""
        self.health = self.health.after_failure(error, self._now_ms(), pause=True)

    def _swap(self, group: Group, change: Callable[[PushState], PushState]) -> bool:
        """Changes the record, as long as it is ours."""
        assert self._held is not None
        record = state_record(self.context, group)
        stored, held = record.swap(self._held.token, change(self._held.value))
        if not stored and held is not None and held.value.owner == self.owner and held.value.until_ms:
            # The target was changed: the record is ours still, and begins anew.
            self.health = TargetHealth.of(held.value)
            stored, held = record.swap(held.token, change(held.value))
        self._held = held if stored else None
        return stored

    def _now_ms(self) -> int:
        return self.context.clock.now_ms()
