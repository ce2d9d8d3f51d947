"""A body of a type that no message has is refused by the call that sends it, in a sentence that says what a body is."""

import asyncio
import sqlite3
from array import array
from base64 import b64decode
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hourwheel import outbox
from hourwheel.client import AsyncProducer, Message, Producer
from tests.unit.client.fake import FakeServer

KINDS = "a body is text, bytes, a dict, a list, a dataclass, a TypedDict, a pydantic model or a msgspec struct, not "


class Sends:
    """The calls that send one body."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.producer = Producer(url, subject="orders")

    def make(self, body: Any) -> None:
        Message(body)

    def send(self, body: Any) -> None:
        self.producer.send(body).result(60)

    def send_batch(self, body: Any) -> None:
        self.producer.send_batch([body])

    def async_send(self, body: Any) -> None:
        asyncio.run(self._async_send(body))

    def async_send_batch(self, body: Any) -> None:
        asyncio.run(self._async_send([body], batch=True))

    def outbox(self, body: Any) -> None:
        connection = sqlite3.connect(":memory:")
        try:
            outbox.create_table(connection)
            outbox.send(connection, "orders", body)
        finally:
            connection.close()

    async def _async_send(self, body: Any, *, batch: bool = False) -> None:
        async with AsyncProducer(self._url, subject="orders") as producer:
            await (producer.send_batch(body) if batch else producer.send(body))


@pytest.fixture
def sends(server: FakeServer) -> Iterator[Sends]:
    made = Sends(server.url)
    yield made
    made.producer.close()


CALLS = (Sends.make, Sends.send, Sends.send_batch, Sends.async_send, Sends.async_send_batch, Sends.outbox)
call_of_each = pytest.mark.parametrize("call", CALLS, ids=[call.__name__ for call in CALLS])


@call_of_each
@pytest.mark.parametrize(
    "body",
    [5, True, None, 1.5, (1, 2), {1, 2}, frozenset({1}), range(3), object(), array("B", b"ab"), iter("ab"), dict],
    ids=lambda body: type(body).__name__,
)
def test_each_call_refuses_a_body_of_another_type(
    server: FakeServer, sends: Sends, call: Callable[[Sends, Any], None], body: Any
) -> None:
    with pytest.raises(TypeError) as caught:
        call(sends, body)
    assert str(caught.value) == KINDS + type(body).__name__
    assert server.calls("produce") == []


@call_of_each
@pytest.mark.parametrize("body", [{"a": {2}}, [frozenset({2})], {"a": [{"b": ({2},)}]}], ids=str)
def test_each_call_refuses_a_set_within_a_body(
    server: FakeServer, sends: Sends, call: Callable[[Sends, Any], None], body: Any
) -> None:
    with pytest.raises(TypeError, match=r"a body cannot contain (frozen)?set: JSON has no form for it"):
        call(sends, body)
    assert server.calls("produce") == []


def test_a_list_may_contain_itself_nowhere() -> None:
    body: list[Any] = []
    body.append(body)
    with pytest.raises(RecursionError):
        Message(body)


@pytest.mark.parametrize("body", [bytearray(b"paid"), memoryview(b"paid"), memoryview(b"p.a.i.d.")[::2]])
def test_a_buffer_of_bytes_is_sent_as_the_bytes_that_it_has_at_the_call(
    server: FakeServer, sends: Sends, body: Any
) -> None:
    message = Message(body)
    assert (message.body, type(message.body)) == (b"paid", bytes)
    sends.send(body)
    sends.send_batch(body)
    (stored,) = server.broker.subject("orders").queues
    assert [b64decode(each["body_base64"]) for each in stored] == [b"paid", b"paid"]


@pytest.mark.parametrize("messages", ["abc", b"abc", {"a": 1}, 5, None, Message("a")], ids=lambda it: type(it).__name__)
@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_a_batch_that_is_no_list_of_messages_is_refused(server: FakeServer, kind: str, messages: Any) -> None:
    async def in_a_task() -> None:
        async with AsyncProducer(server.url, subject="orders") as producer:
            await producer.send_batch(messages)

    with Producer(server.url, subject="orders") as producer, pytest.raises(TypeError) as caught:
        producer.send_batch(messages) if kind == "threads" else asyncio.run(in_a_task())
    name = type(messages).__name__
    assert str(caught.value) == f"a batch is a list of messages or bodies, not {name}: put a single one into a list"
    assert server.calls("produce") == []


def test_a_message_is_no_body(server: FakeServer) -> None:
    with Producer(server.url, subject="orders") as producer, pytest.raises(TypeError, match="send_batch takes a list"):
        producer.send(Message("paid"))
