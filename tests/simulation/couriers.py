"""Implements the surroundings of couriers, the actors that push. Stored rows wake them by a late stream, a pusher that
is started may never run, and targets fail in every way."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeVar

from hourwheel.model.groups import PushTarget
from hourwheel.model.targets import DONE, Outcome, PushDelivery, failure, unreached
from hourwheel.ports.storage import Key, Record, Table
from tests.simulation.history import History
from tests.simulation.state import Watcher
from tests.simulation.store import Connection
from tests.simulation.world import Crashed, Process, Verb, World

T = TypeVar("T")

_STREAM_MS = 1_500


def target_of(choice: int, concurrency: int = 1) -> PushTarget:
    """Returns a target for a group: some take batches of one message, some several batches at once."""
    return PushTarget(kind="python", address="t", batch=1 + choice % 4, concurrency=concurrency, timeout_seconds=1)


class Couriers:
    """The stream of logs in which rows were stored, and the groups whose pusher was started."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stored: list[str] = []
        self.started: list[tuple[str, str]] = []
        self._idle: list[Process] = []

    def store(self, log: str) -> None:
        self.world.later(int(self.world.rng.random() * _STREAM_MS), partial(self._arrive, self.stored, log))

    def start(self, subject: str, group: str) -> None:
        if self.world.rng.random() < self.world.faults.forget:
            self.world.record("push", subject, group, "forgotten")
            return
        self.world.later(
            int(self.world.rng.random() * _STREAM_MS), partial(self._arrive, self.started, (subject, group))
        )

    def wait(self, process: Process) -> None:
        """Sleeps until there is work, or the run ends."""
        self._idle.append(process)
        self.world.idle(process)
        if process in self._idle:
            self._idle.remove(process)

    def _arrive(self, where: list[T], what: T) -> None:
        where.append(what)
        if self._idle:
            self.world.wake(self._idle.pop(0))


@dataclass
class Stream:
    """Reports rows of consume and retry logs to the couriers, and every change to the audit."""

    audit: Watcher
    couriers: Couriers

    def stored(self, verb: Verb, key: Key, before: Record | None, record: Record) -> None:
        self.audit.stored(verb, key, before, record)
        if key.table is Table.CONSUME:
            self.couriers.store(key.partition)

    def removed(self, key: Key, record: Record) -> None:
        self.audit.removed(key, record)


class SimulatedPushes(Connection):
    """Implements ``Pushes`` for one actor."""

    def __init__(self, process: Process, couriers: Couriers) -> None:
        super().__init__(process)
        self._couriers = couriers

    def start(self, subject: str, group: str) -> None:
        self.call("push", (subject, group), lambda: self._couriers.start(subject, group))


@dataclass
class SimulatedTargets:
    """A target that takes messages, refuses some or all of them, is not reached, or takes them and gives no answer. The
    verb of the pusher records the messages taken."""

    process: Process
    history: History

    def check(self, target: PushTarget, subject: str) -> None:
        pass

    def deliver(self, target: PushTarget, delivery: PushDelivery) -> Outcome:
        world = self.process.world
        if world.plan.concurrency > 1:
            # Meanwhile other threads deliver.
            self.process.sleep(0.3 * world.rng.random())
        outcome = self._outcome(delivery, world.rng) if world.lively else DONE
        # The message may have been delivered before, and its lease have ended since.
        self.process.verb.taken -= {(message.id or "", message.attempt) for message in delivery.messages}
        if outcome is None:
            self._take(delivery, range(len(delivery.messages)))
            raise Crashed
        left = outcome.failed | outcome.dead | outcome.untouched
        if not outcome.unreached and not outcome.too_large:
            self._take(delivery, [index for index in range(len(delivery.messages)) if index not in left])
        return outcome

    def _outcome(self, delivery: PushDelivery, rng: Random) -> Outcome | None:
        """Returns the outcome. None: the target takes all messages, and the pusher crashes before the answer."""
        roll, indexes = rng.random(), range(len(delivery.messages))
        some = frozenset(index for index in indexes if rng.random() < 0.5)
        if roll < 0.1:
            return unreached("it is not there")
        if roll < 0.2:
            return failure(delivery, "it fails before it looks")
        if roll < 0.3:
            return None
        if roll < 0.42:
            return Outcome(failed=some, error="some")
        if roll < 0.54:
            return Outcome(too_large=True)
        if roll < 0.64:
            first = min(some, default=len(indexes))
            return Outcome(failed=some & {first}, untouched=frozenset(indexes[first + 1 :]), error="in order")
        if roll < 0.68:
            return Outcome(dead=some, error="never")
        if roll < 0.74:
            # A fault that the library reports then comes from the target.
            self.process.verb.raised += 1
            raise ConnectionError("the target is gone in the middle of it")
        if roll < 0.78:
            return Outcome(unreached=True, answered=True, retry_after_seconds=2.0)
        return DONE

    def _take(self, delivery: PushDelivery, indexes: Iterable[int]) -> None:
        for index in indexes:
            message = delivery.messages[index]
            body = message.body or ""
            self.history.delivered.setdefault((delivery.subject, delivery.group), set()).add(body)
            self.history.in_time(body)
            self.process.verb.taken.add((message.id or "", message.attempt))

    def announce(self, target: PushTarget, subject: str, group: str) -> Outcome:
        raise NotImplementedError
