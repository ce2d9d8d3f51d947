import functools
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from hourwheel.client import Consumer, Delivery, Message, Reject, Retry
from hourwheel.client.consuming import pull_session
from tests.unit.client.broker import Broker
from tests.unit.client.broker_records import FakeGroup
from tests.unit.client.fake import FakeServer
from tests.unit.client.ids import StillIds

LONG_SECONDS = 120.0


def fill(server: FakeServer, *bodies: str) -> None:
    with server.broker.changed:
        server.broker.produce("orders", {"messages": [{"body": body} for body in bodies]})


def consumer(server: FakeServer, **options: Any) -> Consumer:
    options = {"drain_seconds": 0.1, "settle_linger_seconds": 0.02, "wait_seconds": 0.2, **options}
    return Consumer(server.url, "orders", "billing", ids=StillIds(), **options)


def group(server: FakeServer) -> FakeGroup:
    return server.broker.group("orders", "billing")


def settled(broker: Broker, count: int) -> bool:
    return len(broker.group("orders", "billing").acked) == count


class Running:
    """``run`` on a thread of its own, and stopped at the end."""

    def __init__(self, consumer: Consumer, handle: Callable[[Delivery], object]) -> None:
        self.consumer = consumer
        self.error: BaseException | None = None
        consumer.handler(handle)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.consumer.run()
        except BaseException as error:
            self.error = error

    def __enter__(self) -> "Running":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.stop()
        self.join()

    def join(self) -> None:
        self._thread.join(LONG_SECONDS)
        assert not self._thread.is_alive()


def test_what_a_handler_returns_from_is_acknowledged(server: FakeServer) -> None:
    fill(server, "a", "b", "c")
    seen: list[str | bytes] = []
    with Running(consumer(server), lambda message: seen.append(message.body)):
        server.wait_until(lambda broker: settled(broker, 3))
    assert seen == ["a", "b", "c"]
    assert not group(server).retries


def test_a_message_shows_all_that_was_sent(server: FakeServer) -> None:
    with server.broker.changed:
        message = {"body": "a", "key": "k", "tags": ["eu"], "headers": {"t": "1"}, "id": "o-7"}
        server.broker.produce("orders", {"messages": [message]})
    with consumer(server) as messages:
        first = next(iter(messages))
    assert (first.id, first.body, first.key, first.tags, first.headers) == ("o-7", "a", "k", ["eu"], {"t": "1"})
    assert (first.queue, first.offset, first.attempt, first.produced_at.year) == (0, 0, 1, 2026)
    assert "o-7" in repr(first)


def test_an_exception_retries_and_reject_gives_up(server: FakeServer, caplog: pytest.LogCaptureFixture) -> None:
    fill(server, "fails once", "hopeless", "fine")
    attempts: list[tuple[str | bytes, int]] = []

    def handle(message: Delivery) -> None:
        attempts.append((message.body, message.attempt))
        if message.body == "fails once" and message.attempt == 1:
            raise RuntimeError("not today")
        if message.body == "hopeless":
            raise Reject("never")

    with caplog.at_level(logging.INFO, logger="hourwheel"), Running(consumer(server), handle):
        server.wait_until(lambda broker: settled(broker, 2))
    assert ("fails once", 2) in attempts
    assert [letter["body"] for letter in group(server).dead] == ["hopeless"]
    assert "not today" in caplog.text
    failed = next(line for line in caplog.messages if line.startswith("handler failed"))
    assert "of subject orders, group billing, attempt 1:" in failed
    rejected = next(line for line in caplog.messages if line.endswith("rejected: never"))
    assert "of subject orders, group billing, attempt 1 rejected" in rejected


def test_a_handler_may_decide_by_itself(server: FakeServer) -> None:
    fill(server, "a", "b")

    def handle(message: Delivery) -> None:
        if message.attempt == 1:
            (message.dead if message.body == "a" else message.retry)()

    with Running(consumer(server), handle):
        server.wait_until(lambda broker: settled(broker, 1))
    assert [letter["body"] for letter in group(server).dead] == ["a"]


