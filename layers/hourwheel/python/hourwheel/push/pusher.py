"""Pushes for one group: pulls as the group, delivers to its target, settles by the answer.

One pusher at a time has the group's lease, and delivers at most ``concurrency`` batches at once. The lease only bounds
the number of batches under way: pulls hand each message to one consumer even while two pushers run.

No message waits unnoticed between a pusher that ends and a producer that found the pusher still running. The pusher
first writes that it has left, then looks for messages once more, strongly consistent, and goes on if there is one. That
look finds every message stored before it; a producer that stores one later finds no pusher and starts one. The sweeper
starts a pusher where a crash or a lost start has left messages.

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
from hourwheel.model.groups import Group, PushTarget
from hourwheel.model.pulls import Pull, PullRequest, PullResult, Rejection, RetryLater, Settled, Settlement
from hourwheel.model.subjects import Subject
from hourwheel.model.targets import Outcome, PushDelivery, Targets
from hourwheel.pull_log.open_logs import PullLogs
from hourwheel.pull_log.parked_counts import SOON_MS
from hourwheel.push.decisions import SETTLING_SECONDS, SPARE_SECONDS, PusherEnd, decide_pull, printable, refused
from hourwheel.push.lease import PushLease
from hourwheel.push.state import state_record, target_of
from hourwheel.registry.registry import Registry
from hourwheel.times import parse_rfc3339
from hourwheel.wire.signatures import secrets_of

_logger = logging.getLogger("hourwheel")

_LIMITED_SECONDS = 0.5  # settlements make room at any time; a rate leaves half a second's worth by then
_FLOW_LIMITS = frozenset({"max_in_flight", "messages_per_second"})
_RETRY_SECONDS = 0.5
"""A pusher that waits for a message to be tried again in its place looks for other messages this often."""

_AGAIN_SECONDS = 0.2  # gives a row that is being written time to arrive


class PushedDeployment(Protocol):
    """The part of a deployment that a pusher uses."""

    @property
    def context(self) -> Context: ...
    @property
    def registry(self) -> Registry: ...
    @property
    def opener(self) -> PullLogs: ...
    @property
    def secret(self) -> bytes: ...
    def pull(self, subject: str, group: str, request: PullRequest, *, pushing: bool = False) -> PullResult: ...
    def settle(self, subject: str, group: str, settlements: list[Settlement]) -> list[Settled]: ...


@dataclass
class _LeasedPull:
    """A pull of a group that is being delivered; the lease of its messages ends at ``ends_ms``. ``trial``: the target
    is on trial after a pause."""

    group: Group
    pulled: Pull
    ends_ms: int
    trial: bool


@dataclass
class Pusher:
    """Pushes for one group, under the name ``owner``; runs once. Begins no delivery after ``leaves_ms`` (0: no limit),
    nor once ``stopping`` returns True. Each pull waits up to ``wait_seconds`` for messages."""

    deployment: PushedDeployment
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
    _suspects_wait: bool = False

    def __post_init__(self) -> None:
        self._lease = PushLease(self.deployment.context, self.owner)

    def run(self) -> PusherEnd:
        """Pushes until no message is left, and returns why it stopped. Raises the store's errors, after it has paused
        the group where that can be stored."""
        current = self._find()
        if current is None:
            return PusherEnd.NO_TARGET
        subject, group, target = current
        ended = self._lease.take(group, target, lambda: self._something(subject, group, soon=True))
        try:
            while ended is None:
                current = self._find()
                if current is not None and current[2].kind == "notify":
                    return self._notify(*current)
                if current is not None:
                    self._push_together(current[2])
                ended = self._leave(group) or self._look()
        except Exception as error:
            self._give_up(group, error)
            raise
        return ended

    def _find(self) -> tuple[Subject, Group, PushTarget] | None:
        registry = self.deployment.registry
        try:
            subject, group = registry.subject_and_group(self.subject, self.group)
        except NotFound:
            return None
        target = target_of(subject, group)
        return None if target is None else (subject, group, target)

    def _now_ms(self) -> int:
        return self.deployment.context.clock.now_ms()

    @property
    def _over(self) -> bool:
        """Whether the pusher begins no other delivery."""
        return self._broken or self._lease.health.pausing or self.stopping() or 0 < self.leaves_ms <= self._now_ms()

    def _leave(self, group: Group) -> PusherEnd | None:
        """Gives the lease up and stores the target's health. Returns why the pusher stops, or None when it has to look
        for messages once more."""
        # The lease is given up before the last look. In the other order a message stored in between would wait for a
        # sweep.
        if not self._lease.leave(group):
            return PusherEnd.BUSY
        if self._lease.health.pausing:
            self.deployment.context.meter.record("PushPaused", 1)
            return PusherEnd.PAUSED
        return PusherEnd.LEFT if self._over else None

    def _look(self) -> PusherEnd | None:
        """Looks for messages once more, after the lease was given up. Returns None when a message waits and the lease
        is taken again, otherwise why the pusher stops."""
        self.deployment.registry.forget(self.subject)  # there may be more queues
        current = self._find()
        if current is None:
            return PusherEnd.NO_TARGET
        subject, group, target = current
        if not self._something(subject, group):
            return PusherEnd.IDLE
        # A moment ago no pull returned this message: a row before it is still being written, or the pull read old data.
        self.deployment.context.clock.sleep(_AGAIN_SECONDS)
        # Refused: the producer of that message found no pusher, and started one.
        return None if self._lease.retake(group, target) else PusherEnd.BUSY

    def _give_up(self, group: Group, fault: Exception) -> None:
        """Pauses the group after a fault, which may last."""
        with suppress(HourwheelError):  # if the store fails, the lease runs out
            if self._lease.held:
                self._lease.failed(type(fault).__name__)
                self._lease.leave(group)

    def _something(self, subject: Subject, group: Group, *, soon: bool = False) -> bool:
        """Returns whether a message waits, or with ``soon`` is retried soon."""
        logs = self.deployment.opener.of(self.deployment.context, subject, group)
        in_turn = self.deployment.opener.in_turn(self.deployment.context, subject, group, logs)
        return any(log.has_message() for log in in_turn) or (soon and self._retry_ms(subject, group) is not None)

    # Delivering

    def _push_together(self, target: PushTarget) -> None:
        """Delivers in ``concurrency`` threads until nothing can be pulled. While the target is on trial after a pause,
        or suspects wait, delivers one message at a time."""
        self._concurrency = target.concurrency
        while self._push_one_by_one() and not self._over:
            self._push_side_by_side(target.concurrency - 1)
            if not self._suspects_wait:
                return

    def _push_one_by_one(self) -> bool:
        """Delivers one message at a time for as long as that is necessary. Returns False when nothing can be pulled any
        more."""
        # A target that is still down then costs one attempt at most, not a batch. A suspect that ends this process
        # takes no other message with it.
        while (self._lease.health.on_trial or self._suspects_wait) and not self._over:
            self._suspects_wait = False
            if not self._push_once():
                return False
        return True

    def _push_side_by_side(self, others: int) -> None:
        """Delivers in this thread and this many ``others`` until nothing can be pulled, or a suspect waits."""
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
            while not (self._over or self._suspects_wait) and self._push_once(suspects=self._concurrency == 1):
                pass
        except BaseException:
            self._broken = True  # the other threads stop, too
            raise

    def _push_once(self, *, suspects: bool = True) -> bool:
        """Pulls, delivers and settles. Returns False when there was no message, or the target, its concurrency or the
        lease has changed. Without ``suspects`` leaves suspects at the queue, and notes that some wait."""
        current = self._find()
        if current is None or not self._may_go_on(*current):
            return False
        subject, group, target = current
        trial = self._lease.health.on_trial
        request = PullRequest(
            consumer=self.owner,
            max_messages=1 if trial else target.batch,
            lease_seconds=target.timeout_seconds + SETTLING_SECONDS,
            wait_seconds=self.wait_seconds,
            suspects=suspects,
        )
        try:
            result = self.deployment.pull(self.subject, self.group, request, pushing=True)
        except NotFound:
            return False  # the subject or group was deleted meanwhile
        pulls = result.pulls
        # After a suspect there may be others.
        self._suspects_wait = self._suspects_wait or result.suspects_wait or any(pulled.suspect for pulled in pulls)
        for pulled in pulls:
            self._serve(_LeasedPull(group, pulled, parse_rfc3339(pulled.lease_until, "lease_until"), trial))
        return bool(pulls) or self._waits_for_messages(subject, group, result)

    def _may_go_on(self, subject: Subject, group: Group, target: PushTarget) -> bool:
        """Returns whether this thread may deliver to the target as it is now, and extends the lease for that."""
        if target.kind == "notify" or target.concurrency != self._concurrency:
            return False
        return self._lease.extend(group, target)

    def _waits_for_messages(self, subject: Subject, group: Group, result: PullResult) -> bool:
        """Lets some time pass after a pull without messages. Returns whether messages wait that come soon."""
        if result.limited_by in _FLOW_LIMITS and self._something(subject, group):
            # Messages wait until the limit leaves some: this pusher stays, and pulls again.
            self.deployment.context.clock.sleep(_LIMITED_SECONDS)
            return True
        return not result.suspects_wait and self._waits_for_retry(subject, group)

    def _retry_ms(self, subject: Subject, group: Group) -> int | None:
        """Returns the milliseconds until a failed message is tried again in its place; None if that is not soon. No
        wheel hands such a message over, and nothing but the sweeper would start a pusher."""
        now_ms = self._now_ms()
        dues = [log.next_due_ms() for log in self.deployment.opener.of(self.deployment.context, subject, group)]
        # Without a message that failed, or with stopped keys alone, there is no retry: not soon.
        left_ms = min((due_ms - now_ms for due_ms in dues if due_ms is not None), default=SOON_MS + 1)
        return left_ms if left_ms <= SOON_MS else None

    def _waits_for_retry(self, subject: Subject, group: Group) -> bool:
        """Lets time pass until the next retry, if that is soon, but looks for other messages meanwhile. Returns whether
        there is one."""
        left_ms = self._retry_ms(subject, group)
        if left_ms is None:
            return False
        if not self.wait_seconds:  # a pull that waits looks for messages by itself
            self.deployment.context.clock.sleep(min(_RETRY_SECONDS, left_ms / 1_000))
        return True

    def _serve(self, leased: _LeasedPull) -> None:
        """Delivers a pull, in smaller parts where it is too large, and settles it. Gives the messages back that were
        not delivered."""
        errors: dict[int, str] = {}
        for message in leased.pulled.messages:
            message.detail = None  # a message that just fits a target would not fit any more with its error

        def deliver(part: range) -> Outcome:
            outcome = self._deliver(leased, part)
            errors.update(dict.fromkeys(part, printable(outcome.error)))
            return outcome

        decided = decide_pull(len(leased.pulled.messages), deliver, trial=leased.trial)
        self._settle(
            leased,
            retry=[RetryLater(index=index, detail=errors[index] or None) for index in sorted(decided.retry)],
            dead=[Rejection(index=i, detail=errors[i]) if errors[i] else i for i in sorted(decided.dead)],
            release=sorted(decided.release),
        )

    def _deliver(self, leased: _LeasedPull, part: range) -> Outcome:
        """Delivers this part of a pull, and returns the outcome. It is ``unreached``, without a call to the target, if
        the pusher has to stop, the target is not there any more, or a lease has ended."""
        current = self._find()  # a pull that waits may outlast the target
        if current is None or current[2].kind == "notify" or self._over:
            return Outcome(unreached=True)
        _, group, target = current
        if state_record(self.deployment.context, group).key != state_record(self.deployment.context, leased.group).key:
            return Outcome(unreached=True)  # the group was deleted, and another created under its name
        # Both leases must outlast the delivery, or others would deliver its messages while the target handles them.
        if not self._lease.extend(group, target) or not self._hold(leased, target):
            return Outcome(unreached=True)
        pulled = leased.pulled
        delivery = PushDelivery(
            self.subject,
            self.group,
            pulled.queue,
            pulled.messages[part.start : part.stop],
            secrets_of(self.deployment.secret, group),
        )
        outcome = self._guarded(lambda: self.targets.deliver(target, delivery), len(part))
        if not outcome.too_large or len(part) == 1:
            self._judge(outcome, len(part))
        return outcome

    def _guarded(self, deliver: Callable[[], Outcome], size: int) -> Outcome:
        """Returns the outcome of ``deliver``. An exception of a target becomes a failure of all messages: one target
        must not end a process that delivers to others."""
        try:
            return deliver()
        except Exception as error:
            self.deployment.context.meter.record("Faults", 1)
            _logger.error(
                "a delivery to the target of %s/%s failed: %s", self.subject, self.group, type(error).__name__
            )
            return Outcome(failed=frozenset(range(size)), error=type(error).__name__)

    def _hold(self, leased: _LeasedPull, target: PushTarget) -> bool:
        """Extends the lease of the messages so that it outlasts one more delivery. Returns False when the lease has
        ended."""
        if leased.ends_ms >= self._now_ms() + 1_000 * (target.timeout_seconds + SPARE_SECONDS):
            return True
        seconds = target.timeout_seconds + SETTLING_SECONDS
        leased.ends_ms = self._now_ms() + 1_000 * seconds
        return self._settle(leased, extend_seconds=seconds) == "extended"

    def _settle(self, leased: _LeasedPull, **how: Any) -> str:
        """Settles the pull and returns the status: ``stale`` when the lease has ended, so that the messages come again,
        or when the group was deleted."""
        try:
            settlement = Settlement(receipt=leased.pulled.receipt, **how)
            (settled,) = self.deployment.settle(self.subject, self.group, [settlement])
        except NotFound:
            return "stale"
        return settled.status

    def _judge(self, outcome: Outcome, size: int) -> None:
        """Records metrics of a delivery of this size, and changes the target's health by its outcome."""
        meter = self.deployment.context.meter
        missed = refused(outcome, size)
        if size - missed:
            meter.record("PushDelivered", size - missed)
        if missed:
            meter.record("PushFailed", missed)
        self._lease.delivered(outcome, size)

    def _notify(self, subject: Subject, group: Group, target: PushTarget) -> PusherEnd:
        """Announces waiting messages to a target whose owner pulls them. Gives the lease up before it looks: a producer
        that stores a message after that starts another pusher, which announces the message."""
        ended = self._leave(group)
        if ended is not None:
            return ended
        before = self._lease.health.failures
        if self._something(subject, group):
            self._judge(self._guarded(lambda: self.targets.announce(target, self.subject, self.group), 1), 1)
        return (self._leave(group) if self._lease.health.failures != before else None) or PusherEnd.IDLE
