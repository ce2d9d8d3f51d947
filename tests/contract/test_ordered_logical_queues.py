"""An ordered group keeps its order though its consumers pull during each step of moves, drains and sweeps.

The operator's store lets a producer and the consumers act before each of its calls. They use another process, whose
route is up to two seconds old. Messages have keys; some are delayed, one in five is retried, and leases end.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle, islice
from typing import Any, cast

import pytest

from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.context import Settings
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.messages import Message, NewMessage
from hourwheel.model.pulls import Pull
from hourwheel.operations.routes import shown_route
from hourwheel.ports import CellStorage, Store
from hourwheel.times import parse_rfc3339
from tests.contract.test_logical_queues import CELLS, DAY_MS, dynamodb, memory, sqlite
from tests.support import Bench

SWEEPS = 10  # within which everything is removed
KEYS = [f"key-{number}" for number in range(12)]


class Interleaved:
    """A store that lets others act before each call, but not inside of a transaction."""

    def __init__(self, store: Store, beside: Callable[[], None]) -> None:
        self._store = store
        self._beside = beside

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)

        def interleaved(*arguments: Any, **named: Any) -> Any:
            self._beside()
            return call(*arguments, **named)

        return interleaved


class Consumers:
    """The consumers of an ordered group, who hold up to three pulls at once and settle the oldest one."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.leased: list[Pull] = []
        self.acknowledged: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self.retried: set[str] = set()

    def act(self) -> bool:
        """Pulls once, and settles a pull if there are enough. Returns whether it did anything."""
        pulls = self.bench.pull(7, group="ledger", lease=600)
        for pull in pulls:
            self._check(pull)
            self.leased.append(pull)
        settles = len(self.leased) > 2 or (bool(self.leased) and not pulls)
        if settles:
            self._settle(self.leased.pop(0))
        return bool(pulls) or settles

    def _check(self, pull: Pull) -> None:
        """Checks that no key is in flight twice, and that none goes back."""
        now_ms = self.bench.clock.now_ms()
        self.leased = [each for each in self.leased if parse_rfc3339(each.lease_until, "lease_until") > now_ms]
        busy = {message.key for each in self.leased for message in each.messages}
        assert not busy & {message.key for message in pull.messages}
        for key, messages in by_key(pull).items():
            offsets = [offset for offset, _ in self.acknowledged[key][-1:]] + [each.offset or 0 for each in messages]
            assert offsets == sorted(set(offsets)), f"{key} goes back: {offsets}"

    def _settle(self, pull: Pull) -> None:
        """Retries one message in five once. Those of its key behind it come again with it."""
        again: list[int] = []
        failed: set[str | None] = set()
        for index, message in enumerate(pull.messages):
            body = message.body or ""
            if (message.offset or 0) % 5 == 4 and body not in self.retried:
                self.retried.add(body)
                again.append(index)
                failed.add(message.key)
            elif message.key not in failed:
                self.acknowledged[message.key or ""].append((message.offset or 0, body))
        assert self.bench.settle(pull, group="ledger", retry=again) == "settled"


def by_key(pull: Pull) -> dict[str, list[Message]]:
    keys: dict[str, list[Message]] = defaultdict(list)
    for message in pull.messages:
        keys[message.key or ""].append(message)
    return keys


