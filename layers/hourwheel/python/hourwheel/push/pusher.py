"""Pushes for one group: pulls as the group, delivers to its target, settles by the answer.

One pusher at a time has the group's lease, and delivers at most ``concurrency`` batches at once. The lease bounds that
number and no more: a pull hands a message to one only, whoever holds what.

No message is left lying between a pusher that ends and a producer that found it still there: the pusher says that it
has left, then looks once more, strongly consistent, and goes on if there is something. Who stored a message before that
look is seen by it, who stored later found nobody pushing and started somebody. What a crash or a lost start leaves is
found by the sweeper.

A target that fails again and again is left alone for a while that doubles, up to a quarter of an hour: what waits for
it stays where it is, and uses up no attempts. Then one batch is tried.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from hourwheel.cell import Cell
from hourwheel.errors import NotFound
from hourwheel.logs.item import Held
from hourwheel.model import Group, Pulled, PullRequest, PushTarget, Settlement, Subject
from hourwheel.push.signing import secrets_of
from hourwheel.push.state import PushState, state_slot
from hourwheel.push.targets import Delivery, Outcome, Targets
from hourwheel.queueing.pulllog import PullLog, pull_logs

SETTLING_SECONDS = 30
"""A lease, of messages or of the group, outlasts a delivery by this."""

FAILURES = 5
"""So many deliveries in a row of which all failed make a pause."""

_FIRST_PAUSE_MS = 5_000
LONGEST_PAUSE_MS = 900_000
_AGAIN_SECONDS = 0.2
_ERROR_CHARACTERS = 300


class Ended(StrEnum):
    """Why a pusher stopped."""

    IDLE = "idle"  # nothing was left
    BUSY = "busy"  # another one has the group
    PAUSED = "paused"  # the target is left alone for a while
    LEFT = "left"  # its time is over, and there may be more
    NO_TARGET = "no-target"  # the group has none, or is no more


@dataclass
class Pusher:
    """``owner`` names who pushes; after ``leaves_ms`` it begins no delivery any more (0: it may go on). A pull waits
    ``wait_seconds`` for messages. ``stopping`` says that it is to end. Runs once."""

    cell: Cell
    targets: Targets
    subject: str
    group: str
    owner: str
    leaves_ms: int = 0
    wait_seconds: float = 0.0
    stopping: Callable[[], bool] = lambda: False
    _held: Held[PushState] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _failures: int = 0
    _error: str = ""
    _resumes_ms: int = 0
    _broken: bool = False

    def run(self) -> Ended:
        """Pushes until nothing is left. Raises the store's errors; the lease is then left to run out."""
        found = self._find()
        if found is None:
            return Ended.NO_TARGET
        subject, group, target = found
        ended = self._take(subject, group, target)
        if ended is None and target.kind == "notify":
            return self._notify(subject, group, target)
        while ended is None:
            self._push_together(target)
            ended = self._leave(group) or self._look()
        return ended

    def _find(self) -> tuple[Subject, Group, PushTarget] | None:
        directory = self.cell.directory
        try:
            subject = directory.subject(self.subject)
            group = directory.group(subject, self.group)
        except NotFound:
            return None
        return None if group.push is None else (subject, group, group.push)

    def _now_ms(self) -> int:
        return self.cell.context.clock.now_ms()

    @property
    def _over(self) -> bool:
        return self._broken or self._resumes_ms > 0 or self.stopping() or 0 < self.leaves_ms <= self._now_ms()

    # The lease

    def _take(self, subject: Subject, group: Group, target: PushTarget) -> Ended | None:
        slot = state_slot(self.cell.context, group)
        held = slot.load()
        now_ms = self._now_ms()
        before = PushState() if held is None else held.value
        if not before.free(now_ms):
            return Ended.PAUSED if before.paused(now_ms) else Ended.BUSY
        if not before.overdue(now_ms) and not self._something(subject, group):
            return Ended.IDLE  # woken twice for the same messages, or somebody has pulled them
        self._failures, self._error = before.failures, before.error
        ours = msgspec.structs.replace(before, owner=self.owner, until_ms=self._lease_ms(target), resumes_ms=0)
        stored, held = slot.swap(None if held is None else held.token, ours)
        self._held = held
        return None if stored else Ended.BUSY

    def _lease_ms(self, target: PushTarget) -> int:
        return self._now_ms() + 2 * 1_000 * (target.timeout_seconds + SETTLING_SECONDS)

    def _keep(self, group: Group, target: PushTarget) -> bool:
        """Has the lease outlast one more delivery; False when it is somebody else's."""
        with self._lock:
            held = self._held
            if held is None:
                return False
            if held.value.until_ms > self._now_ms() + 1_000 * (target.timeout_seconds + SETTLING_SECONDS):
                return True
            return self._swap(group, msgspec.structs.replace(held.value, until_ms=self._lease_ms(target)))

    def _swap(self, group: Group, value: PushState) -> bool:
        assert self._held is not None
        stored, held = state_slot(self.cell.context, group).swap(self._held.token, value)
        self._held = held if stored else None
        return stored

    def _leave(self, group: Group) -> Ended | None:
        """Gives the lease up, and writes down how the round went; None where the last look is left to do."""
        if self._held is None:
            return Ended.BUSY
        paused = self._resumes_ms > 0
        left = PushState(failures=self._failures, error=self._error, resumes_ms=self._resumes_ms)
        if not self._swap(group, left):
            return Ended.BUSY
        if paused:
            self.cell.context.meter.record("PushPaused", 1)
            return Ended.PAUSED
        return Ended.LEFT if self._over else None

    def _look(self) -> Ended | None:
        """The last look, the lease being given up. None when it has been taken again."""
        found = self._find()
        if found is None:
            return Ended.NO_TARGET
        subject, group, target = found
        if not self._something(subject, group):
            return Ended.IDLE
        # It could not be pulled a moment ago: a row before it is on its way, or the reading was not up to date.
        self.cell.context.clock.sleep(_AGAIN_SECONDS)
        assert self._held is not None
        taken = msgspec.structs.replace(self._held.value, owner=self.owner, until_ms=self._lease_ms(target))
        return None if self._swap(group, taken) else Ended.BUSY

    def _something(self, subject: Subject, group: Group) -> bool:
        return any(map(waits, pull_logs(self.cell.context, subject, group)))

    # Delivering

    def _push_together(self, target: PushTarget) -> None:
        """Delivers until nothing can be pulled. While the target is on trial, one batch at a time."""
        while self._failures and not self._over:
            if not self._push_once():
                return
        others = target.concurrency - 1
        if self._over or not others:
            self._push()
            return
        with ThreadPoolExecutor(others, "push") as threads:
            running = [threads.submit(self._push) for _ in range(others)]
            self._push()
            for each in running:
                each.result()

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
        if target.kind == "notify" or not self._keep(group, target):
            return False
        request = PullRequest(
            consumer=self.owner,
            max_messages=target.batch,
            lease_seconds=target.timeout_seconds + SETTLING_SECONDS,
            wait_seconds=self.wait_seconds,
        )
        pulls = self.cell.pull(self.subject, self.group, request).pulls
        for pulled in pulls:
            self._settle(pulled, self._deliver(pulled))
        return bool(pulls)

    def _deliver(self, pulled: Pulled) -> Outcome:
        found = self._find()  # a pull that waits may outlast the target
        if found is None or found[2].kind == "notify" or self._over:
            return Outcome(unreached=True)
        _, group, target = found
        secrets = secrets_of(self.cell.secret, group)
        delivery = Delivery(self.subject, self.group, pulled.queue, pulled.messages, secrets)
        outcome = self._deliver_parts(target, delivery)
        self._judge(outcome, len(pulled.messages))
        return outcome

    def _deliver_parts(self, target: PushTarget, delivery: Delivery) -> Outcome:
        outcome = self.targets.deliver(target, delivery)
        if not outcome.too_large:
            return outcome
        middle = len(delivery.messages) // 2
        if not middle:
            return Outcome(dead=frozenset({0}), error=outcome.error)
        first = self._deliver_parts(target, delivery.part(delivery.messages[:middle]))
        second = self._deliver_parts(target, delivery.part(delivery.messages[middle:]))
        return joined(first, second, middle, len(delivery.messages))

    def _judge(self, outcome: Outcome, size: int) -> None:
        """Counts failures in a row, and says when to pause."""
        meter = self.cell.context.meter
        failed = size if outcome.unreached else len(outcome.failed) + len(outcome.dead)
        if size - failed:
            meter.record("PushDelivered", size - failed)
        if failed:
            meter.record("PushFailed", failed)
        with self._lock:
            if failed < size or outcome.dead:
                self._failures, self._error = 0, ""
                return
            self._failures += 1
            self._error = outcome.error[:_ERROR_CHARACTERS]
            doublings = self._failures - (1 if outcome.unreached else FAILURES)
            if doublings >= 0 and not self._resumes_ms:
                pause_ms = min(LONGEST_PAUSE_MS, _FIRST_PAUSE_MS * 2 ** min(doublings, 20))
                wanted_ms = min(LONGEST_PAUSE_MS, round(outcome.retry_after_seconds * 1_000))
                self._resumes_ms = self._now_ms() + max(pause_ms, wanted_ms)

    def _settle(self, pulled: Pulled, outcome: Outcome) -> None:
        everything = list(range(len(pulled.messages)))
        if outcome.unreached:
            settlement = Settlement(receipt=pulled.receipt, release=everything)
        else:
            settlement = Settlement(receipt=pulled.receipt, retry=[*sorted(outcome.failed)], dead=sorted(outcome.dead))
        # Stale: the lease ended first, and the messages come again.
        self.cell.settle(self.subject, self.group, [settlement])

    def _notify(self, subject: Subject, group: Group, target: PushTarget) -> Ended:
        """Leaves first: what is stored after that is announced by others."""
        ended = self._leave(group)
        if ended is not None:
            return ended
        if self._something(subject, group):
            self._judge(self.targets.announce(target, self.subject, self.group), 1)
            if self._failures:
                return self._leave(group) or Ended.IDLE
        return Ended.IDLE


def joined(first: Outcome, second: Outcome, middle: int, size: int) -> Outcome:
    """The outcome of a batch of ``size`` of which the messages from ``middle`` on were delivered apart. What was not
    reached counts as failed where the other part was."""
    if first.unreached and second.unreached:
        return second
    failed = frozenset(range(middle)) if first.unreached else first.failed
    again = range(size - middle) if second.unreached else second.failed
    failed |= {middle + index for index in again}
    dead = first.dead | {middle + index for index in second.dead}
    return Outcome(failed=failed, dead=dead, error=first.error or second.error)


def waits(log: PullLog) -> bool:
    """Whether there is a message that nobody has pulled, be it behind a row that is on its way. Strongly consistent."""
    tail = log.tail()
    now_ms = log.context.clock.now_ms()
    for number, row in log.source.stored(tail.position.row):
        skip = tail.position.index if number == tail.position.row else 0
        if row.count > skip and row.live(now_ms):
            return True
    return False
