"""Defines the scenes of directed schedules: each prepares the store in which two actions meet, and names these
actions."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from hourwheel.model.groups import RetryPolicy
from tests.simulation.delays import Delays
from tests.simulation.faults import Faults
from tests.simulation.plan import AT_ONCE, Plan
from tests.simulation.preparations import (
    LENGTH_MS,
    MINUTES,
    a_bucket_to_remove,
    a_closed_bucket,
    a_key,
    a_pending_move,
    a_queue,
    a_row_missing_at_the_end_of_a_part,
    a_row_that_grows,
    a_row_that_grows_and_expires,
    a_row_that_keeps_messages,
    a_short_retention,
    a_target,
    an_archive,
    an_emptied_cell,
    an_owner,
    delayed_messages,
    due_messages,
    keys_in_parts,
    pulls_of_two,
    slow,
    the_end_of_a_bucket,
    waiting_retries,
)
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
    HURRYING,
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
)

_DELAYS = Delays(
    share=1.0,
    bucket_minutes=MINUTES,
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
    start_ms=LENGTH_MS - 150_000,
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
    Scene("a key", a_key, [*PRODUCING, *DELETING], [*PRODUCING, *PULLING[:2], *DELETING, *SWEEPING]),
    Scene(
        "a short retention",
        a_short_retention,
        [*SWEEPING, *PULLING[:2], *SEEKING, *DEAD, *PRODUCING],
        [*SWEEPING, *PULLING[:2], *SEEKING, *DEAD, *PRODUCING],
        plan=replace(PLAN, retention_seconds=60),
    ),
    Scene("delayed messages", delayed_messages, [*DELAYING, *TURNING, *_LATER], [*DELAYING, *TURNING, *_LATER]),
    Scene(
        "due messages",
        due_messages,
        [*TURNING, *DELAYING],
        [*TURNING, *DELAYING, *_LATER],
        pauses=(0, 1_500, 35_000),
    ),
    Scene(
        "retries that wait",
        waiting_retries,
        [*HURRYING, *TURNING, *SWEEPING],
        [*HURRYING, *TURNING, *SWEEPING, *PULLING[1:2], *SEEKING[1:2], *DELETING],
        pauses=(0, 1_500, 35_000),
    ),
    Scene("an owner", an_owner, [*TURNING, *DELAYING], [*TURNING, *DELAYING, *_LATER], pauses=(0, 15_000, 130_000)),
    Scene(
        "the end of a bucket",
        the_end_of_a_bucket,
        [*TURNING, *DELAYING],
        [*TURNING, *DELAYING, *SWEEPING, *DELETING],
        pauses=(0, 1_500, 35_000),
    ),
    Scene("a closed bucket", a_closed_bucket, [*SWEEPING, *DELAYING[2:]], [*SWEEPING, *DELAYING[2:]]),
    Scene(
        "a target",
        a_target,
        [*PUSHING, *SWEEPING, *PRODUCING[:1]],
        [*PUSHING, *PRODUCING, *FOLLOWING[:1], *PULLING[:2], *SWEEPING, *DELETING[:1]],
        pauses=(0, 1_500, 65_000),
    ),
    Scene(
        "an archive",
        an_archive,
        [*ARCHIVING, *SWEEPING, *PRODUCING[:1], *SETTLING[:3]],
        [*ARCHIVING, *ARCHIVING_MORE, *FOLLOWING, *PULLING[1:3], *SETTLING[:4], *SWEEPING, *TURNING[:1], *DELETING],
        plan=replace(PLAN, archivists=1),
    ),
    Scene(
        "a row that grows",
        a_row_that_grows,
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
        "a row that keeps messages",
        a_row_that_keeps_messages,
        [*PULLING_ON, *PULLING[:2], *SETTLING[:1], *SEEKING[:1], *SWEEPING],
        [*PULLING_ON, *PULLING[:2], *SETTLING[:2], *SEEKING[:2], *SWEEPING, *AROUND_GROWTH, *DELETING],
        pauses=(0, 1_500, 3_500),
        plan=_GROWING,
    ),
    Scene(
        "a row that grows, and expires",
        a_row_that_grows_and_expires,
        [*PULLING_ON[:2], *PULLING[1:2], *SWEEPING],
        [*PULLING_ON[:2], *PULLING[1:2], *SEEKING[:2], *SWEEPING],
        plan=replace(_GROWING, retention_seconds=60, lease_seconds=100),
    ),
    Scene(
        "a row that grows, and an archive",
        a_row_that_grows,
        [*PULLING_ON[:2], *PULLING[:1], *ARCHIVING],
        [*PULLING_ON[:2], *PULLING[:1], *SETTLING[:1], *SEEKING[:1], *SWEEPING, *ARCHIVING],
        plan=replace(_GROWING, archivists=1),
    ),
    Scene(
        "an emptied cell",
        an_emptied_cell,
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
        keys_in_parts,
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
            a_row_missing_at_the_end_of_a_part(held_at),
            [*WAITING, *PULLING[:2], *PRODUCING[:1], *MOVING[:1], *SWEEPING, *SEEKING[:2], *CHANGING[:1]],
            [*GOING_ON, *WAITING, *PULLING[:2], *SWEEPING, *SEEKING[:1]],
            plan=replace(PLAN, ordered=True, cells=1, delays=None),
        )
        for held_at in (1, 2)
    ),
    *(
        Scene(f"somebody slow to {name}, held at {held_at}", slow(name, held_at, prepare), first, [*GOING_ON, *first])
        for name, held_ats, prepare, first in (
            ("produce", (1, 2), a_queue, [*PULLING[:3], *SEEKING, *SWEEPING, *READING[:1], *PRODUCING[:1]]),
            ("produce with a key", (2, 3), a_queue, [*PULLING[:3], *PRODUCING, *SWEEPING]),
            ("retry pull 0", (2, 3, 4), a_queue, [*PULLING[:2], *SETTLING[:5], *SWEEPING]),
            (
                "retry and reject pull 0",
                (2, 4, 6, 8, 10),
                pulls_of_two,
                [*PULLING[:2], *DEAD, *SWEEPING, *SETTLING[:4]],
            ),
            ("redrive all", (3, 4, 5, 6), a_queue, [*PULLING[:2], *DEAD, *SWEEPING]),
        )
        for held_at in held_ats
    ),
    *(
        Scene(
            f"somebody slow to {name}, held at {held_at}",
            slow(name, held_at, due_messages),
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
            slow("sweep", held_at, a_bucket_to_remove),
            DELAYING[2:],
            [*GOING_ON, *SWEEPING],
            pauses=(0, 1_500),
        )
        for held_at in (7, 9)
    ),
]
