"""Each way in which a request can be wrong: the status, the type and the field of its answer, and nothing stored."""

import json
from base64 import b64encode
from typing import Any

import pytest

from tests.unit.api.conftest import GROUP, MESSAGES, Api, quoted

MIB = 1 << 20


def message(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"body": "x", **fields}]}


PRODUCE: dict[str, tuple[Any, str, str | None]] = {
    "no messages at all": ({}, "field-invalid", "messages"),
    "an empty batch": ({"messages": []}, "field-invalid", "messages"),
    "messages that are no list": ({"messages": {}}, "field-invalid", "messages"),
    "a message that is no object": ({"messages": ["x"]}, "field-invalid", "messages[0]"),
    "an unknown field of the request": ({"messages": [{"body": "x"}], "mesages": 1}, "field-invalid", "mesages"),
    "an unknown field of a message": (message(bdy="x"), "field-invalid", "messages[0].bdy"),
    "a message without a body": ({"messages": [{"key": "k"}]}, "field-invalid", "messages[0]"),
    "a message whose body is null": ({"messages": [{"body": None}]}, "field-invalid", "messages[0]"),
    "a message with two bodies": (message(body_base64="AAEC"), "field-invalid", "messages[0]"),
    "a header that is a number": (message(headers={"a": "x", "n": 1}), "field-invalid", "messages[0].headers.n"),
    "a header that is null": (message(headers={"n.1[0]": None}), "field-invalid", "messages[0].headers.n.1[0]"),
    "a header with a mark of msgspec": (message(headers={"`": 1}), "field-invalid", "messages[0].headers.'"),
    "a body that is a number": ({"messages": [{"body": 7}]}, "field-invalid", "messages[0].body"),
    "the fourth of the messages": (
        {"messages": [{"body": "x"}, {"body": "x"}, {"body": "x"}, {"body": "x", "key": ""}]},
        "field-invalid",
        "messages[3].key",
    ),
    "base64 that is none": ({"messages": [{"body_base64": "AAE"}]}, "field-invalid", "messages[0].body_base64"),
    "base64 of the URL alphabet": ({"messages": [{"body_base64": "_-_-"}]}, "field-invalid", "messages[0].body_base64"),
    "an empty id": (message(id=""), "field-invalid", "messages[0].id"),
    "an id of 101 characters": (message(id="i" * 101), "field-invalid", "messages[0].id"),
    "a key of 257 characters": (message(key="k" * 257), "field-invalid", "messages[0].key"),
    "eleven tags": (message(tags=[f"t{n}" for n in range(11)]), "field-invalid", "messages[0].tags"),
    "an empty tag": (message(tags=["a", ""]), "field-invalid", "messages[0].tags[1]"),
    "two tags alike": (message(tags=["a", "b", "a"]), "field-invalid", "messages[0].tags"),
    "33 headers": (message(headers={f"h{n}": "" for n in range(33)}), "field-invalid", "messages[0].headers"),
    "a header without a name": (message(headers={"": "x"}), "field-invalid", "messages[0].headers"),
    "a header of 4,097 characters": (
        message(headers={"a": "", "b": "x" * 4097}),
        "field-invalid",
        "messages[0].headers.b",
    ),
    "an empty idempotency key": ({**message(), "idempotency_key": ""}, "field-invalid", "idempotency_key"),
    "a key that is a huge integer": (message(key=10**400), "field-invalid", "messages[0].key"),
    "1,001 messages": ({"messages": [{"body": "x"}] * 1001}, "batch-too-large", "messages"),
    "a message of more than 1 MiB": (message(body="x" * (MIB + 1)), "message-too-large", "messages[0]"),
    "a message whose headers take it over 1 MiB": (
        message(body="x" * (MIB - 4000), headers={"a": "é" * 4000}),
        "message-too-large",
        "messages[0]",
    ),
    "bytes of more than 1 MiB": (
        {"messages": [{"body_base64": b64encode(bytes(MIB + 1)).decode()}]},
        "message-too-large",
        "messages[0]",
    ),
    "a batch of more than 4 MiB": (
        {"messages": [{"body": "x" * MIB}] * 4 + [{"body": "x"}]},
        "batch-too-large",
        "messages",
    ),
    "a request of more than 6 MB": (message(body="x" * 6_000_000), "request-too-large", None),
}

