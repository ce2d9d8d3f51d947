"""Defines what wakes pulls and wheels that wait."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from hourwheel.model.pulls import WakeupQueue

T = TypeVar("T")


class Wakeups(Protocol):
    """Wakes pulls that wait for messages."""

    def announce(self, subject: str, group: str | None = None) -> None:
        """Announces new messages for one group of the subject, or (None) for all its groups. The name of a broadcast
        group stands for all its consumers, and that of a consumer's group for this consumer."""
        ...

    def announcements(self, subject: str) -> int:
        """Returns a number that changes with each announcement for the subject."""
        ...

    def wait(self, subject: str, group: str, *, since: int, tries: int, seconds: float) -> bool:
        """Waits until messages may have arrived since ``since`` was read, at most for ``seconds``. ``tries`` counts the
        waits of one pull, from 0. Returns False when it refuses to wait (shutdown, or too many waiters): the pull then
        answers at once. Each return is only a hint."""
        ...


class WakeupQueues(Protocol):
    """Keeps a wake-up queue for each group whose consumers doze. A name has up to 50 of ``[A-Za-z0-9_-]``."""

    def open(self, name: str, *, fresh: bool) -> WakeupQueue:
        """Returns the queue, and creates it if it is missing. Idempotent. Without ``fresh`` a queue that this process
        has opened lately is taken to exist. May raise ``Unavailable`` or ``Broken``."""
        ...

    def wake(self, name: str) -> bool:
        """Sends a wake-up, which one of the waiting consumers receives, within a second as a rule. It may come twice,
        late, or never, and is dropped when nobody receives it within a minute. Returns False where there is no such
        queue. May raise ``Unavailable`` or ``Broken``."""
        ...

    def remove(self, name: str) -> None:
        """Removes the queue, if it is there. May raise ``Unavailable`` or ``Broken``."""
        ...

    def side_by_side(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Makes all of these calls, each of which uses this object, and returns their results in order. Where a call
        waits for a network, up to 16 of them run at once, in several threads. Returns once none is under way. Raises
        the error of the first call that raised one."""
        ...


class EarlyWakeups(Protocol):
    """Wakes pulls while the transaction that stores their messages still runs, so that their claims join it."""

    def announce_early(self, subject: str) -> None:
        """Announces, from inside of a transaction, that the transaction stores messages for all groups of the subject.
        Only a hint: ``Wakeups.announce`` follows once they are stored."""
        ...

    def is_early(self, subject: str) -> bool:
        """Returns whether the caller was woken early: a transaction that it begins now sees messages of the subject
        that reads do not show yet."""
        ...


class NoEarlyWakeups:
    """Implements ``EarlyWakeups`` where pulls and transactions do not share a thread."""

    def announce_early(self, subject: str) -> None:
        pass

    def is_early(self, subject: str) -> bool:
        return False


class WheelWakeups(Protocol):
    """Wakes wheels that sleep until their next message is due."""

    def announce(self, bucket: str, due_ms: int) -> None:
        """Announces that the bucket has one more message, due at ``due_ms``, or one more cancel marker (``due_ms`` 0).
        Called once this is stored; never fails. Only a hint, which a wheel with ticks does not need."""
        ...


class NoWheelWakeups:
    """Implements ``WheelWakeups`` where no wheel of this process sleeps: each wheel looks at every tick."""

    def announce(self, bucket: str, due_ms: int) -> None:
        pass
