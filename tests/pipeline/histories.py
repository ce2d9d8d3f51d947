"""Draws random histories of a world: acts of producers, consumers and operators, and faults."""

import random
from dataclasses import replace

from hourwheel.adapters.files import FileBlobs
from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.archive.rebuild import rebuild
from tests.pipeline.faults import FAULTS, Scene
from tests.pipeline.worlds import DAY, HOUR, World

SUBJECTS = ("orders", "bills", "new")
_GROUP = "billing"
_ACTS = ("send", "later", "cancel", "retry", "dead", "redrive", "all", "seek", "group", "delete", "wait")


def act(world: World, draw: random.Random) -> None:
    """Does one random thing to one subject, and lets the wheels turn for a while."""
    kind, subject = draw.choice(_ACTS), draw.choice(SUBJECTS)
    world.bench.deployment.groups.put(subject, _GROUP)
    if kind in ("send", "later", "cancel"):
        _produce(world, draw, kind, subject)
    elif kind in ("retry", "dead"):
        where = {"subject": subject, "group": _GROUP}
        for pull in world.bench.pull(2, **where):
            world.bench.settle(pull, **{kind: [0]}, **where)
    elif kind != "wait":
        _operate(world, draw, kind, subject)
    world.bench.turn(3 * HOUR if kind == "wait" else draw.choice((1, 60, HOUR)))


def _produce(world: World, draw: random.Random, kind: str, subject: str) -> None:
    bench = world.bench
    if kind == "send":
        bench.send(*"abc"[: draw.randint(1, 3)], subject=subject)
    elif kind == "later":
        bench.send_later("d", delay=draw.choice((60, 2 * HOUR, DAY)), subject=subject)
    else:
        (accepted,) = bench.send_later("x", delay=5 * HOUR, subject=subject)
        bench.deployment.delayed.cancel(accepted.scheduled_id or "")


def _operate(world: World, draw: random.Random, kind: str, subject: str) -> None:
    deployment = world.bench.deployment
    if kind == "redrive":
        deployment.dead_letters(subject, _GROUP).redrive(lambda *_: True)
    elif kind == "all":
        world.acknowledge(subject, _GROUP)
    elif kind == "seek":
        world.bench.pull(1, subject=subject, group=_GROUP)
        deployment.seeks().seek(subject, _GROUP, to="start")
    elif kind == "delete":
        deployment.groups.delete(subject, _GROUP)
    else:
        deployment.groups.put(subject, f"late-{draw.randint(1, 3)}", start="latest")


def fail(world: World, draw: random.Random, number: int) -> None:
    """Does something wrong to a subject of its own."""
    name = draw.choice(sorted(FAULTS))
    world.bench.turn(HOUR)
    FAULTS[name][0](Scene(world, f"{name}-{number}"))
    world.bench.turn(HOUR)


def lose_the_store(world: World) -> None:
    """Rebuilds the store from its archive."""
    bench = replace(world.bench, store=MemoryStore(), blobs=MemoryBlobs(), timers=type(world.bench.timers)())
    rebuild(bench.deployment.context, FileBlobs(world.archive), gap=1_000)
    world.bench = bench
    bench.deployment.sweeper.sweep()
    bench.turn(60)
