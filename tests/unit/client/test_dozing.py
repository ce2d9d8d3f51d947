"""A consumer of a server on AWS waits at a wake-up queue, and every other consumer as before."""

import functools
import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Self

import pytest

from hourwheel.client import Api, Message
from hourwheel.client.consuming import pull_session
from hourwheel.client.consuming.dozing import Doze, Waiting
from hourwheel.client.transport.signing import Signer
from tests.unit.client import sigv4
from tests.unit.client.fake import FakeServer, Request
from tests.unit.client.runs import Start

REGION, SECRET = "eu-west-1", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
LONG_SECONDS = 60.0
SQS = "unknown"  # a call that is none of the API
EMPTY = b'{"Messages":[]}'
WAKEUP = b'{"Messages":[{"Body":"wake"}]}'


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


class Handled:
    """The handler of a consumer that runs until the end of the block. ``run`` is its run."""

    def __init__(self, start: Start, server: FakeServer, **options: Any) -> None:
        self.bodies: list[str] = []
        self.first = threading.Event()
        self.run = start(server, self._handle, wait_seconds=20, settle_linger_seconds=1.0, drain_seconds=5.0, **options)

    def _handle(self, message: Any) -> None:
        self.bodies.append(message.body)
        self.first.set()

    def stop(self) -> None:
        """Stops the consumer, and waits for its end: not as long as a call of the fake server is held."""
        self.run.stop()
        self.run.join(LONG_SECONDS / 2)

    def __enter__(self) -> Self:
        self.run.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.run.__exit__()


Consuming = Callable[..., Handled]


@pytest.fixture
def consuming(start: Start) -> Consuming:
    """Returns what runs a consumer that signs its requests."""
    return functools.partial(Handled, start, sign="aws", region=REGION)


def waits_at(server: FakeServer, url: str | None = None, seconds: float = 300) -> bytes:
    """Returns an answer without messages that names a queue."""
    queue = {"url": url or f"{server.url}/111122223333/hourwheel-wake-x", "region": REGION, "wait_seconds": seconds}
    return json.dumps({"pulls": [], "wakeup": queue}).encode()


def until(server: FakeServer, call: str, count: int) -> list[Request]:
    server.wait_until(lambda _: len([request for request in server.requests if request.call == call]) >= count)
    return server.calls(call)


def send(server: FakeServer, *bodies: str) -> None:
    with Api(server.url) as api:
        api.produce("orders", [Message(body) for body in bodies])


def test_a_wakeup_ends_the_wait_and_the_next_pull_says_so(server: FakeServer, consuming: Consuming) -> None:
    server.fail("pull", raw=waits_at(server))
    server.fail(SQS, raw=EMPTY)
    server.fail(SQS, raw=WAKEUP, before=lambda: send(server, "paid"))
    with consuming(server) as handled:
        pulls = until(server, "pull", 2)
        assert handled.first.wait(LONG_SECONDS)
        assert handled.bodies == ["paid"]
    assert pulls[0].body["wakeup"] == "able"
    assert pulls[0].body["idle_seconds"] < LONG_SECONDS
    assert pulls[1].body["wakeup"] == "woken"
    request = server.calls(SQS)[0]
    headers = {name.lower(): value for name, value in request.headers.items()}
    assert headers["x-amz-target"] == "AmazonSQS.ReceiveMessage"
    assert request.body == {
        "QueueUrl": f"{server.url}/111122223333/hourwheel-wake-x",
        "WaitTimeSeconds": 20,
        "MaxNumberOfMessages": 10,
    }
    authorization = sigv4.parsed(headers["authorization"])
    assert authorization.scope.split("/")[1:] == [REGION, "sqs", "aws4_request"]
    signed = sigv4.signature(SECRET, authorization.scope, "POST", "/", headers, authorization.signed, request.data)
    assert authorization.signature == signed