NOT_JSON = {
    "an empty body": b"",
    "half an object": b'{"messages": [',
    "something behind the object": b'{"messages": [{"body": "x"}]} x',
    "NaN": b'{"messages": [{"body": NaN}]}',
    "bytes that are no UTF-8": b'{"messages": [{"body": "\xff"}]}',
    "half a surrogate pair": b'{"messages": [{"body": "\\ud800"}]}',
    "a byte order mark": b'\xef\xbb\xbf{"messages": [{"body": "x"}]}',
    "a form": b"messages=x",
}

NOT_OBJECTS = {
    "a list": b"[]",
    "null": b"null",
    "a string": b'"messages"',
    "60,000 lists in each other": b"[" * 60_000,
    "5,000 objects in each other": b'{"messages":' * 5_000,
}

PULL: dict[str, tuple[Any, str, str]] = {
    "idle_seconds over a year": (
        {"consumer": "c", "idle_seconds": 1e308, "wakeup": "able"},
        "field-invalid",
        "idle_seconds",
    ),
    "no consumer": ({}, "field-invalid", "consumer"),
    "a consumer that is no name": ({"consumer": "host 1"}, "name-invalid", "consumer"),
    "a consumer of dots": ({"consumer": ".."}, "name-invalid", "consumer"),
    "a consumer with a line feed": ({"consumer": "host\n"}, "name-invalid", "consumer"),
    "an empty consumer": ({"consumer": ""}, "name-invalid", "consumer"),
    "a consumer that is a number": ({"consumer": 1}, "field-invalid", "consumer"),
    "no messages asked for": ({"consumer": "c", "max_messages": 0}, "field-invalid", "max_messages"),
    "1,001 messages asked for": ({"consumer": "c", "max_messages": 1001}, "field-invalid", "max_messages"),
    "a number of messages with a fraction": ({"consumer": "c", "max_messages": 1.5}, "field-invalid", "max_messages"),
    "a number of messages as text": ({"consumer": "c", "max_messages": "5"}, "field-invalid", "max_messages"),
    "a number of messages of 400 digits": ({"consumer": "c", "max_messages": 10**400}, "field-invalid", "max_messages"),
    "a wait below zero": ({"consumer": "c", "wait_seconds": -1}, "field-invalid", "wait_seconds"),
    "a wait of 21 seconds": ({"consumer": "c", "wait_seconds": 21}, "field-invalid", "wait_seconds"),
    "a lease of no time": ({"consumer": "c", "lease_seconds": 0}, "field-invalid", "lease_seconds"),
    "a lease of more than 12 hours": ({"consumer": "c", "lease_seconds": 43_201}, "field-invalid", "lease_seconds"),
    "an unknown field": ({"consumer": "c", "wait": 1}, "field-invalid", "wait"),
    "a forged receipt": ({"consumer": "c", "settle": [{"receipt": "AAAA"}]}, "receipt-invalid", "settle[0].receipt"),
}

SETTLE: dict[str, tuple[Any, str, str]] = {
    "nothing to settle": ({"settle": []}, "field-invalid", "settle"),
    "1,001 receipts": ({"settle": [{"receipt": "r"}] * 1001}, "field-invalid", "settle"),
    "an entry without a receipt": ({"settle": [{"ack": [0]}]}, "field-invalid", "settle[0].receipt"),
    "an index below zero": ({"settle": [{"receipt": "r", "ack": [-1]}]}, "field-invalid", "settle[0].ack[0]"),
    "an index of 1,000": ({"settle": [{"receipt": "r", "ack": [1000]}]}, "field-invalid", "settle[0].ack[0]"),
    "an index in two lists": (
        {"settle": [{"receipt": "r", "ack": [1], "dead": [1]}]},
        "field-invalid",
        "settle[0].dead",
    ),
    "an index twice in a list": ({"settle": [{"receipt": "r", "retry": [1, 1]}]}, "field-invalid", "settle[0].retry"),
    "an extension with a list": (
        {"settle": [{"receipt": "r"}, {"receipt": "r", "extend_seconds": 9, "ack": []}]},
        "field-invalid",
        "settle[1].ack",
    ),
    "an extension of no time": (
        {"settle": [{"receipt": "r", "extend_seconds": 0}]},
        "field-invalid",
        "settle[0].extend_seconds",
    ),
    "a receipt that is no base64": ({"settle": [{"receipt": "§"}]}, "receipt-invalid", "settle[0].receipt"),
    "a receipt nobody issued": ({"settle": [{"receipt": "AAAA"}]}, "receipt-invalid", "settle[0].receipt"),
}

