"""Those who use the queue: producers, consumers, sweepers, an operator.

What an actor keeps in its attributes survives its crashes (its outbox, the receipts it holds); the
cell with its caches does not.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.adapters.retrying import RetryingStore
from hourwheel.cell import Cell
from hourwheel.context import Context, Settings
from hourwheel.errors import HourwheelError, Rejected, Unavailable
from hourwheel.logs.segments import drop_expired_segments
from hourwheel.model import AddressedMessage, NewMessage, PullRequest, Settled, Settlement
from hourwheel.queueing.produce import IdempotencyKey
from tests.simulation.history import Held, History
from tests.simulation.store import SimulatedBlobs, SimulatedStore, State, TransactionalStore
from tests.simulation.world import Crashed, Process, Silence, SimulatedIds, Verb, Violation, World

T = TypeVar("T")


@dataclass
class Machine:
    """Everything that actors share."""

    world: World
    state: State
    blobs: MemoryBlobs
    history: History
    settings: Settings


def open_cell(machine: Machine, process: Process) -> Cell:
    """A new process of the library: real code, empty caches."""
    plan, ids = machine.world.plan, SimulatedIds(machine.world.rng)
    if plan.transactional:
        store: Any = TransactionalStore(process, machine.state)
    else:
        direct = SimulatedStore(process, machine.state)
        store = RetryingStore(direct, process, ids, budget_seconds=plan.budget_seconds)
    silence = Silence(process)
    return Cell(
        Context(
            store=store,
            blobs=SimulatedBlobs(process, machine.blobs),
            clock=process,
            ids=ids,
            arrivals=silence,
            meter=silence,
            settings=machine.settings,
        )
    )


@dataclass
class Actor:
    """Works until the run is over, and begins anew when it crashes."""

    machine: Machine
    process: Process
    cell: Cell = field(init=False)

    def __post_init__(self) -> None:
        self.cell = open_cell(self.machine, self.process)

    @property
    def world(self) -> World:
        return self.machine.world

    @property
    def rng(self) -> Random:
        return self.machine.world.rng

    @property
    def history(self) -> History:
        return self.machine.history

    def live(self) -> None:
        while not self.world.over:
            try:
                self.work()
            except Crashed:
                self.process.atomic = False
                self.cell = open_cell(self.machine, self.process)
                if not self.world.over:
                    self.nap(1_500)

    def work(self) -> None:
        raise NotImplementedError

    def nap(self, longest_ms: int) -> None:
        self.process.sleep(self.rng.random() * longest_ms / 1_000)

    def ask(self, name: str, call: Callable[[], T], **details: Any) -> tuple[Verb, T | None]:
        """One call into the library; None when it failed as calls may fail."""
        verb = self.process.verb = Verb(name, self.process.name, self.world.calls, details)
        try:
            result = call()
        except (Rejected, Unavailable) as error:
            self.world.note(self.process.name, name, details, "failed:", error)
            return verb, None
        except HourwheelError as error:
            raise Violation("errors", f"{name} raised {type(error).__name__}: {error}") from error
        self.world.note(self.process.name, name, details, "answered", result)
        return verb, result


@dataclass
class Batch:
    bodies: list[str]
    targets: list[str]
    key: str | None
    sent: bool = False


@dataclass
class Producer(Actor):
    outbox: Batch | None = None
    count: int = 0

    def work(self) -> None:
        if self.outbox is None:
            self.outbox = self._batch()
        batch = self.outbox
        if batch.sent and batch.key is None and not self.world.plan.resends:
            self.outbox = None
            return
        self.history.sending(batch.bodies, again=batch.key is None)
        batch.sent = True
        idempotency = None if batch.key is None else IdempotencyKey(batch.key, batch.key.encode())
        before = {name: subject.generation for name, subject in self.history.ledger.subjects.items()}
        _, places = self.ask("produce", lambda: self._send(batch, idempotency), key=batch.key, bodies=batch.bodies)
        if places is not None:
            self.history.produced(self.process.name, batch.targets, batch.bodies, places, before)
            self.outbox = None
        self.nap(400)

    def _send(self, batch: Batch, idempotency: IdempotencyKey | None) -> Any:
        lanes = [body[-1] if self.world.plan.queues > 1 else None for body in batch.bodies]
        if len(self.world.plan.subjects) > 1:
            many = [
                AddressedMessage(body=body, key=lane, subject=subject)
                for body, lane, subject in zip(batch.bodies, lanes, batch.targets, strict=True)
            ]
            return self.cell.produce_many(many, idempotency)
        return self.cell.produce(
            "s", [NewMessage(body=body, key=lane) for body, lane in zip(batch.bodies, lanes, strict=True)], idempotency
        )

    def _batch(self) -> Batch:
        self.count += 1
        name, plan = f"{self.process.name}.{self.count}", self.world.plan
        bodies = [f"{name}.{index}" for index in range(self.rng.randint(1, 4))]
        targets = [self.rng.choice(plan.subjects) for _ in bodies]
        return Batch(bodies, targets, name if self.rng.random() < plan.keyed else None)


@dataclass
class Consumer(Actor):
    held: list[Held] = field(default_factory=list)
    spent: list[Held] = field(default_factory=list)

    def work(self) -> None:
        roll = self.rng.random()
        if self.held and roll < 0.7:
            self._settle(self.held[int(self.rng.random() * len(self.held))])
        elif self.spent and roll < 0.75:
            self._settle(self.rng.choice(self.spent))
        else:
            self._pull()
        if self.rng.random() < 0.4:
            self.nap(self.rng.choice((100, 800, 4_000)))

    def _pull(self) -> None:
        plan = self.world.plan
        subject, group = self.rng.choice(plan.subjects), self.rng.choice(plan.groups)
        old = self._wanted(subject, group)
        wish = None if old is None else self._wish(old)
        request = PullRequest(
            consumer=self.process.name,
            max_messages=self.rng.choice((1, 2, 3, 100)),
            wait_seconds=self.rng.choice((0, 0, 0, 1)),
            lease_seconds=plan.lease_seconds,
            settle=None if wish is None else [wish],
        )
        verb, result = self.ask("pull", lambda: self.cell.pull(subject, group, request), group=group, settle=wish)
        if result is None:
            return
        if old is not None and wish is not None and result.settled is not None:
            self._answered(verb, old, wish, result.settled[0])
        self.held += self.history.pulled(verb, subject, group, result)

    def _wanted(self, subject: str, group: str) -> Held | None:
        wanted = [held for held in self.held if (held.subject, held.group) == (subject, group)]
        return self.rng.choice(wanted) if wanted and self.rng.random() < 0.5 else None

    def _settle(self, held: Held) -> None:
        wish = self._wish(held)
        verb, result = self.ask(
            "settle",
            lambda: self.cell.settle(held.subject, held.group, [wish]),
            row=(held.partition, held.row),
            wish=wish,
        )
        if result is not None:
            self._answered(verb, held, wish, result[0])

    def _answered(self, verb: Verb, held: Held, wish: Settlement, answer: Settled) -> None:
        self.history.settled(verb, held, wish, answer)
        if answer.status in ("settled", "stale") and held in self.held:
            self.held.remove(held)
            self.spent = [*self.spent[-3:], held]

    def _wish(self, held: Held) -> Settlement:
        roll, size = self.rng.random(), len(held.bodies)
        some = [index for index in range(size) if self.rng.random() < 0.5]
        rest = [index for index in range(size) if index not in some and self.rng.random() < 0.5]
        if roll < 0.1:
            return Settlement(receipt=held.receipt, extend_seconds=self.world.plan.lease_seconds)
        if roll < 0.5:
            wish = Settlement(receipt=held.receipt)
        elif roll < 0.75:
            wish = Settlement(receipt=held.receipt, retry=some)
            other = self.rng.choice(("dead", "release", ""))
            if other:
                setattr(wish, other, rest)
        else:
            wish = Settlement(receipt=held.receipt, ack=some, retry=rest)
        held.asks(wish)
        return wish


@dataclass
class SweepingActor(Actor):
    def work(self) -> None:
        self.nap(3_000)
        self.ask("sweep", self.cell.sweep)
        if self.rng.random() < 0.2:
            now_ms = self.process.now_ms()
            self.ask("drop segments", lambda: drop_expired_segments(self.cell.context.blobs, now_ms))


@dataclass
class Operator(Actor):
    def work(self) -> None:
        self.nap(2_500)
        plan = self.world.plan
        move = self.rng.choice(plan.moves)
        subject, group = self.rng.choice(plan.subjects), self.rng.choice(plan.groups)
        getattr(self, "_" + move.replace("-", "_"))(subject, group)

    def _redrive(self, subject: str, group: str) -> None:
        wanted = self.rng.choice(((0,), (1,), (0, 1), (0, 1)))
        self.ask("redrive", lambda: self.cell.redrive(subject, group, lambda at, _: at.index % 2 in wanted))

    def _drop(self, subject: str, group: str) -> None:
        if self.rng.random() < 0.4:
            self.ask("drop", lambda: self.cell.drop_dead(subject, group, lambda at, _: at.row % 2 == 0))

    def _seek(self, subject: str, group: str) -> None:
        roll = self.rng.random()
        if roll < 0.4:
            self.ask("seek", lambda: self.cell.seek(subject, group, to="start"), to="start")
        elif roll < 0.6:
            offset = self.rng.randrange(12)
            self.ask("seek", lambda: self.cell.seek_offset(subject, group, 0, offset), offset=offset)
        elif roll < 0.8:
            at_ms = self.process.now_ms() - self.rng.randrange(8_000)
            self.ask("seek", lambda: self.cell.seek_time(subject, group, at_ms), at_ms=at_ms)
        else:
            self.ask("seek", lambda: self.cell.seek(subject, group, to="end"), to="end")

    def _retention(self, subject: str, _: str) -> None:
        seconds = self.rng.choice((60, 3_600, 259_200))
        self.ask("retention", lambda: self.cell.put_subject(subject, retention_seconds=seconds), seconds=seconds)

    def _queues(self, subject: str, _: str) -> None:
        self.ask("queues", lambda: self.cell.put_subject(subject, queues=2))

    def _attempts(self, subject: str, group: str) -> None:
        attempts = self.rng.choice((1, 2, 5))
        self.ask("attempts", lambda: self.cell.put_group(subject, group, max_attempts=attempts))

    def _latest(self, subject: str, _: str) -> None:
        self.ask("latest", lambda: self.cell.put_group(subject, "latest", start="latest"))
        request = PullRequest(consumer=self.process.name, lease_seconds=1)
        verb, result = self.ask("pull", lambda: self.cell.pull(subject, "latest", request))
        if result is not None:
            self.history.pulled(verb, subject, "latest", result)

    def _lag(self, subject: str, group: str) -> None:
        self.ask("lag", lambda: self.cell.lag(subject, group))
        self.ask("dead", lambda: self.cell.dead(subject, group, after=None, limit=10))

    def _delete_group(self, subject: str, group: str) -> None:
        self.ask("delete-group", lambda: self.cell.delete_group(subject, group))

    def _delete_subject(self, subject: str, _: str) -> None:
        self.ask("delete-subject", lambda: self.cell.delete_subject(subject))
