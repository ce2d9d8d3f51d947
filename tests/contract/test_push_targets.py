"""Targets on AWS, a function, a queue and a bus, get the messages."""

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from itertools import count
from time import monotonic
from typing import Any, NamedTuple

import boto3
import pytest

from hourwheel.model.groups import PushTarget
from hourwheel.model.targets import DONE
from tests.contract.push_targets import ACCOUNT, REGION, Opened, batch, to_bus, to_function, to_queue

_names = count()


@pytest.fixture
def targets(ministack_endpoint: str) -> Iterator[Opened]:
    opened = Opened(ministack_endpoint)
    yield opened
    opened.close()


@pytest.fixture
def clients(ministack_endpoint: str) -> Iterator[Callable[[str], Any]]:
    opened = []

    def make(service: str) -> Any:
        opened.append(boto3.client(service, region_name=REGION, endpoint_url=ministack_endpoint))
        return opened[-1]

    yield make
    for client in opened:
        client.close()


_HANDLER = """
def handler(event, context):
    bodies = [message["body"] for message in event["messages"]]
    if "raise" in bodies:
        raise ValueError("no")
    if "wait" in bodies:
        import time
        time.sleep(30)
    if "text" in bodies:
        return None
    if "echo" in bodies:
        return {"batchItemFailures": [{"itemIdentifier": event["subject"] + event["group"] + event["delivery"]}]}
    failed = [message["id"] for message in event["messages"] if message["body"] == "bad"]
    return {"batchItemFailures": [{"itemIdentifier": each} for each in failed]}
"""


@pytest.fixture(scope="module")
def function(ministack_endpoint: str) -> str:
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("index.py", _HANDLER)
    functions = boto3.client("lambda", region_name=REGION, endpoint_url=ministack_endpoint)
    name = f"push-{next(_names)}"
    functions.create_function(
        FunctionName=name,
        Runtime="python3.11",
        Handler="index.handler",
        Role=f"arn:aws:iam::{ACCOUNT}:role/push",
        Code={"ZipFile": package.getvalue()},
        Timeout=20,
    )
    functions.close()
    return name


@pytest.mark.parametrize(
    ("bodies", "failed"),
    [
        (("a", "b", "c"), set()),
        (("a", "bad", "c"), {1}),
        (("bad", "bad"), {0, 1}),
        (("text", "ü\U0001f600\x00"), set()),
        (("raise", "b"), {0, 1}),
        (("echo", "b"), {0, 1}),
    ],
)
def test_a_function_says_what_failed(targets: Opened, function: str, bodies: tuple[str, ...], failed: set[int]) -> None:
    outcome = targets.deliver(to_function(function), batch(*bodies))
    assert (outcome.failed, outcome.dead, outcome.unreached) == (failed, frozenset(), False), outcome
    assert bool(outcome.error) == bool(failed)


def test_an_exception_of_a_function_is_in_the_outcome(targets: Opened, function: str) -> None:
    error = targets.deliver(to_function(function), batch("raise")).error
    assert "the function failed" in error
    assert '"no"' in error


def test_a_function_that_takes_too_long_may_have_done_it(targets: Opened, function: str) -> None:
    outcome = targets.deliver(to_function(function, seconds=1), batch("wait", "b"))
    assert (outcome.failed, outcome.unreached) == ({0, 1}, False)
    assert "timed out" in outcome.error or "timeout" in outcome.error, outcome
    assert "the function failed" not in outcome.error, "it was waited for until its own time was over"


@pytest.mark.parametrize("target", [to_function("none"), to_queue("none"), to_queue("none.fifo")])
def test_a_target_that_is_not_there_uses_up_no_attempt(targets: Opened, target: PushTarget) -> None:
    outcome = targets.deliver(target, batch("a"))
    assert outcome.unreached, outcome
    assert not outcome.failed
    assert outcome.error