CONTROL: dict[str, tuple[str, str, Any, str, str | None]] = {
    "no queues": ("PUT", "/v1/subjects/s", {"queues": 0}, "field-invalid", "queues"),
    "65 queues": ("PUT", "/v1/subjects/s", {"queues": 65}, "field-invalid", "queues"),
    "queues as text": ("PUT", "/v1/subjects/s", {"queues": "2"}, "field-invalid", "queues"),
    "queues as a truth value": ("PUT", "/v1/subjects/s", {"queues": True}, "field-invalid", "queues"),
    "queues with a fraction": ("PUT", "/v1/subjects/s", {"queues": 1.5}, "field-invalid", "queues"),
    "queues of 400 digits": ("PUT", "/v1/subjects/s", {"queues": 10**400}, "field-invalid", "queues"),
    "a retention of a second": (
        "PUT",
        "/v1/subjects/s",
        {"retention_seconds": 1},
        "field-invalid",
        "retention_seconds",
    ),
    "an unknown setting": ("PUT", "/v1/subjects/s", {"retention": 1}, "field-invalid", "retention"),
    "a list as settings": ("PUT", "/v1/subjects/s", [], "field-invalid", None),
    "an unknown start": ("PUT", GROUP, {"start": "middle"}, "field-invalid", "start"),
    "no attempts": ("PUT", GROUP, {"max_attempts": 0}, "field-invalid", "max_attempts"),
    "a page of nothing": ("GET", "/v1/subjects?limit=0", None, "field-invalid", "limit"),
    "a page of 101": ("GET", "/v1/subjects?limit=101", None, "field-invalid", "limit"),
    "a page of many": ("GET", "/v1/subjects?limit=many", None, "field-invalid", "limit"),
    "two limits": ("GET", "/v1/subjects?limit=1&limit=2", None, "field-invalid", "limit"),
    "an unknown parameter": ("GET", "/v1/subjects?page=2", None, "field-invalid", "page"),
    "a page after no name": ("GET", "/v1/subjects?after=a%20b", None, "name-invalid", "after"),
    "a page of dead letters after no cursor": ("GET", f"{GROUP}/dead?after=x", None, "field-invalid", "after"),
    "a dead letter of no id": ("GET", f"{GROUP}/dead/12", None, "field-invalid", "dead_id"),
    "a dead letter of no id, of an unknown group": (
        "GET",
        "/v1/subjects/orders/groups/unknown/dead/12",
        None,
        "field-invalid",
        "dead_id",
    ),
    "a dead letter of an id with too many digits": (
        "GET",
        f"{GROUP}/dead/{'1' * 30}-0",
        None,
        "field-invalid",
        "dead_id",
    ),
    "a look at a queue without a number": (
        "GET",
        "/v1/subjects/orders/queues/x/messages",
        None,
        "field-invalid",
        "queue",
    ),
    "a look at a queue below zero": ("GET", "/v1/subjects/orders/queues/-1/messages", None, "field-invalid", "queue"),
    "a look from two starts": (
        "GET",
        "/v1/subjects/orders/queues/0/messages?offset=1&time=2020-01-01T00:00:00Z",
        None,
        "field-invalid",
        None,
    ),
    "a look at too many": ("GET", "/v1/subjects/orders/queues/0/messages?limit=101", None, "field-invalid", "limit"),
    "a look at no time": ("GET", "/v1/subjects/orders/queues/0/messages?time=noon", None, "field-invalid", "time"),
    "a trace of a sender's id without a time": (
        "GET",
        "/v1/subjects/orders/messages/mine",
        None,
        "field-invalid",
        "from",
    ),
    "a trace up to a time": (
        "GET",
        "/v1/subjects/orders/messages/mine?to=2020-01-01T00:00:00Z",
        None,
        "field-invalid",
        None,
    ),
    "a trace of no time": ("GET", "/v1/subjects/orders/messages/mine?from=noon", None, "field-invalid", "from"),
    "a trace from nowhere": (
        "GET",
        "/v1/subjects/orders/messages/mine?from=2020-01-01T00:00:00Z&after=x",
        None,
        "field-invalid",
        "after",
    ),
    "a seek to nowhere": ("POST", f"{GROUP}/seek", {}, "field-invalid", None),
    "a seek to two aims": ("POST", f"{GROUP}/seek", {"to": "end", "offset": 1, "queue": 0}, "field-invalid", None),
    "a seek to half an aim": ("POST", f"{GROUP}/seek", {"offset": 1}, "field-invalid", None),
    "a seek to the middle": ("POST", f"{GROUP}/seek", {"to": "middle"}, "field-invalid", "to"),
    "a seek to no time": ("POST", f"{GROUP}/seek", {"time": "noon"}, "field-invalid", "time"),
    "a seek to a time without a zone": (
        "POST",
        f"{GROUP}/seek",
        {"time": "2026-11-20T09:00:00"},
        "field-invalid",
        "time",
    ),
    "a seek below zero": ("POST", f"{GROUP}/seek", {"queue": 0, "offset": -1}, "field-invalid", "offset"),
    "a seek beyond the end": ("POST", f"{GROUP}/seek", {"queue": 0, "offset": 10**18}, "field-invalid", "offset"),
    "a seek with an empty body": ("POST", f"{GROUP}/seek", None, "json-invalid", None),
    "a redrive of nothing": ("POST", f"{GROUP}/dead/redrive", {}, "field-invalid", None),
    "a redrive of not all": ("POST", f"{GROUP}/dead/redrive", {"all": False}, "field-invalid", "all"),
    "a redrive of all and some": (
        "POST",
        f"{GROUP}/dead/redrive",
        {"all": True, "ids": ["0-0"]},
        "field-invalid",
        None,
    ),
    "a redrive of no ids": ("POST", f"{GROUP}/dead/redrive", {"ids": []}, "field-invalid", "ids"),
    "a redrive of an id that is none": (
        "POST",
        f"{GROUP}/dead/redrive",
        {"ids": ["0-0", "x"]},
        "field-invalid",
        "ids[1]",
    ),
    "a redrive from no time": ("POST", f"{GROUP}/dead/redrive", {"from": "yesterday"}, "field-invalid", "from"),
    "a redrive of all with a detail": (
        "POST",
        f"{GROUP}/dead/redrive",
        {"all": True, "detail": "no price"},
        "field-invalid",
        None,
    ),
    "dead letters with a detail and without a reason": (
        "GET",
        f"{GROUP}/dead?detail=no%20price",
        None,
        "field-invalid",
        None,
    ),
    "a drop of nothing": ("DELETE", f"{GROUP}/dead", {}, "field-invalid", None),
    "a drop with an empty body": ("DELETE", f"{GROUP}/dead", None, "json-invalid", None),
}