def test_a_handler_may_say_when_to_try_again(server: FakeServer, caplog: pytest.LogCaptureFixture) -> None:
    fill(server, "raises", "decides", "mistakes", "fine")

    def handle(message: Delivery) -> None:
        if message.body == "raises":
            raise Retry("the bank is closed", delay="10m")
        if message.body == "decides":
            message.retry(delay=timedelta(minutes=2))
        if message.body == "mistakes" and message.attempt == 1:
            raise Retry(delay="1000d")

    with caplog.at_level(logging.INFO, logger="hourwheel"), Running(consumer(server), handle):
        server.wait_until(lambda broker: settled(broker, 2))
    own = [(delay, message["body"]) for delay, message in group(server).backing_off]
    assert sorted(own, key=str) == [("10m", "raises"), (120.0, "decides")]
    assert "the bank is closed" in caplog.text
    assert "delay is too long" in caplog.text  # an exception like any other: its message is retried as the group says


def test_a_message_says_when_it_was_due(server: FakeServer) -> None:
    with server.broker.changed:
        late = {"body": "late", "deliver_at": "2027-01-01T09:00:00Z"}
        [accepted, _] = server.broker.produce("orders", {"messages": [late, {"body": "at once"}]})["results"]
    server.broker.fall_due(accepted["scheduled_id"])
    with consumer(server) as messages:
        loop = iter(messages)
        due = {message.body: message.due_at for message in (next(loop), next(loop))}
    assert due == {"at once": None, "late": datetime(2027, 1, 1, 9, tzinfo=UTC)}


def test_threads_share_the_messages_of_a_pull(server: FakeServer) -> None:
    fill(server, "a", "b", "c", "d")
    together = threading.Barrier(4, timeout=LONG_SECONDS)
    with Running(consumer(server, concurrency=4), lambda message: together.wait()):
        server.wait_until(lambda broker: settled(broker, 4))
    assert len([pull for pull in server.calls("pull") if "settle" not in pull.body]) >= 1


def test_settlements_travel_with_the_next_pull(server: FakeServer) -> None:
    fill(server, *map(str, range(40)))
    last = threading.Event()
    with Running(
        consumer(server, max_messages=10, settle_linger_seconds=60),
        lambda message: last.set() if message.body == "39" else None,
    ):
        assert last.wait(LONG_SECONDS)
    assert settled(server.broker, 40)
    assert len(server.calls("settle")) <= 1  # the last one, at the stop


def test_results_do_not_wait_for_a_slow_neighbour(server: FakeServer) -> None:
    fill(server, "fast", "slow")
    go_on = threading.Event()

    def handle(message: Delivery) -> None:
        if message.body == "slow":
            assert go_on.wait(LONG_SECONDS)

    with Running(consumer(server), handle):
        server.wait_until(lambda broker: broker.group("orders", "billing").acked == ["fast"])
        go_on.set()
        server.wait_until(lambda broker: settled(broker, 2))
    assert any(entry.get("ack") == [0] for call in server.calls("settle") for entry in call.body["settle"])


def test_a_result_is_settled_while_a_pull_waits(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_session, "BUSY_WAIT_SECONDS", LONG_SECONDS)
    monkeypatch.setattr(pull_session, "BUSY_END_SECONDS", 0.0)
    fill(server, "a")
    go_on = threading.Event()
    with Running(consumer(server, wait_seconds=20), lambda message: go_on.wait(LONG_SECONDS)):
        server.wait_until(
            lambda broker: broker.waiting_pulls == 1 and broker.group("orders", "billing").positions == [1]
        )
        pulls = len(server.calls("pull"))
        go_on.set()
        server.wait_until(lambda broker: settled(broker, 1))
        assert len(server.calls("pull")) == pulls


def test_the_next_batch_is_there_before_the_last_message_is_done(server: FakeServer) -> None:
    fill(server, *map(str, range(8)))
    go_on = threading.Event()
    with Running(consumer(server, max_messages=2), lambda message: go_on.wait(LONG_SECONDS)):
        server.wait_until(lambda broker: broker.group("orders", "billing").positions == [4])
        go_on.set()
        server.wait_until(lambda broker: settled(broker, 8))


