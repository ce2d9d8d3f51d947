"""Defines the scenes in which a cell becomes full, fails or does not answer at one of the calls of an action."""

from dataclasses import replace

from tests.simulation.preparations import a_pending_move, a_queue, due_messages
from tests.simulation.scenes import PLAN, Scene
from tests.simulation.sides import (
    CHANGING,
    DELAYING,
    DELETING,
    FAILING,
    LEAVING,
    MOVING,
    MOVING_AT_ONCE,
    PRODUCING,
    PULLING,
    SEEKING,
    SETTLING,
    SWEEPING,
    TURNING,
    WITHDRAWING,
    Stage,
)
from tests.simulation.world import Violation


def _a_queue_in_a_cell(stage: Stage) -> None:
    """Prepares a queue with messages in cell c0, some of them in flight."""
    stage.keeper.operator.move("s", 0, "c0")
    a_queue(stage)


def _due_messages_for_a_cell(stage: Stage) -> None:
    """Prepares due messages for a queue in cell c0, whose wheel has not turned yet."""
    stage.keeper.operator.move("s", 0, "c0")
    due_messages(stage)


def _a_producer_goes_on(stage: Stage) -> None:
    """Sends messages while the cell is out of reach: unless a queue has moved there, each is accepted."""
    keeper = stage.keeper
    for _ in range(2):
        keeper.send(None)
    parts = [queue.mappings[-1].cell for queue in keeper.actor.deployment.routes.show("s").queues]
    if "c0" not in parts and keeper.process.verb.error is not None:
        raise Violation("10", f"no queue is in the cell, and none takes messages: {keeper.process.verb.error}")


OUTAGE_SCENES = [
    Scene(
        "a move to a cell that fails",
        a_queue,
        [*MOVING_AT_ONCE[:1], *MOVING[1:2], *CHANGING[:1]],
        FAILING,
        pauses=(0, 500, 1_000, 1_500),
        plan=replace(PLAN, cells=1, delays=None),
        afterwards=_a_producer_goes_on,
    ),
    Scene(
        "a pending move to a cell that fails",
        a_pending_move,
        [*MOVING_AT_ONCE[:1], *WITHDRAWING, *SWEEPING, *PRODUCING[:1], *PULLING[1:2]],
        FAILING,
        pauses=(0, 500, 1_000, 1_500),
        plan=replace(PLAN, cells=1, delays=None),
        afterwards=_a_producer_goes_on,
    ),
    Scene(
        "a queue in a cell that fails",
        _a_queue_in_a_cell,
        [*LEAVING, *CHANGING[:1], *PRODUCING, *PULLING[:2], *SETTLING[:3], *SWEEPING, *SEEKING[:1], *DELETING],
        FAILING,
        pauses=(0, 500, 1_000, 1_500),
        plan=replace(PLAN, cells=1, delays=None),
    ),
    Scene(
        "due messages for a cell that fails",
        _due_messages_for_a_cell,
        [*TURNING, *DELAYING[2:4]],
        FAILING,
        pauses=(0, 500, 1_000, 35_000),
        plan=replace(PLAN, cells=1),
    ),
]
