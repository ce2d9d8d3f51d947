"""Each request has one effect and one refusal, whether it is written in JSON or in msgpack: one table for both."""

import json
from base64 import b64encode
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.unit.api.conftest import GROUP, MESSAGES, Api

ALL = "/v1/messages"
PULL, ACK = f"{GROUP}/pull", f"{GROUP}/ack"
PACKED = {"content-type": "application/msgpack", "accept": "application/msgpack"}
PLAIN: dict[str, str] = {"content-type": "application/json"}


def batch(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"messages": list(messages), **fields}


def pull(**fields: Any) -> dict[str, Any]:
    return {"consumer": "c1", **fields}


RECEIPT = "the receipt of the first pull"
"""Stands in a request for the receipt of the two messages that each case begins with."""


def settle(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"settle": [{"receipt": RECEIPT, **entry} for entry in entries]}


CASES: dict[str, tuple[str, Any]] = {
    "a text": (MESSAGES, batch({"body": "päid"})),
    "an empty text": (MESSAGES, batch({"body": ""})),
    "bytes": (MESSAGES, batch({"body_base64": b"\0\xff"})),
    "every field": (
        MESSAGES,
        batch({"body": "x", "key": "k", "id": "o-7", "tags": ["eu", "new"], "headers": {"a": "b"}, "queue": 0}),
    ),
    "a delay as a number": (MESSAGES, batch({"body": "x", "delay": 60})),
    "a delay as a fraction": (MESSAGES, batch({"body": "x", "delay": 0.5})),
    "a delay as a text": (MESSAGES, batch({"body": "x", "delay": "90d", "precision": "minute"})),
    "a time": (MESSAGES, batch({"body": "x", "deliver_at": "2026-01-01T09:00:00Z"})),
    "a time that is past": (MESSAGES, batch({"body": "x", "deliver_at": "2001-01-01T09:00:00Z"})),
    "a delay among plain ones": (MESSAGES, batch({"body": "a"}, {"body": "b", "delay": 60}, {"body": "c"})),
    "a key of idempotency": (MESSAGES, batch({"body": "x"}, idempotency_key="once")),
    "a sequence": (MESSAGES, batch({"body": "x"}, idempotency_key="sender", sequence=1)),
    "many subjects": (ALL, batch({"subject": "orders", "body": "x"}, {"subject": "paid", "body": "y"})),
    "no message": (MESSAGES, batch()),
    "no batch": (MESSAGES, {}),
    "a list as a batch": (MESSAGES, []),
    "null as a batch": (MESSAGES, None),
    "messages as an object": (MESSAGES, {"messages": {}}),
    "a text as a message": (MESSAGES, {"messages": ["x"]}),
    "null as a message": (MESSAGES, {"messages": [None]}),
    "null as an index": (ACK, settle({"ack": [None]})),
    "an unknown field of a batch": (MESSAGES, batch({"body": "x"}, mesages=[])),
    "an unknown field of a message": (MESSAGES, batch({"body": "x"}, {"body": "x", "topic": "y"})),
    "no body": (MESSAGES, batch({"key": "k"})),
    "two bodies": (MESSAGES, batch({"body": "x", "body_base64": b"y"})),
    "a number as a body": (MESSAGES, batch({"body": 1})),
    "null as a body": (MESSAGES, batch({"body": None})),
    "a number as a key": (MESSAGES, batch({"body": "x", "key": 1})),
    "an empty key": (MESSAGES, batch({"body": "x", "key": ""})),
    "a long key": (MESSAGES, batch({"body": "x", "key": "k" * 1_025})),
    "a tag that is repeated": (MESSAGES, batch({"body": "x", "tags": ["a", "a"]})),
    "eleven tags": (MESSAGES, batch({"body": "x", "tags": [str(tag) for tag in range(11)]})),
    "a number among headers": (MESSAGES, batch({"body": "x", "headers": {"a": 1}})),
    "a delay and a time": (MESSAGES, batch({"body": "x", "delay": 1, "deliver_at": "2027-01-01T09:00:00Z"})),
    "a delay that is no time": (MESSAGES, batch({"body": "x", "delay": "soon"})),
    "a delay that is too long": (MESSAGES, batch({"body": "x"}, {"body": "x", "delay": "1000d"})),
    "a delay below 0": (MESSAGES, batch({"body": "x", "delay": -1})),
    "a boolean as a delay": (MESSAGES, batch({"body": "x", "delay": True})),
    "a precision that there is not": (MESSAGES, batch({"body": "x", "delay": 60, "precision": "day"})),
    "a queue that there is not": (MESSAGES, batch({"body": "x", "queue": 7})),
    "a queue below 0": (MESSAGES, batch({"body": "x", "queue": -1})),
    "a fraction as a queue": (MESSAGES, batch({"body": "x", "queue": 0.5})),
    "a sequence without a key": (MESSAGES, batch({"body": "x"}, sequence=1)),
    "an empty key of idempotency": (MESSAGES, batch({"body": "x"}, idempotency_key="")),
    "a batch for nobody": (ALL, batch({"body": "x"})),
    "a wrong name of a subject": (ALL, batch({"subject": "a b", "body": "x"})),
    "a subject in a batch that has one": (MESSAGES, batch({"subject": "orders", "body": "x"})),
    "a message above the limit": (MESSAGES, batch({"body": "x" * (1 << 20)})),
    "too many messages": (MESSAGES, batch(*({"body": "x"},) * 1_001)),
    "a pull": (PULL, pull()),
    "a pull of one": (PULL, pull(max_messages=1, lease_seconds=60)),
    "a pull that acknowledges": (PULL, pull(settle=[{"receipt": RECEIPT}])),
    "a pull that retries": (PULL, pull(settle=[{"receipt": RECEIPT, "retry": [0], "dead": [1]}])),
    "no consumer": (PULL, {"max_messages": 1}),
    "a wrong consumer": (PULL, {"consumer": "a b"}),
    "an empty consumer": (PULL, {"consumer": ""}),
    "no messages wanted": (PULL, pull(max_messages=0)),
    "too many messages wanted": (PULL, pull(max_messages=1_001)),
    "a text as a limit": (PULL, pull(max_messages="1")),
    "a wait below 0": (PULL, pull(wait_seconds=-1)),
    "a wait that is too long": (PULL, pull(wait_seconds=1_000_000)),
    "a fraction as a lease": (PULL, pull(lease_seconds=0.5)),
    "a lease of 0": (PULL, pull(lease_seconds=0)),
    "an unknown field of a pull": (PULL, pull(max=1)),
    "a pull that settles what is no receipt": (PULL, pull(settle=[{"receipt": "abc"}])),
    "a list as a pull": (PULL, []),
    "all acknowledged": (ACK, settle({})),
    "one acknowledged": (ACK, settle({"ack": [1]})),
    "one retried and one dead": (ACK, settle({"retry": [0], "dead": [1]})),
    "one retried later": (ACK, settle({"ack": [0], "retry": [{"index": 1, "delay": "5m"}]})),
    "one retried with a reason": (ACK, settle({"ack": [0], "retry": [{"index": 1, "delay": 0, "detail": "no"}]})),
    "one dead with a reason": (ACK, settle({"ack": [0], "dead": [{"index": 1, "detail": "never"}]})),
    "one released": (ACK, settle({"ack": [0], "release": [1]})),
    "a lease extended": (ACK, settle({"extend_seconds": 60})),
    "settled twice in one request": (ACK, settle({"ack": [0]}, {"ack": [1]}, {"ack": [1]})),
    "no settlement": (ACK, {"settle": []}),
    "no settlements": (ACK, {}),
    "no receipt": (ACK, {"settle": [{"ack": [0]}]}),
    "no true receipt": (ACK, {"settle": [{"receipt": "abc"}]}),
    "an index that there is not": (ACK, settle({"ack": [2]})),
    "an index below 0": (ACK, settle({"ack": [-1]})),
    "an index in two lists": (ACK, settle({"ack": [0], "retry": [0]})),
    "an index twice": (ACK, settle({"ack": [0, 0]})),
    "a text as an index": (ACK, settle({"ack": ["0"]})),
    "a retry later without an index": (ACK, settle({"retry": [{"delay": 1}]})),
    "a retry after too long a time": (ACK, settle({"retry": [{"index": 0, "delay": "1000d"}]})),
    "an extension of 0": (ACK, settle({"extend_seconds": 0})),
    "an extension beside an acknowledgement": (ACK, settle({"extend_seconds": 60, "ack": [0]})),
    "an unknown field of a settlement": (ACK, settle({"nack": [0]})),
}


