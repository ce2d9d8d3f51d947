"""A subject of four queues in cells, whose producer and consumers go on while an operator moves its queues.

The operator's stores let the others act before each of its calls. They use another process, whose route is up to two
seconds old.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest

from hourwheel.adapters.aws import dynamodb as dynamodb_adapter
from hourwheel.adapters.aws.dynamodb import DynamoStore, create_tables
from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.cells.requests import shown_route
from hourwheel.context import Settings
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.messages import Message, NewMessage
from hourwheel.model.pulls import Pull
from hourwheel.ports.storage import CellStorage, Store
from hourwheel.times import parse_rfc3339
from tests.support import Bench

CELLS = ("home", "two", "three")
QUEUES = range(4)
DAY_MS = 86_400_000
LONGEST_MS = 600_000  # a lease: what is leased then comes again
SWEEPS = 10  # within which everything is removed: an error of the store leaves the rest to the next sweep
_prefixes = count()


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
        return DynamoStore(client, prefix=prefix)

    yield store
    client.close()


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


@dataclass
class Consumers:
    """The consumers of a group, who hold up to three pulls at once, settle the oldest one, and retry one message in
    five once."""

    bench: Bench
    group: str
    ordered: bool = False
    leased: list[Pull] = field(default_factory=list)
    first: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The queue and the offset of each message at its first delivery, in the order of these deliveries."""
    acknowledged: list[Message] = field(default_factory=list)
    retried: set[str] = field(default_factory=set)

    def act(self) -> bool:
        """Pulls once, and settles a pull if there are enough. Returns whether it did anything."""
        pulls = self.bench.pull(15, group=self.group, lease=600)
        now_ms = self.bench.clock.now_ms()
        self.leased = [each for each in self.leased if parse_rfc3339(each.lease_until, "lease_until") > now_ms]
        for pull in pulls:
            self._received(pull)
        settles = len(self.leased) > 2 or (bool(self.leased) and not pulls)
        if settles:
            self._settle(self.leased.pop(0))
        return bool(pulls) or settles

    def finish(self) -> None:
        """Acts until the group has nothing left. A pull ends some of the leases that are over, and the next one does so
        a second later at the earliest: that a pull finds nothing does not say that nothing is left."""
        until_ms = self.bench.clock.now_ms() + LONGEST_MS
        while self.act() or self._left():
            assert self.bench.clock.now_ms() < until_ms, f"group {self.group} does not come to its end"

    def _left(self) -> bool:
        """Lets time pass if messages wait, and returns whether they do."""
        lag = self.bench.deployment.groups.lag("orders", self.group)
        left = bool(lag.waiting or lag.in_flight or lag.retrying or lag.backing_off)
        if left:
            self.bench.clock.pass_time(1)
        return left

    def _received(self, pull: Pull) -> None:
        if self.ordered:
            busy = {message.key for each in self.leased for message in each.messages}
            assert not busy & {message.key for message in pull.messages}, "a key is in flight twice"
        for message in pull.messages:
            self.first.setdefault(message.body or "", (message.queue or 0, message.offset or 0))
        self.leased.append(pull)

    def _settle(self, pull: Pull) -> None:
        again: list[int] = []
        failed: set[str | None] = set()
        for index, message in enumerate(pull.messages):
            body = message.body or ""
            if (message.offset or 0) % 5 == 4 and body not in self.retried:
                self.retried.add(body)
                again.append(index)
                failed.add(message.key)
            elif not (self.ordered and message.key in failed):
                # An ordered group releases the messages behind a failed one of their key with it.
                self.acknowledged.append(message)
        assert self.bench.settle(pull, group=self.group, retry=again) == "settled"

    def check(self, sent: list[str], offsets: dict[str, tuple[int, int]]) -> None:
        """Every message was acknowledged once, had the offset that its producer was told, and came in order."""
        assert sorted(message.body or "" for message in self.acknowledged) == sorted(sent)
        assert offsets.items() <= self.first.items()
        for queue in QUEUES:
            mine = [offset for at, offset in self.first.values() if at == queue]
            assert sorted(mine) == list(range(len(mine))), f"queue {queue} has a gap, or an offset twice"
            if not self.ordered:
                assert mine == sorted(mine), f"queue {queue} came out of order"
        if self.ordered:
            keys = defaultdict[str | None, list[int]](list)
            for message in self.acknowledged:
                keys[message.key].append(message.offset or 0)
            assert all(mine == sorted(mine) for mine in keys.values()), "a key was served out of order"
        assert len(self.retried) > len(sent) // 10


