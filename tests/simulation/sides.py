"""Defines the two sides of a directed schedule, and the actions that each of them may take.

An action is one request, or one fixed piece of work of a process: it contains no chance.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from greenlet import getcurrent, greenlet

from hourwheel.archive.archiver import CommitLimits
from hourwheel.model.pulls import PullRequest, RetryLater, Settlement
from tests.simulation.actors import Actor, Machine, share
from tests.simulation.archivists import archive
from tests.simulation.cancellers import Canceller
from tests.simulation.consumers import Consumer
from tests.simulation.couriers import target_of
from tests.simulation.dates import RequestedDue
from tests.simulation.faults import OUTAGES
from tests.simulation.history import Leased, Ticket
from tests.simulation.operators import Operator, SweepingActor
from tests.simulation.producers import Batch, Producer
from tests.simulation.pushers import push
from tests.simulation.wheels import check_goes_on
from tests.simulation.world import Process

SUBJECT, GROUP = "s", "a"
_KEYED = ["k.0", "k.1"]
_LONG_MS = 3_600_000
"""Longer than the rest of a schedule."""


@dataclass
class Stage:
    """The things that a scene has prepared: the open leases, the delayed messages, and their due time."""

    machine: Machine
    keeper: "Side"
    pulls: list[Leased] = field(default_factory=list)
    tickets: list[Ticket] = field(default_factory=list)
    due_ms: int = 0
    slow: greenlet | None = None
    """The actor that is held within an action."""
    slow_process: Process | None = None
    crashed: bool = False
    """Whether a process of the schedule has ended within its action."""

    def begin(self, action: "Action", held_at: int) -> None:
        """Begins an action, and holds it before the call of this number until ``go_on``."""
        world = self.machine.world
        side = Side(self.machine, world.process("slow"), self)
        here = getcurrent()
        left = held_at

        def gate() -> None:
            nonlocal left
            left -= 1
            if left == -1:
                here.switch()

        side.process.gate = gate
        self.slow_process = side.process
        self.slow = greenlet(lambda: action.act(side, self))
        self.slow.switch()

    def go_on(self) -> None:
        slow, self.slow = self.slow, None
        if slow is not None:
            # The exception is raised in the actor that calls ``go_on``.
            slow.parent = getcurrent()
            slow.switch()

    def pass_to(self, at_ms: int) -> None:
        """Lets time pass, and fires the timers that fall due."""
        self.machine.world.pass_to(at_ms)

    def pass_by(self, ms: int) -> None:
        self.pass_to(self.machine.world.now_ms + ms)


@dataclass
class Side:
    """One process, which can act as any of the actors. Both sides see its changes of the stage."""

    machine: Machine
    process: Process
    stage: Stage | None = None
    sent: int = 0

    def __post_init__(self) -> None:
        self.actor = Actor(self.machine, self.process)
        self.producer = self._as(Producer)
        self.consumer = self._as(Consumer)
        self.canceller = self._as(Canceller)
        self.operator = self._as(Operator)
        self.sweeper = self._as(SweepingActor)

    def _as(self, kind: type[Any]) -> Any:
        actor = kind(self.machine, self.process)
        actor.deployment = self.actor.deployment
        return actor

    def share(self, other: "Side") -> None:
        """Makes both sides requests of one process: each has a cell of its own over the same caches."""
        share(self.actor.deployment, other.actor.deployment)
        for actor in (self.producer, self.consumer, self.canceller, self.operator, self.sweeper):
            actor.deployment = self.actor.deployment

    def send(self, *waits: RequestedDue | None, key: str | None = None) -> None:
        self.sent += 1
        bodies = [f"{self.process.name}.{self.sent}.{index}" for index in range(len(waits))] if key is None else _KEYED
        self.producer.send(Batch(bodies, [SUBJECT] * len(waits), key, list(waits)))

    def pull(self, most: int, *, group: str = GROUP, old: Leased | None = None, consumer: str = "", **how: Any) -> None:
        chosen = None if old is None else self._choose(old, **how)
        request = PullRequest(
            consumer=consumer or self.process.name,
            max_messages=most,
            lease_seconds=self.actor.world.plan.lease_seconds,
            settle=None if chosen is None else [chosen],
        )
        self.consumer.pull(SUBJECT, group, request, old)

    def settle(self, held: Leased, **how: Any) -> None:
        self.consumer.settle(held, self._choose(held, **how))

    def turn(self, ticks: int, *, step_ms: int = 1_000, leaves_ms: int = 0) -> None:
        """Turns the wheel of the first delayed message's bucket for this many ticks."""
        assert self.stage is not None
        bucket = self.stage.tickets[0].position[0]
        left = ticks

        def pause(seconds: float) -> bool:
            nonlocal left
            left -= 1
            self.process.sleep(max(seconds, step_ms / 1_000))
            return left > 0

        owner = f"{self.process.name}.{self.actor.world.calls}"
        leaves_ms = leaves_ms and self.process.now_ms() + leaves_ms
        turning = partial(self.actor.deployment.turn_wheel, bucket, owner, pause, leaves_ms=leaves_ms)
        verb, _ = self.actor.ask("wheel", turning, bucket=bucket)
        check_goes_on(verb, self.actor.world.faults)

    def _choose(self, held: Leased, **how: Any) -> Settlement:
        chosen = Settlement(receipt=held.receipt, **how)
        held.asks(chosen)
        return chosen


