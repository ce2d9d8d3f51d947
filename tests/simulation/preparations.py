"""Prepares the stores of directed schedules, in which two actions meet."""

from collections.abc import Callable

import msgspec

from hourwheel.cells.plans import plan_move
from hourwheel.model.pulls import RetryLater
from hourwheel.registry.records import subject_record
from tests.simulation.dates import RequestedDue
from tests.simulation.plan import DAY_MS
from tests.simulation.sides import (
    ARCHIVING,
    KEEPER,
    Stage,
    named,
)

MINUTES = 5
LENGTH_MS = MINUTES * 60_000
"""The length of a bucket in the scenes."""


def a_queue(stage: Stage) -> None:
    """Prepares two dead letters, two retries, two open leases, and more messages behind them."""
    keeper = stage.keeper
    for _ in range(3):
        keeper.send(None, None)
    keeper.pull(2)
    keeper.settle(keeper.consumer.held[0], dead=[0, 1])
    keeper.pull(2)
    keeper.settle(keeper.consumer.held[0], retry=[0, 1])
    keeper.pull(2)
    keeper.pull(1)
    stage.pulls = list(keeper.consumer.held)
    keeper.send(None, None)


def pulls_of_two(stage: Stage) -> None:
    """Prepares two dead letters, and two open leases of two messages each."""
    keeper = stage.keeper
    for _ in range(3):
        keeper.send(None, None)
    keeper.pull(2)
    keeper.settle(keeper.consumer.held[0], dead=[0, 1])
    for _ in range(2):
        keeper.pull(2)
    stage.pulls = list(keeper.consumer.held)


def a_key(stage: Stage) -> None:
    a_queue(stage)
    stage.keeper.send(None, None, key="k")


def a_short_retention(stage: Stage) -> None:
    """Prepares a queue whose first rows have just expired, and whose later rows have not."""
    a_queue(stage)
    stage.pass_by(61_000)
    stage.keeper.send(None, None)


def delayed_messages(stage: Stage) -> None:
    """Prepares three messages in one bucket, due in 20 seconds, and another one in the next bucket."""
    a_queue(stage)
    stage.due_ms = stage.machine.world.now_ms + 20_000
    at = [
        RequestedDue(at_ms=stage.due_ms),
        RequestedDue(at_ms=stage.due_ms + 100),
        RequestedDue(at_ms=stage.due_ms + LENGTH_MS),
    ]
    stage.keeper.send(*at)
    stage.keeper.send(at[0])
    stage.tickets = list(stage.machine.history.tickets)


def due_messages(stage: Stage) -> None:
    """Prepares due messages whose wheel has not turned yet."""
    delayed_messages(stage)
    stage.pass_to(stage.due_ms + 1_000)


def waiting_retries(stage: Stage) -> None:
    """Prepares two retries in one bucket, due in 40 seconds, beside delayed messages due in 20."""
    delayed_messages(stage)
    stage.keeper.settle(stage.pulls[0], retry=[RetryLater(index=index, delay="40s") for index in (0, 1)])
    stage.pulls = [*stage.pulls[1:], stage.pulls[1]]


def an_owner(stage: Stage) -> None:
    """Prepares a wheel that has handed one message over and rests under its lease."""
    delayed_messages(stage)
    stage.keeper.send(RequestedDue(after_ms=2_000))
    stage.keeper.turn(3, step_ms=2_000)


def the_end_of_a_bucket(stage: Stage) -> None:
    """Prepares a bucket that is over, and whose wheel has not turned yet."""
    delayed_messages(stage)
    end_ms = stage.tickets[0].due_ms // LENGTH_MS * LENGTH_MS + LENGTH_MS
    stage.pass_to(end_ms + 1_000)


def a_closed_bucket(stage: Stage) -> None:
    """Prepares a bucket that was closed a day ago: every message is handed over, except one that was moved."""
    delayed_messages(stage)
    stage.keeper.canceller.reschedule(stage.tickets[0], RequestedDue(at_ms=stage.due_ms + 3 * DAY_MS))
    end_ms = stage.tickets[0].due_ms // LENGTH_MS * LENGTH_MS + LENGTH_MS
    stage.pass_to(end_ms + 1_000)
    stage.keeper.turn(8)
    stage.pass_by(DAY_MS + 1_000)


def a_bucket_to_remove(stage: Stage) -> None:
    """Prepares a bucket whose messages were all handed over more than a day ago."""
    delayed_messages(stage)
    end_ms = stage.tickets[0].due_ms // LENGTH_MS * LENGTH_MS + LENGTH_MS
    stage.pass_to(end_ms + 1_000)
    stage.keeper.turn(8)
    stage.pass_by(DAY_MS + 1_000)


