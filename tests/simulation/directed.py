"""Runs directed schedules: one action is held before its n-th call of the store, until another actor has finished
another action; then the first continues, or its process ends there. Both meet in a scene. At the end the groups consume
everything, and the run is judged like any other schedule.

Every pair of actions that touch the same partition is tried at every call, without chance: these cases find what a race
of two actions can break. Races of more actions are left to the seeds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple
from zlib import crc32

from tests.simulation.archivists import finish
from tests.simulation.listscenes import LIST_SCENES
from tests.simulation.outagescenes import OUTAGE_SCENES
from tests.simulation.plan import Plan
from tests.simulation.rarescenes import RARE_SCENES
from tests.simulation.scenes import SCENES, Scene
from tests.simulation.schedule import Outcome, judge, machine_of, prepare, scaled
from tests.simulation.sides import Action, Side, Stage
from tests.simulation.world import Crashed, Violation, World, uncollected

_WRITES = frozenset({"add", "seal", "put", "delete", "trim", "collect", "transact", "blob put", "blob delete"})


EVERY_SCENE = [*SCENES, *OUTAGE_SCENES, *RARE_SCENES, *LIST_SCENES]


class Call(NamedTuple):
    """A call of the store, with the partition, counter or object that it reads or writes."""

    name: str
    about: str

    @property
    def writes(self) -> bool:
        return self.name in _WRITES


@dataclass(frozen=True)
class Case:
    """``first`` is held before its call number ``held_at``, for ``pause_ms`` longer than ``second`` takes. With
    ``ends`` its process does not go on. ``together``: both are requests of one process."""

    scene: Scene
    first: Action
    second: Action
    held_at: int
    pause_ms: int
    ends: bool
    transactional: bool
    together: bool

    @property
    def label(self) -> str:
        how = [f"held {self.pause_ms} ms"]
        how += ["ends"] * self.ends + ["transactional"] * self.transactional + ["together"] * self.together
        return f"{self.scene.name}: {self.first.name} at {self.held_at} / {self.second.name}, {', '.join(how)}"

    @property
    def plan(self) -> Plan:
        moves = tuple(action.ends for action in (self.first, self.second) if action.ends)
        # Tokens and the answers of targets are drawn in directed schedules too.
        seed = crc32(self.label.encode())
        skew_ms = (0, 0, 900)[seed % 3]
        moves = (*self.scene.plan.moves, *moves)
        return replace(self.scene.plan, seed=seed, moves=moves, transactional=self.transactional, skew_ms=skew_ms)


def cases(share: int = 1, scenes: Sequence[Scene] = EVERY_SCENE) -> Iterator[Case]:
    """Yields every case of these scenes, or one in every ``share``, chosen by its label."""
    for scene in scenes:
        for first in scene.first:
            calls = _calls(scene, first)
            for second in scene.second:
                touched = _calls(scene, second)
                for held_at in range(1, len(calls)):
                    if not (second.meets_all or _meet(calls[held_at:], touched)):
                        continue
                    for case in _variants(scene, first, second, held_at):
                        if crc32(case.label.encode()) % share == 0:
                            yield case


def _variants(scene: Scene, first: Action, second: Action, held_at: int) -> Iterator[Case]:
    """Yields a case for each pause of the scene. ``ends``, ``transactional`` and ``together`` take turns, so that all
    of their values occur."""
    turn = crc32(f"{first.name} {second.name} {held_at}".encode())
    for at, pause_ms in enumerate(scene.pauses):
        ends = (turn + at) % 4 == 0
        transactional = (turn // 4 + at) % 8 == 0
        together = not ends and (turn // 32 + at) % 4 == 0
        yield Case(scene, first, second, held_at, pause_ms, ends, transactional, together)


def _meet(rest: tuple[Call, ...], others: tuple[Call, ...]) -> bool:
    """Returns whether one of the calls writes a thing that the other one reads or writes."""
    written = {call.about for call in others if call.writes}
    seen = {call.about for call in others}
    return any(call.about in written or (call.writes and call.about in seen) for call in rest)


@cache
def _calls(scene: Scene, action: Action) -> tuple[Call, ...]:
    """Returns the calls of an action that runs alone."""
    world = World(scene.plan)
    found: list[Call] = []
    with scaled(scene.plan):
        stage = _set_up(world, scene)
        side = Side(stage.machine, world.process("first"), stage)
        # An action may let the slow one go on.
        for process in (side.process, stage.slow_process):
            if process is not None:
                process.watch = lambda name, about: found.append(Call(name, _place(about)))
        _act(side, action, stage)
    return tuple(found)


def _place(about: object) -> str:
    """Returns the partition, counter or object of a call, without the row."""
    if isinstance(about, tuple):
        return " ".join(str(part) for part in about[:2])
    return str(about)


def run_case(case: Case) -> Outcome:
    plan = case.plan
    world = World(plan)
    violation: BaseException | None = None
    try:
        with uncollected(), scaled(plan):
            _run(world, case)
    except (Violation, Exception) as error:
        violation = error
    return Outcome(crc32(case.label.encode()), world.calls, violation, world)


def _run(world: World, case: Case) -> None:
    stage = _set_up(world, case.scene)
    first = Side(stage.machine, world.process("first"), stage)
    second = Side(stage.machine, world.process("second"), stage)
    if case.together:
        second.share(first)
    left = case.held_at

    def gate() -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            return
        first.process.gate = None
        world.record("held", case.label)
        if case.pause_ms:
            stage.pass_by(case.pause_ms // 2)
        _act_to_the_end(second, case.second, stage)
        if case.pause_ms:
            stage.pass_by(case.pause_ms // 2)
        world.record("goes on", case.first.name)
        if case.ends:
            raise Crashed

    first.process.gate = gate
    world.staged = True
    _act_to_the_end(first, case.first, stage)
    stage.go_on()
    case.scene.afterwards(stage)
    world.staged = False
    judge(stage.keeper.actor)
    if world.plan.archivists:
        finish(stage.keeper.actor)


def _act_to_the_end(side: Side, action: Action, stage: Stage) -> None:
    try:
        _act(side, action, stage)
    except Crashed:
        stage.crashed = True


def _act(side: Side, action: Action, stage: Stage) -> None:
    action.act(side, stage)


def _set_up(world: World, scene: Scene) -> Stage:
    machine = machine_of(world, world.plan)
    keeper = Side(machine, world.process("keeper"))
    prepare(keeper.actor, world.plan)
    stage = Stage(machine, keeper)
    keeper.stage = stage
    scene.prepare(stage)
    return stage
