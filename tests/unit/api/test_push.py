"""The function ``push``, and targets as requests set them and ask after them."""

import io
from collections.abc import Mapping
from typing import Any

import pytest
from aws_lambda_powertools import Logger

from hourwheel.adapters.webhooks import Webhooks
from hourwheel.api.background.push import pushing
from hourwheel.api.boundary import Boundary
from hourwheel.client.webhooks import verify
from hourwheel.embedded.targets import EmbeddedTargets
from hourwheel.errors import Rejected, Throttled
from hourwheel.model.groups import PushTarget
from hourwheel.model.targets import DONE, Outcome, PushDelivery, unreached
from hourwheel.wire.signatures import signed_headers
from tests.support import NOON_MS, Bench, HandClock
from tests.unit.api.conftest import GROUP, Api, quoted

ARN = "arn:aws:lambda:eu-west-1:123456789012:function:bill"
TARGET = PushTarget(kind="lambda", address=ARN, concurrency=1)


class Context:
    def __init__(self, clock: HandClock, seconds: float = 900) -> None:
        self._clock = clock
        self._ends_ms = clock.ms + round(seconds * 1_000)

    def get_remaining_time_in_millis(self) -> int:
        return self._ends_ms - self._clock.now_ms()


def bench_with(*groups: str, target: PushTarget = TARGET) -> Bench:
    bench = Bench()
    for group in groups or ("billing",):
        bench.deployment.groups.put("orders", group, push=target)
    return bench


def called(bench: Bench, event: Any, seconds: float = 900) -> Any:
    return pushing(lambda: None)(bench.another_process(), event, Context(bench.clock, seconds))


def record(log: str, **more: Any) -> dict[str, Any]:
    return {"eventName": "INSERT", "dynamodb": {"Keys": {"pk": {"S": log}, "sk": {"S": "0000"}}, **more}}


def of_stream(*logs: str) -> dict[str, Any]:
    return {"Records": [record(log) for log in logs]}


def itself(subject: Any = "orders", group: Any = "billing") -> dict[str, Any]:
    return {"push": {"subject": subject, "group": group}}


# From the stream


def test_what_is_stored_wakes_the_groups_that_read_it() -> None:
    bench = bench_with("billing", "mailing")
    bench.deployment.groups.put("orders", "pulls")
    bench.deployment.groups.put("refunds", "billing", push=TARGET)
    called(bench, itself())
    called(bench, itself(group="mailing"))
    bench.pushes.started.clear()
    assert called(bench, of_stream("orders~1/0", "orders~1/1", "orders~1/0")) == {"started": 2}
    assert bench.pushes.started == [("orders", "billing"), ("orders", "mailing")]
    assert bench.targets.deliveries == [], "targets are not waited for while the stream is read"


@pytest.mark.parametrize(
    ("log", "started"),
    [
        ("orders~1/retry/billing~1", [("orders", "billing")]),
        ("orders~1/retry/nobody~1", []),
        ("orders~1/retry/billing~2", []),
        ("orders~1/dead/billing~1", []),
        ("orders~2/0", []),
        ("order~1/0", []),
        ("refunds~1/0", []),
        ("", []),
        ("/", []),
        ("~", []),
        ("orders", []),
        ("orders~1/", []),
    ],
)
def test_which_groups_a_log_wakes(log: str, started: list[Any]) -> None:
    bench = bench_with("billing", "mailing")
    assert called(bench, of_stream(log)) == {"started": len(started)}
    assert bench.pushes.started == started


POISON: dict[str, Any] = {
    "nothing": {},
    "null": None,
    "a number": 7,
    "a list": [],
    "text": "record",
    "no keys": {"dynamodb": {}},
    "keys that are null": {"dynamodb": {"Keys": None}},
    "no partition": {"dynamodb": {"Keys": {"sk": {"S": "0"}}}},
    "a partition of another type": {"dynamodb": {"Keys": {"pk": {"N": "0"}}}},
    "a partition that is text": {"dynamodb": {"Keys": {"pk": "orders~1/0"}}},
    "dynamodb that is a list": {"dynamodb": [1]},
    "another source": {"eventSource": "aws:sqs", "body": "x"},
}


@pytest.mark.parametrize("what", POISON)
def test_a_record_that_is_none_holds_up_nobody(what: str) -> None:
    bench = bench_with()
    event = {"Records": [POISON[what], *of_stream("orders~1/0")["Records"], POISON[what]]}
    assert called(bench, event) == {"started": 1}
    assert ("Faults", 2) in bench.meter.metrics


