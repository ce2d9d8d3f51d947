import asyncio
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, as_completed, wait
from contextlib import contextmanager
from typing import Any

import pytest

from hourwheel.client import (
    BadRequest,
    Closed,
    DeliveryTimeout,
    Message,
    NotFound,
    NotSent,
    Producer,
    SendResult,
    TooLarge,
    Unauthorized,
)
from hourwheel.client.transport.endpoint import REPEAT_HEADER
from hourwheel.system import SystemIds
from tests.unit.client.fake import TOKEN, FakeServer
from tests.unit.client.ids import StillIds

LONG_SECONDS = 120.0


class Gate:
    """Holds a request at the server until it is opened."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._open = threading.Event()

    def __call__(self) -> None:
        self._reached.set()
        assert self._open.wait(LONG_SECONDS)

    def wait_reached(self) -> None:
        assert self._reached.wait(LONG_SECONDS)

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def make(server: FakeServer) -> Iterator[Callable[..., Producer]]:
    made: list[Producer] = []
    ids = StillIds()

    def producer(**options: Any) -> Producer:
        made.append(Producer(server.url, **{"subject": "orders", "ids": ids, **options}))
        return made[-1]

    yield producer
    for each in made:
        each.close()


@contextmanager
def held(server: FakeServer) -> Iterator[Gate]:
    gate = Gate()
    server.fail("produce", before=gate)
    try:
        yield gate
    finally:
        gate.open()


def test_a_future_says_where_the_message_was_stored(make: Callable[..., Producer]) -> None:
    future = make().send("paid", key="k", tags=["eu"], headers={"a": "b"}, message_id="o-7")
    assert future.result(LONG_SECONDS) == SendResult("o-7", 0, 0)


def test_messages_are_gathered_and_keep_their_order(make: Callable[..., Producer], server: FakeServer) -> None:
    with make(batch_messages=50, linger_seconds=60) as producer:
        futures = [producer.send(str(number)) for number in range(230)]
        assert producer.flush(LONG_SECONDS)
    assert [future.result(0).offset for future in futures] == list(range(230))
    assert server.bodies("orders") == [str(number) for number in range(230)]
    assert [len(request.body["messages"]) for request in server.calls("produce")] == [50, 50, 50, 50, 30]


def test_the_linger_ends_by_itself(make: Callable[..., Producer]) -> None:
    assert make(linger_seconds=0.01).send("a").result(LONG_SECONDS).offset == 0


def test_a_caller_that_waits_ends_the_linger(make: Callable[..., Producer], server: FakeServer) -> None:
    producer = make(linger_seconds=3_600)
    first, second = producer.send("a"), producer.send("b")
    assert second.result(LONG_SECONDS).offset == 1
    assert first.done()
    assert producer.send("c").exception(LONG_SECONDS) is None
    assert [len(request.body["messages"]) for request in server.calls("produce")] == [2, 1]


def test_futures_work_with_what_waits_for_futures(make: Callable[..., Producer], server: FakeServer) -> None:
    async def gather(futures: list[Future[SendResult]]) -> list[SendResult]:
        return await asyncio.gather(*map(asyncio.wrap_future, futures))

    producer = make(linger_seconds=0.001)
    done, _ = wait([producer.send(str(number)) for number in range(3)], LONG_SECONDS)
    assert sorted(future.result(0).offset or 0 for future in done) == [0, 1, 2]
    late = [producer.send(str(number)) for number in range(3)]
    assert sorted(future.result(0).offset or 0 for future in as_completed(late, LONG_SECONDS)) == [3, 4, 5]
    assert [result.offset for result in asyncio.run(gather([producer.send("a"), producer.send("b")]))] == [6, 7]
    called: list[Future[SendResult]] = []
    last = producer.send("c", on_done=called.append)
    last.result(LONG_SECONDS)
    last.add_done_callback(called.append)
    producer.flush(LONG_SECONDS)
    assert called == [last, last]
    assert "finished" in repr(last)
    assert not last.cancel()


def test_each_subject_has_its_own_batches(make: Callable[..., Producer], server: FakeServer) -> None:
    with held(server) as gate:
        producer = make(linger_seconds=0)
        slow = producer.send("a")
        gate.wait_reached()
        assert producer.send("b", subject="returns").result(LONG_SECONDS).offset == 0
        assert not slow.done()
    assert slow.result(LONG_SECONDS).offset == 0


def test_a_request_without_an_answer_is_repeated_with_the_same_key(
    make: Callable[..., Producer], server: FakeServer
) -> None:
    server.fail("produce", lose=True)
    server.fail("produce", status=503)
    server.fail("produce", cut=True)
    assert make().send("a").result(LONG_SECONDS).offset == 0
    assert make().send_batch(["b"])[0].offset == 1
    assert server.bodies("orders") == ["a", "b"]
    keys = [request.body["idempotency_key"] for request in server.calls("produce")]
    assert keys[:4] == [keys[0]] * 4
    assert [request.headers.get(REPEAT_HEADER) for request in server.calls("produce")] == [None, "1", "1", "1", None]


def test_order_holds_while_a_batch_is_tried_again(make: Callable[..., Producer], server: FakeServer) -> None:
    server.fail("produce", times=3, lose=True)
    with make(batch_messages=2, linger_seconds=0) as producer:
        for number in range(20):
            producer.send(str(number))
    assert server.bodies("orders") == [str(number) for number in range(20)]


@pytest.mark.parametrize("bound", [{"max_pending_messages": 2}, {"max_pending_bytes": 2}])
def test_a_full_producer_makes_send_wait(
    make: Callable[..., Producer], server: FakeServer, bound: dict[str, int]
) -> None:
    with held(server) as gate:
        producer = make(linger_seconds=0, **bound)
        producer.send("a")
        gate.wait_reached()
        producer.send("b")
        third = threading.Thread(target=producer.send, args=("c",))
        third.start()
        third.join(0.05)
        assert third.is_alive()
        gate.open()
        third.join(LONG_SECONDS)
        assert not third.is_alive()
    producer.flush()
    assert server.bodies("orders") == ["a", "b", "c"]


def test_a_callback_may_send_although_the_producer_is_full(make: Callable[..., Producer], server: FakeServer) -> None:
    producer = make(linger_seconds=0, max_pending_messages=1)
    second: list[Future[SendResult]] = []
    refused: list[BaseException] = []

    def again(done: Future[SendResult]) -> None:
        second.append(producer.send("b"))
        try:
            producer.flush()
        except RuntimeError as error:
            refused.append(error)

    producer.send("a", on_done=again).result(LONG_SECONDS)
    producer.flush()
    assert second[0].result(LONG_SECONDS).offset == 1
    assert "on_done" in str(refused[0])


def test_one_bad_message_fails_alone(make: Callable[..., Producer], server: FakeServer) -> None:
    with make(linger_seconds=60, batch_messages=7) as producer:
        futures = [producer.send(str(number), key="bad" if number in {2, 5} else None) for number in range(7)]
        producer.flush(LONG_SECONDS)
    assert [number for number, future in enumerate(futures) if future.exception()] == [2, 5]
    assert isinstance(futures[2].exception(), BadRequest)
    assert server.bodies("orders") == ["0", "1", "3", "4", "6"]
    assert len(server.calls("produce")) == 7
    keys = {request.body["idempotency_key"] for request in server.calls("produce")}
    assert len(keys) == 7  # another content is another request


def test_a_bad_message_that_is_not_named_is_searched_for(make: Callable[..., Producer], server: FakeServer) -> None:
    with make(linger_seconds=60, batch_messages=8) as producer:
        futures = [producer.send("unplaced" if number == 5 else str(number)) for number in range(8)]
        producer.flush(LONG_SECONDS)
    assert [number for number, future in enumerate(futures) if future.exception()] == [5]
    assert server.bodies("orders") == ["0", "1", "2", "3", "4", "6", "7"]


def test_a_batch_that_is_too_large_is_split(make: Callable[..., Producer], server: FakeServer) -> None:
    server.broker.max_batch_bytes = 25
    with make(linger_seconds=60, batch_messages=5) as producer:
        futures = [producer.send(body) for body in ["a" * 10, "b" * 10, "c" * 30, "d" * 10, "e" * 10]]
        producer.flush(LONG_SECONDS)
    assert [type(future.exception()) for future in futures].count(TooLarge) == 1
    assert [body[0] for body in server.bodies("orders")] == ["a", "b", "d", "e"]


def test_a_refusal_of_all_is_not_repeated_for_each(server: FakeServer) -> None:
    server.token = TOKEN
    with Producer(server.url, subject="orders", linger_seconds=60, batch_messages=3) as producer:
        futures = [producer.send(str(number)) for number in range(3)]
        assert all(isinstance(future.exception(LONG_SECONDS), Unauthorized) for future in futures)
    assert len(server.calls("produce")) == 1


def test_what_cannot_be_encoded_is_refused_at_once(make: Callable[..., Producer]) -> None:
    with pytest.raises(UnicodeEncodeError):
        make().send("\ud800")
    with pytest.raises(ValueError, match="subject"):
        Producer("http://127.0.0.1:1").send("a")


def test_a_message_out_of_time_fails(make: Callable[..., Producer], server: FakeServer) -> None:
    server.fail("produce", times=-1, status=503)
    producer = make(linger_seconds=0, delivery_timeout_seconds=0.05)
    error = producer.send("a").exception(LONG_SECONDS)
    assert isinstance(error, DeliveryTimeout)
    with pytest.raises(DeliveryTimeout):
        producer.send_batch(["b"])


def test_a_cancelled_message_is_not_sent(make: Callable[..., Producer], server: FakeServer) -> None:
    with make(linger_seconds=60) as producer:
        assert producer.send("a").cancel()
        producer.send("b")
    assert server.bodies("orders") == ["b"]


def test_send_batch_is_one_request(make: Callable[..., Producer], server: FakeServer) -> None:
    accepted = make().send_batch(["a", b"b", Message("c", key="k")], subject="returns")
    assert [position.offset for position in accepted] == [0, 1, 2]
    assert len(server.calls("produce")) == 1
    with pytest.raises(BadRequest):
        make().send_batch([Message("a", key="bad"), "b"])
    assert len(server.calls("produce")) == 2


def test_a_batch_that_is_wrong_in_itself_is_refused_as_before(
    make: Callable[..., Producer], server: FakeServer
) -> None:
    producer = make()
    with pytest.raises(UnicodeEncodeError):
        producer.send_batch(["\ud800"])
    with pytest.raises(BadRequest):
        producer.send_batch([Message("a", key="bad", headers={"count": 7})])
    assert producer.send_batch([Message("a", headers={"count": "7"})])[0].offset == 0


def test_flush_says_when_time_ran_out(make: Callable[..., Producer], server: FakeServer) -> None:
    with held(server):
        producer = make(linger_seconds=60)
        producer.send("a")
        assert not producer.flush(0.02)
    assert producer.flush(LONG_SECONDS)


def test_close_sends_what_is_there_and_refuses_more(make: Callable[..., Producer], server: FakeServer) -> None:
    producer = make(linger_seconds=60)
    future = producer.send("a")
    producer.close()
    assert future.result(0).offset == 0
    with pytest.raises(Closed):
        producer.send("b")
    with pytest.raises(Closed):
        producer.send_batch(["b"])
    producer.close()


def test_close_gives_up_in_time(make: Callable[..., Producer], server: FakeServer) -> None:
    with held(server) as gate:
        producer = make(linger_seconds=0, batch_messages=1)
        under_way, behind = producer.send("a"), producer.send("b")
        gate.wait_reached()
        with pytest.raises(NotSent):
            producer.close(0.02)
    assert isinstance(under_way.exception(0), Closed)
    assert isinstance(behind.exception(0), Closed)


def test_an_answer_of_another_size_is_an_error(make: Callable[..., Producer], server: FakeServer) -> None:
    server.fail("produce", raw=b'{"results":[]}')
    with pytest.raises(Exception, match="0 results for 1"):
        make().send("a").result(LONG_SECONDS)
    server.fail("produce", status=404)
    with pytest.raises(NotFound):
        make().send("a").result(LONG_SECONDS)


def test_the_end_of_the_program_sends_what_is_left(server: FakeServer) -> None:
    program = (
        f"from hourwheel.client import Producer; Producer({server.url!r}, linger_seconds=60).send('a', subject='s')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=LONG_SECONDS)
    assert server.bodies("s") == ["a"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_has_a_producer_of_its_own(make: Callable[..., Producer], server: FakeServer) -> None:
    producer = make(linger_seconds=60, ids=SystemIds())
    producer.send("parent")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # this test forks with threads on purpose
        child = os.fork()
    if child == 0:
        try:
            producer.send("child")
            os._exit(0 if producer.flush(LONG_SECONDS) else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    producer.close()
    assert sorted(server.bodies("orders")) == ["child", "parent"]


def test_many_threads_lose_nothing(make: Callable[..., Producer], server: FakeServer) -> None:
    with make(batch_messages=20, linger_seconds=0.001, max_pending_messages=50) as producer:

        def send(name: str) -> None:
            for number in range(100):
                producer.send(f"{name}-{number:03}")

        threads = [threading.Thread(target=send, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    stored = server.bodies("orders")
    assert len(stored) == 400
    for name in "abcd":
        own = [body for body in stored if body.startswith(name)]
        assert own == sorted(own)
