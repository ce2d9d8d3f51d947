"""The adapter of SQS asks once and not for long, and does not keep the queues of groups that are gone."""

import socket
import threading
from collections.abc import Iterator

import pytest

from hourwheel.adapters.sqs import SqsWakeupQueues
from hourwheel.errors import Unavailable
from hourwheel.model.pulls import WakeupQueue
from tests.support import HandClock

LONG_SECONDS = 60.0


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.fixture
def silent() -> Iterator[tuple[str, list[socket.socket]]]:
    """A server that takes connections and answers nothing, and the connections."""
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


def made(endpoint: str) -> SqsWakeupQueues:
    return SqsWakeupQueues(HandClock(), "hourwheel-wake-x_", "000000000000", region="eu-west-1", endpoint_url=endpoint)


def test_a_wakeup_is_sent_once_to_a_server_that_does_not_answer(silent: tuple[str, list[socket.socket]]) -> None:
    endpoint, taken = silent
    queues = made(endpoint)
    with pytest.raises(Unavailable):
        queues.ring("a")
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