def test_a_slow_handler_keeps_its_lease(server: FakeServer) -> None:
    fill(server, "slow")
    go_on = threading.Event()
    with Running(consumer(server, lease_seconds=1), lambda message: go_on.wait(LONG_SECONDS)):
        server.wait_until(lambda _: len([call for call in server.requests if call.call == "settle"]) >= 3)
        go_on.set()
        server.wait_until(lambda broker: settled(broker, 1))
    assert server.calls("settle")[0].body["settle"][0]["extend_seconds"] == 1
    assert not group(server).retries


def test_a_lost_lease_is_told_to_the_handler_and_its_result_dropped(server: FakeServer) -> None:
    fill(server, "slow", "not begun")
    begun, lost = threading.Event(), threading.Event()
    seen: list[tuple[str | bytes, int]] = []

    def handle(message: Delivery) -> None:
        seen.append((message.body, message.attempt))
        if len(seen) == 1:
            begun.set()
            while not message.lost:
                assert lost.wait(LONG_SECONDS)

    running = Running(consumer(server, lease_seconds=1, max_messages=100), handle)
    with running:
        assert begun.wait(LONG_SECONDS)
        server.broker.end_leases("orders", "billing")
        server.wait_until(lambda _: running.consumer.lost_messages == 2)
        lost.set()
        server.wait_until(lambda broker: settled(broker, 2))
    assert sorted(seen) == [("not begun", 1), ("slow", 1), ("slow", 1)]


def test_stop_lets_running_handlers_finish_and_settles_them(server: FakeServer) -> None:
    fill(server, *map(str, range(10)))
    begun, go_on = threading.Event(), threading.Event()

    def handle(message: Delivery) -> None:
        begun.set()
        assert go_on.wait(LONG_SECONDS)

    running = Running(consumer(server, max_messages=100, drain_seconds=0, settle_linger_seconds=60), handle)
    with running:
        assert begun.wait(LONG_SECONDS)
        running.consumer.stop()
        go_on.set()
        running.join()
    assert group(server).acked == ["0"]
    assert sorted(message["body"] for message in group(server).retries) == [str(number) for number in range(1, 10)]
    assert not any(lease.left for lease in group(server).leases.values())


def test_stop_drains_what_was_pulled(server: FakeServer) -> None:
    fill(server, *map(str, range(10)))
    subject = consumer(server, max_messages=100, drain_seconds=LONG_SECONDS, settle_linger_seconds=60)

    @subject.handler
    def handle(message: Delivery) -> None:
        subject.stop()

    subject.run()
    assert len(group(server).acked) == 10


def test_stop_settles_though_the_server_stumbles(server: FakeServer) -> None:
    fill(server, "a")
    server.fail("settle", lose=True)
    server.fail("settle", cut=True)
    subject = consumer(server, settle_linger_seconds=60, drain_seconds=0)
    subject.handler(lambda message: subject.stop())
    subject.run()
    assert group(server).acked == ["a"]
    assert len(server.calls("settle")) == 3


def test_a_stop_without_a_message_cuts_the_pull_that_waits_at_once(server: FakeServer) -> None:
    idle = consumer(server, wait_seconds=20, drain_seconds=LONG_SECONDS, concurrency=3)
    with Running(idle, lambda message: None):
        server.wait_until(lambda broker: broker.waiting_pulls == 1)
    assert server.broker.waiting_pulls == 1
    fill(server, "a")  # lets the pull at the server end


def test_a_loop_without_a_message_cuts_the_pull_that_waits_when_it_is_stopped(server: FakeServer) -> None:
    with consumer(server, wait_seconds=20, drain_seconds=LONG_SECONDS) as messages:
        stopping = threading.Thread(
            target=lambda: (server.wait_until(lambda broker: broker.waiting_pulls == 1), messages.stop())
        )
        stopping.start()
        assert list(messages) == []
    stopping.join()
    assert server.broker.waiting_pulls == 1
    fill(server, "a")  # lets the pull at the server end


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_cleanly(server: FakeServer, number: signal.Signals) -> None:
    fill(server, "a")
    before = signal.getsignal(number)
    subject = consumer(server)
    subject.handler(lambda message: os.kill(os.getpid(), number))
    subject.run()
    assert group(server).acked == ["a"]
    assert signal.getsignal(number) is before