class System:
    """An operator; and a server, which a producer and the consumers use while a call of the operator is under way."""

    def __init__(self, stores: dict[str, Store]) -> None:
        settings = Settings(retry=RetryPolicy(first_seconds=0), registry_seconds=2)
        cells = {name: CellStorage(stores[name], MemoryBlobs()) for name in CELLS[1:]}
        self.bench = Bench(stores["home"], settings=settings, cells=cells)
        self.consumers = Consumers(self.bench)
        interleaved = {
            name: CellStorage(cast("Store", Interleaved(storage.store, self._beside)), storage.blobs)
            for name, storage in cells.items()
        }
        home = cast("Store", Interleaved(stores["home"], self._beside))
        self.other = replace(self.bench, store=home, cells=interleaved)
        self.operator = self.other.cell
        self.keys, self.sent, self.delayed = cycle(KEYS), list[str](), 0
        self.calls, self.every, self.acts = 0, 0, 0
        self.operator.cells.add("two")
        self.operator.put_subject("orders", queues=4)
        for queue in (2, 3):
            self.operator.routes.move("orders", queue, "two")
        self.operator.put_group("orders", "ledger", ordered=True)
        self.produce(36)

    def _beside(self) -> None:
        """Lets the others act at one of ``every`` calls of the operator; never if it is 0."""
        self.calls += 1
        if self.every and self.calls % self.every == 0:
            self.acts += 1
            self.produce(1)
            self.consumers.act()

    @contextmanager
    def interleaved(self, every: int = 1) -> Iterator[None]:
        """Runs a step of the operator, in which the others act at least once."""
        self.every, before = every, self.acts
        try:
            yield
        finally:
            self.every = 0
        assert self.acts > before

    def move(self, queue: int, cell: str) -> None:
        with self.interleaved():
            self.operator.routes.move("orders", queue, cell)

    def produce(self, count: int) -> None:
        """Sends messages, and each tenth one with a delay."""
        for key in islice(self.keys, count):
            body = f"{key}/{len(self.sent)}"
            delay = "20m" if len(self.sent) % 10 == 9 else None
            self.bench.cell.produce("orders", [NewMessage(body=body, key=key, delay=delay)])
            self.sent.append(body)

    def deliver_delayed(self) -> None:
        """Lets the delayed messages fall due. The operator's process hands them over."""
        with self.interleaved(every=60):
            self.other.turn(1_300)

    def finish(self) -> None:
        self.consume()
        self.other.turn(1_300)
        self.consume()

    def consume(self) -> None:
        while self.consumers.act():
            pass

    def empty(self) -> None:
        """Consumes everything, and lets the retention remove it."""
        self.consume()
        self.bench.clock.ms += 5 * DAY_MS
        with self.interleaved(every=40):
            self.operator.sweep()
        self.consume()
        # A sweep that an error of the store cuts short leaves the rest to the next one.
        for _ in range(SWEEPS):
            self.bench.clock.pass_time(60)
            self.operator.sweep()
            queues = range(self.operator.subject("orders").queues)
            if not any(state == "read_only" for queue in queues for _, state in self.cells_of(queue)):
                return

    def cells_of(self, queue: int) -> list[tuple[str, str]]:
        route = shown_route(self.operator.subject("orders")).queues[queue]
        return [(each.cell, each.state) for each in route.mappings]

    def check(self) -> None:
        """Checks that every message was acknowledged once, and the messages of a key in the order of their offsets."""
        acknowledged = self.consumers.acknowledged
        assert sorted(body for messages in acknowledged.values() for _, body in messages) == sorted(self.sent)
        for key, messages in acknowledged.items():
            offsets = [offset for offset, _ in messages]
            assert offsets == sorted(set(offsets)), f"{key} is out of order: {messages}"


@pytest.fixture(params=[memory, sqlite, dynamodb], ids=lambda opened: opened.__name__)
def system(request: pytest.FixtureRequest) -> Iterator[System]:
    with request.param(request) as store:
        yield System({cell: store(cell) for cell in CELLS})


def test_keys_keep_their_order_while_consumers_pull_through_every_step(system: System) -> None:
    assert [system.cells_of(queue)[-1] for queue in range(4)] == [*[("home", "normal")] * 2, *[("two", "normal")] * 2]

    # Queue 0 moves to cell two. The delayed messages find it there; the old part is emptied, and expires.
    system.move(0, "two")
    assert system.cells_of(0) == [("home", "read_only"), ("two", "normal")]
    system.deliver_delayed()
    system.empty()
    assert system.cells_of(0) == [("home", "expired"), ("two", "normal")]

    # Moved back, where the expired part is used again, and there and back once more while nothing has expired.
    for cell in ("home", "two", "home"):
        system.move(0, cell)
    assert [state for _, state in system.cells_of(0)] == [*["read_only"] * 3, "normal"]

    # Cell two is drained: its queues go to the home cell. It is removed once it is empty.
    with system.interleaved():
        system.operator.cells.drain("two")
    assert [system.cells_of(queue)[-1][0] for queue in range(4)] == ["home"] * 4
    system.deliver_delayed()
    system.empty()
    with system.interleaved():
        system.operator.cells.set_state("two", "offline")
        assert system.operator.cells.remove("two").state == "removed"

    # A third cell is added, and takes two queues.
    system.operator.cells.add("three")
    with system.interleaved():
        system.operator.routes.spread("orders", ["home", "three"])
    assert sorted(system.cells_of(queue)[-1][0] for queue in range(4)) == [*["home"] * 2, *["three"] * 2]
    system.deliver_delayed()
    system.finish()
    assert len(system.consumers.retried) > 10
    system.check()
