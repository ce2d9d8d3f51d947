"""Four queues in two cells lose no message while they are moved, emptied, moved back, taken off line and spread over a
third cell.

Each table shows the mappings of a queue as [first offset, end, cell, state, generation]. Producers, consumers, delayed
messages and retries run through every step; at the end every message was delivered once, in the order of its queue.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from hourwheel.adapters import dynamodb as dynamodb_adapter
from hourwheel.adapters.dynamodb import DynamoStore, create_tables
from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.adapters.sqlite import SqliteStore
from hourwheel.context import Settings
from hourwheel.errors import Conflict
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.messages import NewMessage
from hourwheel.operations.routes import shown_route
from hourwheel.ports import CellStorage, Store, Table
from tests.support import Bench

CELLS = ("home", "two", "three")
_prefixes = count()
DAY_MS = 86_400_000


@contextmanager
def memory(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Store]]:
    yield lambda cell: MemoryStore()


@contextmanager
def sqlite(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Store]]:
    folder: Path = request.getfixturevalue("tmp_path")
    with ExitStack() as opened:

        def store(cell: str) -> Store:
            made = SqliteStore(folder / f"{cell}.db", synchronous="NORMAL")
            opened.callback(made.close)
            return made

        yield store


@contextmanager
def dynamodb(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Store]]:
    with patch.object(dynamodb_adapter, "READ_SECONDS", 60.0):  # a busy machine is no cell that is out of reach
        client: Any = dynamodb_adapter.client(
            region="us-east-1", endpoint_url=request.getfixturevalue("ministack_endpoint")
        )

    def store(cell: str) -> Store:
        prefix = f"cells-{next(_prefixes)}-{cell}"
        create_tables(client, prefix)
        for table in Table:
            # By the clock of the machine, which is ahead of the test's, everything has expired.
            client.update_time_to_live(
                TableName=f"{prefix}-{table}", TimeToLiveSpecification={"Enabled": False, "AttributeName": "x"}
            )
        return DynamoStore(client, prefix=prefix)

    yield store
    client.close()


@pytest.fixture(params=[memory, sqlite, dynamodb], ids=lambda opened: opened.__name__)
def system(request: pytest.FixtureRequest) -> Iterator["System"]:
    with request.param(request) as store:
        yield System({cell: store(cell) for cell in CELLS})


class System:
    """Two servers, a producer that sends to each queue, and a consumer that retries one message in ten."""

    def __init__(self, stores: dict[str, Store]) -> None:
        cells = {name: CellStorage(stores[name], MemoryBlobs()) for name in CELLS[1:]}
        settings = Settings(retry=RetryPolicy(first_seconds=0), registry_seconds=2)
        self.bench = Bench(stores["home"], settings=settings, cells=cells)
        self.operator, self.server = self.bench.cell, self.bench.another_process()
        self.operator.cells.add("two")
        self.operator.put_subject("orders", queues=4)
        for queue in (2, 3):
            self.operator.routes.move("orders", queue, "two")
        self.sent: dict[int, list[str]] = {queue: [] for queue in range(4)}
        self.delayed = count()
        self.waiting: list[str] = []
        self.first: dict[str, tuple[int, int]] = {}
        self.retried: set[str] = set()
        self.acknowledged: list[str] = []

    def produce(self, to: int, *, also: bool = True) -> None:
        """Fills each queue up to offset ``to``; with ``also``, one message more is sent with a delay."""
        for queue, bodies in self.sent.items():
            while len(bodies) < to:
                new = [f"{queue}-{number}" for number in range(len(bodies), min(to, len(bodies) + 25))]
                accepted = self.server.produce("orders", [NewMessage(body=body, queue=queue) for body in new])
                assert [each.offset for each in accepted] == list(range(len(bodies), len(bodies) + len(new)))
                bodies += new
        if also:
            # It takes an offset of queue 0 once it is due.
            self.waiting.append(f"delayed-{next(self.delayed)}")
            self.server.produce("orders", [NewMessage(body=self.waiting[-1], queue=0, delay="20m")])

    def deliver_delayed(self) -> None:
        """Lets the delayed messages fall due. They are the next ones of queue 0, wherever that is."""
        self.bench.turn(3_700)
        self.sent[0] += self.waiting
        self.waiting.clear()

    def consume(self) -> None:
        """Pulls until nothing waits, and retries one message in ten."""
        while pulls := self.bench.pull(40):
            for pull in pulls:
                again = []
                for index, message in enumerate(pull.messages):
                    body = message.body or ""
                    self.first.setdefault(body, (message.queue or 0, message.offset or 0))
                    if body.endswith("7") and body not in self.retried:
                        self.retried.add(body)
                        again.append(index)
                    else:
                        self.acknowledged.append(body)
                assert self.bench.settle(pull, retry=again) == "settled"

    def empty(self) -> None:
        """Consumes everything, and lets the retention remove it."""
        self.consume()
        self.bench.clock.ms += 5 * DAY_MS
        for _ in range(2):
            self.operator.sweep()

    def table(self, queue: int) -> list[list[object]]:
        route = shown_route(self.operator.subject("orders")).queues[queue]
        return [[each.start, each.end, each.cell, each.state, each.generation] for each in route.mappings]

    def check(self) -> None:
        """Checks that every message was acknowledged once, at the offset that its producer was given."""
        expected = [body for bodies in self.sent.values() for body in bodies]
        assert sorted(self.acknowledged) == sorted(expected)
        for queue, bodies in self.sent.items():
            assert [self.first[body] for body in bodies] == [(queue, offset) for offset in range(len(bodies))]


def test_logical_queues_move_between_cells_while_everything_goes_on(system: System) -> None:
    assert system.table(0) == [[0, None, "home", "normal", 1]]
    assert system.table(2)[-1] == [0, None, "two", "normal", 1]

    # Queue 0 moves from the home cell to cell two at offset 101.
    system.produce(101)
    system.operator.routes.move("orders", 0, "two")
    system.produce(150)
    assert system.table(0) == [[0, 101, "home", "read_only", 1], [101, None, "two", "normal", 1]]

    # The delayed messages find the queue in its new cell. Then the old part is emptied, and expires.
    system.deliver_delayed()
    assert system.bench.cells["two"].store.counter("two:orders~1/0.1").numbers == 152
    system.empty()
    assert system.table(0) == [[0, 101, "home", "expired", 1], [101, None, "two", "normal", 1]]

    # Moved back: the expired part of the home cell is used again, and the middle part can still be read.
    system.produce(201, also=False)
    system.operator.routes.move("orders", 0, "home")
    system.produce(230)
    assert system.table(0) == [[101, 201, "two", "read_only", 1], [201, None, "home", "normal", 2]]

    # The same once more while no part has expired: a new log is made in each cell.
    system.operator.routes.move("orders", 0, "two")
    system.deliver_delayed()
    system.operator.routes.move("orders", 0, "home")
    assert system.table(0) == [
        [101, 201, "two", "read_only", 1],
        [201, 230, "home", "read_only", 2],
        [230, 231, "two", "read_only", 1],
        [231, None, "home", "normal", 1],
    ]

    # Cell two is drained: its queues 2 and 3 go to the home cell. It is removed once it is empty.
    system.produce(240)
    system.operator.cells.drain("two")
    assert [system.table(queue)[-1][2] for queue in range(4)] == ["home"] * 4
    with pytest.raises(Conflict, match=r"still holds \d+ parts of queues: orders/0 \(\d+ messages, 0 leases\)"):
        system.operator.cells.remove("two")
    system.produce(260)
    system.deliver_delayed()
    system.empty()
    assert system.operator.cells.left("two") == []
    system.operator.cells.set_state("two", "offline")
    assert system.operator.cells.remove("two").state == "removed"
    system.produce(261)
    system.consume()

    # A third cell is added, and takes queues 2 and 3.
    system.operator.cells.add("three")
    system.operator.routes.spread("orders", ["home", "three"])
    for queue in (2, 3):
        if system.table(queue)[-1][2] != "three":
            system.operator.routes.move("orders", queue, "three")
    system.produce(280)
    assert [system.table(queue)[-1][:4] for queue in (2, 3)] == [[261, None, "three", "normal"]] * 2
    system.deliver_delayed()
    system.consume()
    system.check()
