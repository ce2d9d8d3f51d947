"""Simulates groups that doze: consumers that wait at wake-up queues, beside producers with old copies of the subject.

Every run ends in the same way: the producers stop, the faults stop, one more message is sent, and the consumers get a
few seconds, much less than a consumer waits at a queue without a wake-up. A message that waits then has been forgotten.
Where wake-ups may be lost, or consumers crash, the sweeper has to find waiting messages within a few of its rounds.

Some consumers handle messages slowly: they hold a lease while others of their group go to sleep, and give messages back
then. Some stop, with or without a wake-up in hand, and start again later as another process.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from unittest.mock import patch

import msgspec

from hourwheel.dozing import rests
from tests.simulation.actors import Actor, Machine
from tests.simulation.checker import unfinished
from tests.simulation.dozeplans import DozePlan
from tests.simulation.faults import Faults
from tests.simulation.producers import Batch, Producer
from tests.simulation.schedule import machine_of, prepare, scaled
from tests.simulation.sleepers import LEASE_SECONDS, CrowdSleeper, Ended, Sleeper
from tests.simulation.wakeups import SimulatedQueues
from tests.simulation.world import Crashed, Violation, World, uncollected

_LAST_SECONDS = 12
"""Longer than the slowest consumer handles a message."""

_LONGEST_REST_SECONDS = 22
"""A consumer whose queue SQS has refused pulls again within this time."""

_SWEEP_SECONDS = 60
_AFTER_A_LOSS_SECONDS = LEASE_SECONDS + 3 * _SWEEP_SECONDS
"""A shorter time than that after which consumers pull by themselves. One sweep ends the lease of a consumer that
crashed, and one may have read outdated counters."""

_SWEEP_REST_SECONDS = 1_920
"""As on AWS, where the sweeper looks at idle subjects about twice an hour."""


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
            longest = 0.02 if self.doze.crowd else 0.1
            self.process.sleep(self.rng.uniform(*self.doze.rest_seconds) if rests else longest * self.rng.random())
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
        (CrowdSleeper if doze.crowd else Sleeper)(
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
    if doze.loses or doze.crowd:
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