def test_a_consumer_that_stops_gives_its_wakeup_back(server: FakeServer, consuming: Consuming) -> None:
    server.fail("pull", raw=waits_at(server))
    server.fail(SQS, raw=b'{"Messages":[{"Body":"wake","ReceiptHandle":"h-1"}]}')
    server.fail("pull", raw=b'{"pulls":[],"next_pull_seconds":300}')
    server.fail(SQS, raw=b"{}")
    with consuming(server) as handled:
        until(server, "pull", 2)
        handled.stop()
    given_back = server.calls(SQS)[1]
    headers = {name.lower(): value for name, value in given_back.headers.items()}
    assert headers["x-amz-target"] == "AmazonSQS.ChangeMessageVisibility"
    queue = f"{server.url}/111122223333/hourwheel-wake-x"
    assert given_back.body == {"QueueUrl": queue, "ReceiptHandle": "h-1", "VisibilityTimeout": 0}


def test_a_consumer_that_has_looked_again_keeps_its_wakeup(server: FakeServer, consuming: Consuming) -> None:
    released = threading.Event()
    server.fail("pull", raw=waits_at(server))
    server.fail(SQS, raw=b'{"Messages":[{"Body":"wake","ReceiptHandle":"h-1"}]}')
    server.fail("pull", raw=b'{"pulls":[],"next_pull_seconds":0.01}')
    server.fail("pull", raw=waits_at(server))
    server.fail(SQS, raw=EMPTY, before=lambda: released.wait(LONG_SECONDS))
    with consuming(server) as handled:
        until(server, SQS, 2)
        handled.stop()
        released.set()
    assert len(server.calls(SQS)) == 2


@pytest.mark.parametrize("refusal", [{"status": 403, "raw": b"{}"}, {"cut": True}], ids=["forbidden", "cut"])
def test_a_wakeup_that_cannot_be_given_back_keeps_nobody_from_stopping(
    server: FakeServer, consuming: Consuming, refusal: dict[str, Any]
) -> None:
    server.fail("pull", raw=waits_at(server))
    server.fail(SQS, raw=b'{"Messages":[{"Body":"wake","ReceiptHandle":"h-1"}]}')
    server.fail("pull", raw=b'{"pulls":[],"next_pull_seconds":300}')
    server.fail(SQS, **refusal)
    with consuming(server) as handled:
        until(server, "pull", 2)
        handled.stop()
    assert len(server.calls(SQS)) == 2


def test_after_the_wait_it_pulls_although_no_wakeup_came(server: FakeServer, consuming: Consuming) -> None:
    server.fail("pull", raw=waits_at(server, seconds=1.0))
    with consuming(server):
        pulls = until(server, "pull", 2)
    assert pulls[1].body["wakeup"] == "able"


def test_a_queue_that_is_missing_is_reported(server: FakeServer, consuming: Consuming) -> None:
    server.fail("pull", raw=waits_at(server))
    server.fail(SQS, status=400, raw=b'{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"it is not there"}')
    with consuming(server):
        pulls = until(server, "pull", 2)
    assert pulls[1].body["wakeup"] == "missing"


def test_a_consumer_that_may_not_receive_waits_in_its_pulls(
    server: FakeServer, consuming: Consuming, caplog: pytest.LogCaptureFixture
) -> None:
    server.fail("pull", raw=waits_at(server))
    server.fail(SQS, status=403, raw=b'{"__type":"com.amazon.coral.service#AccessDeniedException","message":"no"}')
    with caplog.at_level(logging.WARNING), consuming(server):
        pulls = until(server, "pull", 2)
    assert not {"wakeup", "idle_seconds"} & pulls[1].body.keys()
    assert "hourwheel policy consumer" in caplog.text


def test_a_queue_elsewhere_gets_no_signed_request(
    server: FakeServer, consuming: Consuming, caplog: pytest.LogCaptureFixture
) -> None:
    server.fail("pull", raw=waits_at(server, "https://sqs.eu-west-1.amazonaws.com.example.org/111122223333/x"))
    with caplog.at_level(logging.WARNING), consuming(server):
        until(server, "pull", 2)
    assert "is no queue of SQS" in caplog.text


def test_on_one_machine_pulls_say_nothing_new(server: FakeServer, start: Start) -> None:
    send(server, "paid")
    with Handled(start, server) as handled:
        assert handled.first.wait(LONG_SECONDS)
    assert all("idle_seconds" not in request.body for request in server.calls("pull"))


