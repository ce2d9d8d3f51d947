"""The adapter of SQS asks once and not for long, and does not keep the queues of groups that are gone."""

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest
from botocore.config import Config

from hourwheel.adapters.aws.sqs import SqsWakeupQueues, impatient_config
from hourwheel.errors import Broken, Throttled, Unavailable
from hourwheel.model.pulls import WakeupQueue
from tests.support import HandClock

LONG_SECONDS = 60.0


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.fixture
def silent() -> Iterator[tuple[str, list[socket.socket]]]:
    """Yields a server that takes connections and answers nothing, and the connections."""
    taken: list[socket.socket] = []
    ends = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.05)

    def serve() -> None:
        while not ends.is_set():
            try:
                taken.append(listener.accept()[0])
            except TimeoutError:
                continue

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}", taken
    ends.set()
    thread.join(LONG_SECONDS)
    listener.close()
    for connection in taken:
        connection.close()


class SlowSqs(ThreadingHTTPServer):
    """A stand-in for SQS that answers no request before ``_ROUND`` of them are under way, or before those that are left
    are. It refuses the queues of ``refused``."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, expected: int) -> None:
        super().__init__(("127.0.0.1", 0), SlowHandler)
        self.left = expected
        self.under_way = self.most = 0
        self.received: Counter[str] = Counter()
        self.refused: dict[str, str] = {}
        self.connections = 0
        self.gave_up = False
        self.changed = threading.Condition()

    def hold(self, queue: str) -> None:
        """Holds the request until all requests of its round have come."""
        with self.changed:
            self.received[queue] += 1
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            if self.under_way == min(_ROUND, self.left):
                self.left -= self.under_way
                self.under_way = 0
                self.changed.notify_all()
            elif not self.gave_up:
                self.gave_up = not self.changed.wait(LONG_SECONDS)


_ROUND = 16


class SlowHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SlowSqs

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        queue = msgspec.json.decode(body)["QueueUrl"].rpartition("_")[2]
        self.server.hold(queue)
        code = self.server.refused.get(queue)
        answer = {"MessageId": "m-1", "MD5OfMessageBody": "ae16bafbf7ac3cbf4ee4cb32a2b0b1e5"}
        sent = msgspec.json.encode({"__type": f"com.amazonaws.sqs#{code}", "message": queue} if code else answer)
        self.send_response(400 if code else 200)
        self.send_header("content-type", "application/x-amz-json-1.0")
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_request(self, *_: Any) -> None:
        pass


@pytest.fixture
def slow() -> Iterator[SlowSqs]:
    server = SlowSqs(70)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join(LONG_SECONDS)
    server.server_close()


def patient(server: SlowSqs) -> SqsWakeupQueues:
    endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    return SqsWakeupQueues(
        HandClock(), "hourwheel-wake-x_", "000000000000", region="eu-west-1", endpoint_url=endpoint,
        config=impatient_config().merge(Config(read_timeout=LONG_SECONDS, connect_timeout=LONG_SECONDS)),
    )  # fmt: skip


def outcome(queues: SqsWakeupQueues, name: str) -> bool | Unavailable | Broken:
    try:
        return queues.wake(name)
    except (Unavailable, Broken) as error:
        return error


def test_seventy_groups_are_woken_sixteen_at_a_time_and_over_as_many_connections(slow: SlowSqs) -> None:
    queues = patient(slow)
    names = [f"q{number}" for number in range(70)]
    slow.refused = {
        "q3": "RequestThrottled", "q40": "AccessDeniedException", "q69": "QueueDoesNotExist",
    }  # fmt: skip
    calls = [partial(outcome, queues, name) for name in names]
    outcomes = dict(zip(names, queues.side_by_side(calls), strict=True))
    slow.left = 70
    queues.side_by_side(calls)  # over the connections of the calls before
    queues.client.close()
    assert slow.received == Counter(names * 2)
    assert (slow.most, slow.connections) == (16, 16)
    assert isinstance(outcomes.pop("q3"), Throttled)
    assert isinstance(outcomes.pop("q40"), Broken)
    assert outcomes.pop("q69") is False
    assert set(outcomes.values()) == {True}


def test_no_call_is_under_way_when_an_error_is_raised() -> None:
    queues = made("http://127.0.0.1:1")
    failed, ended = threading.Event(), []

    def fails() -> None:
        failed.set()
        raise ZeroDivisionError

    def ends_later() -> None:
        assert failed.wait(LONG_SECONDS)
        threading.Event().wait(0.05)
        ended.append(1)

    with pytest.raises(ZeroDivisionError):
        queues.side_by_side([fails, ends_later, ends_later])
    assert ended == [1, 1]
    queues.client.close()


def made(endpoint: str) -> SqsWakeupQueues:
    return SqsWakeupQueues(HandClock(), "hourwheel-wake-x_", "000000000000", region="eu-west-1", endpoint_url=endpoint)


def test_a_wakeup_is_sent_once_to_a_server_that_does_not_answer(silent: tuple[str, list[socket.socket]]) -> None:
    endpoint, taken = silent
    queues = made(endpoint)
    with pytest.raises(Unavailable):
        queues.wake("a")
    timeouts = queues.client.meta.config
    queues.client.close()
    assert len(taken) == 1
    assert (timeouts.connect_timeout, timeouts.read_timeout) == (0.3, 0.5)


def test_a_process_does_not_keep_every_queue_that_it_has_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def create(self: SqsWakeupQueues, name: str) -> str:
        asked.append(name)
        return f"https://sqs.example/{name}"

    monkeypatch.setattr(SqsWakeupQueues, "_create", create)
    queues = made("http://127.0.0.1:1")
    for number in range(10_001):
        queues.open(f"q{number}", fresh=False)
    assert len(queues._opened) == 1
    assert queues.open("q10000", fresh=False) == WakeupQueue("https://sqs.example/q10000", "eu-west-1")
    assert len(asked) == 10_001
    queues.client.close()
