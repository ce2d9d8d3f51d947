"""Those who use the queue: producers, consumers, sweepers, an operator.

What an actor keeps in its attributes survives its crashes (its outbox, the receipts it holds); the
cell with its caches does not.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, TypeVar

from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.adapters.retrying import RetryingStore
from hourwheel.archive.marks import archived_ms
from hourwheel.cell import Cell
from hourwheel.context import Context, Settings
from hourwheel.delay.waits import delay_ms
from hourwheel.delay.wheel import Ended
from hourwheel.errors import HourwheelError, Rejected, Unavailable
from hourwheel.logs.segments import drop_expired_segments
from hourwheel.model import (
    IDEMPOTENCY_MS,
    AddressedMessage,
    NewMessage,
    PullRequest,
    RetryLater,
    ScheduledMessage,
    Settled,
    Settlement,
)
from hourwheel.push import pusher
from hourwheel.push.pusher import Pusher
from hourwheel.push.waking import wake
from hourwheel.queueing.produce import IdempotencyKey
from tests.simulation.couriers import Couriers, SimulatedPushes, SimulatedTargets
from tests.simulation.dates import Dates, Wait
from tests.simulation.history import Held, History, Ticket
from tests.simulation.store import SimulatedBlobs, SimulatedStore, State, TransactionalStore
from tests.simulation.timers import Alarms, SimulatedTimers
from tests.simulation.world import Crashed, Process, Silence, SimulatedIds, Verb, Violation, World

T = TypeVar("T")

_LONGEST_CALL_MS = 300_000


@dataclass
class Machine:
    """Everything that actors share."""

    world: World
    state: State
    blobs: MemoryBlobs
    history: History
    settings: Settings
    alarms: Alarms
    dates: Dates | None
    couriers: Couriers
    archive: MemoryBlobs = field(default_factory=MemoryBlobs)


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
            timers=SimulatedTimers(process, machine.alarms),
            pushes=SimulatedPushes(process, machine.couriers),
            settings=machine.settings,
        ),
        SimulatedTargets(machine.world, machine.history),
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

    @property
    def dates(self) -> Dates:
        assert self.machine.dates is not None
        return self.machine.dates

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
        delays = self.world.plan.delays
        if delays is not None and self.rng.random() < delays.patience:
            self.process.sleep(self.dates.wait_ms(self.world.now_ms) / 1_000)
        else:
            pace = 1 if delays is None or isinstance(self, Canceller) else delays.pace
            self.process.sleep(self.rng.random() * longest_ms * pace / 1_000)

    def wait(self, seconds: float) -> bool:
        """``Pause`` of a wheel that nobody disturbs: ticks that are far apart."""
        self.process.sleep(max(seconds, 20 + 20 * self.rng.random()))
        return True

    def ask(self, name: str, call: Callable[[], T], **details: Any) -> tuple[Verb, T | None]:
        """One call into the library; None when it failed as calls may fail."""
        verb = self.process.verb = Verb(name, self.process.name, self.world.calls, details)
        try:
            result = call()
        except (Rejected, Unavailable) as error:
            verb.error = error
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
    waits: list[Wait | None]
    sent_ms: int | None = None


@dataclass
class Producer(Actor):
    outbox: Batch | None = None
    count: int = 0
    waiting: int = 0
    """Batches with delayed messages."""

    def work(self) -> None:
        if self.outbox is None:
            self.outbox = self._batch()
        batch = self.outbox
        if batch.sent_ms is not None and not self._may_repeat(batch, batch.sent_ms):
            self.outbox = None
            return
        self.history.sending(batch.bodies, again=batch.key is None)
        batch.sent_ms = batch.sent_ms or self.world.now_ms
        idempotency = None if batch.key is None else IdempotencyKey(batch.key, batch.key.encode())
        before = {name: subject.generation for name, subject in self.history.ledger.subjects.items()}
        began_ms = self.process.now_ms()
        self.history.waits(batch.bodies, batch.waits, began_ms)
        waits = [wait.text for wait in batch.waits if wait is not None]
        _, places = self.ask(
            "produce", lambda: self._send(batch, idempotency), key=batch.key, bodies=batch.bodies, waits=waits
        )
        if places is not None:
            window = (began_ms, self.process.now_ms())
            self.history.produced(self.process.name, batch.targets, batch.bodies, batch.waits, places, before, window)
            self.outbox = None
        self.nap(400)

    def _may_repeat(self, batch: Batch, sent_ms: int) -> bool:
        if batch.key is None:
            return self.world.plan.resends
        return self.world.now_ms - sent_ms < IDEMPOTENCY_MS - _LONGEST_CALL_MS

    def _send(self, batch: Batch, idempotency: IdempotencyKey | None) -> Any:
        lanes = [body[-1] if self.world.plan.queues > 1 else None for body in batch.bodies]
        whens: list[dict[str, Any]] = [{} if wait is None else wait.fields for wait in batch.waits]
        if len(self.world.plan.subjects) > 1:
            many = [
                AddressedMessage(body=body, key=lane, subject=subject, **when)
                for body, lane, subject, when in zip(batch.bodies, lanes, batch.targets, whens, strict=True)
            ]
            return self.cell.produce_many(many, idempotency)
        messages = [
            NewMessage(body=body, key=lane, **when) for body, lane, when in zip(batch.bodies, lanes, whens, strict=True)
        ]
        return self.cell.produce("s", messages, idempotency)

    def _batch(self) -> Batch:
        self.count += 1
        name, plan = f"{self.process.name}.{self.count}", self.world.plan
        bodies = [f"{name}.{index}" for index in range(self.rng.randint(1, 4))]
        targets = [self.rng.choice(plan.subjects) for _ in bodies]
        key = name if self.rng.random() < plan.keyed else None
        return Batch(bodies, targets, key, self._waits(len(bodies)))

    def _waits(self, size: int) -> list[Wait | None]:
        delays = self.world.plan.delays
        if delays is None or self.waiting >= delays.batches:
            return [None] * size
        waits = [
            self.dates.draw(self.process.now_ms()) if self.rng.random() < delays.share else None for _ in range(size)
        ]
        self.waiting += any(waits)
        return waits


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
        verb, result = self.ask(
            "pull", lambda: self.cell.pull(subject, group, request), group=group, settle=wish, delays=delays_of(wish)
        )
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
            delays=delays_of(wish),
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
            wish = Settlement(receipt=held.receipt, retry=[self._again(index) for index in some])
            other = self.rng.choice(("dead", "release", ""))
            if other:
                setattr(wish, other, rest)
        else:
            wish = Settlement(receipt=held.receipt, ack=some, retry=rest)
        held.asks(wish)
        return wish

    def _again(self, index: int) -> int | RetryLater:
        delays = self.world.plan.delays
        if delays is None or not delays.own_retries or self.rng.random() < 0.5:
            return index
        return RetryLater(index=index, delay=f"{self.rng.choice((0, 200, 3_000, 90_000))}ms")


def delays_of(wish: Settlement | None) -> list[int]:
    """The delays that a consumer chose, in milliseconds."""
    entries = (wish.retry or ()) if wish is not None else ()
    return [delay_ms(entry.delay, "") for entry in entries if isinstance(entry, RetryLater)]


@dataclass
class WheelTurner(Actor):
    """Turns the wheels whose timers fire."""

    lives: int = 0

    def work(self) -> None:
        alarms = self.machine.alarms
        if not alarms.fired:
            alarms.wait(self.process)
            return
        bucket = alarms.fired.pop(0)
        self.lives += 1
        plan, now_ms = self.world.plan, self.process.now_ms()
        assert plan.delays is not None
        leaves = plan.delays.leaves_seconds * 1_000
        leaves_ms = now_ms + int(leaves * (0.5 + self.rng.random())) if leaves else 0
        # As one server that turns all of its wheels under one name, or as one that is made for each.
        owner = self.process.name if plan.seed % 2 else f"{self.process.name}.{self.lives}"
        _, ended = self.ask(
            "wheel",
            lambda: self.cell.turn_wheel(bucket, owner, self._pause, leaves_ms=leaves_ms),
            bucket=bucket,
            leaves_ms=leaves_ms,
        )
        again = ended in (None, Ended.BUSY, Ended.STOPPED) and self.rng.random() < 0.5
        if again:
            self.world.alarm(self.world.now_ms + 2_000, partial(alarms.fire, bucket))

    def _pause(self, seconds: float) -> bool:
        roll = self.rng.random()
        self.process.sleep(seconds + (0 if roll < 0.3 else 3 * self.rng.random() if roll < 0.8 else 12.0 * roll))
        delays = self.world.plan.delays
        return self.rng.random() < 0.99 or (delays is not None and delays.prompt)


@dataclass
class Canceller(Actor):
    """Looks delayed messages up, cancels them, moves them to another time."""

    wish: tuple[Ticket, str] | None = None

    def work(self) -> None:
        self.nap(2_000)
        tickets = self.history.tickets
        if not tickets:
            return
        if self.wish is None or self.rng.random() < 0.3:
            some = [self.rng.choice(tickets) for _ in range(4)]
            ticket = min(some, key=lambda ticket: abs(ticket.due_ms - self.world.now_ms))
            self.wish = (ticket, self.rng.choice(("look", "cancel", "cancel", "reschedule")))
        ticket, what = self.wish
        if getattr(self, "_" + what)(ticket):
            self.wish = None

    def _look(self, ticket: Ticket) -> bool:
        return self._asked("look", ticket, lambda: self.cell.scheduled(ticket.handle))

    def _cancel(self, ticket: Ticket) -> bool:
        self.history.given_up.add(ticket.body)
        return self._asked("cancel", ticket, lambda: self.cell.cancel(ticket.handle))

    def _reschedule(self, ticket: Ticket) -> bool:
        began_ms = self.process.now_ms()
        wish = self.dates.draw(began_ms)
        self.history.waits([ticket.body], [wish], began_ms)
        return self._asked("reschedule", ticket, lambda: self.cell.reschedule(ticket.handle, **wish.fields), wish=wish)

    def _asked(self, name: str, ticket: Ticket, call: Callable[[], ScheduledMessage], wish: Wait | None = None) -> bool:
        known, began_ms = self.history.known(ticket), self.process.now_ms()
        verb, answer = self.ask(name, call, handle=ticket.handle, wish=wish.text if wish else "")
        if answer is None:
            self.history.refused(verb, ticket)
            return isinstance(verb.error, Rejected)
        self.history.answered(name, ticket, known, answer)
        if wish is not None and answer.state == "waiting":
            self.history.moved(ticket, wish, answer, (began_ms, self.process.now_ms()))
        return True


@dataclass
class Courier(Actor):
    """Wakes by what the stream brings, and pushes. What it has not finished comes again, as a stream's records do."""

    logs: list[str] = field(default_factory=list)

    def work(self) -> None:
        couriers = self.machine.couriers
        self.logs += couriers.stored
        couriers.stored.clear()
        if self.logs:
            verb, _ = self.ask("wake", lambda: wake(self.cell.context, self.logs), logs=self.logs)
            if verb.error is None:
                self.logs = []
        elif couriers.started:
            subject, group = couriers.started.pop(0)
            push(self, subject, group)
        else:
            couriers.wait(self.process)
            return
        if self.rng.random() < 0.3:
            self.nap(1_000)


