"""Tests how the simulator judges the erased pull logs of a group, in a store that keeps rows until they expire."""

from dataclasses import dataclass, replace

import msgspec
import pytest

from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import CLOSED, Checkpoint, Growth, Position, PullRow
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
        """Deletes the group through another process."""
        world = self.keeper.actor.world
        other = Side(self.keeper.machine, world.process("other")).actor
        other.ask("delete-group", lambda: other.deployment.groups.delete(SUBJECT, GROUP))

    def claim(self) -> PullRow:
        """Claims a message, and returns the row of the claim."""
        self.keeper.send(None)
        self.keeper.pull(1)
        current = self.log.record(1).load()
        assert current is not None
        return current.value

    def replace(self, row: PullRow) -> None:
        """Replaces the row of the claim, whatever it says."""
        record = self.log.record(1)
        current = record.load()
        self.keeper.actor.ask("pull", lambda: record.swap(current, row))

    def save(self, row_no: int) -> None:
        """Replaces the checkpoint, whatever it says."""
        record = self.log.checkpoint_record
        current = record.load()
        record.swap(current, Checkpoint(row_no, Position(row_no), 0, 0))


@pytest.fixture
def scene() -> Scene:
    """Returns a group whose pull log has a checkpoint behind its first row."""
    world = World(replace(PLAN, trims=False))
    machine = machine_of(world, world.plan)
    keeper = Side(machine, world.process("keeper"))
    prepare(keeper.actor, world.plan)
    keeper.send(None)
    keeper.pull(1)
    keeper.settle(keeper.consumer.held[0])
    deployment = keeper.actor.deployment
    keeper.actor.ask("sweep", deployment.sweeper.sweep)
    subject, group = deployment.registry.subject(SUBJECT), deployment.groups.get(SUBJECT, GROUP)
    [queue] = subject.queue_logs()
    log = PullLog(deployment.context, group, deployment.context.log(queue), None)
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
    deployment = scene.keeper.actor.deployment
    erase_group(deployment.context, deployment.registry.subject(SUBJECT), scene.log.group)
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


def test_a_claim_may_be_settled_after_the_erasure(scene: Scene) -> None:
    claimed = scene.claim()
    scene.delete()
    assert scene.log.record(1).load() is not None
    scene.keeper.settle(scene.keeper.consumer.held[0])
    current = scene.log.record(1).load()
    assert current is not None
    assert (current.value.claim, current.value.state) == (claimed.claim, CLOSED)


def test_a_row_may_grow_after_the_erasure(scene: Scene) -> None:
    claimed = scene.claim()
    scene.keeper.send(None)
    scene.delete()
    scene.replace(_grown(claimed, base=1))


def test_a_claim_that_hands_out_messages_of_an_erased_log_again_is_found(scene: Scene) -> None:
    claimed = scene.claim()
    scene.delete()
    with pytest.raises(Violation, match="of the deleted group begins at"):
        scene.replace(_grown(claimed, base=0))


def _grown(claimed: PullRow, base: int) -> PullRow:
    """Returns another claim, in the row of this one, which also covers the next message."""
    end = Position(claimed.end.row_no + 1)
    growth = Growth(1, base, 0, claimed.end_seq)
    return msgspec.structs.replace(
        claimed, claim=b"another", counts=(*claimed.counts, 1), end=end, end_seq=claimed.end_seq + 1, growth=growth
    )
