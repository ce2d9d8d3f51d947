"""Decides for a pusher what becomes of each message of a delivery, when to pause a target, and whether to go on. Reads
and writes nothing.

A target that fails repeatedly is paused for a time that doubles, up to a quarter of an hour. Meanwhile its messages
stay in their queues and use up no attempts. After a pause the target is on trial: one message is delivered at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from hourwheel.model.targets import Outcome
from hourwheel.push.state import PushState

# Room to settle after a delivery that took its full time-out.
SETTLING_SECONDS = 30
"""A new or extended lease, of messages or of the group, outlasts a delivery by at least this."""

# Below SETTLING_SECONDS: a delivery right after its pull needs no extension.
SPARE_SECONDS = 5
"""The pusher extends a lease of messages before a delivery, unless the lease outlasts the delivery by at least this."""

# A bad message fails in the same way as a bad target: one failed delivery says nothing about the target.
FAILURES = 5
"""A target is paused when this many deliveries in a row failed as a whole."""

# A day without a target costs about a hundred deliveries (docs/decisions/0012-push.md).
FIRST_PAUSE_MS = 5_000
LONGEST_PAUSE_MS = 900_000
_DOUBLINGS = 20  # enough for the longest pause; 2 to the power of any number of pauses would not fit
_ERROR_CHARACTERS = 300  # the error is stored in the group's record, which every wake-up reads


class PusherEnd(StrEnum):
    """Why a pusher stopped."""

    IDLE = "idle"  # no message was left
    BUSY = "busy"  # another pusher has the lease
    PAUSED = "paused"  # the target is paused
    LEFT = "left"  # the pusher's time is over, and messages may be left
    NO_TARGET = "no-target"  # the group has no target, or was deleted


@dataclass(frozen=True)
class Decided:
    """The decision about the messages of a pull, by their indexes. ``retry``: retried, which costs an attempt;
    ``dead``: dead letters; ``release``: given back at no cost. The others are acknowledged. ``parts`` are delivered by
    themselves before anything is decided about their messages."""

    retry: frozenset[int] = frozenset()
    dead: frozenset[int] = frozenset()
    release: frozenset[int] = frozenset()
    parts: tuple[range, ...] = ()

    def joined(self, other: "Decided") -> "Decided":
        """Returns both decisions as one, with the parts of the other decision."""
        return Decided(
            self.retry | other.retry, self.dead | other.dead, self.release | other.release, parts=other.parts
        )


def decide_part(part: range, outcome: Outcome, *, trial: bool) -> Decided:
    """Decides what becomes of the messages of a part of a pull that was delivered with this outcome. ``trial``: the
    target was on trial."""
    if outcome.too_large and len(part) > 1:
        middle = len(part) // 2
        return Decided(parts=(part[:middle], part[middle:]))
    retry, dead, release = (
        frozenset(part[index] for index in named) for named in (outcome.failed, outcome.dead, outcome.untouched)
    )
    every = frozenset(part)
    if outcome.unreached and outcome.answered and trial:
        retry |= every  # a gateway before the target may refuse this message alone: without an attempt it never ends
    elif outcome.unreached:
        release |= every
    elif outcome.too_large:
        dead |= every
    return Decided(retry, dead, release)


def decide_pull(size: int, deliver: Callable[[range], Outcome], *, trial: bool) -> Decided:
    """Decides what becomes of a pull of this size. Calls ``deliver`` for the whole pull, and for the halves of each
    part that is too large for the target."""
    decided, parts = Decided(), [range(size)]
    while parts:
        part = parts.pop(0)
        decided = decided.joined(decide_part(part, deliver(part), trial=trial))
        parts = [*decided.parts, *parts]
    return decided


def refused(outcome: Outcome, size: int) -> int:
    """Returns how many messages of a delivery of this size the target has not taken."""
    if outcome.unreached or outcome.too_large:
        return size
    return len(outcome.failed) + len(outcome.dead) + len(outcome.untouched)


@dataclass(frozen=True)
class TargetHealth:
    """How a target took its deliveries: failures in a row with the error of the last one, pauses in a row, and the end
    of the pause that this pusher has decided (0: none)."""

    failures: int = 0
    pauses: int = 0
    error: str = ""
    resumes_ms: int = 0

    @classmethod
    def of(cls, state: PushState) -> "TargetHealth":
        """Returns the health that the record describes, for a pusher that begins: an earlier pause is over."""
        return cls(state.failures, state.pauses, state.error)

    @property
    def state(self) -> PushState:
        """The record that a pusher stores when it gives up the lease."""
        return PushState(failures=self.failures, pauses=self.pauses, error=self.error, resumes_ms=self.resumes_ms)

    @property
    def on_trial(self) -> bool:
        return self.pauses > 0

    @property
    def pausing(self) -> bool:
        return self.resumes_ms > 0

    def after_delivery(self, outcome: Outcome, size: int, now_ms: int) -> "TargetHealth":
        """Returns the health after a delivery of this size. A delivery that was under way when a pause was decided
        changes nothing."""
        if self.pausing:
            return self
        if refused(outcome, size) < size or outcome.dead or outcome.too_large:
            return TargetHealth()
        return self.after_failure(
            outcome.error, now_ms, pause=outcome.unreached, at_least_seconds=outcome.retry_after_seconds
        )

    def after_failure(self, error: str, now_ms: int, *, pause: bool, at_least_seconds: float = 0.0) -> "TargetHealth":
        """Returns the health after a failure. ``pause``: this failure alone pauses the target. A pause lasts at least
        ``at_least_seconds``, up to the longest pause."""
        failed = replace(self, failures=self.failures + 1, error=printable(error))
        if not (pause or self.on_trial or failed.failures >= FAILURES):
            return failed
        pause_ms = max(FIRST_PAUSE_MS * 2 ** min(self.pauses, _DOUBLINGS), round(at_least_seconds * 1_000))
        return replace(failed, resumes_ms=now_ms + min(LONGEST_PAUSE_MS, pause_ms), pauses=self.pauses + 1)


def printable(error: str) -> str:
    """Returns the start of a target's error text, fit to be stored and to be shown on terminals."""
    text = error[:_ERROR_CHARACTERS].encode(errors="replace").decode()
    return "".join(character if character.isprintable() else " " for character in text)


def taken_by_another(state: PushState, now_ms: int) -> PusherEnd | None:
    """Returns why no pusher may begin now, or None when one may."""
    if state.free(now_ms):
        return None
    return PusherEnd.PAUSED if state.paused(now_ms) else PusherEnd.BUSY


def group_lease_ms(now_ms: int, timeout_seconds: int) -> int:
    """Returns the end of a lease of the group that begins now: the lease lasts for two deliveries."""
    return now_ms + 2 * 1_000 * (timeout_seconds + SETTLING_SECONDS)
