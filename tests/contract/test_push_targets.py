"""Targets on AWS: what reaches a function, a queue and a bus, and what becomes of it under each fault."""

import io
import json
import zipfile
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from time import monotonic
from typing import Any, NamedTuple

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest
from botocore.exceptions import (
    ConnectionClosedError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
    SSLError,
)

from hourwheel.adapters.targets import AwsTargets
from hourwheel.adapters.webhooks import Webhooks
from hourwheel.model import Message, PushTarget
from hourwheel.targets import DONE, Delivery, Outcome

from . import wire
from .simulated import InstantClock

REGION = "us-east-1"
ACCOUNT = "000000000000"
FUNCTION = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{{}}"
QUEUE = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{{}}"
BUS = f"arn:aws:events:{REGION}:{ACCOUNT}:event-bus/{{}}"
_names = count()


def batch(*bodies: str, keys: tuple[str, ...] = ()) -> Delivery:
    return Delivery(
        "orders",
        "billing",
        0,
        tuple(
            Message(id=f"m-{index}", queue=0, offset=index, attempt=1, body=body, key=keys[index] if keys else None)
            for index, body in enumerate(bodies)
        ),
    )


def to_function(name: str, seconds: int = 5) -> PushTarget:
    return PushTarget(kind="lambda", address=FUNCTION.format(name), timeout_seconds=seconds)


def to_queue(name: str) -> PushTarget:
    return PushTarget(kind="sqs", address=QUEUE.format(name))


def to_bus(name: str, kind: Any = "eventbridge") -> PushTarget:
    return PushTarget(kind=kind, address=BUS.format(name))


class Opened(AwsTargets):
    """Targets whose clients are closed, and can be got at."""

    def __init__(self, endpoint_url: str | None = None) -> None:
        super().__init__(Webhooks(InstantClock()), allowed=["*"], endpoint_url=endpoint_url)

    def client(self, target: PushTarget) -> Any:
        service = {"lambda": "lambda", "sqs": "sqs"}.get(target.kind, "events")
        return self._client(service, target, target.timeout_seconds if service == "lambda" else 10)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


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


# Functions

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


# Queues


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
    for _ in range(2):  # the answer of the first was lost
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


# Buses


@pytest.fixture
def bus(clients: Callable[[str], Any], make_queue: Callable[..., Queue]) -> tuple[str, Queue]:
    """A bus, all of whose events go to a queue."""
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


# Faults, and what goes over the wire. None of it leaves the process.