def push(actor: Actor, subject: str, group: str) -> None:
    world = actor.world
    leaves_ms = actor.process.now_ms() + 5_000 if world.lively and world.rng.random() < 0.3 else 0
    owner = f"{actor.process.name}.{world.calls}"
    courier = Pusher(actor.cell, actor.cell.targets, subject, group, owner, leaves_ms)
    _, ended = actor.ask("push", courier.run, subject=subject, group=group)
    if ended is pusher.Ended.LEFT:
        actor.ask("push on", lambda: actor.cell.context.pushes.start(subject, group))


@dataclass
class SweepingActor(Actor):
    def work(self) -> None:
        self.nap(3_000)
        self.ask("sweep", self.cell.sweep)
        if self.rng.random() < 0.2:
            context, now_ms = self.cell.context, self.process.now_ms()
            self.ask(
                "drop segments",
                lambda: drop_expired_segments(context.blobs, min(now_ms, archived_ms(context))),
            )


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

    def _pending(self, subject: str, _: str) -> None:
        self.ask("pending", lambda: self.cell.pending(subject, hours=48))

    def _delete_group(self, subject: str, group: str) -> None:
        self.ask("delete-group", lambda: self.cell.delete_group(subject, group))

    def _delete_subject(self, subject: str, _: str) -> None:
        self.ask("delete-subject", lambda: self.cell.delete_subject(subject))