class Outcome(NamedTuple):
    status: int
    refusal: Any
    """The type, the field and the detail of a refusal."""
    effect: Any
    """The state of the queue afterwards, as a reader of JSON sees it."""


def outcome(target: str, body: Any, *, packed: bool) -> Outcome:
    api = Api()
    # Retries first: by chance, the last pull would have another message in each form.
    api.call("PUT", GROUP, {"retry": {"delays_seconds": [0]}, "retry_percent": 100})
    api.call("POST", MESSAGES, batch({"body": "first", "id": "m-1"}, {"body": "second", "id": "m-2"}))
    (pulled,) = api.call("POST", PULL, pull(lease_seconds=30)).json["pulls"]
    body = _with_receipt(body, pulled["receipt"])
    data = msgspec.msgpack.encode(body) if packed else json.dumps(body, default=_base64).encode()
    answer = api.respond("POST", target, raw=data, headers=PACKED if packed else PLAIN)
    assert answer["statusCode"] != 500, answer
    refusal = None
    if answer["statusCode"] != 200:
        problem = json.loads(answer["body"])
        refusal = [problem.get(field) for field in ("type", "field", "detail")]
        assert problem["type"] not in ("urn:hourwheel:json-invalid", "urn:hourwheel:msgpack-invalid")
    return Outcome(answer["statusCode"], refusal, _effect(api))


