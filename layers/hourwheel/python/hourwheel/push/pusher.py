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

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from hourwheel.cell import Cell
from hourwheel.errors import HourwheelError, NotFound
from hourwheel.logs.item import Held
from hourwheel.model import Group, Pulled, PullRequest, PushTarget, Settlement, Subject
from hourwheel.push.signing import secrets_of
from hourwheel.push.state import PushState, state_slot
from hourwheel.push.targets import Delivery, Outcome, Targets
from hourwheel.queueing.pulllog import PullLog, pull_logs
from hourwheel.times import parse_rfc3339

_logger = logging.getLogger("hourwheel")

SETTLING_SECONDS = 30
"""A lease, of messages or of the group, outlasts a delivery by this."""

FAILURES = 5
"""So many deliveries in a row of which all failed make a pause."""

LONGEST_PAUSE_MS = 900_000
_FIRST_PAUSE_MS = 5_000
_SPARE_SECONDS = 5
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
    _pauses: int = 0
    _error: str = ""
    _resumes_ms: int = 0
    _broken: bool = False
    _fault: Exception | None = None
    _concurrency: int = 0

    def run(self) -> Ended:
        """Pushes until nothing is left. Raises the store's errors."""
        found = self._find()
        if found is None:
            return Ended.NO_TARGET
        subject, group, target = found
        ended = self._take(subject, group, target)
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
        self._remember(before)
        ours = msgspec.structs.replace(before, owner=self.owner, until_ms=self._lease_ms(target), resumes_ms=0)
        stored, held = slot.swap(None if held is None else held.token, ours)
        self._held = held
        return None if stored else Ended.BUSY

    def _remember(self, state: PushState) -> None:
        self._failures, self._pauses, self._error = state.failures, state.pauses, state.error

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
            until_ms = self._lease_ms(target)
            return self._swap(group, lambda state: msgspec.structs.replace(state, until_ms=until_ms))

    def _swap(self, group: Group, change: Callable[[PushState], PushState]) -> bool:
        """Changes the record, as long as it is ours."""
        assert self._held is not None
        slot = state_slot(self.cell.context, group)
        stored, held = slot.swap(self._held.token, change(self._held.value))
        if not stored and held is not None and held.value.owner == self.owner and held.value.until_ms:
            # The target was changed: the record is ours still, and begins anew.
            self._remember(held.value)
            self._resumes_ms = 0
            stored, held = slot.swap(held.token, change(held.value))
        self._held = held if stored else None
        return stored

    def _leave(self, group: Group) -> Ended | None:
        """Gives the lease up, and writes down how the round went; None where the last look is left to do."""
        if self._held is None:
            return Ended.BUSY
        if not self._swap(group, lambda state: self._left()):
            return Ended.BUSY
        if self._resumes_ms:
            self.cell.context.meter.record("PushPaused", 1)
            return Ended.PAUSED
        return Ended.LEFT if self._over else None

    def _left(self) -> PushState:
        return PushState(failures=self._failures, pauses=self._pauses, error=self._error, resumes_ms=self._resumes_ms)

    def _look(self) -> Ended | None:
        """The last look, the lease being given up. None when it has been taken again."""
        self.cell.directory.forget(self.subject)  # there may be more queues
        found = self._find()
        if found is None:
            return Ended.NO_TARGET
        subject, group, target = found
        if not self._something(subject, group):
            return Ended.IDLE
        # It could not be pulled a moment ago: a row before it is on its way, or the reading was not up to date.
        self.cell.context.clock.sleep(_AGAIN_SECONDS)
        until_ms = self._lease_ms(target)
        again = self._swap(group, lambda state: msgspec.structs.replace(state, owner=self.owner, until_ms=until_ms))
        return None if again else Ended.BUSY

    def _give_up(self, group: Group, fault: Exception) -> None:
        """After a fault, which may last: a pause."""
        with suppress(HourwheelError):  # the fault may be the store's; then the lease runs out
            if self._held is not None:
                self._fail(type(fault).__name__, pause=True)
                self._swap(group, lambda state: self._left())

    def _something(self, subject: Subject, group: Group) -> bool:
        return any(map(waits, pull_logs(self.cell.context, subject, group)))

    # Delivering

    def _push_together(self, target: PushTarget) -> None:
        """Delivers until nothing can be pulled. After a pause the target is on trial: one message at a time."""
        self._concurrency = target.concurrency
        while self._pauses and not self._over:
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
        if target.kind == "notify" or target.concurrency != self._concurrency or not self._keep(group, target):
            return False
        trial = self._pauses > 0
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
        messages = hand.pulled.messages
        failed: set[int] = set()
        dead: set[int] = set()
        released: set[int] = set()
        parts = [range(len(messages))]
        while parts:
            part = parts.pop(0)
            outcome = self._deliver(hand, part)
            if outcome.too_large and len(part) > 1:
                middle = len(part) // 2
                parts = [part[:middle], part[middle:], *parts]
                continue
            if outcome.unreached and outcome.answered and hand.trial:
                failed |= {*part}  # whoever stands before the target may refuse this message alone
            elif outcome.unreached:
                released |= {*part}
            elif outcome.too_large:
                dead |= {*part}
            failed |= {part[index] for index in outcome.failed}
            released |= {part[index] for index in outcome.untouched}
            dead |= {part[index] for index in outcome.dead}
        self._settle(hand, retry=[*sorted(failed)], dead=sorted(dead), release=sorted(released))

    def _deliver(self, hand: _Hand, part: range) -> Outcome:
        found = self._find()  # a pull that waits may outlast the target
        if found is None or found[2].kind == "notify" or self._over:
            return Outcome(unreached=True)
        _, group, target = found
        if state_slot(self.cell.context, group).key != state_slot(self.cell.context, hand.group).key:
            return Outcome(unreached=True)  # another group of that name
        if not self._keep(group, target) or not self._hold(hand, target):
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
        if hand.ends_ms >= self._now_ms() + 1_000 * (target.timeout_seconds + _SPARE_SECONDS):
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
        """Counts failures in a row, and says when to pause."""
        meter = self.cell.context.meter
        refused = len(outcome.failed) + len(outcome.dead) + len(outcome.untouched)
        if outcome.unreached or outcome.too_large:
            refused = size
        if size - refused:
            meter.record("PushDelivered", size - refused)
        if refused:
            meter.record("PushFailed", refused)
        with self._lock:
            if self._resumes_ms:
                return  # those that were under way when it was decided
            if refused < size or outcome.dead or outcome.too_large:
                self._failures, self._pauses, self._error = 0, 0, ""
                return
            self._fail(outcome.error, pause=outcome.unreached, at_least_seconds=outcome.retry_after_seconds)

    def _fail(self, error: str, *, pause: bool, at_least_seconds: float = 0.0) -> None:
        self._failures += 1
        # Somebody else's words: they are shown on terminals, and stored.
        told = error[:_ERROR_CHARACTERS].encode(errors="replace").decode()
        self._error = "".join(character if character.isprintable() else " " for character in told)
        if pause or self._pauses or self._failures >= FAILURES:
            pause_ms = max(_FIRST_PAUSE_MS * 2 ** min(self._pauses, 20), round(at_least_seconds * 1_000))
            self._resumes_ms = self._now_ms() + min(LONGEST_PAUSE_MS, pause_ms)
            self._pauses += 1

    def _notify(self, subject: Subject, group: Group, target: PushTarget) -> Ended:
        """Leaves first: what is stored after that is announced by others."""
        ended = self._leave(group)
        if ended is not None:
            return ended
        before = self._failures
        if self._something(subject, group):
            self._judge(self._guarded(lambda: self.targets.announce(target, self.subject, self.group), 1), 1)
        return (self._leave(group) if self._failures != before else None) or Ended.IDLE


def waits(log: PullLog) -> bool:
    """Whether there is a message that nobody has pulled, be it behind a row that is on its way. Strongly consistent."""
    tail = log.tail()
    now_ms = log.context.clock.now_ms()
    for number, row in log.source.stored(tail.position.row):
        skip = tail.position.index if number == tail.position.row else 0
        if row.count > skip and row.live(now_ms):
            return True
    return False
