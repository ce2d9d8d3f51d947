"""Hourwheel describes the mistake in a field in sentences of its own."""

from typing import Any

import msgspec
import pytest

from hourwheel.api.bodies import GroupBody, PageQuery, PushBody, SeekBody, SubjectBody
from hourwheel.api.requests import decode_control, decode_query
from hourwheel.errors import Rejected
from hourwheel.misfits import decode
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest

ABROAD = ("Input should", "Value error", "Expected `", "Extra inputs", "Object ", "Invalid JSON", "malformed", "Field ")


@pytest.mark.parametrize(
    ("model", "body", "says"),
    [
        (SubjectBody, b'{"queues": 0}', "queues must be at least 1"),
        (SubjectBody, b'{"queues": 1000000}', "queues must be at most "),
        (SubjectBody, b'{"queues": "2"}', "queues must be a whole number"),
        (SubjectBody, b'{"clamp_delays": 1}', "clamp_delays must be true or false"),
        (SubjectBody, b'{"colour": 1}', "colour is unknown here"),
        (SubjectBody, b"[]", "the request must be an object"),
        (SubjectBody, b'{"queues"', "the body is not JSON in UTF-8 (line 1, column 9)"),
        (SeekBody, b'{"to": "middle"}', "to must be 'start' or 'end'"),
        (SeekBody, b"{}", 'send one of {"to": "start" or "end"}'),
        (SeekBody, b'{"queue": 0, "offset": 0.5}', "offset must be a whole number"),
        (GroupBody, b'{"retry": {"first_seconds": "1"}}', "retry.first_seconds must be a number"),
        (GroupBody, b'{"retry": {"delays_seconds": []}}', "retry.delays_seconds must have at least 1 entry"),
        (GroupBody, b'{"retry": {"delays_seconds": 5}}', "retry.delays_seconds must be a list"),
        (GroupBody, b'{"push": {}}', "push.kind is missing"),
        (PushBody, b'{"kind": "https", "url": ""}', "url must have at least 1 character"),
    ],
)
def test_of_a_control_request(model: Any, body: bytes, says: str) -> None:
    with pytest.raises(Rejected) as raised:
        decode_control(model, body)
    assert says in str(raised.value)
    assert not any(word in str(raised.value) for word in ABROAD)


def test_of_a_query() -> None:
    with pytest.raises(Rejected, match=r"^limit must be a whole number$"):
        decode_query(PageQuery, {"queryStringParameters": {"limit": "many"}})


@pytest.mark.parametrize(
    ("model", "body", "says"),
    [
        (NewMessage, b'{"body": 7}', "body must be text or null, got a whole number"),
        (NewMessage, b'{"body": "a", "tags": "eu"}', "tags must be a list"),
        (NewMessage, b'{"body": "a", "colour": "eu"}', "colour is unknown here"),
        (NewMessage, b"7", "the body must be an object, got a whole number"),
        (NewMessage, b'{"body": ', "the body is not JSON in UTF-8"),
        (PullRequest, b'{"max_messages": 1}', "consumer is missing"),
        (PullRequest, b'{"consumer": "c", "max_messages": 100000}', "max_messages must be at most "),
        (PullRequest, b'{"consumer": "c", "max_messages": 1.5}', "max_messages must be a whole number, got a number"),
    ],
)
def test_of_a_request_with_messages_or_receipts(model: Any, body: bytes, says: str) -> None:
    with pytest.raises(Rejected) as raised:
        decode(msgspec.json.Decoder(model), body)
    assert says in str(raised.value)
    assert not any(word in str(raised.value) for word in ABROAD)