def _effect(api: Api) -> Any:
    """Returns the messages that a new group gets, those that the group still has to do with, and its dead letters."""
    lag = api.call("GET", f"{GROUP}/lag").json
    dead = api.call("GET", f"{GROUP}/dead").json["messages"]
    delayed = api.call("GET", "/v1/delayed?bodies=true").json["messages"]
    every = {
        subject: api.call("POST", f"/v1/subjects/{subject}/groups/reader/pull", pull()).json["pulls"]
        for subject in ("orders", "paid")
    }
    api.bench.clock.pass_time(3_600)
    again = api.call("POST", PULL, pull()).json["pulls"]
    seen = [
        {name: value for name, value in message.items() if name not in MADE_UP}
        for pulls in (*every.values(), again)
        for each in pulls
        for message in each["messages"]
    ]
    letters = [(letter["body"], letter["reason"], letter.get("detail")) for letter in dead]
    later = [(each["subject"], each["deliver_at"], each["body"], each.get("precision")) for each in delayed]
    return lag, letters, later, seen


MADE_UP = {"id", "produced_at"}
"""Fields with a random part, or with the time: an id that the producer gave is looked at by ``test_msgpack``."""


def _with_receipt(part: Any, receipt: str) -> Any:
    if isinstance(part, dict):
        return {name: _with_receipt(each, receipt) for name, each in part.items()}
    if isinstance(part, list):
        return [_with_receipt(each, receipt) for each in part]
    return receipt if part == RECEIPT else part


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


@pytest.mark.parametrize(("target", "body"), CASES.values(), ids=CASES)
def test_a_request_has_one_effect_and_one_refusal_in_both_forms(target: str, body: Any) -> None:
    assert outcome(target, body, packed=True) == outcome(target, body, packed=False)


def test_the_table_has_requests_that_are_taken_and_some_that_are_refused() -> None:
    statuses = [outcome(target, body, packed=True).status for target, body in CASES.values()]
    assert statuses.count(200) > 20
    assert len(statuses) - statuses.count(200) > 40
