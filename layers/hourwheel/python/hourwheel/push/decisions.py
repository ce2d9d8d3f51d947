"""What a pusher decides: what becomes of each message of a delivery, when a target is paused, whether to go on. Reads
and writes nothing.

A target that fails again and again is paused for a time that doubles, up to a quarter of an hour: the messages stay
where they are, and use up no attempts. After a pause the target is on trial: one message is delivered at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from hourwheel.push.state import PushState
from hourwheel.targets import Outcome

SETTLING_SECONDS = 30
"""A lease, of messages or of the group, outlasts a delivery by this."""

SPARE_SECONDS = 5
"""A lease of messages is extended when it would outlast a delivery by less than this."""

FAILURES = 5
"""A target is paused when this many deliveries in a row failed as a whole."""

FIRST_PAUSE_MS = 5_000
LONGEST_PAUSE_MS = 900_000
_DOUBLINGS = 20  # enough for the longest pause; 2 to the power of any number of pauses would not fit
_ERROR_CHARACTERS = 300


class Ended(StrEnum):
    """Why a pusher stopped."""

    IDLE = "idle"  # nothing was left
    BUSY = "busy"  # another one has the group
    PAUSED = "paused"  # the target is left alone for a while
    LEFT = "left"  # its time is over, and there may be more
    NO_TARGET = "no-target"  # the group has none, or is no more


@dataclass(frozen=True)
class Decided:
    """What becomes of messages, by their indexes in the pull: tried again at the cost of an attempt, given up, given
    back at no cost. The others are done. ``parts`` are to be delivered by themselves."""

    retry: frozenset[int] = frozenset()
    dead: frozenset[int] = frozenset()
    release: frozenset[int] = frozenset()
    parts: tuple[range, ...] = ()

    def joined(self, other: "Decided") -> "Decided":
        """Both decisions; the parts are those of the other one."""
        return Decided(
            self.retry | other.retry, self.dead | other.dead, self.release | other.release, parts=other.parts
        )


def decide_part(part: range, outcome: Outcome, *, trial: bool) -> Decided:
    """What becomes of the messages of a part of a pull, which was delivered with this outcome; ``trial``: the target
    was on trial."""
    if outcome.too_large and len(part) > 1:
        middle = len(part) // 2
        return Decided(parts=(part[:middle], part[middle:]))
    retry = frozenset(part[index] for index in outcome.failed)
    dead = frozenset(part[index] for index in outcome.dead)
    release = frozenset(part[index] for index in outcome.untouched)
    every = frozenset(part)
    if outcome.unreached and outcome.answered and trial:
        retry |= every  # whatever stands before the target may refuse this message alone
    elif outcome.unreached:
        release |= every
    elif outcome.too_large:
        dead |= every
    return Decided(retry, dead, release)


def decide_pull(size: int, deliver: Callable[[range], Outcome], *, trial: bool) -> Decided:
    """What becomes of a pull of this size, which ``deliver`` delivers in the parts that are asked of it."""
    decided, parts = Decided(), [range(size)]
    while parts:
        part = parts.pop(0)
        decided = decided.joined(decide_part(part, deliver(part), trial=trial))
        parts = [*decided.parts, *parts]
    return decided


def refused(outcome: Outcome, size: int) -> int:
    """How many messages of a delivery of this size the target has not taken."""
    if outcome.unreached or outcome.too_large:
        return size
    return len(outcome.failed) + len(outcome.dead) + len(outcome.untouched)


@dataclass(frozen=True)
class TargetHealth:
    """How a target took its deliveries: failures in a row and the last one's error, pauses in a row, and the end of the
    pause that was decided (0: none)."""

    failures: int = 0
    pauses: int = 0
    error: str = ""
    resumes_ms: int = 0

    @classmethod
    def of(cls, state: PushState) -> "TargetHealth":
        """As the record says, for a pusher that begins: a pause of before is over."""
        return cls(state.failures, state.pauses, state.error)

    @property
    def state(self) -> PushState:
        """The record of a pusher that has left."""
        return PushState(failures=self.failures, pauses=self.pauses, error=self.error, resumes_ms=self.resumes_ms)

    @property
    def on_trial(self) -> bool:
        return self.pauses > 0

    @property
    def pausing(self) -> bool:
        return self.resumes_ms > 0

    def after_delivery(self, outcome: Outcome, size: int, now_ms: int) -> "TargetHealth":
        """The health after a delivery of this size. Those that were under way when a pause was decided change
        nothing."""
        if self.pausing:
            return self
        if refused(outcome, size) < size or outcome.dead or outcome.too_large:
            return TargetHealth()
        return self.after_failure(
            outcome.error, now_ms, pause=outcome.unreached, at_least_seconds=outcome.retry_after_seconds
        )

    def after_failure(self, error: str, now_ms: int, *, pause: bool, at_least_seconds: float = 0.0) -> "TargetHealth":
        """The health after a failure. ``pause``: one is enough for a pause, which lasts ``at_least_seconds``."""
        failed = replace(self, failures=self.failures + 1, error=printable(error))
        if not (pause or self.on_trial or failed.failures >= FAILURES):
            return failed
        pause_ms = max(FIRST_PAUSE_MS * 2 ** min(self.pauses, _DOUBLINGS), round(at_least_seconds * 1_000))
        return replace(failed, resumes_ms=now_ms + min(LONGEST_PAUSE_MS, pause_ms), pauses=self.pauses + 1)


def printable(error: str) -> str:
    """Somebody else's words, fit to be stored and to be shown on terminals."""
    told = error[:_ERROR_CHARACTERS].encode(errors="replace").decode()
    return "".join(character if character.isprintable() else " " for character in told)


def taken_by_another(state: PushState, now_ms: int) -> Ended | None:
    """Why nobody may begin to push now; None when somebody may."""
    if state.free(now_ms):
        return None
    return Ended.PAUSED if state.paused(now_ms) else Ended.BUSY


def group_lease_ms(now_ms: int, timeout_seconds: int) -> int:
    """The end of a lease of the group that begins now: it lasts for two deliveries."""
    return now_ms + 2 * 1_000 * (timeout_seconds + SETTLING_SECONDS)
