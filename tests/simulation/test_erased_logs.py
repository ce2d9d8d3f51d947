"""Tests how the simulator judges the checkpoints of erased pull logs."""

from dataclasses import dataclass

import pytest

from hourwheel.queueing.pull_log import PullLog
from hourwheel.queueing.records import Checkpoint, Position
from hourwheel.sweep.erasure import erase_group
from tests.simulation.plan import DAY_MS
from tests.simulation.scenes import PLAN
from tests.simulation.schedule import machine_of, prepare
from tests.simulation.sides import GROUP, SUBJECT, Side
from tests.simulation.world import Violation, World


@dataclass
class Scene:
    keeper: Side
    log: PullLog

    def delete(self) -> None:
        cell = self.keeper.actor.cell
        self.keeper.actor.ask("delete-group", lambda: cell.delete_group(SUBJECT, GROUP))

    def save(self, row_no: int) -> None:
        """Replaces the checkpoint, whatever it says."""
        record = self.log.checkpoint_record
        current = record.load()
        record.swap(current and current.token, Checkpoint(row_no, Position(row_no), 0, 0))


@pytest.fixture
def scene() -> Scene:
    """Returns a group whose pull log has a checkpoint behind its first row."""
    world = World(PLAN)
    machine = machine_of(world, PLAN)
    keeper = Side(machine, world.process("keeper"))
    prepare(keeper.actor, PLAN)
    keeper.send(None)
    keeper.pull(1)
    keeper.settle(keeper.consumer.held[0])
    cell = keeper.actor.cell
    keeper.actor.ask("sweep", cell.sweep)
    subject, group = cell.registry.subject(SUBJECT), cell.group(SUBJECT, GROUP)
    [queue] = subject.queue_logs()
    log = PullLog(cell.context, group, cell.context.log(queue), None)
    current = log.checkpoint_record.load()
    assert current is not None
    assert current.value.row_no == 1
    return Scene(keeper, log)


def test_an_erasure_may_be_repeated_when_its_mark_has_expired(scene: Scene) -> None:
    """A sweeper that listed the group before its erasure may go on days later."""
    scene.delete()
    world, state = scene.keeper.actor.world, scene.keeper.machine.state
    world.now_ms += 4 * DAY_MS
    state.expire(world.now_ms, 1.0, world.rng)
    assert scene.log.checkpoint_record.load() is None
    cell = scene.keeper.actor.cell
    erase_group(cell.context, cell.registry.subject(SUBJECT), scene.log.group)
    current = scene.log.checkpoint_record.load()
    assert current is not None
    assert current.value.erased


def test_a_checkpoint_that_falls_is_found(scene: Scene) -> None:
    with pytest.raises(Violation, match="fell from 1 to 0"):
        scene.save(0)


def test_a_checkpoint_that_replaces_the_mark_of_the_erasure_is_found(scene: Scene) -> None:
    scene.delete()
    with pytest.raises(Violation, match="replaces the mark"):
        scene.save(1)


def test_a_mark_in_the_log_of_a_group_that_is_there_is_found(scene: Scene) -> None:
    with pytest.raises(Violation, match="was not deleted"):
        scene.log.erase()