def assert_refused(api: Api, answer: Any, slug: str, field: str | None) -> None:
    assert (answer.slug, answer.json.get("field")) == (slug, field), answer.json
    assert answer.status == answer.json["status"] == (413 if slug.endswith("too-large") else 400)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["instance"] == "r-1"
    assert answer.json["title"]
    assert answer.json["detail"]


@pytest.mark.parametrize("case", PRODUCE)
def test_produce_refuses(api: Api, case: str) -> None:
    body, slug, field = PRODUCE[case]
    assert_refused(api, api.call("POST", MESSAGES, body), slug, field)
    assert api.bench.deployment.subjects.page("", 10) == ([], None), "nothing was stored"


@pytest.mark.parametrize("case", PRODUCE)
def test_produce_to_many_subjects_refuses(api: Api, case: str) -> None:
    body, slug, field = PRODUCE[case]
    if isinstance(body.get("messages"), list):
        addressed = [{"subject": "orders", **one} if isinstance(one, dict) else one for one in body["messages"]]
        body = {**body, "messages": addressed}
    assert_refused(api, api.call("POST", "/v1/messages", body), slug, field)
    assert api.bench.deployment.subjects.page("", 10) == ([], None), "nothing was stored"


@pytest.mark.parametrize("case", NOT_JSON)
def test_what_is_not_json_is_refused(api: Api, case: str) -> None:
    assert_refused(api, api.call("POST", MESSAGES, raw=NOT_JSON[case]), "json-invalid", None)


@pytest.mark.parametrize("target", ["/v1/messages", f"{GROUP}/pull", f"{GROUP}/ack", f"{GROUP}/seek"])
def test_no_body_and_half_a_body_are_refused_everywhere(api: Api, target: str) -> None:
    for raw in (b"", b"{", b"\xff"):
        assert_refused(api, api.call("POST", target, raw=raw), "json-invalid", None)


