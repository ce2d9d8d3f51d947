"""Defines the scenes in which two rare states meet, of which each alone is usual."""

from dataclasses import replace
from functools import partial
from typing import Any, Literal

from hourwheel.model.pulls import RetryLater
from hourwheel.push.waking import wake
from tests.simulation.couriers import target_of
from tests.simulation.producers import Batch
from tests.simulation.pushers import push
from tests.simulation.scenes import PLAN, Scene
from tests.simulation.sides import (
    DEAD,
    GOING_ON,
    GROUP,
    LEAVING,
    PRODUCING,
    PULLING,
    SEEKING,
    SETTLING,
    SUBJECT,
    SWEEPING,
    Act,
    Action,
    Side,
    Stage,
)
from tests.simulation.world import Violation

_QUEUES = 2
_KEYS = "0123456789"
"""Each number of queues divides them in another way, so that messages of two parts take turns in a later queue."""
_STREAM_MS = 1_600  # what a stream reports has come by then


def _send_keys(side: Side, name: str, key: str | None = None) -> None:
    """Sends a message of each key as one batch."""
    bodies = [f"{name}.{each}" for each in _KEYS]
    side.producer.send(Batch(bodies, [SUBJECT] * len(_KEYS), key, [None] * len(_KEYS)))


def _add_queues(queues: int) -> Act:
    def add(side: Side, stage: Stage) -> None:
        side.actor.ask("queues", lambda: side.actor.deployment.subjects.put(SUBJECT, queues=queues), queues=queues)

    return add


_REPEAT = Action("send the batch with a key", lambda side, stage: _send_keys(side, "m", "m"))
_MORE_QUEUES = Action("add two more queues", _add_queues(7))


def _rows_filled_before_queues_were_added(held_at: int, stage: Stage) -> None:
    """Prepares a batch with a key in two queues, whose sender is held before its rows are stored. Readers have filled
    the rows, and the subject has got more queues since: a repeat has to divide both parts again."""
    stage.begin(_REPEAT, held_at)
    keeper = stage.keeper
    _send_keys(keeper, "later")
    stage.pass_by(_STREAM_MS)
    for _ in range(2):
        keeper.pull(100)
    for held in list(keeper.consumer.held):
        keeper.settle(held)
    _add_queues(5)(keeper, stage)


def _repeat_once_more(stage: Stage) -> None:
    """Repeats the batch: its answer must say where each message is, however often it was divided."""
    _REPEAT.act(stage.keeper, stage)
    if stage.keeper.process.verb.error is not None:
        raise Violation("2", f"a batch cannot be repeated any more: {stage.keeper.process.verb.error}")


def _decide(then: Literal["retry", "dead"]) -> Act:
    def act(side: Side, stage: Stage) -> None:
        decide = partial(side.actor.deployment.groups.decide, SUBJECT, GROUP, None, then)
        side.actor.ask("decide", decide, keys=None, then=then)

    return act


_DECIDING = [
    Action("give the stopped keys up", _decide("dead")),
    Action("try the stopped keys again", _decide("retry")),
]


def _stopped_keys(stage: Stage) -> None:
    """Prepares two stopped keys, with messages behind them."""
    keeper = stage.keeper
    for _ in range(2):
        keeper.send(None, None)
    keeper.pull(2)
    keeper.settle(keeper.consumer.held[0], retry=[0, 1])
    keeper.send(None, None)


def _parts_behind(stage: Stage) -> None:
    """Prepares a queue of four parts, of which three are left, and a group that has consumed almost everything."""
    keeper = stage.keeper
    for cell in ("c0", "home", "c0"):
        keeper.send(None, None)
        keeper.operator.move(SUBJECT, 0, cell)
    keeper.send(None, None)
    keeper.pull(2)
    keeper.settle(keeper.consumer.held[0])
    for _ in range(3):
        keeper.pull(2)
    stage.pulls = list(keeper.consumer.held)


def _seek_back(stage: Stage) -> None:
    """Seeks the second message, in the first part: all messages behind it wait then."""
    keeper = stage.keeper
    keeper.operator.seek_offset(SUBJECT, GROUP, 1)
    if keeper.process.verb.error is not None:
        return
    waiting = keeper.actor.deployment.groups.lag(SUBJECT, GROUP).waiting
    accepted = len(keeper.actor.history.accepted)
    if waiting < accepted - 1:
        raise Violation("1", f"{accepted} messages were accepted, and {waiting} wait after a seek to the second")


def _a_pushed_group(stage: Stage) -> None:
    """Prepares a group with a target and waiting messages."""
    keeper = stage.keeper
    keeper.actor.ask("target", lambda: keeper.actor.deployment.groups.put(SUBJECT, GROUP, push=target_of(1)))
    keeper.send(None, None)


