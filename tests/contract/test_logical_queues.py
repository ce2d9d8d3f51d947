"""Four queues in two cells: moved, emptied, moved back, taken off line and spread over a third cell.

Each table shows the mappings of a queue as [first offset, end, cell, state, generation]. While the operator works, a
producer sends to each queue, and the consumers of an unordered and of an ordered group pull, settle and retry, before
each of the operator's calls of a store; some messages are delayed. At the end each group has acknowledged every message
once, in order.
"""

from collections.abc import Iterator

import pytest

from hourwheel.errors import Conflict
from tests.contract.logical_queues import CELLS, System, dynamodb, memory, sqlite

# Small pages on DynamoDB would take two minutes more.
RUNS = [(memory, "usual"), (memory, "small"), (sqlite, "usual"), (sqlite, "small"), (dynamodb, "usual")]


@pytest.fixture
def system(request: pytest.FixtureRequest) -> Iterator[System]:
    with request.param(request) as store:
        yield System({cell: store(cell) for cell in CELLS})


def begin(system: System) -> None:
    """Fills the queues: 0 and 1 are in the home cell, 2 and 3 in cell two."""
    system.produce(100, 0, 1)
    system.produce(60, 2, 3)
    system.delay(0, 1, 2, 3)
    for queue in (0, 1):
        assert system.table(queue) == [
            [0, None, "home", "normal", 1],
        ]
    for queue in (2, 3):
        assert system.table(queue) == [
            [0, 0, "home", "expired", 1],
            [0, None, "two", "normal", 1],
        ]


def move_there(system: System) -> None:
    """Moves queue 0 from the home cell to cell two at offset 101, where its old part can be read. The delayed messages
    find the queue in its new cell. Then the old part is emptied, and expires."""
    system.move(0, "two", at=101)
    assert system.table(0) == [
        [0, 101, "home", "read_only", 1],
        [101, None, "two", "normal", 1],
    ]

    system.deliver_delayed()
    system.empty()
    assert system.table(0) == [
        [0, 101, "home", "expired", 1],
        [101, None, "two", "normal", 1],
    ]


def move_back_and_again(system: System) -> None:
    """Moves queue 0 back at 201: the expired part of the home cell is used again, and the middle part can be read. Then
    there and back once more, while no part has expired: a new log is made in each cell."""
    system.produce(200, 0)
    system.delay(0, 2)
    system.move(0, "home", at=201)
    assert system.table(0) == [
        [101, 201, "two", "read_only", 1],
        [201, None, "home", "normal", 2],
    ]

    system.produce(230, 0)
    system.move(0, "two", at=231)
    system.deliver_delayed()
    system.produce(260, 0)
    system.move(0, "home", at=261)
    assert system.table(0) == [
        [101, 201, "two", "read_only", 1],
        [201, 231, "home", "read_only", 2],
        [231, 261, "two", "read_only", 1],
        [261, None, "home", "normal", 1],
    ]


def drain(system: System) -> None:
    """Drains cell two at 101: its queues 2 and 3 go to the home cell, where their expired parts are used again."""
    system.produce(100, 2, 3)
    system.delay(0, 2, 3)
    with system.moving(2, 3, at=101):
        system.operator.cells.drain("two")
    for queue in (2, 3):
        assert system.table(queue) == [
            [0, 101, "two", "read_only", 1],
            [101, None, "home", "normal", 2],
        ]
    with pytest.raises(
        Conflict, match=r"cell 'two' still holds 4 closed parts of queues: orders/0 \(\d+ messages, \d lease"
    ):
        system.operator.cells.remove("two")


def remove(system: System) -> None:
    """Empties cell two, takes it off line and removes it."""
    system.deliver_delayed()
    system.empty()
    assert system.table(0) == [
        [101, 201, "two", "expired", 1],
        [201, 231, "home", "expired", 2],
        [231, 261, "two", "expired", 1],
        [261, None, "home", "normal", 1],
    ]
    for queue in (2, 3):
        assert system.table(queue) == [
            [0, 101, "two", "expired", 1],
            [101, None, "home", "normal", 2],
        ]
    with system.everything_goes_on():
        system.operator.cells.set_state("two", "offline")
        assert system.operator.cells.remove("two").state == "removed"


def spread(system: System) -> None:
    """Adds a third cell, and moves queues 2 and 3 there at 201."""
    system.operator.cells.add("three")
    system.produce(200, 2, 3)
    system.delay(0, 1, 2, 3)
    with system.moving(2, 3, at=201):
        for queue in (2, 3):
            system.operator.routes.move("orders", queue, "three")
    for queue in (2, 3):
        assert system.table(queue) == [
            [0, 101, "two", "expired", 1],
            [101, 201, "home", "read_only", 2],
            [201, None, "three", "normal", 1],
        ]


@pytest.mark.parametrize(
    ("system", "pages"), RUNS, indirect=True, ids=[f"{opened.__name__}-{pages}" for opened, pages in RUNS]
)
@pytest.mark.usefixtures("pages")
def test_logical_queues_move_between_cells_while_everything_goes_on(system: System) -> None:
    for step in (begin, move_there, move_back_and_again, drain, remove, spread):
        step(system)
    system.deliver_delayed()
    system.consume()
    system.check()
