"""Pushing: what is stored wakes on a late stream; who is started may never come; targets fail as they may."""

from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from hourwheel.model import PushTarget
from hourwheel.ports import Key, Record, Table
from hourwheel.push.targets import DONE, Delivery, Outcome, failure, unreached
from tests.simulation.history import History
from tests.simulation.store import Connection, Watcher
from tests.simulation.world import Crashed, Process, Verb, World

T = TypeVar("T")

_STREAM_MS = 1_500


def target_of(plan_seed: int) -> PushTarget:
    """What a group pushes to: batches of one message to some, one after the other."""
    return PushTarget(kind="python", address="t", batch=1 + plan_seed % 4, concurrency=1, timeout_seconds=1)


class Couriers:
    """Logs in which something was stored, and groups for which somebody is to push."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stored: list[str] = []
        self.started: list[tuple[str, str]] = []
        self._idle: list[Process] = []

    def store(self, log: str) -> None:
        self.world.later(int(self.world.rng.random() * _STREAM_MS), partial(self._arrive, self.stored, log))

    def start(self, subject: str, group: str) -> None:
        if self.world.rng.random() < self.world.faults.forget:
            self.world.note("push", subject, group, "forgotten")
            return
        self.world.later(
            int(self.world.rng.random() * _STREAM_MS), partial(self._arrive, self.started, (subject, group))
        )

    def wait(self, process: Process) -> None:
        """Until there is something to do, or the run ends."""
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
    """Tells the couriers of rows in consume and retry logs, and the ledger of everything."""

    ledger: Watcher
    couriers: Couriers

    def stored(self, verb: Verb, key: Key, before: Record | None, record: Record) -> None:
        self.ledger.stored(verb, key, before, record)
        if key.table is Table.CONSUME:
            self.couriers.store(key.partition)

    def removed(self, key: Key, record: Record) -> None:
        self.ledger.removed(key, record)


class SimulatedPushes(Connection):
    """``Pushes`` of one actor."""

    def __init__(self, process: Process, couriers: Couriers) -> None:
        super().__init__(process)
        self._couriers = couriers

    def start(self, subject: str, group: str) -> None:
        self.call("push", (subject, group), lambda: self._couriers.start(subject, group))


@dataclass
class SimulatedTargets:
    """A target that takes messages, refuses some or all of them, is not there, or takes them and does not say so."""

    world: World
    history: History

    def check(self, target: PushTarget) -> None:
        pass

    def deliver(self, target: PushTarget, delivery: Delivery) -> Outcome:
        rng, faults = self.world.rng, self.world.lively
        roll = rng.random() if faults else 1.0
        if roll < 0.1:
            return unreached("it is not there")
        if roll < 0.2:
            return failure(delivery, "it fails before it looks")
        bodies = [message.body or "" for message in delivery.messages]
        self.history.delivered.setdefault((delivery.subject, delivery.group), set()).update(bodies)
        for body in bodies:
            self.history.in_time(body)
        if roll < 0.3:
            raise Crashed
        if roll < 0.45:
            return Outcome(failed=frozenset(index for index in range(len(bodies)) if rng.random() < 0.5), error="some")
        return DONE

    def announce(self, target: PushTarget, subject: str, group: str) -> Outcome:
        raise NotImplementedError