class Wire:
    """``answers``: what the next requests are answered, or raise; the rest succeed. ``calls`` are their bodies."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.hosts: list[str] = []
        self.answers: deque[Any] = deque()
        self.targets = Opened()

    def deliver(self, target: PushTarget, delivery: Delivery) -> Outcome:
        self._listen(target)
        return self.targets.deliver(target, delivery)

    def announce(self, target: PushTarget) -> Outcome:
        self._listen(target)
        return self.targets.announce(target, "orders", "billing")

    def _listen(self, target: PushTarget) -> None:
        client = self.targets.client(target)
        client.meta.events.register_first(
            f"before-send.{client.meta.service_model.service_name}", self._send, unique_id="wire"
        )

    def _send(self, request: AWSPreparedRequest, **_: Any) -> Any:
        content: Any = request.body
        call = json.loads(content if isinstance(content, bytes | str) else content.read())
        self.calls.append(call)
        self.hosts.append(str(request.url))
        planned = self.answers.popleft() if self.answers else None
        if isinstance(planned, Exception):
            raise planned
        status, body = (200, _success(call)) if planned is None else planned
        return wire.answer(request, status, body if isinstance(body, bytes) else json.dumps(body).encode())


def _success(call: Any) -> Any:
    if "messages" in call:
        return {"batchItemFailures": []}
    if "QueueUrl" in call:
        return {"Successful": [{"Id": e["Id"], "MessageId": "x", "MD5OfMessageBody": "x"} for e in call["Entries"]]}
    return {"FailedEntryCount": 0, "Entries": [{"EventId": "x"} for _ in call["Entries"]]}


@pytest.fixture
def on_wire(no_account: None) -> Iterator[Wire]:
    opened = Wire()
    yield opened
    opened.targets.close()


TARGETS = {"lambda": to_function("f"), "sqs": to_queue("q"), "eventbridge": to_bus("b")}
URL = "https://service"


def refused(code: str, status: int) -> tuple[int, Any]:
    return status, {"__type": f"com.amazonaws#{code}", "Code": code, "message": "injected", "Message": "injected"}


UNREACHED: dict[str, Any] = {
    "no connection": EndpointConnectionError(endpoint_url=URL),
    "a connection that takes too long": wire.ConnectTimeoutError(endpoint_url=URL),
    "a wrong certificate": SSLError(endpoint_url=URL, error="expired"),
    "no credentials": NoCredentialsError(),
    "throttled": refused("ThrottlingException", 400),
    "too many": refused("TooManyRequestsException", 429),
    "not allowed": refused("AccessDeniedException", 403),
    "not there": refused("ResourceNotFoundException", 404),
    "no such queue": refused("AWS.SimpleQueueService.NonExistentQueue", 400),
    "expired credentials": refused("ExpiredTokenException", 403),
    "500": refused("InternalFailure", 500),
    "502 of a function that cannot start": refused("ENILimitReachedException", 502),
    "503": (503, b"<html>busy</html>"),
}
FAILED: dict[str, Any] = {
    "no answer in time": ReadTimeoutError(endpoint_url=URL),
    "a connection that was cut": ConnectionClosedError(endpoint_url=URL),
}


@pytest.mark.parametrize("fault", UNREACHED)
@pytest.mark.parametrize("kind", TARGETS)
def test_what_did_not_reach_the_target_uses_up_no_attempt(on_wire: Wire, kind: str, fault: str) -> None:
    on_wire.answers.append(UNREACHED[fault])
    outcome = on_wire.deliver(TARGETS[kind], batch("a", "b"))
    assert (outcome.unreached, outcome.failed, outcome.too_large) == (True, frozenset(), False), outcome
    assert outcome.error
    assert len(on_wire.calls) == 1, "the SDK asks once"


@pytest.mark.parametrize("fault", FAILED)
@pytest.mark.parametrize("kind", TARGETS)
def test_what_may_have_reached_the_target_is_an_attempt(on_wire: Wire, kind: str, fault: str) -> None:
    on_wire.answers.append(FAILED[fault])
    outcome = on_wire.deliver(TARGETS[kind], batch("a", "b"))
    assert (outcome.unreached, outcome.failed) == (False, {0, 1})
    assert len(on_wire.calls) == 1


@pytest.mark.parametrize("fault", [*UNREACHED, *FAILED])
def test_an_announcement_that_may_be_lost_is_repeated(on_wire: Wire, fault: str) -> None:
    on_wire.answers.append((UNREACHED | FAILED)[fault])
    assert on_wire.announce(to_bus("b", "notify")).unreached


@pytest.mark.parametrize("code", ["ThrottlingException", "InternalFailure", "AccessDeniedException"])
def test_an_announcement_that_is_refused_is_made_again(on_wire: Wire, code: str) -> None:
    on_wire.answers.append((200, {"FailedEntryCount": 1, "Entries": [{"ErrorCode": code, "ErrorMessage": "x"}]}))
    outcome = on_wire.announce(to_bus("b", "notify"))
    assert outcome.unreached
    assert code in outcome.error


@pytest.mark.parametrize(
    "answer",
    [
        refused("RequestTooLargeException", 413),
        refused("RequestEntityTooLargeException", 413),
        (413, b""),
    ],
)
def test_what_a_function_finds_too_large_is_split(on_wire: Wire, answer: Any) -> None:
    on_wire.answers.append(answer)
    outcome = on_wire.deliver(to_function("f"), batch("a", "b"))
    assert (outcome.too_large, outcome.unreached, outcome.failed) == (True, False, frozenset()), outcome


def test_a_batch_that_no_function_takes_is_not_sent(on_wire: Wire) -> None:
    assert on_wire.deliver(to_function("f"), batch(*["\x00" * (1 << 20)] * 2)).too_large
    assert on_wire.calls == []
    assert on_wire.deliver(to_function("f"), batch(*["x" * (1 << 20)] * 5)) == DONE
    assert len(on_wire.calls) == 1


def sqs_failed(*entries: tuple[int, str, bool]) -> tuple[int, Any]:
    return 200, {
        "Successful": [],
        "Failed": [{"Id": str(at), "Code": code, "SenderFault": fault} for at, code, fault in entries],
    }


def bus_failed(*codes: str) -> tuple[int, Any]:
    entries = [{"ErrorCode": code, "ErrorMessage": "x"} if code else {"EventId": "x"} for code in codes]
    return 200, {"FailedEntryCount": sum(map(bool, codes)), "Entries": entries}


@pytest.mark.parametrize(
    ("target", "answer", "failed"),
    [
        (to_queue("q"), sqs_failed((1, "InternalError", False)), {1}),
        (to_queue("q"), sqs_failed((0, "InvalidMessageContents", True), (2, "InternalError", False)), {0, 2}),
        (to_queue("q"), sqs_failed(*((at, "InvalidMessageContents", True) for at in range(3))), {0, 1, 2}),
        (to_bus("b"), bus_failed("", "ThrottlingException", ""), {1}),
        (to_bus("b"), bus_failed("MalformedDetail", "MalformedDetail", "MalformedDetail"), {0, 1, 2}),
    ],
)
def test_entries_that_are_refused_are_tried_again(
    on_wire: Wire, target: PushTarget, answer: Any, failed: set[int]
) -> None:
    on_wire.answers.append(answer)
    outcome = on_wire.deliver(target, batch("a", "b", "c"))
    assert (outcome.failed, outcome.unreached) == (failed, False), outcome
    assert f"{len(failed)} of 3" in outcome.error


@pytest.mark.parametrize(
    ("target", "answer"),
    [
        (to_queue("q"), sqs_failed((0, "KMS.ThrottlingException", False), (1, "InternalError", False))),
        (to_bus("b"), bus_failed("ThrottlingException", "InternalFailure")),
        (to_bus("b"), bus_failed("ResourceNotFoundException", "AccessDeniedException")),
    ],
)
def test_all_entries_refused_for_what_passes_use_up_no_attempt(on_wire: Wire, target: PushTarget, answer: Any) -> None:
    on_wire.answers.append(answer)
    assert on_wire.deliver(target, batch("a", "b")).unreached


def sizes(calls: list[Any]) -> list[int]:
    return [len(call["Entries"]) for call in calls]


@pytest.mark.parametrize("target", [to_queue("q"), to_queue("q.fifo"), to_bus("b")])
@pytest.mark.parametrize(("messages", "calls"), [(1, [1]), (10, [10]), (11, [10, 1]), (25, [10, 10, 5])])
def test_ten_entries_go_in_a_call(on_wire: Wire, target: PushTarget, messages: int, calls: list[int]) -> None:
    assert on_wire.deliver(target, batch(*["x"] * messages)) == DONE
    assert sizes(on_wire.calls) == calls


@pytest.mark.parametrize("character", ["x", "é", "€", "\U0001f600", "\x00", '"', "\uffff"])
@pytest.mark.parametrize(("target", "limit"), [(to_queue("q"), 1 << 20), (to_bus("b"), 256 << 10)])
def test_no_call_is_larger_than_the_service_takes(
    on_wire: Wire, character: str, target: PushTarget, limit: int
) -> None:
    width = len(json.dumps(character, ensure_ascii=character in '\x00"\uffff').encode()) - 2
    bodies = [character * (limit // 5 // width) for _ in range(20)]
    assert on_wire.deliver(target, batch(*bodies)) == DONE
    assert sum(sizes(on_wire.calls)) == 20
    assert set(sizes(on_wire.calls)) == {4}
    for call in on_wire.calls:
        texts = [entry.get("MessageBody") or entry["Detail"] for entry in call["Entries"]]
        assert sum(len(text.encode()) + 500 for text in texts) <= limit


@pytest.mark.parametrize(("target", "limit"), [(to_queue("q"), 1 << 20), (to_bus("b"), 256 << 10)])
def test_a_message_that_no_call_can_take_is_dead_and_the_others_are_not(
    on_wire: Wire, target: PushTarget, limit: int
) -> None:
    outcome = on_wire.deliver(target, batch("a", "é" * (limit // 2), "c"))
    assert (outcome.dead, outcome.failed, outcome.unreached) == ({1}, frozenset(), False)
    assert "too large" in outcome.error
    assert sizes(on_wire.calls) == [2]
    alone = on_wire.deliver(target, batch("x" * limit))
    assert (alone.dead, alone.failed) == ({0}, frozenset())
    assert sizes(on_wire.calls) == [2], "there is nothing to send"


@pytest.mark.parametrize("target", [to_queue("q"), to_bus("b")])
def test_messages_of_a_later_call_that_does_not_get_through_are_untouched(on_wire: Wire, target: PushTarget) -> None:
    on_wire.answers.extend([None, refused("ThrottlingException", 400), None])
    outcome = on_wire.deliver(target, batch(*["x"] * 25))
    assert (outcome.untouched, outcome.failed, outcome.unreached) == (set(range(10, 20)), frozenset(), False)
    assert sizes(on_wire.calls) == [10, 10, 5]


@pytest.mark.parametrize("target", [to_queue("q"), to_bus("b")])
def test_the_first_call_that_does_not_get_through_is_the_last(on_wire: Wire, target: PushTarget) -> None:
    on_wire.answers.append(refused("ThrottlingException", 400))
    assert on_wire.deliver(target, batch(*["x"] * 25)).unreached
    assert sizes(on_wire.calls) == [10]


def test_no_character_goes_out_that_a_queue_refuses(on_wire: Wire) -> None:
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x10100), 0x1FFFE, 0x1FFFF, 0x10FFFE, 0x10FFFF]))
    for target in (to_queue("q"), to_bus("b")):
        bodies = [every[start : start + 8_000] for start in range(0, len(every), 8_000)]
        assert on_wire.deliver(target, batch(*bodies, keys=("\x01\ufffe",) * len(bodies))) == DONE
    for call in on_wire.calls:
        for entry in call["Entries"]:
            text = entry.get("MessageBody") or entry["Detail"]
            assert all(c in "\t\n\r" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c > "\uffff" for c in text)
            assert json.loads(text)["body"] in every
            assert json.loads(text)["key"] == "\x01\ufffe"


@pytest.mark.parametrize(
    ("kind", "arn", "host"),
    [
        ("sqs", "arn:aws:sqs:eu-west-1:123456789012:q", "eu-west-1.amazonaws.com"),
        ("sqs", "arn:aws-cn:sqs:cn-north-1:123456789012:q", "cn-north-1.amazonaws.com.cn"),
        ("sqs", "arn:aws-us-gov:sqs:us-gov-west-1:123456789012:q", "us-gov-west-1.amazonaws.com"),
        ("lambda", "arn:aws:lambda:ap-southeast-2:123456789012:function:f:live", "lambda.ap-southeast-2.amazonaws.com"),
        ("eventbridge", "arn:aws:events:eu-west-1:123456789012:event-bus/b", "events.eu-west-1.amazonaws.com"),
    ],
)
def test_a_target_is_asked_for_in_its_own_region(on_wire: Wire, kind: Any, arn: str, host: str) -> None:
    assert on_wire.deliver(PushTarget(kind=kind, address=arn), batch("a")) == DONE
    assert host in on_wire.hosts[0]
    if kind == "sqs":
        assert on_wire.calls[0]["QueueUrl"].endswith("/123456789012/q")
        assert host in on_wire.calls[0]["QueueUrl"]


def test_the_clients_wait_no_longer_than_a_target_may_take(on_wire: Wire) -> None:
    for target, seconds in ((to_function("f", 77), 77), (to_queue("q"), 10), (to_bus("b"), 10)):
        config = on_wire.targets.client(target).meta.config
        assert (config.connect_timeout, config.read_timeout, config.retries["total_max_attempts"]) == (2.0, seconds, 1)
        assert config.max_pool_connections == 20
