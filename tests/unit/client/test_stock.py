"""By default a consumer holds as many messages as its handlers finish within a second: two consumers share a backlog,
though their handlers are slow."""

import itertools
import threading
from typing import Any

import pytest

from hourwheel.client import Delivery
from hourwheel.client.consuming.stock import Stock
from tests.unit.client.fake import FakeServer
from tests.unit.client.runs import LONG_SECONDS, Start
from tests.unit.client.test_consumer import fill, group, settled
from tests.unit.client.test_ordered_consumer import fill as fill_keys

MESSAGES = 40
BODIES = [str(number) for number in range(MESSAGES)]
KEYS = [*(f"a{number}" for number in range(MESSAGES - 1)), "b"]
HELD = pytest.mark.parametrize(("concurrency", "held"), [(1, 2), (8, 10)])


def in_flight(server: FakeServer) -> int:
    with server.broker.changed:
        return sum(len(lease.left) for lease in group(server).leases.values())


class Waiting:
    """Handlers of consumers that wait for ``told``. ``begun``: the messages of each consumer."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.begun: list[list[Any]] = []
        self.told = threading.Event()

    def handler(self) -> Any:
        begun: list[Any] = []
        self.begun.append(begun)

        def handle(message: Delivery) -> None:
            with self.server.broker.changed:
                begun.append(message.body)
                self.server.broker.changed.notify_all()
            assert self.told.wait(LONG_SECONDS)

        return handle

    def all_begun(self, handlers: int) -> bool:
        return [len(begun) for begun in self.begun] == [handlers, handlers]

    def check_end(self) -> None:
        assert sorted(itertools.chain(*self.begun)) == sorted(BODIES)


@HELD
def test_two_consumers_with_slow_handlers_share_a_backlog(
    server: FakeServer, start: Start, concurrency: int, held: int
) -> None:
    fill(server, *BODIES)
    waiting = Waiting(server)
    with start(server, waiting.handler(), waits=True, concurrency=concurrency):
        try:
            server.wait_until(lambda _: in_flight(server) >= held)
            with start(server, waiting.handler(), waits=True, concurrency=concurrency):
                try:
                    server.wait_until(lambda _: in_flight(server) >= 2 * held)
                    assert in_flight(server) == 2 * held
                    server.wait_until(lambda _: waiting.all_begun(concurrency))
                finally:
                    waiting.told.set()
                server.wait_until(lambda broker: settled(broker, MESSAGES))
        finally:
            waiting.told.set()
    waiting.check_end()


def test_max_messages_is_obeyed(server: FakeServer, start: Start) -> None:
    fill(server, *BODIES)
    waiting = Waiting(server)
    with start(server, waiting.handler(), waits=True, max_messages=30):
        try:
            server.wait_until(lambda _: in_flight(server) == MESSAGES)
            assert server.calls("pull")[0].body["max_messages"] == 30
        finally:
            waiting.told.set()


def test_a_batch_handler_gets_all_that_is_there(server: FakeServer, start: Start) -> None:
    fill(server, *BODIES)
    seen: list[list[Any]] = []
    with start(server, lambda messages: seen.append([message.body for message in messages]), lists=True):
        server.wait_until(lambda broker: settled(broker, MESSAGES))
    assert seen == [BODIES]


def test_an_ordered_group_is_served_beyond_the_key_in_hand(server: FakeServer, start: Start) -> None:
    group(server).ordered = True
    fill_keys(server, *KEYS)
    waiting = Waiting(server)
    with start(server, waiting.handler(), waits=True, concurrency=2):
        try:
            server.wait_until(lambda _: waiting.begun[0][1:])
            assert waiting.begun[0] == [KEYS[0], KEYS[-1]]
        finally:
            waiting.told.set()
        server.wait_until(lambda broker: settled(broker, MESSAGES))


def stock_of(handlers: int, *, max_messages: int = 100) -> Stock:
    stock = Stock(max_messages)
    stock.follow(handlers)
    return stock


def paced(stock: Stock, message_seconds: float, *, handlers: int) -> list[int]:
    """Returns the sizes of a hundred pulls of a consumer whose handlers need this long for each message, and of which
    each pull begins as soon as the stock lets it."""
    now, handled, sizes = 0.0, 0, []
    waiting = -handlers  # the first messages go to idle handlers
    for _ in range(100):
        size = stock.next_size(handled, max(0, waiting), now)
        stock.idle(0, now)
        sizes.append(size)
        waiting += size
        done = max(1, waiting - stock.low_water)
        waiting, handled, now = waiting - done, handled + done, now + done * message_seconds / handlers
    return sizes


@pytest.mark.parametrize(
    ("handlers", "message_seconds", "sizes"),
    [
        (1, 10.0, {1, 2}),
        (1, 1.0, {1, 2}),
        (8, 1.0, set(range(1, 11))),
        (100, 1.0, set(range(13, 101))),
    ],
)
def test_slow_handlers_hold_little_more_than_they_work_on(
    handlers: int, message_seconds: float, sizes: set[int]
) -> None:
    assert set(paced(stock_of(handlers), message_seconds, handlers=handlers)) <= sizes


@pytest.mark.parametrize(("message_seconds", "largest"), [(2**-8, 100), (2**-13, 409), (2**-17, 800)])
def test_fast_handlers_pull_as_large_as_without_a_bound(message_seconds: float, largest: int) -> None:
    sizes = paced(stock_of(1), message_seconds, handlers=1)
    assert sizes[0] == 2
    assert sizes[-1] == largest == paced(Stock(100), message_seconds, handlers=1)[-1]


def test_the_stock_grows_with_what_was_finished() -> None:
    stock = stock_of(1)
    sizes = []
    handled = 0
    for number in range(8):
        sizes.append(stock.next_size(handled, 0, number / 1_000))
        stock.idle(0, number / 1_000)
        handled += sizes[-1]
    assert sizes[0] == 2
    assert all(now <= 5 * before for before, now in itertools.pairwise(sizes))
    assert sizes[-1] == 800


def test_a_first_message_that_is_fast_does_not_bring_many() -> None:
    stock = stock_of(1)
    stock.next_size(0, 0, 0.0)
    stock.idle(0, 0.0)
    assert stock.next_size(1, 0, 0.001) == 2


def test_time_without_messages_leaves_the_stock_as_it_is() -> None:
    stock = stock_of(1)
    stock.next_size(0, 0, 0.0)
    stock.idle(0, 0.0)
    assert stock.next_size(91, 0, 2.0) == 44  # 45.5 in a second, and the handler works on one of them
    stock.idle(1, 2.0)
    stock.idle(0, 3_600.0)
    assert stock.next_size(91, 0, 3_600.0) == 44


def test_handlers_that_become_slow_get_few_messages_again() -> None:
    stock = stock_of(1)
    stock.next_size(0, 0, 0.0)
    stock.idle(0, 0.0)
    assert stock.next_size(500, 0, 0.1) == 250
    assert [stock.next_size(500 + number, 0, 2.0 * number) for number in range(1, 6)][-1] == 1