Act: TypeAlias = Callable[[Side, Stage], object]


@dataclass(frozen=True, eq=False)
class Action:
    """``ends``: the ways in which it may end messages beside delivering them, as a plan names them. ``meets_all``: it
    concerns the calls of the other side whatever they touch."""

    name: str
    act: Act
    ends: str = ""
    meets_all: bool = False


def _settling(which: int) -> list[Action]:
    """Returns every settlement of one of the open leases."""
    choices: dict[str, dict[str, Any]] = {
        "acknowledge": {},
        "acknowledge one": {"ack": [0]},
        "retry": {"retry": [0], "ack": []},
        "retry and reject": {"retry": [0], "dead": [1]} if which == 0 else {"dead": [0]},
        "retry later": {"retry": [RetryLater(index=0, delay="40s")]},
        "release": {"release": [0]},
        "extend": {"extend_seconds": 4},
    }

    def act(how: dict[str, Any]) -> Act:
        return lambda side, stage: side.settle(stage.pulls[which], **how)

    return [Action(f"{name} pull {which}", act(how)) for name, how in choices.items()]


def _operate(name: str, *arguments: str) -> Act:
    return lambda side, stage: getattr(side.operator, name)(SUBJECT, *arguments)


def _put_group(group: str, **how: Any) -> Act:
    return lambda side, stage: side.actor.ask(
        "put group", lambda: side.actor.deployment.groups.put(SUBJECT, group, **how), group=group
    )


def _follow(side: Side, act: Callable[[], object]) -> None:
    """Ages the row behind a missing one, so that readers may fill the missing one."""
    side.send(None)
    side.process.sleep(1.2)
    act()


def _wait(side: Side) -> None:
    """Pulls, and pulls again when a row that was missing then may be filled."""
    side.pull(100)
    side.process.sleep(1.2)
    side.pull(100)
    side.pull(100)


