"""Stores that remember messages beside the handler: Redis, DynamoDB, one's own. A mark with an end guards a message."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import boto3
import moto
import pytest
import redis

from hourwheel.client import Delivery
from hourwheel.client.consuming.idempotence import InProgress
from hourwheel.idempotency import DynamoDbStore, RedisStore
from hourwheel.testing import Queue
from tests.apps.idempotency.conftest import LEASE_SECONDS, killed_before_it_acknowledged, set_handler

MARK = timedelta(seconds=60)


class OwnStore:
    """A store of one's own: two methods."""

    def __init__(self) -> None:
        self.marks: dict[str, str] = {}

    def begin(self, identity: str) -> bool:
        if self.marks.get(identity) == "marked":
            raise InProgress(delay=60)
        if identity in self.marks:
            return False
        self.marks[identity] = "marked"
        return True

    def end(self, identity: str, *, done: bool) -> None:
        del self.marks[identity]
        if done:
            self.marks[identity] = "done"


@pytest.fixture
def dynamodb(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    with moto.mock_aws():
        client = boto3.client("dynamodb", region_name="us-east-1")
        client.create_table(
            TableName="processed",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        yield client


@pytest.fixture(params=["redis", "dynamodb", "own"])
def store(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "own":
        yield OwnStore()
    elif request.param == "dynamodb":
        yield DynamoDbStore("processed", client=request.getfixturevalue("dynamodb"), lease=MARK)
    else:
        with redis.Redis(unix_socket_path=request.getfixturevalue("redis_socket")) as client:
            yield RedisStore(client, lease=MARK)


def test_a_consumer_that_dies_after_the_message_was_remembered_has_its_effect_once(store: Any, queue: Queue) -> None:
    seen: list[object] = []
    queue.producer("orders").send({"number": 7})
    queue.api.put_group("orders", "billing")
    killed_before_it_acknowledged(queue, store, seen.append)
    set_handler(queue, store, seen.append)
    assert queue.advance(seconds=LEASE_SECONDS + 10) == 1
    assert len(seen) == 1


def test_a_consumer_that_dies_between_its_effect_and_the_store_leaves_a_mark_that_others_wait_for(
    store: Any, queue: Queue
) -> None:
    """This is the case in which the effect happens twice: once the mark has ended."""
    seen: list[object] = []
    sent = queue.producer("orders").send("paid").result()
    assert store.begin(f"orders/billing/{sent.id}")
    set_handler(queue, store, seen.append)
    queue.run()
    assert (seen, queue.errors) == ([], [])
    lag = queue.api.lag("orders", "billing")
    assert (lag.backing_off, lag.dead) == (1, 0)
    store.end(f"orders/billing/{sent.id}", done=False)
    queue.advance(seconds=MARK.total_seconds() + 1)
    assert len(seen) == 1


def test_a_handler_that_fails_or_gives_a_message_back_is_called_again(store: Any, queue: Queue) -> None:
    attempts: list[int] = []

    def bill(message: Delivery) -> None:
        attempts.append(message.attempt)
        if message.attempt == 1:
            raise RuntimeError("not today")
        if message.attempt == 2:
            message.retry(delay=10)

    set_handler(queue, store, bill)
    queue.producer("orders").send("paid")
    queue.advance(hours=1)
    assert attempts == [1, 2, 3]


def test_a_message_that_is_sent_twice_under_one_id_has_its_effect_once(store: Any, queue: Queue) -> None:
    seen: list[object] = []
    set_handler(queue, store, seen.append)
    for _ in range(2):
        queue.producer("orders").send("paid", message_id="order-7")
    assert queue.run() == 2
    assert len(seen) == 1


def test_a_handler_with_a_session_is_refused(store: Any, queue: Queue) -> None:
    def bill(order: dict[str, int], session: object) -> None: ...

    with pytest.raises(TypeError, match=r"the handler takes a session, and \w+ has none"):
        set_handler(queue, store, bill)


def test_a_thing_without_the_methods_of_a_store_is_refused(queue: Queue) -> None:
    with pytest.raises(
        TypeError, match="an idempotency store has the method transaction, or the methods begin and end"
    ):
        set_handler(queue, {}, print)


def test_marks_and_messages_of_redis_end_by_themselves(redis_socket: str) -> None:
    with redis.Redis(unix_socket_path=redis_socket) as client:
        store = RedisStore(client, lease=MARK, keep=timedelta(days=1))
        assert store.begin("a/b/1")
        assert 59_000 < client.pttl("hourwheel:processed:a/b/1") <= 60_000
        with pytest.raises(InProgress) as refused:
            RedisStore(client, lease=MARK).begin("a/b/1")
        assert 59 <= float(refused.value.delay) <= 60
        store.end("a/b/1", done=True)
        assert 86_399_000 < client.pttl("hourwheel:processed:a/b/1") <= 86_400_000
        assert not store.begin("a/b/1")


def test_a_consumer_whose_mark_ended_does_not_end_the_mark_of_another(
    redis_socket: str, caplog: pytest.LogCaptureFixture
) -> None:
    with redis.Redis(unix_socket_path=redis_socket, decode_responses=True) as client:
        slow, other = RedisStore(client, lease=MARK), RedisStore(client, lease=MARK)
        assert slow.begin("a/b/1")
        client.delete("hourwheel:processed:a/b/1")  # as after a minute
        assert other.begin("a/b/1")
        slow.end("a/b/1", done=True)
        assert "took longer than its mark" in caplog.text
        with pytest.raises(InProgress):
            slow.begin("a/b/1")
        slow.end("a/b/1", done=False)
        other.end("a/b/1", done=True)
        assert not slow.begin("a/b/1")


@pytest.mark.parametrize("done", [True, False])
def test_a_slow_thread_whose_mark_ended_does_not_end_the_mark_of_another_thread_of_its_store(
    redis_socket: str, caplog: pytest.LogCaptureFixture, done: bool
) -> None:
    with redis.Redis(unix_socket_path=redis_socket) as client, ThreadPoolExecutor(1) as slow:
        store = RedisStore(client, lease=MARK)
        assert slow.submit(store.begin, "a/b/1").result()
        client.delete("hourwheel:processed:a/b/1")  # as after a minute
        assert store.begin("a/b/1")
        slow.submit(store.end, "a/b/1", done=done).result()
        assert ("took longer than its mark" in caplog.text) is done
        with pytest.raises(InProgress):
            RedisStore(client, lease=MARK).begin("a/b/1")
        store.end("a/b/1", done=True)
        assert not store.begin("a/b/1")


def test_another_thread_may_end_the_only_mark_of_a_message(redis_socket: str) -> None:
    with redis.Redis(unix_socket_path=redis_socket) as client, ThreadPoolExecutor(1) as other:
        store = RedisStore(client, lease=MARK)
        assert store.begin("a/b/1")
        other.submit(store.end, "a/b/1", done=True).result()
        assert not store.begin("a/b/1")


class Repeating(redis.Redis):
    """Loses the answer to each command that marks a message, and sends the command again."""

    def set(self, *values: Any, **options: Any) -> Any:
        super().set(*values, **options)
        return super().set(*values, **options)


def test_a_mark_whose_answer_was_lost_is_known_as_ones_own(redis_socket: str) -> None:
    with Repeating(unix_socket_path=redis_socket) as client:
        store = RedisStore(client, lease=MARK)
        assert store.begin("a/b/1")
        store.end("a/b/1", done=True)
        assert not store.begin("a/b/1")
