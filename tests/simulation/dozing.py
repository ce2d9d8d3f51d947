"""Simulates groups that doze: consumers that wait at wake-up queues, beside producers with old copies of the subject.

Every run ends in the same way: the producers stop, the faults stop, one more message is sent, and the consumers get a
few seconds, much less than a consumer waits at a queue without a wake-up. A message that waits then has been forgotten.
Where wake-ups may be lost, or consumers crash, the sweeper has to find waiting messages within a few of its rounds.

Some consumers handle messages slowly: they hold a lease while others of their group go to sleep, and give messages back
then. Some stop, with or without a wake-up in hand, and start again later as another process.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from unittest.mock import patch

import msgspec

from hourwheel.dozing import rests
from hourwheel.dozing.rests import SAFETY_SECONDS
from hourwheel.model.pulls import PullRequest, Settlement, WakeupQueue
from tests.simulation.actors import Actor, Machine
from tests.simulation.checker import unfinished
from tests.simulation.draws import unarchived
from tests.simulation.faults import NONE, Faults
from tests.simulation.history import Leased
from tests.simulation.plan import AT_ONCE, Plan
from tests.simulation.producers import Batch, Producer
from tests.simulation.schedule import machine_of, prepare, scaled
from tests.simulation.wakeups import SimulatedQueues
from tests.simulation.world import Crashed, Violation, World, uncollected

_LAST_SECONDS = 12
"""Longer than the slowest consumer handles a message."""

_LONGEST_REST_SECONDS = 22
"""A consumer whose queue SQS has refused pulls again within this time."""

_SWEEP_SECONDS = 60
_LEASE_SECONDS = 30
_AFTER_A_LOSS_SECONDS = _LEASE_SECONDS + 3 * _SWEEP_SECONDS
"""A shorter time than that after which consumers pull by themselves. One sweep ends the lease of a consumer that
crashed, and one may have read outdated counters."""

_SWEEP_REST_SECONDS = 1_920
"""As on AWS, where the sweeper looks at idle subjects about twice an hour."""

_PROMPT_MS = 2_500
"""A message that meets no fault is taken in this time: a second until the next pull of a group that is about to doze,
or the way of a wake-up, and the calls of the store."""

_STEP_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class DozePlan:
    """The plan of a run. ``lost``, ``doubled``, ``forged``: wake-ups, as rates per wake-up. ``refused``: wake-ups that
    SQS throttles. ``deleted``: queues that an operator deletes, as a rate per message."""

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
    slow: float = 0.0
    """The share of pulls whose messages are handled for seconds."""
    back: float = 0.1
    """The share of pulls of which a message is given back."""
    bursts: float = 0.0
    """The share of messages that follow the one before at once."""
    stops: float = 0.0
    """The rate per pull, and per second at the queue, at which a consumer stops."""

    late_seconds: int = 0
    """Consumers begin within this time."""
    busy_share: float = 0.02
    """The share of the pulls of busy consumers that record that the group is busy."""

    @property
    def loses(self) -> bool:
        """Returns whether a wake-up may be lost, so that a consumer may have to wait for its next own pull."""
        return bool(self.lost or self.deleted or self.plan.faults.crash or self.plan.faults.lose)

    @property
    def prompt_ms(self) -> int:
        """Returns the time within which a message that meets no fault is taken. Where reads may be out of date, the
        pulls of a group that is about to doze may miss it, and the look that follows them finds it."""
        outdated = self.plan.faults.stale > 0
        return _PROMPT_MS + outdated * int(1_000 * self.plan.registry_seconds)

    @property
    def faultless(self) -> bool:
        return not (self.loses or self.refused or self.plan.faults != NONE)


def drawn(seed: int) -> DozePlan:
    """Returns the plan of a seed: one in three without a fault, one with faults that lose no wake-up, one with all."""
    rng = Random(seed ^ 0xD02E)
    kind = seed % 3
    stale = rng.choice((0.0, 0.6, 0.95))
    faults = (
        Faults(stale=stale),
        Faults(stale=stale, pause=rng.choice((0.0, 0.05)), late=rng.choice((0.0, 0.04))),
        Faults(stale=stale, pause=0.03, crash=rng.choice((0.002, 0.01)), throttle=0.04, lose=0.04),
    )[kind]
    base = unarchived(0)
    groups = rng.choice((("a",), ("a", "b"), ("a", "b", "c", "d")))
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
        registry_seconds=rng.choice((2.0, 5.0, 8.0)),
        subjects=("s",),
        queues=rng.choice((1, 3)),
        groups=groups,
        max_attempts=16,
        retry=AT_ONCE,
        lease_seconds=30,
        ordered=False,
        filters=(),
        broadcast_seconds=rng.choice((0, 0, 86_400)),
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
        latency_ms=2 if len(groups) > 2 else rng.choice((2, 20)),
        retention_seconds=259_200,
    )
    rough = kind == 2
    return DozePlan(
        plan=plan,
        producers=rng.choice((1, 2, 3)),
        sleepers=rng.choice((1, 2, 3)),
        messages=rng.choice((3, 8, 15)),
        rest_seconds=rng.choice(((0.1, 1.0), (1.0, 4.0), (2.0, 6.0), (2.0, 12.0), (0.1, 40.0))),
        lost=rng.choice((0.2, 1.0)) * rough,
        doubled=rng.choice((0.0, 0.2)),
        forged=rng.choice((0.0, 0.1)),
        refused=0.2 * (kind == 1),
        deleted=0.05 * rough,
        slow=rng.choice((0.0, 0.3, 0.6)),
        back=rng.choice((0.1, 0.5)),
        bursts=rng.choice((0.0, 0.3)),
        stops=rng.choice((0.0, 0.02, 0.2)),
        late_seconds=rng.choice((0, 20)),
        busy_share=rng.choice((0.02, 0.5)),
    )


@dataclass
class Ended:
    """The number of producers that have not ended, and the time at which the consumers end."""

    producing: int
    at_ms: int | None = None


@dataclass
class Sleeper(Actor):
    """A consumer that rests as the server says, until the run ends. As the client does, it pulls while it handles
    messages. One that ``leaves`` stops now and then, while others of its group are there."""

    doze: DozePlan | None = None
    group: str = "a"
    leaves: bool = False
    ended: Ended = field(default_factory=lambda: Ended(0))
    taken: list[tuple[int, str]] = field(default_factory=list)
    """The messages that the consumer got, each with its time."""
    returned: list[tuple[int, str]] = field(default_factory=list)
    """The messages that the consumer gave back, each with its time."""
    handling: list[tuple[int, Leased]] = field(default_factory=list)
    """The pulls whose messages are being handled, each with the time at which that ends."""
    begins_ms: int = 0
    held: str = ""
    """The queue of the wake-up that the consumer has received, until the server names a queue again."""

    def live(self) -> None:
        self.process.sleep(self.rng.random() * self.drawn.late_seconds)
        self.begins_ms = self.world.now_ms
        wakeup, last_ms = "able", self.world.now_ms
        while not self._over:
            try:
                if self.leaves and self._happens(self.drawn.stops):
                    self._stop()
                    wakeup, last_ms = "able", self.world.now_ms
                self._settle_due()
                wakeup, last_ms = self._turn(wakeup, last_ms)
            except Crashed:
                self.held = ""
                self.handling.clear()
                self.open()
                self.process.sleep(1)
                wakeup = "able"

    @property
    def drawn(self) -> DozePlan:
        assert self.doze is not None
        return self.doze

    @property
    def _over(self) -> bool:
        return self.ended.at_ms is not None and self.world.now_ms >= self.ended.at_ms

    def _happens(self, rate: float) -> bool:
        return not self.machine.queues.calm and self.rng.random() < rate

    def _stop(self) -> None:
        """Stops as the client does: settles its handled messages, and gives back a wake-up that it has received. Starts
        again later, as another process."""
        self.world.record(self.process.name, "stops", self.held)
        while self.handling:
            self._settle(self.handling.pop()[1])
        if self.held:
            self.machine.queues.give_back(self.held)
            self.held = ""
        away_seconds = self.rng.randint(1, 60)
        while away_seconds and not self._over:
            self.process.sleep(1)
            away_seconds -= 1
        self.open()

    def _turn(self, wakeup: str, last_ms: int) -> tuple[str, int]:
        request = PullRequest(
            consumer=self.process.name,
            max_messages=self.rng.choice((1, 2, 100) if len(self.world.plan.groups) < 3 else (10, 100)),
            lease_seconds=_LEASE_SECONDS,
            wait_seconds=self.rng.choice((0.0, 2.0)),
            idle_seconds=(self.world.now_ms - last_ms) / 1_000,
            wakeup=wakeup,
        )
        verb, result = self.ask(
            "pull",
            lambda: self.deployment.pull("s", self.group, request),
            group=self.group,
            consumer=request.consumer,
            lease_seconds=_LEASE_SECONDS,
        )
        if result is None:
            self.process.sleep(1)
            return wakeup, last_ms
        for held in self.history.pulled(verb, "s", self.group, result):
            last_ms = self.world.now_ms
            self.taken += [(last_ms, body) for body in held.bodies]
            slow = self._happens(self.drawn.slow)
            self.handling.append((last_ms + slow * self.rng.randint(1_000, 10_000), held))
        self._settle_due()
        if result.wakeup is None:
            self.process.sleep(max(0.01, result.next_pull_seconds))
            return "able", last_ms
        self.held = ""
        return self._wait_at(result.wakeup), last_ms

    def _settle_due(self) -> None:
        """Settles the pulls whose messages are handled by now."""
        now_ms = self.world.now_ms
        due, self.handling = (
            [held for at_ms, held in self.handling if at_ms <= now_ms],
            [one for one in self.handling if one[0] > now_ms],
        )
        for held in due:
            self._settle(held)

    def _settle(self, held: Leased) -> None:
        """Settles the messages, and gives the first one back now and then."""
        back = self.rng.random() < self.drawn.back
        way = self.rng.choice(("retry", "release"))
        chosen = Settlement(receipt=held.receipt, **({way: [0]} if back else {}))
        held.asks(chosen)
        verb, answer = self.ask(
            "settle",
            partial(self.deployment.settle, "s", self.group, [chosen]),
            row=(held.partition, held.row),
            chosen=chosen,
        )
        if answer is not None:
            self.history.settled(verb, held, chosen, answer[0])
            if back and answer[0].status == "settled":
                self.returned.append((verb.began_ms, held.bodies[0]))

    def _wait_at(self, queue: WakeupQueue) -> str:
        queues = self.machine.queues
        until_ms = self.world.now_ms + round(1_000 * queue.wait_seconds)
        if queue.wait_seconds > SAFETY_SECONDS:
            raise Violation("doze", f"a consumer is told to wait for {queue.wait_seconds} s")
        while self.world.now_ms < until_ms and not self._over:
            heard = queues.receive(queue.url)
            if heard is not None:
                self.held = queue.url if heard == "woken" else ""
                return heard
            if self.leaves and self._happens(self.drawn.stops * _STEP_SECONDS):
                self._stop()
                break
            self._settle_due()
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
            rests = self.rng.random() >= self.doze.bursts
            self.process.sleep(self.rng.uniform(*self.doze.rest_seconds) if rests else 0.1 * self.rng.random())
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


@dataclass
class Minutely(Actor):
    """The sweeper, which comes each minute."""

    ended: Ended = field(default_factory=lambda: Ended(0))

    def live(self) -> None:
        while self.ended.at_ms is None or self.world.now_ms < self.ended.at_ms:
            try:
                self.process.sleep(_SWEEP_SECONDS)
                self.ask("sweep", self.deployment.sweeper.sweep)
            except Crashed:
                self.open()


def run_doze(doze: DozePlan) -> World:
    """Makes one run. Raises ``Violation``."""
    world = World(doze.plan)
    with uncollected(), scaled(doze.plan), patch.object(rests, "_BUSY_SHARE", doze.busy_share):
        machine = machine_of(world, doze.plan)
        machine.queues = SimulatedQueues(world, doze)
        machine.settings = msgspec.structs.replace(machine.settings, sweep_rest_seconds=_SWEEP_REST_SECONDS)
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
        Sleeper(
            machine,
            world.process(f"c{n}{group}"),
            doze=doze,
            group=group,
            leaves=n > 0 and group not in broadcast(doze),
            ended=ended,
        )
        for group in doze.plan.groups
        for n in range(doze.sleepers)
    ]
    for actor in (*senders, *sleepers, Minutely(machine, world.process("sweeper"), ended=ended)):
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
    keeper.process.sleep(doze.late_seconds)
    world.faults, queues.calm = Faults(), True
    if doze.loses:
        keeper.process.sleep(_AFTER_A_LOSS_SECONDS)
        if left := _forgotten(keeper, doze):
            raise Violation("doze", f"neither a wake-up nor the sweeper has found these messages: {left[:3]}")
    elif doze.refused:
        keeper.process.sleep(_LONGEST_REST_SECONDS)
    else:
        keeper.process.sleep(_LAST_SECONDS)
        if left := _forgotten(keeper, doze):
            raise Violation("doze", f"no wake-up was lost, and messages wait: {left[:3]}")
    keeper.open()
    keeper.one("the last one")
    ended.at_ms = world.now_ms + 1_000 * _LAST_SECONDS


def _forgotten(keeper: Actor, doze: DozePlan) -> list[str]:
    """Returns the messages that wait now and after the time in which a message is taken. A consumer that still pulls
    may have given one back a moment ago."""
    before = _left(keeper)
    if before:
        keeper.process.sleep(doze.prompt_ms / 1_000)
    return [one for one in before if one in _left(keeper)]


def _left(keeper: Actor) -> list[str]:
    """Returns the messages that no consumer has leased."""
    return [text for text in unfinished(keeper.history.audit) if text.endswith(" waits")]


def broadcast(doze: DozePlan) -> tuple[str, ...]:
    """Returns the groups of which each consumer gets every message."""
    return doze.plan.groups[-1:] if doze.plan.broadcast_seconds else ()


def _check_prompt(senders: Sequence[Sender], sleepers: Sequence[Sleeper], doze: DozePlan) -> None:
    """Checks that each group, and each consumer of a broadcast group, got each message soon after it was stored, and
    again soon after a consumer gave it back."""
    sent = [(at_ms, body) for sender in senders for body, at_ms in sender.sent_ms.items()]
    for group in doze.plan.groups:
        members = [sleeper for sleeper in sleepers if sleeper.group == group]
        for each in [[member] for member in members] if group in broadcast(doze) else [members]:
            taken = sorted(one for sleeper in each for one in sleeper.taken)
            begins_ms = max(sleeper.begins_ms for sleeper in each if not sleeper.leaves)
            for at_ms, body in (*sent, *(one for sleeper in each for one in sleeper.returned)):
                since_ms = max(at_ms, begins_ms)
                got_ms = next((got_ms for got_ms, one in taken if one == body and got_ms >= at_ms), None)
                if got_ms is None or got_ms - since_ms > doze.prompt_ms:
                    raise Violation("doze", f"group {group} got {body} of {since_ms} at {got_ms} ms")