def test_a_handler_that_ends_the_program_is_heard(server: FakeServer) -> None:
    fill(server, "a")
    subject = consumer(server)

    @subject.handler
    def handle(message: Delivery) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        subject.run()
    assert [message["body"] for message in group(server).retries] == ["a"]


def test_the_loop_acknowledges_when_it_asks_for_the_next(server: FakeServer) -> None:
    fill(server, "a", "b", "c")
    with consumer(server) as messages:
        for message in messages:
            if message.body == "b":
                server.wait_until(lambda broker: broker.group("orders", "billing").acked == ["a"])
                message.retry()
            if message.body == "c":
                break
    assert group(server).acked == ["a", "c"]
    assert [message["body"] for message in group(server).retries] == ["b"]


def test_an_exception_that_leaves_the_loop_retries_the_message(server: FakeServer) -> None:
    fill(server, "a", "b", "c")

    def work() -> None:
        with consumer(server, max_messages=100, settle_linger_seconds=60) as messages:
            for message in messages:
                if message.body == "b":
                    raise KeyError("b")

    with pytest.raises(KeyError):
        work()
    assert group(server).acked == ["a"]
    assert sorted(message["body"] for message in group(server).retries) == ["b", "c"]


def test_stop_ends_the_loop(server: FakeServer) -> None:
    fill(server, "a", "b")
    seen = []
    with consumer(server, drain_seconds=LONG_SECONDS) as messages:
        for message in messages:
            seen.append(message.body)
            messages.stop()
    assert seen == ["a", "b"]
    assert group(server).acked == ["a", "b"]


def test_misuse_is_told(server: FakeServer) -> None:
    with pytest.raises(RuntimeError, match="handler"):
        consumer(server).run()
    with pytest.raises(RuntimeError, match="with block"):
        iter(consumer(server))
    with consumer(server) as messages, pytest.raises(RuntimeError, match="one run"):
        messages.__enter__()


def test_a_handler_whose_call_would_run_nothing_is_refused(server: FakeServer) -> None:
    async def bill(message: Delivery) -> None: ...

    def bill_each(messages: list[Delivery]) -> Iterator[None]:
        yield

    class Billing:
        async def __call__(self, message: Delivery) -> None: ...

    takes = consumer(server)
    for refused in (bill, functools.partial(bill), Billing(), bill_each):
        for decorate in (takes.handler, takes.batch_handler, takes.handler(idempotent=cast(Any, object()))):
            with pytest.raises(TypeError, match=r"is asynchronous: use AsyncConsumer|is a generator function"):
                decorate(refused)


def test_each_consumer_names_itself(server: FakeServer) -> None:
    fill(server, "a")
    with consumer(server) as messages:
        next(iter(messages))
    name = server.calls("pull")[0].body["consumer"]
    assert str(os.getpid()) in name
    assert len(name) <= 100


def test_nothing_is_lost_or_doubled_among_many(server: FakeServer) -> None:
    bodies = [str(number) for number in range(1_000)]
    fill(server, *bodies)
    options: dict[str, Any] = {"concurrency": 3, "max_messages": 20}
    first = Running(consumer(server, **options), lambda message: None)
    second = Running(consumer(server, **options), lambda message: None)
    with first, second:
        server.wait_until(lambda broker: settled(broker, 1_000))
    assert sorted(group(server).acked, key=int) == bodies


def test_a_message_of_a_producer_arrives(server: FakeServer) -> None:
    from hourwheel.client import Producer

    with Producer(server.url, subject="orders") as producer, consumer(server, wait_seconds=5) as messages:
        producer.send_batch([Message(b"\x00\xff")])
        assert next(iter(messages)).body == b"\x00\xff"
