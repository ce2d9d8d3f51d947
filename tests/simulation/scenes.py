"""Defines the scenes of directed schedules: each prepares the store in which two actions meet, and names these
actions."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from hourwheel.cells.plans import plan_move
from hourwheel.model.groups import RetryPolicy
from hourwheel.registry.records import subject_record
from tests.simulation.dates import RequestedDue
from tests.simulation.delays import Delays
from tests.simulation.faults import Faults
from tests.simulation.plan import AT_ONCE, Plan
from tests.simulation.sides import (
    ARCHIVING,
    ARCHIVING_MORE,
    AROUND_GROWTH,
    CHANGING,
    DEAD,
    DELAYING,
    DELETING,
    FOLLOWING,
    GOING_ON,
    KEEPER,
    MOVING,
    MOVING_AT_ONCE,
    PRODUCING,
    PULLING,
    PULLING_ON,
    PUSHING,
    READING,
    SEEKING,
    SETTLING,
    SWEEPING,
    TURNING,
    WAITING,
    WITHDRAWING,
    Action,
    Stage,
    named,
)

_MINUTES = 5
_LENGTH_MS = _MINUTES * 60_000
_DAY_MS = 86_400_000

_DELAYS = Delays(
    share=1.0,
    bucket_minutes=_MINUTES,
    shards=1,
    reach_ms=20_000,
    dates=1,
    batches=1,
    wheels=1,
    leaves_seconds=0,
    cancellers=1,
    own_retries=True,
    patience=0.0,
    pace=1,
    step_picks=5_000,
)

PLAN = Plan(
    seed=3,
    transactional=False,
    trims=True,
    calls=5_000,
    switch=0.0,
    latency_ms=1,
    skew_ms=0,
    long_pauses=False,
    budget_seconds=0.3,
    registry_seconds=2.0,
    inline_bytes=12_288,
    faults=Faults(),
    subjects=("s",),
    queues=1,
    retention_seconds=259_200,
    groups=("a", "b"),
    max_attempts=3,
    lease_seconds=2,
    producers=1,
    consumers=1,
    sweepers=1,
    keyed=0.0,
    resends=False,
    spanning=False,
    operators=1,
    moves=(),
    quiet_days=False,
    empty_rows=2,
    start_ms=_LENGTH_MS - 150_000,
    retry=AT_ONCE,
    delays=_DELAYS,
)


@dataclass(frozen=True, eq=False)
class Scene:
    """``pauses``: the times for which the first action is held, in addition to the time of the second one.
    ``afterwards``: what follows both actions, before faults and outages end."""

    name: str
    prepare: Callable[[Stage], None]
    first: list[Action]
    second: list[Action]
    pauses: tuple[int, ...] = (0, 1_500, 3_000)
    plan: Plan = PLAN
    afterwards: Callable[[Stage], None] = lambda stage: None


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


def _pulls_of_two(stage: Stage) -> None:
    """Prepares two dead letters, and two open leases of two messages each."""
    keeper = stage.keeper
    for _ in range(3):
        keeper.send(None, None)
    keeper.pull(2)
    keeper.settle(keeper.consumer.held[0], dead=[0, 1])
    for _ in range(2):
        keeper.pull(2)
    stage.pulls = list(keeper.consumer.held)


def _a_key(stage: Stage) -> None:
    a_queue(stage)
    stage.keeper.send(None, None, key="k")


def _a_short_retention(stage: Stage) -> None:
    """Prepares a queue whose first rows have just expired, and whose later rows have not."""
    a_queue(stage)
    stage.pass_by(61_000)
    stage.keeper.send(None, None)


def _delayed_messages(stage: Stage) -> None:
    """Prepares three messages in one bucket, due in 20 seconds, and another one in the next bucket."""
    a_queue(stage)
    stage.due_ms = stage.machine.world.now_ms + 20_000
    at = [
        RequestedDue(at_ms=stage.due_ms),
        RequestedDue(at_ms=stage.due_ms + 100),
        RequestedDue(at_ms=stage.due_ms + _LENGTH_MS),
    ]
    stage.keeper.send(*at)
    stage.keeper.send(at[0])
    stage.tickets = list(stage.machine.history.tickets)


def due_messages(stage: Stage) -> None:
    """Prepares due messages whose wheel has not turned yet."""
    _delayed_messages(stage)
    stage.pass_to(stage.due_ms + 1_000)


def _an_owner(stage: Stage) -> None:
    """Prepares a wheel that has handed one message over and rests under its lease."""
    _delayed_messages(stage)
    stage.keeper.send(RequestedDue(after_ms=2_000))
    stage.keeper.turn(3, step_ms=2_000)


def _the_end_of_a_bucket(stage: Stage) -> None:
    """Prepares a bucket that is over, and whose wheel has not turned yet."""
    _delayed_messages(stage)
    end_ms = stage.tickets[0].due_ms // _LENGTH_MS * _LENGTH_MS + _LENGTH_MS
    stage.pass_to(end_ms + 1_000)


def _a_closed_bucket(stage: Stage) -> None:
    """Prepares a bucket that was closed a day ago: every message is handed over, except one that was moved."""
    _delayed_messages(stage)
    stage.keeper.canceller.reschedule(stage.tickets[0], RequestedDue(at_ms=stage.due_ms + 3 * _DAY_MS))
    end_ms = stage.tickets[0].due_ms // _LENGTH_MS * _LENGTH_MS + _LENGTH_MS
    stage.pass_to(end_ms + 1_000)
    stage.keeper.turn(8)
    stage.pass_by(_DAY_MS + 1_000)


def _a_bucket_to_remove(stage: Stage) -> None:
    """Prepares a bucket whose messages were all handed over more than a day ago."""
    _delayed_messages(stage)
    end_ms = stage.tickets[0].due_ms // _LENGTH_MS * _LENGTH_MS + _LENGTH_MS
    stage.pass_to(end_ms + 1_000)
    stage.keeper.turn(8)
    stage.pass_by(_DAY_MS + 1_000)


def _a_target(stage: Stage) -> None:
    """Prepares a group with a target and waiting messages."""
    a_queue(stage)
    named("set another target").act(stage.keeper, stage)
    stage.keeper.send(None, None, None)


def _an_archive(stage: Stage) -> None:
    """Prepares a store of which half is archived."""
    _delayed_messages(stage)
    ARCHIVING[0].act(stage.keeper, stage)
    stage.keeper.send(None, None)
    stage.keeper.pull(1, group="b")
    stage.keeper.settle(stage.keeper.consumer.held[-1])


def _an_emptied_cell(stage: Stage) -> None:
    """Prepares a queue that was in cell c0 and came back. Its part there is empty, and has expired."""
    keeper = stage.keeper
    for cell in ("c0", "home"):
        keeper.send(None, None)
        keeper.operator.move("s", 0, cell)
    for group in ("a", "b"):
        keeper.pull(100, group=group)
    for held in list(keeper.consumer.held):
        keeper.settle(held)
    stage.pass_by(_DAY_MS)
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
        record.swap(current.token, msgspec.structs.replace(current.value, change=change))

    keeper.ask("request", request)


def _keys_in_parts(stage: Stage) -> None:
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


def _a_row_that_grows(stage: Stage) -> None:
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


def _a_row_that_grows_and_expires(stage: Stage) -> None:
    """Prepares a row that may grow, in a queue whose first rows have just expired."""
    stage.keeper.send(None, None)
    stage.pass_by(61_000)
    _a_row_that_grows(stage)
    stage.pass_by(59_500)


def _slow(name: str, held_at: int, prepare: Callable[[Stage], None]) -> Callable[[Stage], None]:
    """Returns the scene in which an actor is paused within an action until others may regard its open work as lost."""

    def prepared(stage: Stage) -> None:
        prepare(stage)
        stage.begin(named(name), held_at)
        stage.keeper.send(None)
        stage.pass_by(1_200)

    return prepared


def _a_row_missing_at_the_end_of_a_part(held_at: int) -> Callable[[Stage], None]:
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


_GROWING = replace(PLAN, delays=None, alone_pulls=1, grows_ms=600_000)
QUEUE = [*PRODUCING, *FOLLOWING, *PULLING, *SETTLING, *SWEEPING, *SEEKING, *DEAD, *READING[:1], *DELETING, *CHANGING]
_LATER = [*PULLING[1:2], *SETTLING[:5], *SWEEPING, *READING, *DELETING]

SCENES = [
    Scene("a queue", a_queue, QUEUE, QUEUE),
    Scene(
        "a policy of its own",
        a_queue,
        [*SETTLING[:5], *SWEEPING],
        [*PULLING[:2], *SWEEPING, *SETTLING[:4]],
        plan=replace(PLAN, own_retry=RetryPolicy(first_seconds=1)),
    ),
    Scene("a key", _a_key, [*PRODUCING, *DELETING], [*PRODUCING, *PULLING[:2], *DELETING, *SWEEPING]),
    Scene(
        "a short retention",
        _a_short_retention,
        [*SWEEPING, *PULLING[:2], *SEEKING, *DEAD, *PRODUCING],
        [*SWEEPING, *PULLING[:2], *SEEKING, *DEAD, *PRODUCING],
        plan=replace(PLAN, retention_seconds=60),
    ),
    Scene("delayed messages", _delayed_messages, [*DELAYING, *TURNING, *_LATER], [*DELAYING, *TURNING, *_LATER]),
    Scene(
        "due messages",
        due_messages,
        [*TURNING, *DELAYING],
        [*TURNING, *DELAYING, *_LATER],
        pauses=(0, 1_500, 35_000),
    ),
    Scene("an owner", _an_owner, [*TURNING, *DELAYING], [*TURNING, *DELAYING, *_LATER], pauses=(0, 15_000, 130_000)),
    Scene(
        "the end of a bucket",
        _the_end_of_a_bucket,
        [*TURNING, *DELAYING],
        [*TURNING, *DELAYING, *SWEEPING, *DELETING],
        pauses=(0, 1_500, 35_000),
    ),
    Scene("a closed bucket", _a_closed_bucket, [*SWEEPING, *DELAYING[2:]], [*SWEEPING, *DELAYING[2:]]),
    Scene(
        "a target",
        _a_target,
        [*PUSHING, *SWEEPING, *PRODUCING[:1]],
        [*PUSHING, *PRODUCING, *FOLLOWING[:1], *PULLING[:2], *SWEEPING, *DELETING[:1]],
        pauses=(0, 1_500, 65_000),
    ),
    Scene(
        "an archive",
        _an_archive,
        [*ARCHIVING, *SWEEPING, *PRODUCING[:1], *SETTLING[:3]],
        [*ARCHIVING, *ARCHIVING_MORE, *FOLLOWING, *PULLING[1:3], *SETTLING[:4], *SWEEPING, *TURNING[:1], *DELETING],
        plan=replace(PLAN, archivists=1),
    ),
    Scene(
        "a row that grows",
        _a_row_that_grows,
        [*PULLING_ON, *PULLING[:2], *SETTLING[:1], *SETTLING[2:3], *SETTLING[6:7], *SEEKING[:3], *SWEEPING],
        [
            *PULLING_ON,
            *PULLING[:2],
            *SETTLING[:2],
            *SETTLING[2:3],
            *SETTLING[5:7],
            *SEEKING,
            *SWEEPING,
            *AROUND_GROWTH,
            *READING[:1],
            *DELETING,
            *CHANGING,
        ],
        plan=_GROWING,
    ),
    Scene(
        "a row that grows, and expires",
        _a_row_that_grows_and_expires,
        [*PULLING_ON[:2], *PULLING[1:2], *SWEEPING],
        [*PULLING_ON[:2], *PULLING[1:2], *SEEKING[:2], *SWEEPING],
        plan=replace(_GROWING, retention_seconds=60, lease_seconds=100),
    ),
    Scene(
        "a row that grows, and an archive",
        _a_row_that_grows,
        [*PULLING_ON[:2], *PULLING[:1], *ARCHIVING],
        [*PULLING_ON[:2], *PULLING[:1], *SETTLING[:1], *SEEKING[:1], *SWEEPING, *ARCHIVING],
        plan=replace(_GROWING, archivists=1),
    ),
    Scene(
        "an emptied cell",
        _an_emptied_cell,
        [*MOVING[:2], *SWEEPING],
        [*MOVING, *PRODUCING[:1], *PULLING[1:2], *SWEEPING],
        pauses=(0, 1_500),
        plan=replace(PLAN, retention_seconds=60, cells=1),
    ),
    Scene(
        "two operators",
        a_queue,
        MOVING_AT_ONCE,
        MOVING_AT_ONCE,
        plan=replace(PLAN, cells=2, delays=None),
    ),
    Scene(
        "a move and its withdrawal",
        a_queue,
        MOVING_AT_ONCE[:1],
        WITHDRAWING,
        plan=replace(PLAN, cells=2, delays=None),
    ),
    Scene(
        "a pending move",
        a_pending_move,
        [*WITHDRAWING, *SWEEPING],
        [*WITHDRAWING, *MOVING_AT_ONCE[:1], *MOVING[1:3], *SWEEPING, *PRODUCING[:1], *PULLING[1:2]],
        plan=replace(PLAN, cells=2, delays=None),
    ),
    Scene(
        "keys in parts",
        _keys_in_parts,
        [*PULLING[:2], *PULLING[3:], *SETTLING[:1], *SETTLING[2:3], *MOVING[:2], *SWEEPING, *SEEKING[:1]],
        [
            *PULLING[:2],
            *SETTLING[:1],
            *SETTLING[2:3],
            *SETTLING[5:6],
            *PRODUCING[:1],
            *MOVING[1:2],
            *SWEEPING,
            *SEEKING[:2],
        ],
        pauses=(0, 3_000),
        plan=replace(PLAN, ordered=True, cells=1, delays=None),
    ),
    *(
        Scene(
            f"a slow producer at the end of a part, held at {held_at}",
            _a_row_missing_at_the_end_of_a_part(held_at),
            [*WAITING, *PULLING[:2], *PRODUCING[:1], *MOVING[:1], *SWEEPING, *SEEKING[:2], *CHANGING[:1]],
            [*GOING_ON, *WAITING, *PULLING[:2], *SWEEPING, *SEEKING[:1]],
            plan=replace(PLAN, ordered=True, cells=1, delays=None),
        )
        for held_at in (1, 2)
    ),
    *(
        Scene(f"somebody slow to {name}, held at {held_at}", _slow(name, held_at, prepare), first, [*GOING_ON, *first])
        for name, held_ats, prepare, first in (
            ("produce", (1, 2), a_queue, [*PULLING[:3], *SEEKING, *SWEEPING, *READING[:1], *PRODUCING[:1]]),
            ("produce with a key", (2, 3), a_queue, [*PULLING[:3], *PRODUCING, *SWEEPING]),
            ("retry pull 0", (3, 4, 5), a_queue, [*PULLING[:2], *SETTLING[:5], *SWEEPING]),
            (
                "retry and reject pull 0",
                (3, 5, 7, 9, 11),
                _pulls_of_two,
                [*PULLING[:2], *DEAD, *SWEEPING, *SETTLING[:4]],
            ),
            ("redrive all", (3, 4, 5, 6), a_queue, [*PULLING[:2], *DEAD, *SWEEPING]),
        )
        for held_at in held_ats
    ),
    *(
        Scene(
            f"somebody slow to {name}, held at {held_at}",
            _slow(name, held_at, due_messages),
            first,
            [*GOING_ON, *first],
            pauses=(0, 1_500, 35_000),
        )
        for name, held_ats, first in (
            ("turn the wheel", (4, 6, 8, 10, 12, 14), [*TURNING[:1], *DELAYING[2:6], *FOLLOWING[:1]]),
            ("produce delayed", (1, 2), [*TURNING[:1], *DELAYING[:5]]),
            ("cancel", (3, 5, 7), [*TURNING[:1], *DELAYING[2:6]]),
            ("move", (4, 6, 8, 10, 12), [*TURNING[:1], *DELAYING[2:6], *SWEEPING]),
        )
        for held_at in held_ats
    ),
    *(
        Scene(
            f"somebody slow to sweep a closed bucket, held at {held_at}",
            _slow("sweep", held_at, _a_bucket_to_remove),
            DELAYING[2:],
            [*GOING_ON, *SWEEPING],
            pauses=(0, 1_500),
        )
        for held_at in (7, 9)
    ),
]