@pytest.mark.parametrize("case", NOT_OBJECTS)
@pytest.mark.parametrize("target", [MESSAGES, "/v1/messages", f"{GROUP}/pull", f"{GROUP}/ack", f"{GROUP}/seek"])
def test_what_is_no_object_is_refused(api: Api, target: str, case: str) -> None:
    answer = api.call("POST", target, raw=NOT_OBJECTS[case])
    assert answer.status == 400
    assert answer.slug in {"field-invalid", "json-invalid"}


@pytest.mark.parametrize("case", PULL)
def test_pull_refuses(api: Api, case: str) -> None:
    body, slug, field = PULL[case]
    assert_refused(api, api.call("POST", f"{GROUP}/pull", body), slug, field)


@pytest.mark.parametrize("case", SETTLE)
def test_ack_refuses(api: Api, case: str) -> None:
    api.call("PUT", GROUP)
    body, slug, field = SETTLE[case]
    assert_refused(api, api.call("POST", f"{GROUP}/ack", body), slug, field)


@pytest.mark.parametrize("case", CONTROL)
def test_the_control_plane_refuses(api: Api, case: str) -> None:
    api.call("PUT", GROUP)
    method, target, body, slug, field = CONTROL[case]
    assert_refused(api, api.call(method, target, body), slug, field)


@pytest.mark.parametrize("name", ["a b", "é", "n" * 101, "..", ".", "a/b", "a\n", "%41"])
def test_a_path_without_a_name_is_refused(api: Api, name: str) -> None:
    for target in [f"/v1/subjects/{quoted(name)}", f"/v1/subjects/s/groups/{quoted(name)}"]:
        answer = api.call("PUT", target)
        assert (answer.status, answer.slug) == (400, "name-invalid")
        assert answer.json["field"] in {"subject", "group"}


@pytest.mark.parametrize("name", ["a b", "..", "n" * 101, "", "a\n"])
def test_a_message_for_no_name_is_refused(api: Api, name: str) -> None:
    batch = {"messages": [{"subject": "orders", "body": "x"}, {"subject": name, "body": "x"}]}
    answer = api.call("POST", "/v1/messages", batch)
    assert (answer.status, answer.slug, answer.json["field"]) == (400, "name-invalid", "messages[1].subject")
    assert api.bench.deployment.subjects.page("", 10) == ([], None)


def test_limits_are_met_exactly(api: Api) -> None:
    full = {
        "body": "é" * (MIB // 2 - 1000),
        "key": "k" * 256,
        "id": "i" * 100,
        "tags": [f"{n}".rjust(100, "t") for n in range(10)],
    }
    assert api.call("POST", MESSAGES, {"messages": [full]}).status == 200
    assert api.call("POST", MESSAGES, {"messages": [{"body": "x"}] * 1000}).status == 200
    assert api.call("POST", MESSAGES, {"messages": [{"body": "x" * MIB}] * 4}).status == 200
    headers = {f"{n}".rjust(100, "h"): "v" * 4096 for n in range(32)}
    assert api.call("POST", MESSAGES, {"messages": [{"body": "", "headers": headers}]}).status == 200


def test_a_name_may_be_percent_encoded(api: Api) -> None:
    assert api.call("PUT", "/v1/subjects/%6Frders").json["subject"] == "orders"


def test_long_mistakes_are_not_sent_back_whole(api: Api) -> None:
    answer = api.call("POST", MESSAGES, {"messages": [{"body": "x"}], "u" * 100_000: 1})
    assert answer.slug == "field-invalid"
    assert len(json.dumps(answer.json)) < 2_000


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages": [{"body": "x", "headers": {"a": 1}}]',
        b'{"messages": [{"body": "x", "headers": {"a": 1}, "headers": "b"}]}',
        b'{"messages": [{"body": "x", "headers": {"a": 1}, "headers": {"b": "c"}}]}',
        b'{"messages": [{"body": "x", "headers": {"a": 1}}], "messages": []}',
        b'{"messages": [{"body": "x", "headers": {"a": 1}}], "messages": {"0": 1}}',
    ],
)
def test_a_wrong_header_that_cannot_be_read_again_is_refused_without_its_name(body: bytes) -> None:
    answer = Api().call("POST", MESSAGES, raw=body)
    assert (answer.status, answer.json["field"]) == (400, "messages[0].headers[...]")