PRODUCING = [
    Action("produce", lambda side, stage: side.send(None, None)),
    Action("produce with a key", lambda side, stage: side.send(None, None, key="k")),
]
FOLLOWING = [
    Action("produce, then pull", lambda side, stage: _follow(side, lambda: side.pull(100))),
    Action(
        "produce, then sweep",
        lambda side, stage: _follow(side, lambda: side.actor.ask("sweep", side.actor.deployment.sweeper.sweep)),
    ),
]
WAITING = [Action("pull until a missing row is overdue", lambda side, stage: _wait(side))]
PULLING = [
    Action("pull one", lambda side, stage: side.pull(1)),
    Action("pull all", lambda side, stage: side.pull(100)),
    Action("pull for b", lambda side, stage: side.pull(100, group="b")),
    Action("pull and settle", lambda side, stage: side.pull(2, old=stage.pulls[0])),
]
SETTLING = [*_settling(0), *_settling(1)]
SWEEPING = [Action("sweep", lambda side, stage: side.actor.ask("sweep", side.actor.deployment.sweeper.sweep))]
SEEKING = [
    Action("seek the start", lambda side, stage: side.operator.seek(SUBJECT, GROUP, to="start"), "seek"),
    Action("seek the end", lambda side, stage: side.operator.seek(SUBJECT, GROUP, to="end"), "seek"),
    Action("seek offset 3", lambda side, stage: side.operator.seek_offset(SUBJECT, GROUP, 3), "seek"),
    Action(
        "seek a time",
        lambda side, stage: side.operator.seek_time(SUBJECT, GROUP, side.process.now_ms() - 3_000),
        "seek",
    ),
]
DEAD = [
    Action("redrive all", lambda side, stage: side.operator.redrive(SUBJECT, GROUP, (0, 1))),
    Action("redrive the first", lambda side, stage: side.operator.redrive(SUBJECT, GROUP, (0,))),
    Action("drop dead letters", lambda side, stage: side.operator.drop(SUBJECT, GROUP), "drop"),
]
READING = [Action("count what waits", _operate("lag", GROUP)), Action("list what is pending", _operate("pending"))]
DELETING = [
    Action("delete the group", _operate("delete_group", GROUP), "delete-group"),
    Action("delete the subject", _operate("delete_subject"), "delete-subject"),
]
CHANGING = [
    Action("add a queue", _operate("queues")),
    Action("begin at the latest message", _operate("latest")),
    Action("change the group", _put_group(GROUP, max_attempts=1), "attempts"),
]
DELAYING = [
    Action(
        "produce delayed",
        lambda side, stage: side.send(RequestedDue(at_ms=stage.due_ms), RequestedDue(at_ms=stage.due_ms + 700)),
    ),
    Action(
        "produce delayed with a key", lambda side, stage: side.send(RequestedDue(at_ms=stage.due_ms), None, key="k")
    ),
    Action("look", lambda side, stage: side.canceller.look(stage.tickets[0])),
    Action("cancel", lambda side, stage: side.canceller.cancel(stage.tickets[0])),
    Action("cancel another", lambda side, stage: side.canceller.cancel(stage.tickets[1])),
    Action(
        "move",
        lambda side, stage: side.canceller.reschedule(stage.tickets[0], RequestedDue(at_ms=stage.due_ms + 400_000)),
    ),
    Action(
        "move a little", lambda side, stage: side.canceller.reschedule(stage.tickets[0], RequestedDue(after_ms=9_000))
    ),
]
HURRYING = [Action("retry now", _operate("hurry", GROUP))]
TURNING = [
    Action("turn the wheel", lambda side, stage: side.turn(4)),
    Action("turn the wheel slowly", lambda side, stage: side.turn(3, step_ms=14_000)),
    Action("turn the wheel until it leaves", lambda side, stage: side.turn(6, step_ms=5_000, leaves_ms=12_000)),
]
PUSHING = [
    Action("push", lambda side, stage: push(side.actor, SUBJECT, GROUP)),
    Action("set another target", _put_group(GROUP, push=target_of(2))),
    Action("take the target away", _put_group(GROUP, push=None)),
]
ARCHIVING = [
    Action("archive", lambda side, stage: archive(side.actor, CommitLimits(), 60)),
    Action(
        "archive bit by bit", lambda side, stage: archive(side.actor, CommitLimits(commit_bytes=1, commit_spans=1), 60)
    ),
]
ARCHIVING_MORE = [
    Action("archive, then produce", lambda side, stage: (archive(side.actor, CommitLimits(), 60), side.send(None))),
    Action(
        "archive, produce, archive",
        lambda side, stage: (
            archive(side.actor, CommitLimits(), 60),
            side.send(None),
            archive(side.actor, CommitLimits(), 60),
        ),
    ),
]
"""The actions of an archiver. Some store rows that another archiver has not seen, before or after they archive."""


