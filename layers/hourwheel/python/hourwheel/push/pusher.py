"""Pushes for one group: pulls as the group, delivers to its target, settles by the answer.

One pusher at a time has the group's lease, and delivers at most ``concurrency`` batches at once. The lease bounds that
number and no more: a pull hands a message to one only, whoever holds what.

No message is left lying between a pusher that ends and a producer that found it still there: the pusher says that it
has left, then looks once more, strongly consistent, and goes on if there is something. Who stored a message before that
look is seen by it, who stored later found nobody pushing and started somebody. What a crash or a lost start leaves is
found by the sweeper.

``decisions.py`` decides what becomes of each message, and when a target is paused; ``lease.py`` keeps the lease.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from hourwheel.context import Context
from hourwheel.errors import HourwheelError, NotFound
from hourwheel.model import Group, Pulled, PullRequest, PullResult, PushTarget, Settled, Settlement, Subject
from hourwheel.push.decisions import SETTLING_SECONDS, SPARE_SECONDS, Ended, decide_pull, refused
from hourwheel.push.lease import PushLease
from hourwheel.push.state import state_record
from hourwheel.queueing.pulllog import pull_logs
from hourwheel.registry.registry import Registry
from hourwheel.signatures import secrets_of
from hourwheel.targets import Delivery, Outcome, Targets
from hourwheel.times import parse_rfc3339

_logger = logging.getLogger("hourwheel")

_AGAIN_SECONDS = 0.2


class PushedCell(Protocol):
    """The part of a cell that a pusher uses."""

    @property
    def context(self) -> Context: ...
    @property
    def registry(self) -> Registry: ...
    @property
    def secret(self) -> bytes: ...
    def pull(self, subject: str, group: str, request: PullRequest, *, pushing: bool = False) -> PullResult: ...
    def settle(self, subject: str, group: str, settlements: list[Settlement]) -> list[Settled]: ...


@dataclass
class _Hand:
    """A pull of a group that is being delivered, and until when its messages are leased. ``trial``: the target has just
    been left alone."""

    group: Group
    pulled: Pulled
    ends_ms: int
    trial: bool


@dataclass
class Pusher:
    """``owner`` names who pushes; after ``leaves_ms`` it begins no delivery any more (0: it may go on). A pull waits
    ``wait_seconds`` for messages. ``stopping`` says that it is to end. Runs once."""

    cell: PushedCell
    targets: Targets
    subject: str
    group: str
    owner: str
    leaves_ms: int = 0
    wait_seconds: float = 0.0
    stopping: Callable[[], bool] = lambda: False
    _broken: bool = False
    _fault: Exception | None = None
    _concurrency: int = 0

    def __post_init__(self) -> None:
        self._lease = PushLease(self.cell.context, self.owner)

    def run(self) -> Ended:
        """Pushes until nothing is left. Raises the store's errors."""
        found = self._find()
        if found is None:
            return Ended.NO_TARGET
        subject, group, target = found
        ended = self._lease.take(group, target, lambda: self._something(subject, group))
        try:
            while ended is None:
                found = self._find()
                if found is not None and found[2].kind == "notify":
                    return self._notify(*found)
                if found is not None:
                    self._push_together(found[2])
                ended = self._leave(group) or self._look()
        except Exception as error:
            self._give_up(group, error)
            raise
        return ended

    def _find(self) -> tuple[Subject, Group, PushTarget] | None:
        registry = self.cell.registry
        try:
            subject = registry.subject(self.subject)
            group = registry.group(subject, self.group)
        except NotFound:
            return None
        return None if group.push is None else (subject, group, group.push)

    def _now_ms(self) -> int:
        return self.cell.context.clock.now_ms()

    @property
    def _over(self) -> bool:
        return self._broken or self._lease.health.pausing or self.stopping() or 0 < self.leaves_ms <= self._now_ms()

    def _leave(self, group: Group) -> Ended | None:
        """Gives the lease up, and stores how the round went; None where the last look is left to do."""
        if not self._lease.leave(group):
            return Ended.BUSY
        if self._lease.health.pausing:
            self.cell.context.meter.record("PushPaused", 1)
            return Ended.PAUSED
        return Ended.LEFT if self._over else None

    def _look(self) -> Ended | None:
        """The last look, the lease being given up. None when it has been taken again."""
        self.cell.registry.forget(self.subject)  # there may be more queues
        found = self._find()
        if found is None:
            return Ended.NO_TARGET
        subject, group, target = found
        if not self._something(subject, group):
            return Ended.IDLE
        # It could not be pulled a moment ago: a row before it is on its way, or the reading was not up to date.
        self.cell.context.clock.sleep(_AGAIN_SECONDS)
        return None if self._lease.retake(group, target) else Ended.BUSY

    def _give_up(self, group: Group, fault: Exception) -> None:
        """After a fault, which may last: a pause."""
        with suppress(HourwheelError):  # the fault may be the store's; then the lease runs out
            if self._lease.held:
                self._lease.failed(type(fault).__name__)
                self._lease.leave(group)

    def _something(self, subject: Subject, group: Group) -> bool:
        return any(log.has_unpulled() for log in pull_logs(self.cell.context, subject, group))

    # Delivering

    def _push_together(self, target: PushTarget) -> None:
        """Delivers until nothing can be pulled. After a pause the target is on trial: one message at a time."""
        self._concurrency = target.concurrency
        while self._lease.health.on_trial and not self._over:
            if not self._push_once():
                return
        others = target.concurrency - 1
        if self._over or not others:
            self._push()
            return
        # Not an executor: its threads keep a process from ending for as long as a delivery takes.
        threads = [threading.Thread(target=self._push_aside, name="push", daemon=True) for _ in range(others)]
        begun: list[threading.Thread] = []
        try:
            for thread in threads:
                thread.start()
                begun.append(thread)
            self._push()
        except BaseException:
            self._broken = True
            raise
        finally:
            for thread in begun:
                thread.join()
        if self._fault is not None:
            raise self._fault

    def _push_aside(self) -> None:
        try:
            self._push()
        except Exception as error:
            self._fault = error

    def _push(self) -> None:
        try:
            while not self._over and self._push_once():
                pass
        except BaseException:
            self._broken = True  # the others end, too
            raise

    def _push_once(self) -> bool:
        """Pulls, delivers, settles; False when there was nothing, or there is no target or no lease any more."""
        found = self._find()
        if found is None:
            return False
        _, group, target = found
        if target.kind == "notify" or target.concurrency != self._concurrency or not self._lease.extend(group, target):
            return False
        trial = self._lease.health.on_trial
        request = PullRequest(
            consumer=self.owner,
            max_messages=1 if trial else target.batch,
            lease_seconds=target.timeout_seconds + SETTLING_SECONDS,
            wait_seconds=self.wait_seconds,
        )
        try:
            pulls = self.cell.pull(self.subject, self.group, request, pushing=True).pulls
        except NotFound:
            return False  # it was deleted meanwhile
        for pulled in pulls:
            self._serve(_Hand(group, pulled, parse_rfc3339(pulled.lease_until, "lease_until"), trial))
        return bool(pulls)

    def _serve(self, hand: _Hand) -> None:
        """Delivers a pull, in smaller parts where it is too large, and settles it. What is not delivered is given
        back."""
        decided = decide_pull(len(hand.pulled.messages), lambda part: self._deliver(hand, part), trial=hand.trial)
        self._settle(hand, retry=[*sorted(decided.retry)], dead=sorted(decided.dead), release=sorted(decided.release))

    def _deliver(self, hand: _Hand, part: range) -> Outcome:
        found = self._find()  # a pull that waits may outlast the target
        if found is None or found[2].kind == "notify" or self._over:
            return Outcome(unreached=True)
        _, group, target = found
        if state_record(self.cell.context, group).key != state_record(self.cell.context, hand.group).key:
            return Outcome(unreached=True)  # another group of that name
        if not self._lease.extend(group, target) or not self._hold(hand, target):
            return Outcome(unreached=True)
        pulled = hand.pulled
        delivery = Delivery(
            self.subject,
            self.group,
            pulled.queue,
            pulled.messages[part.start : part.stop],
            secrets_of(self.cell.secret, group),
        )
        outcome = self._guarded(lambda: self.targets.deliver(target, delivery), len(part))
        if not outcome.too_large or len(part) == 1:
            self._judge(outcome, len(part))
        return outcome

    def _guarded(self, deliver: Callable[[], Outcome], size: int) -> Outcome:
        """A target must not bring down who delivers to others."""
        try:
            return deliver()
        except Exception as error:
            self.cell.context.meter.record("Faults", 1)
            _logger.error(
                "a delivery to the target of %s/%s failed: %s", self.subject, self.group, type(error).__name__
            )
            return Outcome(failed=frozenset(range(size)), error=type(error).__name__)

    def _hold(self, hand: _Hand, target: PushTarget) -> bool:
        """Has the lease of the messages outlast one more delivery; False when it has ended."""
        if hand.ends_ms >= self._now_ms() + 1_000 * (target.timeout_seconds + SPARE_SECONDS):
            return True
        seconds = target.timeout_seconds + SETTLING_SECONDS
        hand.ends_ms = self._now_ms() + 1_000 * seconds
        return self._settle(hand, extend_seconds=seconds) == "extended"

    def _settle(self, hand: _Hand, **how: Any) -> str:
        """``stale`` when the lease has ended, or the group was deleted: the messages come again, or nobody wants
        them."""
        try:
            wish = Settlement(receipt=hand.pulled.receipt, **how)
            (settled,) = self.cell.settle(self.subject, self.group, [wish])
        except NotFound:
            return "stale"
        return settled.status

    def _judge(self, outcome: Outcome, size: int) -> None:
        """Counts what was delivered, and notes how the target took it."""
        meter = self.cell.context.meter
        missed = refused(outcome, size)
        if size - missed:
            meter.record("PushDelivered", size - missed)
        if missed:
            meter.record("PushFailed", missed)
        self._lease.delivered(outcome, size)

    def _notify(self, subject: Subject, group: Group, target: PushTarget) -> Ended:
        """Leaves first: what is stored after that is announced by others."""
        ended = self._leave(group)
        if ended is not None:
            return ended
        before = self._lease.health.failures
        if self._something(subject, group):
            self._judge(self._guarded(lambda: self.targets.announce(target, self.subject, self.group), 1), 1)
        return (self._leave(group) if self._lease.health.failures != before else None) or Ended.IDLE
