"""A delivery has the right outcome under each fault of a service. No request leaves the process."""

from typing import Any

import pytest
from botocore.exceptions import (
    ConnectionClosedError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
    SSLError,
)

from hourwheel.model.groups import PushTarget
from hourwheel.model.targets import DONE
from tests.contract.push_targets import Wire, batch, sizes, to_bus, to_function, to_queue

from . import wire

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
