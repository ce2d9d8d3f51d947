"""Actors that are sent messages over a server. The cases are those of Dramatiq's own tests of brokers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from time import time_ns

import dramatiq
import pytest
from dramatiq import Message, QueueJoinTimeout, Worker
from dramatiq.errors import BrokerConnectionError

from hourwheel.client import Api, BadRequest, Problem, Producer, RetryPolicy, Unauthorized
from hourwheel.client import Message as Sent
from hourwheel.dramatiq import HourwheelBroker
from tests.integration.poison import POISON, handled, run_until_dead
from tests.integration.process import Server

SECONDS = 30.0


def now_ms() -> int:
    return time_ns() // 1_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("data"))
    yield started
    started.stop()


@pytest.fixture
def url(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


@pytest.fixture
def broker(url: str, request: pytest.FixtureRequest) -> Iterator[HourwheelBroker]:
    made = HourwheelBroker(url, namespace=f"{request.node.name[:40]}.", lease_seconds=4, rates={"slow": 4})
    dramatiq.set_broker(made)
    yield made
    made.close()


@pytest.fixture
def api(url: str) -> Iterator[Api]:
    with Api(url) as made:
        yield made


@contextmanager
def working(broker: HourwheelBroker, *, threads: int = 4) -> Iterator[Worker]:
    worker = Worker(broker, worker_timeout=100, worker_threads=threads)
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()


def subject(broker: HourwheelBroker, queue: str = "default") -> str:
    return f"{broker._namespace}{queue}"


def join(broker: HourwheelBroker, queue: str = "default") -> None:
    broker.join(queue, interval=20, timeout=int(SECONDS * 1_000))


def test_actors_get_the_messages_that_they_are_sent(broker: HourwheelBroker) -> None:
    seen: list[int] = []

    @dramatiq.actor
    def put(number: int) -> None:
        seen.append(number)

    with working(broker):
        for number in range(100):
            put.send(number)
        join(broker)
    assert sorted(seen) == list(range(100))


def test_a_failed_message_is_retried_after_a_delay_in_the_queue(broker: HourwheelBroker, api: Api) -> None:
    times: list[int] = []

    @dramatiq.actor(min_backoff=400, max_backoff=400)
    def fail_twice() -> None:
        times.append(now_ms())
        if len(times) < 3:
            raise RuntimeError("not yet")

    with working(broker):
        fail_twice.send()
        join(broker)
    assert len(times) == 3
    assert all(later - earlier >= 200 for earlier, later in pairwise(times))
    assert api.list_dead(subject(broker), "dramatiq").messages == []


def test_a_delayed_message_waits_in_the_queue_and_never_comes_early(broker: HourwheelBroker, api: Api) -> None:
    ran: list[int] = []

    @dramatiq.actor
    def record() -> None:
        ran.append(now_ms())

    with working(broker):
        sent = now_ms()
        record.send_with_options(delay=700)
        assert api.pending(subject(broker)).messages == 1
        assert api.lag(subject(broker), "dramatiq").in_flight == 0
        join(broker)
    assert ran[0] >= sent + 700


def test_delays_do_not_hold_each_other_up(broker: HourwheelBroker) -> None:
    seen: list[int] = []

    @dramatiq.actor
    def append(number: int) -> None:
        seen.append(number)

    with working(broker, threads=1):
        append.send_with_options(args=(1,), delay=900)
        append.send_with_options(args=(2,), delay=300)
        join(broker)
    assert seen == [2, 1]


def test_a_message_may_be_delayed_by_two_years_and_cancelled(broker: HourwheelBroker, api: Api) -> None:
    @dramatiq.actor
    def remind() -> None:
        raise AssertionError("cancelled")

    remind.send_with_options(delay=730 * 86_400_000)
    assert broker.last_result is not None
    assert broker.last_result.scheduled_id is not None
    assert api.cancel(broker.last_result.scheduled_id).state == "cancelled"
    with pytest.raises(BadRequest, match="732 days"):
        remind.send_with_options(delay=733 * 86_400_000)


def test_a_message_without_retries_left_becomes_a_dead_letter(broker: HourwheelBroker, api: Api) -> None:
    @dramatiq.actor(max_retries=0)
    def fail() -> None:
        raise RuntimeError("never")

    with working(broker):
        message = fail.send()
        join(broker)
    (dead,) = api.list_dead(subject(broker), "dramatiq").messages
    assert (dead.id, dead.reason, dead.detail) == (message.message_id, "rejected", "RuntimeError: never")


def test_a_message_for_an_unknown_actor_becomes_a_dead_letter(broker: HourwheelBroker, api: Api) -> None:
    broker.declare_queue("some")
    message = Message(queue_name="some", actor_name="nobody", args=(), kwargs={}, options={})
    with working(broker):
        broker.enqueue(message)
        join(broker, "some")
    (dead,) = api.list_dead(subject(broker, "some"), "dramatiq").messages
    assert dead.id == message.message_id


def test_a_body_that_is_no_message_becomes_a_dead_letter(broker: HourwheelBroker, api: Api, url: str) -> None:
    broker.declare_queue("default")
    with Producer(url) as producer:
        producer.send_batch([Sent("{"), Sent(b"\xff")], subject=subject(broker))
    with working(broker):
        join(broker)
    assert len(api.list_dead(subject(broker), "dramatiq").messages) == 2


WRONG = {
    "another queue": {"queue_name": "other"},
    "queue": {"queue_name": ["default"]},
    "actor": {"actor_name": ["record"]},
    "kwargs": {"kwargs": []},
    "options": {"options": []},
    "id": {"message_id": ["x"]},
    "time": {"message_timestamp": "x"},
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_message_that_would_end_a_thread_becomes_a_dead_letter_with_its_reason(
    broker: HourwheelBroker, api: Api, kind: str
) -> None:
    seen: list[int] = []

    @dramatiq.actor
    def record(number: int) -> None:
        seen.append(number)

    fields = {**record.message(1).asdict(), **WRONG[kind]}
    api.produce(subject(broker), [Sent(json.dumps(fields), id=kind)])
    with working(broker, threads=1):
        record.send(2)
        join(broker)
    assert seen == [2]
    (dead,) = [letter for letter in api.list_dead(subject(broker), "dramatiq").messages if letter.id == kind]
    assert dead.reason == "rejected"
    assert dead.detail


def test_what_a_worker_has_not_begun_goes_back_when_it_stops(broker: HourwheelBroker, api: Api) -> None:
    began, go_on = threading.Event(), threading.Event()

    @dramatiq.actor
    def wait() -> None:
        began.set()
        assert go_on.wait(SECONDS)

    for _ in range(3):
        wait.send()
    worker = Worker(broker, worker_timeout=100, worker_threads=1)
    worker.start()
    assert began.wait(SECONDS)
    threading.Timer(0.2, go_on.set).start()
    worker.stop()
    lag = api.lag(subject(broker), "dramatiq")
    assert (lag.waiting + lag.retrying, lag.in_flight) == (2, 0)
    pulled = api.pull(subject(broker), "dramatiq", "other")
    assert [message.attempt for pull in pulled.pulls for message in pull.messages] == [1, 1]


def test_a_long_task_keeps_its_lease(broker: HourwheelBroker) -> None:
    seen: list[int] = []

    @dramatiq.actor
    def take_long(milliseconds: int) -> None:
        seen.append(milliseconds)
        threading.Event().wait(milliseconds / 1_000)

    with working(broker):
        take_long.send(5_000)  # the lease has 4 s
        join(broker)
    assert seen == [5_000]


def test_join_ends_at_its_time_out(broker: HourwheelBroker) -> None:
    @dramatiq.actor
    def idle() -> None: ...

    idle.send()
    with pytest.raises(QueueJoinTimeout):
        broker.join("default", interval=10, timeout=50)


def test_flush_drops_what_waits_and_what_is_delayed(broker: HourwheelBroker) -> None:
    @dramatiq.actor
    def idle() -> None: ...

    idle.send()
    idle.send_with_options(delay=60_000)
    broker.flush_all()
    join(broker)


def test_a_queue_that_was_never_used_is_done(broker: HourwheelBroker) -> None:
    broker.declare_queue("unused")
    join(broker, "unused")


def test_a_rate_holds_for_all_workers_of_a_queue(broker: HourwheelBroker, api: Api) -> None:
    times: list[int] = []

    @dramatiq.actor(queue_name="slow")
    def note() -> None:
        times.append(now_ms())

    for _ in range(8):
        note.send()
    with working(broker), working(broker):
        join(broker, "slow")
    assert api.get_group(subject(broker, "slow"), "dramatiq").messages_per_second == 4
    assert times[-1] - times[0] >= 900  # four at once, four more within the next second


def test_a_program_that_may_only_send_leaves_the_rate_to_the_workers(
    broker: HourwheelBroker, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise Unauthorized(Problem(status=403, detail="the policy allows to send"))

    for call in ("get_subject", "get_group", "put_group"):
        monkeypatch.setattr(broker._api, call, refused)

    @dramatiq.actor(queue_name="slow")
    def note() -> None: ...

    note.send()
    assert len(api.peek(subject(broker, "slow"), 0).messages) == 1


def test_messages_are_durable_when_send_returns(tmp_path: Path) -> None:
    first = Server(tmp_path)
    broker = HourwheelBroker(f"http://127.0.0.1:{first.port}")
    dramatiq.set_broker(broker)
    seen: list[int] = []

    @dramatiq.actor
    def put(number: int) -> None:
        seen.append(number)

    put.send(1)
    first.kill()
    second = Server(tmp_path, port=first.port)
    with working(broker):
        join(broker)
    broker.close()
    second.stop()
    assert seen == [1]


def test_a_server_that_is_away_is_a_connection_error() -> None:
    broker = HourwheelBroker("http://127.0.0.1:1", send_timeout_seconds=0.1)
    broker._api._http._retry_seconds = 0
    dramatiq.set_broker(broker)

    @dramatiq.actor
    def idle() -> None: ...

    with pytest.raises(BrokerConnectionError, match="cannot be reached"):
        idle.send()
    broker.close()


def test_workers_go_on_when_the_server_is_back(tmp_path: Path) -> None:
    server = Server(tmp_path)
    broker = HourwheelBroker(f"http://127.0.0.1:{server.port}", lease_seconds=2)
    dramatiq.set_broker(broker)
    seen: set[int] = set()
    first = threading.Event()

    @dramatiq.actor
    def put(number: int) -> None:
        seen.add(number)
        first.set()

    with working(broker):
        put.send(1)
        assert first.wait(SECONDS)
        server.kill()
        server = Server(tmp_path, port=server.port)
        put.send(2)
        join(broker)
    broker.close()
    server.stop()
    assert seen == {1, 2}


POISONED = """
import os, sys, threading
import dramatiq
from hourwheel.dramatiq import HourwheelBroker
dramatiq.set_broker(broker := HourwheelBroker(sys.argv[1], lease_seconds=1, max_attempts=4))

@dramatiq.actor
def end_at_poison(item):
    if item == "poison":
        os._exit(9)
    journal = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(journal, (item + "\\n").encode())

if len(sys.argv) > 3:
    for item in sys.argv[3:]:
        end_at_poison.send(item)
    broker.close()
else:
    worker = dramatiq.Worker(broker, worker_threads=2)
    worker.start()
    threading.Event().wait()
"""


def test_a_message_that_ends_its_worker_takes_no_prefetched_one_with_it(url: str, api: Api, tmp_path: Path) -> None:
    journal, where = tmp_path / "journal", ("default", "dramatiq")
    items = [f"item-{number}" for number in range(60)]
    items[10] = POISON
    command = [sys.executable, "-c", POISONED, url, str(journal)]
    subprocess.run([*command, *items], check=True, timeout=60)
    api.put_group(*where, retry=RetryPolicy(first_seconds=0.0, cap_seconds=0.0))
    others = {item for item in items if item != POISON}
    env = {**os.environ, "dramatiq_queue_prefetch": "60"}
    assert run_until_dead(command, api, where, lambda: handled(journal) == others, env) == 5
    (dead,) = api.list_dead(*where).messages
    assert (POISON in str(dead.body), dead.attempt) == (True, 4)