def test_an_empty_batch_of_the_stream() -> None:
    assert called(bench_with(), {"Records": []}) == {"started": 0}


def test_the_stream_comes_again_when_nobody_could_be_woken() -> None:
    bench = bench_with()

    def refuse(subject: str, group: str) -> None:
        raise Throttled("too many invocations")

    bench.pushes.start = refuse
    boundary = Boundary(bench.another_process(), Logger(service="push-throttled", stream=io.StringIO()))
    with pytest.raises(Throttled):
        boundary.run(pushing(lambda: None), of_stream("orders~1/0"), Context(bench.clock))


# From itself and from the sweeper


def test_it_pushes_until_nothing_is_left() -> None:
    bench = bench_with()
    bench.send(*"abc")
    assert called(bench, itself()) == {"ended": "idle"}
    assert bench.targets.bodies == [*"abc"]
    assert bench.pushes.started == []
    assert called(bench, itself()) == {"ended": "idle"}
    assert bench.targets.bodies == [*"abc"]


def test_it_leaves_in_time_and_has_itself_called_again() -> None:
    bench = bench_with(target=PushTarget(kind="lambda", address=ARN, concurrency=1, batch=1))

    def answer(delivery: PushDelivery) -> Outcome:
        bench.clock.pass_time(25)
        return DONE

    bench.targets.answer = answer
    bench.send(*map(str, range(40)))
    began_ms = bench.clock.ms
    assert called(bench, itself()) == {"ended": "left"}
    assert bench.clock.ms - began_ms <= 900_000 - 30_000, "a delivery may yet take its time, and is then settled"
    assert bench.pushes.started == [("orders", "billing")]
    bench.pushes.started.clear()
    assert called(bench, itself()) == {"ended": "idle"}
    assert bench.targets.bodies == [*map(str, range(40))]


def test_an_invocation_without_time_for_deliveries_fails_instead_of_calling_itself() -> None:
    bench = bench_with()
    bench.send("a")
    with pytest.raises(ValueError, match="time-out"):
        called(bench, itself(), seconds=60)
    assert bench.pushes.started == []


def test_it_ends_when_the_target_is_paused() -> None:
    bench = bench_with()
    bench.targets.answer = lambda _: unreached("down")
    bench.send("a")
    assert called(bench, itself()) == {"ended": "paused"}
    assert bench.pushes.started == [], "the sweeper starts it when the pause is over"
    assert called(bench, of_stream("orders~1/0")) == {"started": 0}


@pytest.mark.parametrize(
    "event", [itself(group="nobody"), itself("nothing"), itself(group="pulls"), itself(group="deleted")]
)
def test_a_group_without_a_target(event: Any) -> None:
    bench = bench_with("billing", "deleted")
    bench.deployment.groups.put("orders", "pulls")
    bench.deployment.groups.delete("orders", "deleted")
    bench.send("a")
    assert called(bench, event) == {"ended": "no-target"}
    assert bench.targets.deliveries == []


@pytest.mark.parametrize(
    "event",
    [
        {},
        None,
        [],
        "push",
        7,
        {"push": None},
        {"push": "orders"},
        {"push": {}},
        {"push": {"subject": "orders"}},
        {"push": {"group": "billing"}},
        itself(None),
        itself(group=7),
        {"Records": None},
        {"Records": {}},
        {"source": "aws.scheduler"},
        {"bucket": "noon"},
    ],
)
def test_an_event_of_somebody_else_fails(event: Any) -> None:
    bench = bench_with()
    with pytest.raises(ValueError, match="an event of the function push"):
        called(bench, event)


@pytest.mark.parametrize("name", ["", "..", "a/b", "orders~1", "a b", "x" * 101])
def test_names_that_are_none_fail(name: str) -> None:
    for event in (itself(name), itself(group=name)):
        with pytest.raises(Rejected):
            called(bench_with(), event)


# Requests


def full(**fields: Any) -> dict[str, Any]:
    return {"kind": "https", "url": "https://example.com/hook", **fields}


