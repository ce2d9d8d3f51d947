"""Simulates groups that doze: consumers that wait at wake-up queues, beside producers with old copies of the subject.

Every run ends in the same way: the actors stop, the faults stop, one more message is sent to each subject, and the
consumers get a few seconds, less than a group stays quiet after a wake-up and much less than a consumer waits at a
queue without one. A message that waits then has been forgotten.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from hourwheel.errors import Throttled
from hourwheel.model.pulls import PullRequest, Settlement, WakeupQueue
from hourwheel.queueing.dozing import SAFETY_SECONDS
from tests.simulation.actors import Actor, Machine
from tests.simulation.checker import unfinished
from tests.simulation.faults import NONE, Faults
from tests.simulation.plan import Plan, unarchived
from tests.simulation.producers import Batch, Producer
from tests.simulation.schedule import machine_of, prepare, scaled
from tests.simulation.world import Crashed, Violation, World

_LAST_SECONDS = 8
"""Less than the 10 s for which a group that was woken is not woken again."""

_AFTER_A_LOSS_SECONDS = SAFETY_SECONDS + 30
_PROMPT_MS = 2_500
"""A message that meets no fault is taken in this time: a second until the next pull of a group that is about to doze,
or the way of a wake-up, and the calls of the store."""

_STEP_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class DozePlan:
    """What a run draws. ``lost``, ``doubled``, ``forged``: wake-ups, as rates per ring. ``refused``: rings that SQS
    throttles. ``deleted``: queues that an operator deletes, as a rate per message."""

    plan: Plan
    producers: int
    sleepers: int
    messages: int
    rest_seconds: tuple[float, ...]
    lost: float = 0.0
    doubled: float = 0.0
    forged: float = 0.0
    refused: float = 0.0
    deleted: float = 0.0

    @property
    def loses(self) -> bool:
        """Returns whether a wake-up may be lost, so that a consumer may have to wait for its next own pull."""
        return bool(self.lost or self.deleted or self.plan.faults.crash or self.plan.faults.lose)

    @property
    def faultless(self) -> bool:
        return not (self.loses or self.refused or self.plan.faults != NONE)


def drawn(seed: int) -> DozePlan:
    """Returns the plan of a seed: one in three without a fault, one with faults that lose no wake-up, one with all."""
    rng = Random(seed ^ 0xD02E)
    kind = seed % 3
    stale = rng.choice((0.0, 0.6))
    faults = (
        Faults(stale=stale),
        Faults(stale=stale, pause=rng.choice((0.0, 0.05)), late=rng.choice((0.0, 0.04))),
        Faults(stale=stale, pause=0.03, crash=0.01, throttle=0.04, lose=0.04),
    )[kind]
    base = unarchived(0)
    plan = replace(
        base,
        seed=seed,
        transactional=False,
        together=False,
        calls=1_000_000,
        faults=faults,
        skew_ms=rng.choice((0, 100)),
        drift=0.0,
        long_pauses=False,
        longest_pause_ms=5_000,
        registry_seconds=rng.choice((2.0, 5.0)),
        subjects=("s",),
        queues=rng.choice((1, 3)),
        groups=rng.choice((("a",), ("a", "b"))),
        max_attempts=16,
        lease_seconds=30,
        ordered=False,
        filters=(),
        broadcast_seconds=0,
        max_in_flight=0,
        messages_per_second=0,
        delays=None,
        couriers=0,
        cells=0,
        archivists=0,
        own_retry=None,
        answer_bytes=0,
        quiet_days=False,
        switch=0.5,
        latency_ms=rng.choice((2, 20)),
        retention_seconds=259_200,
    )
    rough = kind == 2
    return DozePlan(
        plan=plan,
        producers=rng.choice((1, 2, 3)),
        sleepers=rng.choice((1, 2, 3)),
        messages=rng.choice((3, 8, 15)),
        rest_seconds=rng.choice(((0.1, 1.0), (1.0, 4.0), (2.0, 12.0), (0.1, 40.0))),
        lost=0.2 * rough,
        doubled=rng.choice((0.0, 0.2)),
        forged=rng.choice((0.0, 0.1)),
        refused=0.2 * (kind == 1),
        deleted=0.05 * rough,
    )


@dataclass
class SimulatedQueues:
    """``WakeupQueues`` of the run. A wake-up is under way for up to 300 ms, and nobody receives one that is older than
    a minute."""

    world: World
    doze: DozePlan
    made: set[str] = field(default_factory=set)
    waiting: dict[str, list[int]] = field(default_factory=dict)

    def open(self, name: str, *, fresh: bool) -> WakeupQueue:
        if fresh or name not in self.waiting:
            self.made.add(name)
            self.waiting.setdefault(name, [])
        return WakeupQueue(name, "simulated")

    def ring(self, name: str) -> bool:
        chance = self.world.rng.random
        if not self.world.alone and chance() < self.doze.refused and not self.calm:
            raise Throttled("SQS")
        self.world.record("ring", name)
        if name not in self.made:
            return False
        if self.calm or chance() >= self.doze.lost:
            for _ in range(1 + (chance() < self.doze.doubled)):
                self.world.later(int(300 * chance()), partial(self._arrive, name))
        return True

    def remove(self, name: str) -> None:
        self.made.discard(name)
        self.waiting.pop(name, None)

    calm: bool = False

    def forge(self) -> None:
        for name in sorted(self.made):
            if self.world.rng.random() < self.doze.forged:
                self._arrive(name)

    def delete_some(self) -> None:
        for name in sorted(self.made):
            if not self.calm and self.world.rng.random() < self.doze.deleted:
                self.world.record("deleted by hand", name)
                self.made.discard(name)
                self.waiting[name] = []

    def receive(self, name: str) -> str | None:
        """Returns what a consumer says in its next pull; None while no wake-up is there."""
        if name not in self.made:
            return "missing"
        found = [at_ms for at_ms in self.waiting[name] if self.world.now_ms - at_ms < 60_000]
        self.waiting[name] = []
        return "woken" if found else None

    def _arrive(self, name: str) -> None:
        if name in self.made:
            self.waiting[name].append(self.world.now_ms)


@dataclass
class Ended:
    """How many producers have not ended, and when the consumers end."""

    producing: int
    at_ms: int | None = None


@dataclass
class Sleeper(Actor):
    """A consumer that rests as the server says, until the run ends."""

    group: str = "a"
    ended: Ended = field(default_factory=lambda: Ended(0))
    taken: dict[str, int] = field(default_factory=dict)

    def live(self) -> None:
        wakeup, last_ms = "able", self.world.now_ms
        while not self._over:
            try:
                wakeup, last_ms = self._turn(wakeup, last_ms)
            except Crashed:
                self.open()
                self.process.sleep(1)
                wakeup = "able"

    @property
    def _over(self) -> bool:
        return self.ended.at_ms is not None and self.world.now_ms >= self.ended.at_ms

    def _turn(self, wakeup: str, last_ms: int) -> tuple[str, int]:
        request = PullRequest(
            consumer=self.process.name,
            max_messages=self.rng.choice((1, 2, 100)),
            lease_seconds=30,
            wait_seconds=self.rng.choice((0.0, 2.0)),
            idle_seconds=(self.world.now_ms - last_ms) / 1_000,
            wakeup=wakeup,
        )
        verb, result = self.ask(
            "pull",
            lambda: self.cell.pull("s", self.group, request),
            group=self.group,
            consumer=request.consumer,
            lease_seconds=30,
        )
        if result is None:
            self.process.sleep(1)
            return "able", last_ms
        for held in self.history.pulled(verb, "s", self.group, result):
            last_ms = self.world.now_ms
            for body in held.bodies:
                self.taken.setdefault(body, self.world.now_ms)
            retried = [0] if self.rng.random() < 0.2 else None
            chosen = Settlement(receipt=held.receipt, retry=retried)
            held.asks(chosen)
            verb, answer = self.ask(
                "settle",
                partial(self.cell.settle, "s", self.group, [chosen]),
                row=(held.partition, held.row),
                chosen=chosen,
            )
            if answer is not None:
                self.history.settled(verb, held, chosen, answer[0])
        if result.pulls or result.wakeup is None:
            self.process.sleep(max(0.01, result.next_pull_seconds))
            return "able", last_ms
        return self._wait_at(result.wakeup), last_ms

    def _wait_at(self, queue: WakeupQueue) -> str:
        queues = self.machine.queues
        until_ms = self.world.now_ms + round(1_000 * queue.wait_seconds)
        if queue.wait_seconds > SAFETY_SECONDS:
            raise Violation("doze", f"a consumer is told to wait for {queue.wait_seconds} s")
        while self.world.now_ms < until_ms and not self._over:
            heard = queues.receive(queue.url)
            if heard is not None:
                return heard
            self.process.sleep(_STEP_SECONDS)
        return "able"


@dataclass
class Sender(Producer):
    """A producer that sends a few messages, and rests between them."""

    doze: DozePlan | None = None
    ended: Ended = field(default_factory=lambda: Ended(0))
    sent_ms: dict[str, int] = field(default_factory=dict)

    def live(self) -> None:
        assert self.doze is not None
        for number in range(self.doze.messages):
            self.process.sleep(self.rng.uniform(*self.doze.rest_seconds))
            self.machine.queues.forge()
            self.machine.queues.delete_some()
            try:
                self.one(f"{self.process.name}.{number}")
            except Crashed:
                self.open()
        self.ended.producing -= 1

    def one(self, body: str) -> None:
        stored = self.send(Batch([body], ["s"], None, [None]))
        if stored:
            self.sent_ms[body] = self.world.now_ms
        elif not (self.world.faults.throttle or self.world.faults.lose):
            raise Violation("doze", f"{body} is stored, and its sender is told otherwise")


def run_doze(doze: DozePlan) -> World:
    """Makes one run. Raises ``Violation``."""
    world = World(doze.plan)
    with scaled(doze.plan):
        machine = machine_of(world, doze.plan)
        machine.queues = SimulatedQueues(world, doze)
        _run(machine, doze)
    return world


def _run(machine: Machine, doze: DozePlan) -> None:
    world = machine.world
    faults, world.faults, world.limit = world.faults, Faults(), doze.plan.calls
    keeper = Sender(machine, world.process("keeper"))
    prepare(keeper, doze.plan)
    world.faults = faults
    ended = Ended(doze.producers)
    senders = [Sender(machine, world.process(f"p{n}"), doze=doze, ended=ended) for n in range(doze.producers)]
    sleepers = [
        Sleeper(machine, world.process(f"c{n}{group}"), group=group, ended=ended)
        for group in doze.plan.groups
        for n in range(doze.sleepers)
    ]
    for actor in (*senders, *sleepers):
        world.spawn(actor.process, actor.live)
    world.spawn(keeper.process, lambda: _end(keeper, doze, ended))
    world.run()
    left = _left(keeper)
    if left:
        raise Violation("doze", f"consumers wait at their queues, and messages wait for them: {left[:3]}")
    if doze.faultless:
        _check_prompt(senders, sleepers, doze)


def _end(keeper: Sender, doze: DozePlan, ended: Ended) -> None:
    """Waits for the producers, ends the faults, sends once more, and lets the consumers have their time."""
    world, queues = keeper.world, keeper.machine.queues
    while ended.producing:
        keeper.process.sleep(0.5)
    world.faults, queues.calm = Faults(), True
    if doze.loses:
        # The consumers' own pulls find messages whose wake-up was lost; the leases of crashed consumers end meanwhile.
        keeper.process.sleep(_AFTER_A_LOSS_SECONDS)
        keeper.ask("sweep", keeper.cell.sweep)
        keeper.process.sleep(_AFTER_A_LOSS_SECONDS)
    elif not doze.refused:
        keeper.process.sleep(_LAST_SECONDS)
        if left := _left(keeper):
            raise Violation("doze", f"no wake-up was lost, and messages wait: {left[:3]}")
    keeper.open()
    keeper.one("the last one")
    ended.at_ms = world.now_ms + 1_000 * _LAST_SECONDS


def _left(keeper: Actor) -> list[str]:
    """Returns the messages that no consumer has leased."""
    return [text for text in unfinished(keeper.history.audit) if text.endswith(" waits")]


def _check_prompt(senders: Sequence[Sender], sleepers: Sequence[Sleeper], doze: DozePlan) -> None:
    """Checks that each group got each message soon after it was stored."""
    for group in doze.plan.groups:
        taken: dict[str, int] = {}
        for sleeper in sleepers:
            if sleeper.group == group:
                for body, at_ms in sleeper.taken.items():
                    taken[body] = min(at_ms, taken.get(body, at_ms))
        for sender in senders:
            for body, sent_ms in sender.sent_ms.items():
                late_ms = taken[body] - sent_ms
                if late_ms > _PROMPT_MS:
                    raise Violation("doze", f"group {group} got {body} after {late_ms} ms")
