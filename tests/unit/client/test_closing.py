"""A producer that ends while the server is away reports its unsent messages within its time-out."""

import socket
import subprocess
import sys
import threading

import pytest

from hourwheel.client import BadRequest, Closed, NotSent, Producer
from tests.unit.client.fake import FakeServer
from tests.unit.client.ids import StillIds

LONG_SECONDS = 120.0


def test_the_end_of_the_block_is_bounded_and_names_what_was_not_sent(server: FakeServer) -> None:
    server.fail("produce", times=-1, status=503)
    producer = Producer(server.url, subject="orders", close_timeout_seconds=0.02)
    with (
        pytest.raises(NotSent, match=r"2 messages not sent: .* before the message was accepted: .*as told") as raised,
        producer,
    ):
        futures = [producer.send("a", key="k"), producer.send("b", subject="returns")]
    assert sorted((each.subject, each.body, each.key) for each in raised.value.messages) == [
        ("orders", "a", "k"),
        ("returns", "b", None),
    ]
    assert all(isinstance(future.exception(0), Closed) for future in futures)
    producer.close()  # again: no effect


def test_a_producer_says_once_that_the_server_is_away_and_once_that_it_is_back(
    server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.fail("produce", times=3, cut=True)
    with Producer(server.url, subject="orders", ids=StillIds()) as producer:
        producer.send_batch(["a"])
    told = [record.getMessage() for record in caplog.records if record.name == "hourwheel.producer"]
    assert [text.split("; ")[-1].partition(",")[0] for text in told] == [
        "retrying for 120 s",
        "the server answers again",
    ]


def test_the_end_of_the_block_raises_nothing_where_all_was_sent(server: FakeServer) -> None:
    with Producer(server.url, subject="orders", linger_seconds=60) as producer:
        producer.send("a")
        assert producer.send("b").cancel()
    assert server.bodies("orders") == ["a"]


def test_the_end_of_the_block_tells_of_what_the_server_refuses_meanwhile(server: FakeServer) -> None:
    producer = Producer(server.url, subject="orders", linger_seconds=60)
    producer.send("a")
    producer.send("b", key="bad")
    with pytest.raises(NotSent, match="1 message not sent") as raised:
        producer.close()
    assert [each.body for each in raised.value.messages] == ["b"]
    assert isinstance(raised.value.__cause__, BadRequest)
    assert server.bodies("orders") == ["a"]


def test_an_error_of_the_block_passes_with_a_note(server: FakeServer) -> None:
    server.fail("produce", times=-1, status=503)
    producer = Producer(server.url, subject="orders", close_timeout_seconds=0.02)
    producer.send("a")
    with pytest.raises(ZeroDivisionError) as raised, producer:
        raise ZeroDivisionError
    [note] = raised.value.__notes__
    assert "1 message not sent" in note


def test_a_connection_that_cannot_be_cut_does_not_hold_the_end_up(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, released, closed = threading.Event(), threading.Event(), threading.Event()

    def connect(address: tuple[str, int], timeout_seconds: float) -> socket.socket:
        reached.set()
        released.wait()
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", connect)
    producer = Producer(server.url, subject="orders", close_timeout_seconds=0)
    future = producer.send("a")

    def close() -> None:
        with pytest.raises(NotSent):
            producer.close()
        closed.set()

    closing = threading.Thread(target=close)
    try:
        assert reached.wait(LONG_SECONDS)
        closing.start()
        assert closed.wait(LONG_SECONDS)
        assert isinstance(future.exception(0), Closed)
    finally:
        released.set()
        closing.join()
        for sender in producer._senders:
            sender.join()


def test_a_program_that_ends_without_closing_says_what_was_not_sent(server: FakeServer) -> None:
    server.fail("produce", times=-1, status=503)
    program = (
        "import hourwheel.client.producing.producer as p; p._AT_EXIT_SECONDS = 0.02;"
        f"p.Producer({server.url!r}, subject='s').send('a')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=LONG_SECONDS
    )
    assert "the producer was closed with 1 message not sent" in done.stderr
    assert "Traceback" not in done.stderr