class Queue(NamedTuple):
    client: Any
    url: str
    target: PushTarget

    def received(self, wanted: int) -> list[Any]:
        found: list[Any] = []
        deadline = monotonic() + 120
        while len(found) < wanted and monotonic() < deadline:
            answer = self.client.receive_message(
                QueueUrl=self.url, MaxNumberOfMessages=10, WaitTimeSeconds=1, AttributeNames=["All"]
            )
            for message in answer.get("Messages", []):
                self.client.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])
                found.append(message)
        return found


@pytest.fixture
def make_queue(clients: Callable[[str], Any]) -> Callable[..., Queue]:
    def make(*, fifo: bool = False) -> Queue:
        client = clients("sqs")
        name = f"push-{next(_names)}" + (".fifo" if fifo else "")
        attributes = {"FifoQueue": "true"} if fifo else {}
        url = client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        return Queue(client, url, to_queue(name))

    return make


def test_a_queue_gets_each_message_by_itself(targets: Opened, make_queue: Callable[..., Queue]) -> None:
    queue = make_queue()
    bodies = [f"body {number}" for number in range(23)]
    assert targets.deliver(queue.target, batch(*bodies)) == DONE
    received = [json.loads(message["Body"]) for message in queue.received(23)]
    assert sorted(message["body"] for message in received) == sorted(bodies)
    assert {message["id"] for message in received} == {f"m-{number}" for number in range(23)}


def test_a_fifo_queue_keeps_the_order_of_a_key_and_takes_a_message_once(
    targets: Opened, make_queue: Callable[..., Queue]
) -> None:
    queue = make_queue(fifo=True)
    delivery = batch(*map(str, range(12)), keys=("a", "b", "ü\n") * 4)
    for _ in range(2):  # the answer of the first delivery was lost
        assert targets.deliver(queue.target, delivery) == DONE
    received = queue.received(12)
    by_key: dict[str, list[int]] = {"a": [], "b": [], "ü\n": []}
    for message in received:
        body = json.loads(message["Body"])
        by_key[body["key"]].append(int(body["body"]))
    assert by_key == {"a": [0, 3, 6, 9], "b": [1, 4, 7, 10], "ü\n": [2, 5, 8, 11]}
    assert {message["Attributes"]["MessageGroupId"] for message in received} == {"a", "b", "__"}
    assert queue.received(0) == []


def test_a_queue_gets_the_messages_as_they_were_sent(targets: Opened, make_queue: Callable[..., Queue]) -> None:
    queue = make_queue()
    body = "".join(map(chr, range(0x80))) + "\x85\ud7ff\ue000\ufffd\ufffe\uffff\U00010000\U0010ffff"
    assert targets.deliver(queue.target, batch(body)) == DONE
    (message,) = queue.received(1)
    assert json.loads(message["Body"])["body"] == body


@pytest.fixture
def bus(clients: Callable[[str], Any], make_queue: Callable[..., Queue]) -> tuple[str, Queue]:
    """Creates a bus all of whose events go to a queue."""
    events, queue, name = clients("events"), make_queue(), f"push-{next(_names)}"
    events.create_event_bus(Name=name)
    events.put_rule(Name="all", EventBusName=name, EventPattern='{"source": ["hourwheel"]}')
    events.put_targets(Rule="all", EventBusName=name, Targets=[{"Id": "queue", "Arn": queue.target.address}])
    return name, queue


def test_a_bus_gets_an_event_for_each_message(targets: Opened, bus: tuple[str, Queue]) -> None:
    name, queue = bus
    assert targets.deliver(to_bus(name), batch(*map(str, range(12)))) == DONE
    events = [json.loads(message["Body"]) for message in queue.received(12)]
    assert sorted(int(event["detail"]["body"]) for event in events) == list(range(12))
    assert {(event["source"], event["detail-type"]) for event in events} == {("hourwheel", "Hourwheel Message")}


def test_availability_is_an_event(targets: Opened, bus: tuple[str, Queue]) -> None:
    name, queue = bus
    assert targets.announce(to_bus(name, "notify"), "orders", "billing") == DONE
    (event,) = [json.loads(message["Body"]) for message in queue.received(1)]
    assert event["detail-type"] == "Hourwheel Messages Available"
    assert event["detail"] == {"subject": "orders", "group": "billing"}
