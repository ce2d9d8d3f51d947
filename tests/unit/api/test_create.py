"""Pulls and sends with ``create`` false create nothing, in JSON and in msgpack, and a consumer can be forgotten."""

from typing import Any

import msgspec
import pytest

from hourwheel.context import Settings
from tests.support import Bench
from tests.unit.api.conftest import GROUP, MESSAGES, Answer, Api

PACKED = {"content-type": "application/msgpack", "accept": "application/msgpack"}
BATCH = {"messages": [{"body": "a"}], "create": False}
PULL = {"consumer": "hall", "create": False}
FORGET = f"{GROUP}/consumers/hall/leave?forget=true"


@pytest.fixture
def api() -> Api:
    return Api(Bench(settings=Settings(registry_seconds=0)))


def refusal(api: Api, target: str, body: Any, *, packed: bool) -> tuple[int, str]:
    if not packed:
        answer = api.call("POST", target, body)
        return answer.status, answer.slug
    response = api.respond("POST", target, raw=msgspec.msgpack.encode(body), headers=PACKED)
    return response["statusCode"], Answer(0, {}, msgspec.json.decode(response["body"])).slug


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("target", "body"),
    [
        (MESSAGES, BATCH),
        (MESSAGES, {**BATCH, "idempotency_key": "once"}),
        ("/v1/messages", {"messages": [{"body": "a", "subject": "orders"}], "create": False}),
        (f"{GROUP}/pull", PULL),
    ],
)
def test_a_missing_subject_is_an_error_and_is_not_created(api: Api, target: str, body: Any, packed: bool) -> None:
    assert refusal(api, target, body, packed=packed) == (404, "subject-unknown")
    assert api.call("GET", "/v1/subjects/orders").status == 404


@pytest.mark.parametrize("packed", [False, True])
def test_a_missing_group_is_an_error_and_is_not_created(api: Api, packed: bool) -> None:
    api.send("a")
    assert refusal(api, f"{GROUP}/pull", PULL, packed=packed) == (404, "group-unknown")
    assert api.call("GET", GROUP).status == 404


@pytest.mark.parametrize("packed", [False, True])
def test_a_missing_consumer_is_an_error_and_is_not_created(api: Api, packed: bool) -> None:
    api.call("PUT", GROUP, {"broadcast": True})
    assert refusal(api, f"{GROUP}/pull", PULL, packed=packed) == (404, "consumer-unknown")
    assert api.call("GET", f"{GROUP}/consumers").json["consumers"] == []


def test_what_exists_is_used(api: Api) -> None:
    api.call("PUT", GROUP)
    assert api.call("POST", MESSAGES, BATCH).status == 200
    assert [message["body"] for pull in api.pull(create=False) for message in pull["messages"]] == ["a"]


def test_a_consumer_that_creates_nothing_stays_known_while_it_pulls(api: Api) -> None:
    api.call("PUT", GROUP, {"broadcast": True, "consumer_expires_seconds": 60})
    api.call("POST", f"{GROUP}/pull", {"consumer": "hall"})
    for _ in range(10):
        api.bench.clock.pass_time(30)
        assert api.call("POST", f"{GROUP}/pull", PULL).status == 200
        api.bench.deployment.sweeper.sweep()
    assert [each["consumer"] for each in api.call("GET", f"{GROUP}/consumers").json["consumers"]] == ["hall"]


def test_a_pull_that_waits_ends_when_its_group_is_deleted(api: Api) -> None:
    api.call("PUT", GROUP)
    assert api.call("DELETE", GROUP).status in {200, 204}
    assert api.call("POST", f"{GROUP}/pull", {**PULL, "wait_seconds": 5}).slug == "group-unknown"


def test_a_broadcast_group_forgets_a_consumer(api: Api) -> None:
    api.call("PUT", GROUP, {"broadcast": True})
    api.call("POST", f"{GROUP}/pull", {"consumer": "hall"})
    api.send("a", "b")
    api.call("POST", f"{GROUP}/pull", {"consumer": "hall", "max_messages": 1})
    assert api.call("POST", FORGET).json == {"released": 1, "cells_out": []}
    assert api.call("GET", f"{GROUP}/consumers").json["consumers"] == []
    lag = api.call("GET", f"{GROUP}/lag").json
    assert (lag["waiting"], lag["in_flight"], lag["consumers"]) == (0, 0, [])
    assert refusal(api, f"{GROUP}/pull", PULL, packed=False) == (404, "consumer-unknown")
    assert api.call("POST", FORGET).json == {"released": 0, "cells_out": []}


def test_a_group_that_does_not_broadcast_forgets_nobody(api: Api) -> None:
    api.send("a")
    api.pull()
    answer = api.call("POST", FORGET)
    assert (answer.status, answer.slug, answer.json["field"]) == (400, "field-invalid", "forget")