def test_a_stop_cuts_the_wait(server: FakeServer, consuming: Consuming) -> None:
    released = threading.Event()
    server.fail("pull", raw=waits_at(server))
    server.fail(SQS, raw=EMPTY, before=lambda: released.wait(LONG_SECONDS))
    with consuming(server) as handled:
        until(server, SQS, 1)
        handled.stop()
        released.set()


def test_a_stop_cuts_the_wait_that_began_beside_a_slow_handler(
    server: FakeServer, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_session, "BUSY_END_SECONDS", 10 * LONG_SECONDS)  # a stop would wait for it
    released = threading.Event()
    send(server, "slow")
    server.fail(SQS, raw=EMPTY, before=lambda: released.wait(LONG_SECONDS))

    def handle(message: Any) -> None:
        server.fail("pull", raw=waits_at(server))
        until(server, SQS, 1)
        run.stop()

    with start(server, handle, waits=True, sign="aws", region=REGION, drain_seconds=5.0, wait_seconds=20) as run:
        run.join(LONG_SECONDS / 2)
    released.set()


def test_a_queue_that_does_not_answer_costs_a_pull_now_and_then(
    server: FakeServer, consuming: Consuming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourwheel.client.consuming.dozing._FAILED_SECONDS", 0.01)
    for _ in range(3):
        server.fail("pull", raw=waits_at(server))
    server.fail(SQS, cut=True)
    server.fail(SQS, status=500, raw=b"oops")
    server.fail(SQS, status=400, raw=b'{"__type":"com.amazonaws.sqs#RequestThrottled"}')
    send(server, "paid")
    with consuming(server) as handled:
        assert handled.first.wait(LONG_SECONDS)
        assert handled.bodies == ["paid"]
    assert len(server.calls(SQS)) == 3


def test_the_server_says_how_soon_to_come_again(server: FakeServer, consuming: Consuming) -> None:
    server.fail("pull", raw=b'{"pulls":[],"next_pull_seconds":0.01}')
    send(server, "paid")
    with consuming(server) as handled:
        assert handled.first.wait(LONG_SECONDS)
        assert handled.bodies == ["paid"]


def test_less_than_a_second_passes_before_the_next_pull(server: FakeServer, consuming: Consuming) -> None:
    pulled_at: list[float] = []
    for _ in range(2):
        server.fail("pull", raw=waits_at(server, seconds=0.9), before=lambda: pulled_at.append(time.monotonic()))
    with consuming(server):
        until(server, "pull", 3)
    assert pulled_at[1] - pulled_at[0] >= 0.8
    assert not server.calls(SQS)


def test_a_server_gets_no_longer_idle_time_than_it_accepts() -> None:
    now = [0.0]
    doze = Doze(Signer("http://127.0.0.1", REGION), "127.0.0.1", lambda: now[0])
    now[0] = 1e12
    assert doze.fields()["idle_seconds"] == 31_536_000


@pytest.mark.parametrize(
    "url",
    [
        "https://sqs.eu-west-1.amazonaws.com:abc/111122223333/x",
        "ftp://sqs.eu-west-1.amazonaws.com/111122223333/x",
        "http://sqs.eu-west-1.amazonaws.com/111122223333/x",
    ],
)
def test_a_url_that_cannot_be_used_leaves_the_consumer_in_its_pulls(
    server: FakeServer, consuming: Consuming, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    server.fail("pull", raw=waits_at(server, url))
    send(server, "paid")
    with caplog.at_level(logging.WARNING), consuming(server) as handled:
        assert handled.first.wait(LONG_SECONDS)
    assert "costs more than waiting at a queue" in caplog.text


def _broken(self: Waiting) -> int | None:
    raise RuntimeError("the wait is broken")


def test_an_unexpected_error_at_the_queue_ends_the_run(
    server: FakeServer, consuming: Consuming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Waiting, "next_seconds", _broken)
    server.fail("pull", raw=waits_at(server))
    with consuming(server) as handled:
        handled.run.join()
    assert str(handled.run.error) == "the wait is broken"
