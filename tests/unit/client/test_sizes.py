"""The requests of the client fit into an event of Lambda, and the client accepts packed answers."""

import gzip
import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hourwheel.api.router import Match, Router, make_event
from hourwheel.client import Api, Message, Producer, ServerFault, TooLarge
from tests.lambdajson import MOST_EVENT_BYTES, as_lambda_encodes
from tests.unit.client.fake import FakeServer, Request
from tests.unit.client.ids import StillIds

MIB = 1 << 20
CONTEXT = {"authorizer": {"iam": {"userArn": "a" * 2_000}}, "time": "…", "timeEpoch": 1_763_640_000_000}
"""Of an event: more than the gateway says of a request."""


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """Makes a client as one that talks to an API on AWS is made."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return {"sign": "aws", "region": "eu-west-1", "ids": StillIds()}


@pytest.fixture
def producer(server: FakeServer, aws: dict[str, Any]) -> Iterator[Producer]:
    with Producer(server.url, subject="orders", batch_bytes=4 * MIB, linger_seconds=0.05, **aws) as made:
        yield made


@pytest.fixture
def behind_proxy(server: FakeServer) -> FakeServer:
    server.takes_msgpack = False
    return server


def headers_of(request: Request) -> dict[str, str]:
    return {name.lower(): text for name, text in request.headers.items()}


def event_bytes(request: Request) -> int:
    """Returns the length of the event that the gateway makes of a request."""
    match = Router().find(request.method, request.target)
    assert isinstance(match, Match)
    headers = [(name.lower().encode(), text.encode()) for name, text in request.headers.items()]
    event = make_event(
        match, path=request.target, query="", headers=headers, body=request.data, request_id="r", source="127.0.0.1"
    )
    event["requestContext"] |= CONTEXT
    packed = headers_of(request)["content-type"] == "application/msgpack"
    event |= {"body": b64encode(request.data).decode(), "isBase64Encoded": True} if packed else {}
    event["body"] = event["body"] if packed else request.data.decode()
    return len(as_lambda_encodes(event))


TEXTS = {
    "quotes": ['"' * MIB] * 4,
    "backslashes": ["\\" * MIB] * 3,
    "JSON in JSON": [json.dumps({"a": json.dumps({"b": ["c"] * 8_000})})] * 60,
    "control characters": ["\x01" * 400_000] * 6,
    "new lines": ["\n" * MIB] * 4,
    "text of two bytes": ["é" * (MIB // 2)] * 4,
}


@pytest.mark.parametrize("texts", TEXTS.values(), ids=TEXTS)
def test_a_batch_that_would_be_too_large_an_event_is_sent_in_parts(
    behind_proxy: FakeServer, producer: Producer, texts: list[str]
) -> None:
    futures = [producer.send(text) for text in texts]
    assert [future.result(10).offset for future in futures] == list(range(len(texts)))
    assert behind_proxy.bodies("orders") == texts
    requests = behind_proxy.calls("produce")
    assert max(map(event_bytes, requests)) <= MOST_EVENT_BYTES
    keys = [request.body["idempotency_key"] for request in requests]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("texts", TEXTS.values(), ids=TEXTS)
def test_a_batch_at_its_limit_fits_into_an_event_as_msgpack(
    server: FakeServer, producer: Producer, texts: list[str]
) -> None:
    futures = [producer.send(text) for text in texts]
    assert [future.result(10).offset for future in futures] == list(range(len(texts)))
    assert max(map(event_bytes, server.calls("produce"))) <= MOST_EVENT_BYTES


def test_one_message_that_is_too_large_an_event_fails_alone_and_is_never_sent(
    behind_proxy: FakeServer, producer: Producer
) -> None:
    futures = [producer.send(text) for text in ("before", "\x01" * MIB, "after")]
    assert [futures[0].result(10).offset, futures[2].result(10).offset] == [0, 1]
    with pytest.raises(TooLarge, match="as an event of Lambda") as caught:
        futures[1].result(10)
    assert caught.value.slug == "request-too-large"
    assert behind_proxy.bodies("orders") == ["before", "after"]
    assert max(map(event_bytes, behind_proxy.calls("produce"))) <= MOST_EVENT_BYTES


def test_a_batch_that_is_to_be_stored_as_a_whole_is_refused_unsent(
    behind_proxy: FakeServer, aws: dict[str, Any]
) -> None:
    with Api(behind_proxy.url, **aws) as api:
        with pytest.raises(TooLarge, match="send smaller batches"):
            api.produce("orders", [Message('"' * MIB)] * 2, idempotency_key="k")
        assert behind_proxy.calls("produce") == []
        assert len(api.produce("orders", [Message('"' * MIB)], idempotency_key="k")) == 1


@pytest.mark.parametrize("said", [b'{"message":"Request Too Long"}', b"<h1>413 Request Entity Too Large</h1>"])
def test_a_gateway_or_proxy_that_says_too_long_has_the_batch_split(
    server: FakeServer, producer: Producer, said: bytes
) -> None:
    server.fail("produce", status=413, raw=said)
    futures = [producer.send(text) for text in "abcd"]
    assert [future.result(10).offset for future in futures] == [0, 1, 2, 3]
    sizes = [len(request.body["messages"]) for request in server.calls("produce")]
    assert (sizes[0], sum(sizes[1:])) == (4, 4)


def test_a_failure_of_the_gateway_never_splits_what_may_be_stored(server: FakeServer, producer: Producer) -> None:
    server.fail("produce", times=2, status=500, raw=b'{"message":"Internal Server Error"}')
    futures = [producer.send(text) for text in "abcd"]
    assert [future.result(10).offset for future in futures] == [0, 1, 2, 3]
    requests = server.calls("produce")
    assert [len(request.body["messages"]) for request in requests] == [4, 4, 4]
    assert len({request.body["idempotency_key"] for request in requests}) == 1


def test_a_server_that_is_no_lambda_is_sent_what_it_takes(server: FakeServer) -> None:
    with Api(server.url, ids=StillIds()) as api:
        assert len(api.produce("orders", [Message('"' * MIB)] * 2)) == 2


def test_a_packed_answer_is_unpacked(server: FakeServer) -> None:
    text = json.dumps({"status": "ok", "version": "1" * 5_000}).encode()
    server.fail("health", raw=gzip.compress(text), encoding="gzip")
    with Api(server.url, ids=StillIds()) as api:
        assert api.health().version == "1" * 5_000
    (request,) = server.calls("health")
    assert headers_of(request)["accept-encoding"] == "gzip"


def test_a_packed_refusal_is_read_too(server: FakeServer) -> None:
    document = {"type": "urn:hourwheel:batch-too-large", "status": 413, "detail": "too large"}
    server.fail("produce", status=413, raw=gzip.compress(json.dumps(document).encode()), encoding="gzip")
    with Api(server.url, ids=StillIds()) as api, pytest.raises(TooLarge, match="too large"):
        api.produce("orders", [Message("a")])


@pytest.mark.parametrize(
    ("raw", "encoding"),
    [
        (gzip.compress(b"0" * (65 * MIB), 1), "gzip"),
        (gzip.compress(b"{}")[:-3], "gzip"),
        (b"{}", "gzip"),
        (b"{}", "br"),
    ],
    ids=["a bomb", "cut off", "not packed", "another encoding"],
)
def test_an_answer_that_cannot_be_unpacked_is_a_fault_of_the_server(
    server: FakeServer, raw: bytes, encoding: str
) -> None:
    server.fail("health", raw=raw, encoding=encoding)
    with Api(server.url, ids=StillIds(), retry_seconds=0) as api, pytest.raises(ServerFault, match="understands"):
        api.health()
