"""Groups may name only valid targets; the embedded server calls Python functions."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hourwheel.adapters.aws.targets import AwsTargets
from hourwheel.adapters.webhooks import Webhooks
from hourwheel.embedded.targets import EmbeddedTargets, load_handler
from hourwheel.errors import Rejected
from hourwheel.model.groups import PushTarget
from hourwheel.model.messages import Message
from hourwheel.model.targets import DONE, PushDelivery
from tests.support import HandClock

PLACE = "eu-west-1:123456789012"
FUNCTION = f"arn:aws:lambda:{PLACE}:function:orders-bill"
QUEUE = f"arn:aws:sqs:{PLACE}:orders"
BUS = f"arn:aws:events:{PLACE}:event-bus/orders"


def check(kind: Any, address: str, *allowed: str) -> None:
    targets = AwsTargets(Webhooks(HandClock()), allowed=allowed or ["*"])
    targets.check(PushTarget(kind=kind, address=address), "orders")


@pytest.mark.parametrize(
    ("kind", "arn"),
    [
        ("lambda", FUNCTION),
        ("lambda", f"{FUNCTION}:7"),
        ("lambda", f"{FUNCTION}:live"),
        ("lambda", f"{FUNCTION}:$LATEST"),
        ("lambda", f"arn:aws-cn:lambda:cn-northwest-1:123456789012:function:{'f' * 64}"),
        ("lambda", "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:f_1"),
        ("lambda", "arn:aws-iso-b:lambda:us-isob-east-1:123456789012:function:f"),
        ("sqs", QUEUE),
        ("sqs", f"{QUEUE}.fifo"),
        ("sqs", f"arn:aws:sqs:{PLACE}:{'q' * 80}"),
        ("sqs", f"arn:aws:sqs:{PLACE}:{'q' * 75}.fifo"),
        ("sqs", "arn:aws-us-gov:sqs:us-gov-east-1:123456789012:orders"),
        ("eventbridge", BUS),
        ("eventbridge", f"arn:aws:events:{PLACE}:event-bus/default"),
        ("eventbridge", f"arn:aws:events:{PLACE}:event-bus/aws.partner/example.com/a"),
        ("notify", BUS.replace("arn:aws:", "arn:aws-cn:").replace("eu-west-1", "cn-north-1")),
        ("https", "https://example.com/hook"),
    ],
)
def test_a_target_that_a_deployment_can_have(kind: str, arn: str) -> None:
    check(kind, arn)


@pytest.mark.parametrize(
    ("kind", "arn"),
    [
        ("lambda", QUEUE),
        ("sqs", FUNCTION),
        ("eventbridge", QUEUE),
        ("notify", FUNCTION),
        ("lambda", "orders-bill"),
        ("lambda", "arn"),
        ("lambda", "arn:aws:lambda"),
        ("lambda", f"arn:aws:lambda:{PLACE}:function:"),
        ("lambda", f"arn:aws:lambda:{PLACE}:layer:bill"),
        ("lambda", f"arn:aws:lambda:{PLACE}:event-source-mapping:bill"),
        ("lambda", "arn:aws:lambda::123456789012:function:bill"),
        ("lambda", "arn:aws:lambda:eu-west-1::function:bill"),
        ("lambda", "arn:aws:lambda:eu-west-1:12345678901:function:bill"),
        ("lambda", "arn:aws:lambda:eu-west-1:1234567890123:function:bill"),
        ("lambda", "arn:aws:lambda:eu-west-1:\u0661\u0662345678901:function:bill"),
        ("lambda", "arn:aws:lambda:EU-WEST-1:123456789012:function:bill"),
        ("lambda", "arn:aws:lambda:eu-west-1.evil.example:123456789012:function:bill"),
        ("lambda", "arn:AWS:lambda:eu-west-1:123456789012:function:bill"),
        ("lambda", "arn:evil:lambda:eu-west-1:123456789012:function:bill"),
        ("lambda", f"{FUNCTION}\n"),
        ("lambda", f" {FUNCTION}"),
        ("lambda", f"{FUNCTION}/../other"),
        ("lambda", f"{FUNCTION}:live:more"),
        ("lambda", f"{FUNCTION}:$OTHER"),
        ("lambda", f"{FUNCTION}*"),
        ("lambda", f"arn:aws:lambda:{PLACE}:function:{'f' * 65}"),
        ("sqs", f"{QUEUE}/other"),
        ("sqs", f"{QUEUE}?x"),
        ("sqs", f"{QUEUE}#x"),
        ("sqs", f"{QUEUE}.fifo.fifo"),
        ("sqs", f"{QUEUE}.other"),
        ("sqs", f"arn:aws:sqs:{PLACE}:../1/orders"),
        ("sqs", f"arn:aws:sqs:{PLACE}:{'q' * 81}"),
        ("sqs", f"arn:aws:sqs:{PLACE}:{'q' * 76}.fifo"),
        ("sqs", "https://sqs.eu-west-1.amazonaws.com/123456789012/orders"),
        ("eventbridge", f"arn:aws:events:{PLACE}:rule/orders"),
        ("eventbridge", f"arn:aws:events:{PLACE}:event-bus/"),
        ("eventbridge", "default"),
        ("notify", f"arn:aws:sns:{PLACE}:orders"),
    ],
)
def test_what_is_no_target_of_its_kind(kind: str, arn: str) -> None:
    with pytest.raises(Rejected, match=r"push\.arn: a target .* has an ARN arn:aws:") as raised:
        check(kind, arn)
    assert raised.value.field == "push.arn"


@pytest.mark.parametrize(
    "pattern",
    [
        "*",
        "arn:*",
        FUNCTION,
        "arn:aws:lambda:*:*:function:orders-*",
        f"arn:aws:lambda:{PLACE}:function:*-bill",
        f"arn:aws:lambda:{PLACE}:function:o*s-*l",
        f"{FUNCTION}*",
    ],
)
def test_a_pattern_that_allows_a_target(pattern: str) -> None:
    check("lambda", FUNCTION, f"arn:aws:sqs:{PLACE}:other", pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "arn:aws:lambda:*:*:function:Orders-*",
        "arn:aws:lambda:*:*:function:orders",
        f"{FUNCTION}:*",
        f"x{FUNCTION}",
        FUNCTION[1:],
        "arn:aws:lambda:eu-west-1:123456789012:function:orders.bill",
        "arn:aws:lambda:eu-west-1:123456789012:function:orders-bil?",
        "arn:aws:lambda:eu-west-1:123456789012:function:orders-bil[l]",
        "arn:aws:sqs:*",
    ],
)
def test_a_pattern_that_does_not(pattern: str) -> None:
    with pytest.raises(Rejected, match="may not push") as raised:
        check("lambda", FUNCTION, pattern)
    assert raised.value.field == "push.arn"
    assert FUNCTION in str(raised.value)


def test_without_patterns_a_deployment_pushes_over_https_alone() -> None:
    targets = AwsTargets(Webhooks(HandClock()), allowed=[])
    targets.check(PushTarget(kind="https", address="https://example.com/"), "orders")
    with pytest.raises(Rejected, match="may not push"):
        targets.check(PushTarget(kind="sqs", address=QUEUE), "orders")
    with pytest.raises(Rejected, match="embedded server"):
        targets.check(PushTarget(kind="python", address="bill"), "orders")
    with pytest.raises(Rejected, match="not a public address"):
        targets.check(PushTarget(kind="https", address="https://127.0.0.1/"), "orders")


def rules(*allowed: str) -> AwsTargets:
    return AwsTargets(Webhooks(HandClock()), allowed=allowed)


SHOP_RULES = f"shop-*={QUEUE}", "shop-*=https://*.example.org", "paid=https://hooks.example.com", BUS


@pytest.mark.parametrize(
    ("subject", "kind", "address"),
    [
        ("shop-a", "sqs", QUEUE),
        ("shop-a", "https", "https://hooks.example.org:8443/in?a=b"),
        ("shop-a", "https", "https://HOOKS.example.org/"),
        ("paid", "https", "https://hooks.example.com/"),
        ("any", "eventbridge", BUS),
        ("any", "notify", BUS),
    ],
)
def test_a_subject_goes_to_the_targets_of_its_entries(subject: str, kind: Any, address: str) -> None:
    rules(*SHOP_RULES).check(PushTarget(kind=kind, address=address), subject)


@pytest.mark.parametrize(
    ("subject", "kind", "address"),
    [
        ("shop", "sqs", QUEUE),
        ("ashop-a", "sqs", QUEUE),
        ("paid", "sqs", QUEUE),
        ("shop-a", "sqs", f"{QUEUE}-2"),
        ("shop-a", "https", "https://example.org/"),
        ("shop-a", "https", "https://hooks.example.org.example.net/"),
        ("shop-a", "https", "https://example.net/hooks.example.org"),
        ("shop-a", "https", "https://hooks.example.com/"),
        ("paid-2", "https", "https://hooks.example.com/"),
        ("any", "https", "https://hooks.example.com/"),
    ],
)
def test_a_target_outside_of_the_entries_is_refused_and_gets_nothing(subject: str, kind: Any, address: str) -> None:
    targets, target = rules(*SHOP_RULES), PushTarget(kind=kind, address=address)
    with pytest.raises(Rejected, match="may not push") as raised:
        targets.check(target, subject)
    assert raised.value.field == ("push.url" if kind == "https" else "push.arn")
    outcome = targets.deliver(target, PushDelivery(subject, "billing", 0, DELIVERY.messages))
    assert outcome.unreached
    assert "may not push" in outcome.error


def test_a_subject_outside_of_the_entries_announces_nothing() -> None:
    outcome = rules(f"shop-*={BUS}").announce(PushTarget(kind="notify", address=BUS), "paid", "billing")
    assert outcome.unreached
    assert "may not push messages of paid" in outcome.error


# The embedded server

DELIVERY = PushDelivery(
    "orders", "billing", 0, tuple(Message(id=f"m-{at}", queue=0, offset=at, attempt=1, body="x") for at in range(2))
)


def embedded(handler: Any) -> EmbeddedTargets:
    return EmbeddedTargets(Webhooks(HandClock()), {"bill": handler})


def called(handler: Any) -> Any:
    return embedded(handler).deliver(PushTarget(kind="python", address="bill"), DELIVERY)


def raising(error: BaseException) -> Any:
    def handler(event: Any, context: Any) -> None:
        raise error

    return handler


def test_a_python_target_is_called_as_a_function_would_be() -> None:
    seen: list[Any] = []
    assert called(lambda event, context: seen.append((event, context))) == DONE
    ((event, context),) = seen
    assert context is None
    assert event["delivery"] == DELIVERY.id
    assert [message["body"] for message in event["messages"]] == ["x", "x"]


@pytest.mark.parametrize(
    ("answer", "failed"),
    [
        (None, set()),
        ({}, set()),
        ({"batchItemFailures": []}, set()),
        ({"batchItemFailures": [{"itemIdentifier": "m-1"}]}, {1}),
        ({"batchItemFailures": [{"itemIdentifier": "m-7"}]}, {0, 1}),
        (object(), {0, 1}),
        ({"a": {1j}}, {0, 1}),
    ],
)
def test_what_a_python_target_returns(answer: Any, failed: set[int]) -> None:
    outcome = called(lambda event, context: answer)
    assert (outcome.failed, outcome.unreached) == (failed, False)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no such customer"), "ValueError: no such customer"),
        (SystemExit(3), "SystemExit: 3"),
        (GeneratorExit(), "GeneratorExit"),
        (RecursionError(), "RecursionError"),
    ],
)
def test_what_a_python_target_raises_fails_the_batch_and_nothing_else(error: BaseException, told: str) -> None:
    outcome = called(raising(error))
    assert (outcome.failed, outcome.unreached) == ({0, 1}, False)
    assert told in outcome.error


def test_a_target_that_this_server_does_not_have_uses_up_no_attempt() -> None:
    """The server was started without it since."""
    outcome = embedded(print).deliver(PushTarget(kind="python", address="mail"), DELIVERY)
    assert (outcome.unreached, outcome.failed) == (True, frozenset())
    assert "mail" in outcome.error


@pytest.mark.parametrize(
    ("target", "field"),
    [
        (PushTarget(kind="python", address="mail"), "push.name"),
        (PushTarget(kind="lambda", address=FUNCTION), "push.kind"),
        (PushTarget(kind="notify", address=BUS), "push.kind"),
        (PushTarget(kind="https", address="https://127.0.0.1/"), "push.url"),
        (PushTarget(kind="https", address="http://127.0.0.1/"), "push.url"),
    ],
)
def test_targets_that_the_embedded_server_cannot_have(target: PushTarget, field: str) -> None:
    with pytest.raises(Rejected) as raised:
        embedded(print).check(target, "orders")
    assert raised.value.field == field


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    (tmp_path / "hw_mailer.py").write_text(
        "def send(event, context): return event\nasync def later(*_): ...\nvalue = 3\n"
    )
    (tmp_path / "hw_broken.py").write_text("1/0")
    (tmp_path / "hw_leaves.py").write_text("raise SystemExit('I am\\na script')")
    (tmp_path / "hw_syntax.py").write_text("def f(:")
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_function_is_found_by_its_module(modules: Path) -> None:
    assert load_handler("hw_mailer:send")(7, None) == 7


@pytest.mark.parametrize(
    ("position", "says"),
    [
        ("hw_mailer", "MODULE:FUNCTION"),
        ("hw_mailer:", "MODULE:FUNCTION"),
        (":send", "MODULE:FUNCTION"),
        ("", "MODULE:FUNCTION"),
        ("hw_nowhere:send", "No module named"),
        ("hw_mailer:nothing", "has no attribute 'nothing'"),
        ("hw_mailer:value", "cannot be called"),
        ("hw_mailer:later", "async"),
        ("hw_broken:f", "ZeroDivisionError"),
        ("hw_leaves:f", "SystemExit: I am a script"),
        ("hw_syntax:f", "SyntaxError"),
        (".mailer:f", "relative import"),
        ("a\nb:c", "no target"),
    ],
)
def test_what_is_no_function(modules: Path, position: str, says: str) -> None:
    with pytest.raises(ValueError, match="is no target: ") as raised:
        load_handler(position)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