class System:
    """An operator; a producer that sends to each queue; and the consumers of an unordered and of an ordered group."""

    def __init__(self, stores: dict[str, Store]) -> None:
        settings = Settings(retry=RetryPolicy(first_seconds=0), registry_seconds=2)
        cells = {name: CellStorage(stores[name], MemoryBlobs()) for name in CELLS[1:]}
        self.bench = Bench(stores["home"], settings=settings, cells=cells)
        self.groups = [Consumers(self.bench, "billing"), Consumers(self.bench, "ledger", ordered=True)]
        interleaved = {
            name: CellStorage(cast("Store", Interleaved(storage.store, self._beside)), storage.blobs)
            for name, storage in cells.items()
        }
        home = cast("Store", Interleaved(stores["home"], self._beside))
        self.other = replace(self.bench, store=home, cells=interleaved)
        self.operator = self.other.deployment
        self.calls, self.every, self.acts = 0, 0, 0
        self.offsets: dict[str, tuple[int, int]] = {}
        """The queue and the offset that the producer was told for each message, delayed ones left out."""
        self.delayed: list[str] = []
        self.left: dict[int, int] = {}
        self.numbers = count()
        self.sealing: dict[int, str] = {}
        self.operator.cells.add("two")
        self.operator.subjects.put("orders", queues=len(QUEUES))
        for queue in (2, 3):
            self.operator.routes.move("orders", queue, "two")
        self.operator.groups.put("orders", "ledger", ordered=True)

    # What goes on beside the operator

    def _beside(self) -> None:
        """Lets the others act at one of ``every`` calls of the operator; never if it is 0."""
        self.calls += 1
        if self.every and self.calls % self.every == 0:
            every, self.every = self.every, 0
            self.acts += 1
            for queue in QUEUES:
                self._send_within_limit(queue)
            # Not at each: whoever pulls finishes the change that the operator has requested.
            if self.acts % 3 == 0:
                for group in self.groups:
                    group.act()
            self.every = every

    def _send_within_limit(self, queue: int) -> None:
        """Sends a message, but none to a queue that has reached its limit before its log is sealed."""
        log = self.sealing.get(queue)
        if self.left.get(queue) or (log is not None and self.bench.deployment.context.log(log).totals().sealed):
            self.left[queue] = max(0, self.left.get(queue, 0) - 1)
            self._send(queue, 1)

    def _send(self, queue: int, number: int) -> None:
        new = [f"{queue}-{next(self.numbers)}" for _ in range(number)]
        messages = [NewMessage(body=body, queue=queue, key=f"key-{queue}-{body[-1]}") for body in new]
        accepted = self.bench.deployment.produce("orders", messages)
        first = accepted[0].offset or 0
        assert [(each.queue, each.offset) for each in accepted] == [(queue, first + index) for index in range(number)]
        self.offsets |= {body: (queue, first + index) for index, body in enumerate(new)}

    @contextmanager
    def everything_goes_on(self, every: int = 1) -> Iterator[None]:
        """Lets the others act at one of ``every`` calls of the operator. The producer sends three messages to each
        queue, unless another limit is set."""
        self.every, before = every, self.acts
        self.left = dict.fromkeys(QUEUES, 3) | self.left
        try:
            yield
        finally:
            self.every, self.left = 0, {}
        assert self.acts > before

    # The steps

    def produce(self, to: int, *queues: int) -> None:
        """Fills queues up to an offset."""
        for queue in queues:
            while (missing := to - self.end(queue)) > 0:
                self._send(queue, min(missing, 25))
                for group in self.groups:
                    group.act()
            assert self.end(queue) == to

    def delay(self, *queues: int) -> None:
        """Sends a message to each queue with a delay."""
        for queue in queues:
            body = f"delayed-{queue}-{len(self.delayed)}"
            self.bench.deployment.produce(
                "orders", [NewMessage(body=body, queue=queue, key=f"key-{queue}-0", delay="20m")]
            )
            self.delayed.append(body)

    @contextmanager
    def moving(self, *queues: int, at: int) -> Iterator[None]:
        """Runs a step that moves queues. While it runs, producers fill them up to offset ``at`` before their logs are
        sealed, and send more after that."""
        subject = self.operator.subjects.get("orders")
        self.sealing = {queue: subject.log(queue) for queue in queues}
        self.left = {queue: at - self.end(queue) for queue in queues}
        with self.everything_goes_on():
            yield
        self.sealing = {}
        assert all(self.end(queue) > at for queue in queues), "nothing was sent to the new part while it was made"

    def move(self, queue: int, cell: str, *, at: int) -> None:
        with self.moving(queue, at=at):
            self.operator.routes.move("orders", queue, cell)

    def deliver_delayed(self) -> None:
        """Lets the delayed messages fall due: they take the next offsets of their queues, wherever these are."""
        with self.everything_goes_on(every=60):
            self.other.turn(1_300)

    def empty(self) -> None:
        """Consumes everything, and lets the retention remove it."""
        self.consume()
        self.bench.clock.ms += 5 * DAY_MS
        with self.everything_goes_on(every=40):
            for _ in range(SWEEPS):
                self.operator.sweeper.sweep()
                self.bench.clock.pass_time(60)
                if not any(row[3] == "read_only" for queue in QUEUES for row in self.table(queue)):
                    break

    def consume(self) -> None:
        for group in self.groups:
            group.finish()

    # What there is to see

    def end(self, queue: int) -> int:
        """Returns the offset that the next message of a queue gets."""
        self.bench.deployment.registry.forget("orders")
        subject = self.bench.deployment.subjects.get("orders")
        return self.bench.deployment.context.log(subject.log(queue)).totals().numbers

    def table(self, queue: int) -> list[list[object]]:
        route = shown_route(self.operator.subjects.get("orders")).queues[queue]
        return [[each.start, each.end, each.cell, each.state, each.generation] for each in route.mappings]

    def check(self) -> None:
        for group in self.groups:
            group.check([*self.offsets, *self.delayed], self.offsets)
