"""Implements pushers: actors that push for a group."""

from dataclasses import dataclass, field

from hourwheel.push.decisions import PusherEnd
from hourwheel.push.pusher import Pusher
from hourwheel.push.waking import wake
from tests.simulation.actors import Actor
from tests.simulation.world import Turns


@dataclass
class Courier(Actor):
    """An actor that wakes for records of the stream, and pushes. Unfinished records are delivered to it again, as
    those of a stream are."""

    logs: list[str] = field(default_factory=list)

    def work(self) -> None:
        couriers = self.machine.couriers
        self.logs += couriers.stored
        couriers.stored.clear()
        if self.logs:
            verb, _ = self.ask("wake", lambda: wake(self.deployment.context, self.logs), logs=self.logs)
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
    courier = Pusher(actor.deployment, actor.deployment.targets, subject, group, owner, leaves_ms)
    courier._lease._lock = Turns(world)
    _, ended = actor.ask("push", courier.run, subject=subject, group=group)
    if ended is PusherEnd.LEFT:
        actor.ask("push on", lambda: actor.deployment.context.pushes.start(subject, group))