MOVING = [
    Action("move the queue", lambda side, stage: side.operator.move(SUBJECT, 0, "c0")),
    Action("move the queue and produce", lambda side, stage: _moved(side)),
    Action("drain", lambda side, stage: side.operator.drain()),
    Action("drain, produce, undrain, move the queue and produce", lambda side, stage: _moved_again(side)),
]

MOVING_AT_ONCE = [
    Action("move the queue to c0", lambda side, stage: side.operator.move(SUBJECT, 0, "c0")),
    Action("move the queue to c1", lambda side, stage: side.operator.move(SUBJECT, 0, "c1")),
]

LEAVING = [Action("move the queue home", lambda side, stage: side.operator.move(SUBJECT, 0, "home"))]

WITHDRAWING = [Action("withdraw the move", lambda side, stage: side.operator.withdraw(SUBJECT, 0))]


FAILING = [
    Action(
        f"cell c0 is {kind}", lambda side, stage, kind=kind: side.operator.outage("c0", kind, _LONG_MS), meets_all=True
    )
    for kind in OUTAGES
]


def _moved(side: Side) -> None:
    side.operator.move(SUBJECT, 0, "c0")
    side.send(None, None)


def _moved_again(side: Side) -> None:
    """Gives up the move that is under way, and moves the queue once more when it has got further messages."""
    side.operator.drain()
    side.send(None, None)
    side.operator.undrain()
    _moved(side)


KEEPER = "keeper"
PULLING_ON = [
    Action("pull on", lambda side, stage: side.pull(2, old=stage.pulls[0], consumer=KEEPER)),
    Action("pull on twice", lambda side, stage: _pull_on_twice(side, stage)),
    Action("pull on as another", lambda side, stage: side.pull(2, old=stage.pulls[0])),
    Action("retry and pull on", lambda side, stage: side.pull(2, old=stage.pulls[0], consumer=KEEPER, retry=[0])),
    Action("repeat an earlier settlement", lambda side, stage: side.settle(stage.pulls[1])),
    Action("retry by an earlier receipt", lambda side, stage: side.settle(stage.pulls[1], retry=[0])),
]
"""The actions of a consumer whose row may grow. The stage has its last two pulls, the later one first."""

AROUND_GROWTH = [
    Action("end the leases", lambda side, stage: _leave(side)),
    Action("pause the group", lambda side, stage: side.operator.pause(SUBJECT, GROUP, whole=False, paused=True)),
    Action("list the consumers", lambda side, stage: _list_consumers(side)),
]


def _pull_on_twice(side: Side, stage: Stage) -> None:
    side.pull(2, old=stage.pulls[0], consumer=KEEPER)
    if side.consumer.held:
        side.pull(2, old=side.consumer.held[-1], consumer=KEEPER)


def _leave(side: Side) -> None:
    side.actor.ask("leave", lambda: side.actor.deployment.groups.leave(SUBJECT, GROUP, KEEPER), consumer=KEEPER)


def _list_consumers(side: Side) -> None:
    side.actor.ask("consumers", lambda: side.actor.deployment.groups.consumers(SUBJECT, GROUP))


GOING_ON = [Action("the slow one goes on", lambda side, stage: stage.go_on())]


def named(name: str) -> Action:
    """Returns the action of this name."""
    every = [*PRODUCING, *PULLING, *SETTLING, *SWEEPING, *SEEKING, *DEAD, *DELETING, *DELAYING, *TURNING, *PUSHING]
    return next(action for action in [*every, *ARCHIVING] if action.name == name)