def a_target(stage: Stage) -> None:
    """Prepares a group with a target and waiting messages."""
    a_queue(stage)
    named("set another target").act(stage.keeper, stage)
    stage.keeper.send(None, None, None)


def an_archive(stage: Stage) -> None:
    """Prepares a store of which half is archived."""
    delayed_messages(stage)
    ARCHIVING[0].act(stage.keeper, stage)
    stage.keeper.send(None, None)
    stage.keeper.pull(1, group="b")
    stage.keeper.settle(stage.keeper.consumer.held[-1])


def an_emptied_cell(stage: Stage) -> None:
    """Prepares a queue that was in cell c0 and came back. Its part there is empty, and has expired."""
    keeper = stage.keeper
    for cell in ("c0", "home"):
        keeper.send(None, None)
        keeper.operator.move("s", 0, cell)
    for group in ("a", "b"):
        keeper.pull(100, group=group)
    for held in list(keeper.consumer.held):
        keeper.settle(held)
    stage.pass_by(DAY_MS)
    for _ in range(2):
        keeper.actor.ask("sweep", keeper.actor.deployment.sweeper.sweep)
    keeper.send(None, None)


def a_pending_move(stage: Stage) -> None:
    """Prepares a queue with messages, whose move to cell c0 was requested by an operator who was cut off."""
    a_queue(stage)
    keeper = stage.keeper.actor
    record = subject_record(keeper.deployment.context, "s")

    def request() -> None:
        current = record.load()
        assert current is not None
        change = plan_move(0, "c0")(current.value)
        record.swap(current, msgspec.structs.replace(current.value, change=change))

    keeper.ask("request", request)


def keys_in_parts(stage: Stage) -> None:
    """Prepares keys with messages in two parts of a queue and behind added queues, of which some are in flight and one
    has failed."""
    keeper = stage.keeper
    keeper.send(None, None)
    keeper.send(None, None)
    keeper.pull(1)
    keeper.operator.move("s", 0, "c0")
    keeper.send(None, None)
    keeper.operator.queues("s")
    keeper.send(None, None)
    keeper.pull(1)
    stage.pulls = list(keeper.consumer.held)
    keeper.settle(stage.pulls[0], retry=[0])
    keeper.pull(1)
    stage.pulls = [keeper.consumer.held[-1], stage.pulls[1]]


def a_row_that_grows(stage: Stage) -> None:
    """Prepares a consumer that has acknowledged each pull by the next one: its last row has grown, and may grow
    further over the messages that wait."""
    keeper = stage.keeper
    for _ in range(6):
        keeper.send(None, None)
    keeper.pull(2, consumer=KEEPER)
    stage.pulls = []
    for _ in range(3):
        held = keeper.consumer.held[-1]
        stage.pulls.insert(0, held)
        keeper.pull(2, old=held, consumer=KEEPER)
    stage.pulls.insert(0, keeper.consumer.held[-1])


def a_row_that_keeps_messages(stage: Stage) -> None:
    """Prepares a consumer that has met another one: its last row keeps messages for its next pulls."""
    keeper = stage.keeper
    for _ in range(10):
        keeper.send(None)
    keeper.pull(1, consumer=KEEPER)
    keeper.pull(1, consumer="another")
    stage.pulls = [keeper.consumer.held[0]]
    keeper.pull(1, old=stage.pulls[0], consumer=KEEPER)
    stage.pulls.insert(0, keeper.consumer.held[-1])


def a_row_that_grows_and_expires(stage: Stage) -> None:
    """Prepares a row that may grow, in a queue whose first rows have just expired."""
    stage.keeper.send(None, None)
    stage.pass_by(61_000)
    a_row_that_grows(stage)
    stage.pass_by(59_500)


def slow(name: str, held_at: int, prepare: Callable[[Stage], None]) -> Callable[[Stage], None]:
    """Returns the scene in which an actor is paused within an action until others may regard its open work as lost."""

    def prepared(stage: Stage) -> None:
        prepare(stage)
        stage.begin(named(name), held_at)
        stage.keeper.send(None)
        stage.pass_by(1_200)

    return prepared


def a_row_missing_at_the_end_of_a_part(held_at: int) -> Callable[[Stage], None]:
    """Prepares a part of a queue that was sealed while a producer is held within its request, and a part behind it."""

    def prepared(stage: Stage) -> None:
        keeper = stage.keeper
        keeper.send(None, None)
        keeper.pull(100)
        keeper.settle(keeper.consumer.held[-1])
        stage.begin(named("produce"), held_at)
        keeper.operator.move("s", 0, "c0")
        keeper.send(None, None)

    return prepared