def _push_all(side: Side, stage: Stage) -> None:
    """Pushes to a target that takes everything."""
    world = stage.machine.world
    world.staged = False
    try:
        push(side.actor, SUBJECT, GROUP)
    finally:
        world.staged = True


def _grow(side: Side, stage: Stage) -> None:
    """Adds queues, sends messages to some of them, and wakes pushers, as the stream does."""
    _add_queues(4)(side, stage)
    for _ in range(4):
        side.send(None)
    _wake(side, stage)


def _wake(side: Side, stage: Stage) -> None:
    stage.pass_by(_STREAM_MS)
    logs = list(stage.machine.couriers.stored)
    stage.machine.couriers.stored.clear()
    side.actor.ask("wake", lambda: wake(side.actor.deployment.context, logs), logs=logs)


def _push_on(stage: Stage) -> None:
    """Runs the pushers that were started. Unless one has crashed, no message waits then: none needs the sweeper."""
    keeper, started = stage.keeper, stage.machine.couriers.started
    _wake(keeper, stage)
    stage.pass_by(_STREAM_MS)
    while started:
        started.pop()
        _push_all(keeper, stage)
    keeper.actor.deployment.registry.forget(SUBJECT)
    waiting = keeper.actor.deployment.groups.lag(SUBJECT, GROUP).waiting
    if waiting and not stage.crashed:
        raise Violation("1", f"{waiting} messages wait, and no pusher was started")


def _send_and_wake(side: Side, stage: Stage) -> None:
    side.send(None)
    _wake(side, stage)


_PUSHING = [Action("push all", _push_all)]
_ADDING = [Action("add queues and send", _grow), Action("send and wake", _send_and_wake)]


def _a_key_with_blocks_behind(stage: Stage) -> None:
    """Prepares a pull of three messages of one key, and several blocks of messages parked behind them."""
    keeper = stage.keeper
    for _ in range(3):
        keeper.send(None)
    keeper.pull(3)
    for _ in range(4 * PLAN.parked_block + 1):
        keeper.send(None)
    keeper.pull(3)
    stage.pulls = list(keeper.consumer.held)


def _settle(**how: Any) -> Act:
    return lambda side, stage: side.settle(stage.pulls[0], ack=[], **how)


def _pull_a_few(stage: Stage) -> None:
    """Pulls fewer messages than went back to their place: a pull of all would take them in order anyway."""
    stage.pass_by(3_000)
    stage.keeper.pull(2)


_PIECEMEAL = [
    Action("retry the first", _settle(retry=[RetryLater(index=0, delay="1s")])),
    Action("retry the second", _settle(retry=[1])),
    Action("release the first", _settle(release=[0])),
    Action("release the last", _settle(release=[2])),
]
_ORDERED = replace(PLAN, ordered=True, delays=None)

RARE_SCENES = [
    *(
        Scene(
            f"rows filled before queues were added, held at {held_at}",
            partial(_rows_filled_before_queues_were_added, held_at),
            [_REPEAT, *PULLING[1:2], *SWEEPING],
            [_REPEAT, _MORE_QUEUES, *GOING_ON, *PULLING[1:2], *SWEEPING],
            pauses=(0, 3_000),
            plan=replace(_ORDERED, queues=_QUEUES),
            afterwards=_repeat_once_more,
        )
        for held_at in (4, 5)
    ),
    Scene(
        "stopped keys",
        _stopped_keys,
        [*_DECIDING, *PULLING[:1], *SWEEPING],
        [*_DECIDING, *PULLING[1:2], *SEEKING[:1], *DEAD[:1], *SWEEPING, *PRODUCING[:1]],
        plan=replace(_ORDERED, when_dead="stop", max_attempts=1),
    ),
    *(
        Scene(
            f"parts behind a group{', ordered' * ordered}",
            _parts_behind,
            [*SEEKING, *PULLING[1:2], *SETTLING[:1], *SWEEPING],
            [*SEEKING[:3], *PULLING[1:2], *SETTLING[:1], *LEAVING, *PRODUCING[:1], *SWEEPING],
            pauses=(0, 3_000),
            plan=replace(PLAN, ordered=ordered, cells=1, delays=None, moves=("seek",)),
            afterwards=_seek_back,
        )
        for ordered in (False, True)
    ),
    Scene(
        "a target, and queues that are added",
        _a_pushed_group,
        _PUSHING,
        _ADDING,
        pauses=(0, 1_500),
        plan=replace(PLAN, couriers=1, delays=None),
        afterwards=_push_on,
    ),
    Scene(
        "a key with blocks behind",
        _a_key_with_blocks_behind,
        [*_PIECEMEAL, *PULLING[1:2], *SWEEPING],
        [*_PIECEMEAL, *PULLING[1:2], *SWEEPING, *SEEKING[:1]],
        plan=_ORDERED,
        afterwards=_pull_a_few,
    ),
]