def without(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {field: value for field, value in body.items() if field != name}


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        (full(), full(batch=10, concurrency=2, timeout_seconds=30, secret_version=1)),
        (
            full(batch=1_000, concurrency=20, timeout_seconds=300, secret_version=1_000_000),
            full(batch=1_000, concurrency=20, timeout_seconds=300, secret_version=1_000_000),
        ),
        (
            full(batch=1, concurrency=1, timeout_seconds=1),
            full(batch=1, concurrency=1, timeout_seconds=1, secret_version=1),
        ),
        (
            {"kind": "lambda", "arn": ARN},
            {"kind": "lambda", "arn": ARN, "batch": 10, "concurrency": 2, "timeout_seconds": 30},
        ),
        (
            {"kind": "python", "name": "bill", "batch": 7},
            {"kind": "python", "name": "bill", "batch": 7, "concurrency": 2, "timeout_seconds": 30},
        ),
    ],
)
def test_a_target_is_shown_as_it_was_sent_with_what_was_left_out(api: Api, sent: Any, shown: Any) -> None:
    assert api.call("PUT", GROUP, {"push": sent}).json["push"] == shown
    assert api.call("GET", GROUP).json["push"] == shown
    assert api.call("GET", f"{GROUP}s".removesuffix("/billings")).json["groups"][0]["push"] == shown


def test_a_target_is_kept_until_it_is_taken_away(api: Api) -> None:
    assert api.call("PUT", GROUP, {}).json["push"] is None
    api.call("PUT", GROUP, {"push": full(batch=5)})
    assert api.call("PUT", GROUP, {"max_attempts": 3}).json["push"]["batch"] == 5
    assert api.call("PUT", GROUP, {"push": full()}).json["push"]["batch"] == 10, "it is set as a whole"
    assert api.call("PUT", GROUP, {"push": None}).json["push"] is None
    assert api.call("PUT", GROUP, {"max_attempts": 4}).json["push"] is None


BAD: dict[str, tuple[Any, str]] = {
    "text": ("https://example.com/", "push"),
    "a list": ([], "push"),
    "true": (True, "push"),
    "nothing in it": ({}, "push.kind"),
    "no kind": (without(full(), "kind"), "push.kind"),
    "another kind": (full(kind="sns"), "push.kind"),
    "a kind in capitals": (full(kind="HTTPS"), "push.kind"),
    "a kind that is null": (full(kind=None), "push.kind"),
    "no address": (without(full(), "url"), "push"),
    "the address of another kind": ({"kind": "lambda", "url": "https://example.com/"}, "push"),
    "a URL as an ARN": ({"kind": "https", "arn": "https://example.com/"}, "push"),
    "two addresses": (full(arn=ARN), "push"),
    "a name beside a URL": (full(name="bill"), "push"),
    "an ARN beside a name": ({"kind": "python", "name": "bill", "arn": ARN}, "push"),
    "an empty URL": (full(url=""), "push.url"),
    "a URL that is null": (full(url=None), "push"),
    "a URL that is a number": (full(url=7), "push.url"),
    "a URL that is a list": (full(url=["https://example.com/"]), "push.url"),
    "a URL that is too long": (full(url="https://example.com/" + "x" * 2_000), "push.url"),
    "an empty ARN": ({"kind": "sqs", "arn": ""}, "push.arn"),
    "an ARN that is too long": ({"kind": "sqs", "arn": "x" * 2_001}, "push.arn"),
    "an empty name": ({"kind": "python", "name": ""}, "push.name"),
    "a name that is too long": ({"kind": "python", "name": "x" * 101}, "push.name"),
    "an unknown field": (full(retries=3), "push.retries"),
    "batch 0": (full(batch=0), "push.batch"),
    "batch 1,001": (full(batch=1_001), "push.batch"),
    "a batch that is text": (full(batch="10"), "push.batch"),
    "a batch that is half": (full(batch=1.5), "push.batch"),
    "a batch that is true": (full(batch=True), "push.batch"),
    "a batch that is null": (full(batch=None), "push.batch"),
    "a batch that is huge": (full(batch=10**400), "push.batch"),
    "concurrency 0": (full(concurrency=0), "push.concurrency"),
    "concurrency 21": (full(concurrency=21), "push.concurrency"),
    "no time": (full(timeout_seconds=0), "push.timeout_seconds"),
    "negative time": (full(timeout_seconds=-1), "push.timeout_seconds"),
    "too much time": (full(timeout_seconds=301), "push.timeout_seconds"),
    "secret 0": (full(secret_version=0), "push.secret_version"),
    "secret 1,000,001": (full(secret_version=1_000_001), "push.secret_version"),
    "a secret for a function": ({"kind": "lambda", "arn": ARN, "secret_version": 1}, "push"),
    "a secret for a Python target": ({"kind": "python", "name": "bill", "secret_version": 2}, "push"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_target_that_is_wrong_is_refused_and_changes_nothing(api: Api, what: str) -> None:
    api.call("PUT", GROUP, {"push": full(batch=5), "max_attempts": 3})
    before = api.call("GET", GROUP).json
    sent, field = BAD[what]
    answer = api.call("PUT", GROUP, {"push": sent, "max_attempts": 4})
    assert (answer.status, answer.slug, answer.json.get("field")) == (400, "field-invalid", field), answer.json
    assert api.call("GET", GROUP).json == before
    assert "\n" not in answer.json["detail"]


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ({"kind": "https", "url": "http://example.com/"}, "push.url"),
        ({"kind": "https", "url": "https://169.254.169.254/"}, "push.url"),
        ({"kind": "https", "url": "https://user:word@example.com/"}, "push.url"),
        ({"kind": "lambda", "arn": ARN}, "push.kind"),
        ({"kind": "python", "name": "bill"}, "push.name"),
    ],
)
def test_what_the_deployment_cannot_reach_is_refused(api: Api, target: Any, field: str) -> None:
    api.bench.deployment.targets = EmbeddedTargets(Webhooks(HandClock()), {})
    answer = api.call("PUT", GROUP, {"push": target})
    assert (answer.status, answer.slug, answer.json["field"]) == (400, "field-invalid", field)
    assert api.call("GET", GROUP).status == 404, "nothing was made"


IDLE = {"state": "idle", "paused_until": None, "failures": 0, "last_error": None, "signing_secret": None}


def test_how_pushing_goes(api: Api) -> None:
    bench = api.bench
    api.call("PUT", GROUP, {"push": {"kind": "lambda", "arn": ARN}})
    assert api.call("GET", f"{GROUP}/push").json == IDLE
    api.send("a")
    seen: list[Any] = []

    def answer(delivery: PushDelivery) -> Outcome:
        seen.append(api.call("GET", f"{GROUP}/push").json)
        return unreached("e" * 1_000)

    bench.targets.answer = answer
    called(bench, itself())
    assert seen == [IDLE | {"state": "running"}]
    assert api.call("GET", f"{GROUP}/push").json == IDLE | {
        "state": "paused",
        "paused_until": "2025-11-20T12:00:05.000Z",
        "failures": 1,
        "last_error": "e" * 300,
    }
    assert bench.clock.ms == NOON_MS
    bench.clock.pass_time(5)
    assert api.call("GET", f"{GROUP}/push").json["state"] == "idle"
    bench.targets.answer = lambda _: DONE
    called(bench, itself())
    assert api.call("GET", f"{GROUP}/push").json == IDLE


def test_the_secret_that_is_shown_is_the_one_that_signs(api: Api) -> None:
    api.call("PUT", GROUP, {"push": full()})
    first = api.call("GET", f"{GROUP}/push").json["signing_secret"]
    api.send("a")
    called(api.bench, itself())
    (delivery,) = api.bench.targets.deliveries
    assert delivery.secrets == (first,)
    verify(first, signed_headers(delivery.secrets, "id", NOON_MS, b"x"), b"x", clock=HandClock())

    api.call("PUT", GROUP, {"push": full(secret_version=2)})
    second = api.call("GET", f"{GROUP}/push").json["signing_secret"]
    assert second != first
    api.send("b")
    called(api.bench, itself())
    assert api.bench.targets.deliveries[-1].secrets == (second, first)
    assert "whsec_" not in str(api.call("GET", GROUP).json), "who may see the group may not see the secret"


@pytest.mark.parametrize(
    ("path", "slug"),
    [
        (f"{GROUP}/push", "push-unknown"),
        (f"{GROUP}2/push", "group-unknown"),
        (f"{GROUP.replace('orders', 'refunds')}/push", "subject-unknown"),
    ],
)
def test_a_group_that_is_not_pushed(api: Api, path: str, slug: str) -> None:
    api.call("PUT", GROUP, {})
    answer = api.call("GET", path)
    assert (answer.status, answer.slug) == (404, slug)


def test_a_group_that_is_no_name(api: Api) -> None:
    answer = api.call("GET", f"/v1/subjects/orders/groups/{quoted('a b')}/push")
    assert (answer.status, answer.slug) == (400, "name-invalid")
