"""Hourwheel describes the mistake in a field in sentences of its own."""

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pytest

from hourwheel.api.control.bodies import (
    CellBody,
    DecisionBody,
    GroupBody,
    PushBody,
    SeekBody,
    SelectionBody,
    SubjectBody,
)
from hourwheel.api.control.queries import LeaveQuery, OverviewQuery, PageQuery, PeekQuery, WithdrawQuery
from hourwheel.api.requests import decode_control, decode_query
from hourwheel.errors import Rejected
from hourwheel.model.messages import NewMessage, ProduceRequest
from hourwheel.model.pulls import PullRequest, SettleRequest
from hourwheel.wire.misfits import decode

ABROAD = ("Input should", "Value error", "Expected `", "Extra inputs", "Object ", "Invalid JSON", "malformed", "Field ")
TOO_LARGE = "is a number that is too large to be read: send one below 1.8e308"
BASE64 = "must be base64 of the standard alphabet (A-Z, a-z, 0-9, + and /) with its padding (=)"


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("model", "body", "says"),
    [
        (SubjectBody, b'{"queues": 0}', "queues must be at least 1"),
        (SubjectBody, b'{"queues": 1000000}', "queues must be at most 64"),
        (SeekBody, b'{"queue": 64, "offset": 0}', "queue must be at most 63"),
        (SeekBody, b'{"queue": 0, "offset": 9223372036854775900}', "offset must be at most 9223372036854775807"),
        (GroupBody, b'{"max_in_flight": 10000000}', "max_in_flight must be at most 1000000"),
        (SubjectBody, b'{"queues": "2"}', "queues must be a whole number"),
        (SubjectBody, b'{"clamp_delays": 1}', "clamp_delays must be true or false"),
        (
            SubjectBody,
            b'{"colour": 1}',
            "colour is unknown here: the fields are queues, retention_seconds, clamp_delays, read_only",
        ),
        (
            GroupBody,
            b'{"retry": {"first": 1}}',
            "retry.first is unknown here: the fields are first_seconds, factor, cap_seconds, delays_seconds",
        ),
        (SubjectBody, b"[]", "the body must be an object, got a list"),
        (SubjectBody, b'{"queues"', "the body is not JSON in UTF-8"),
        (SeekBody, b'{"to": "middle"}', "to must be 'end' or 'start'"),
        (SeekBody, b"{}", 'send one of {"to": "start" or "end"}'),
        (SeekBody, b"{}", '{"queue": …, "offset": …}: the request has none of them'),
        (SeekBody, b'{"to": "end", "time": "x", "dry_run": true}', "the request has to and time"),
        (SeekBody, b'{"offset": 1}', "the request has offset"),
        (SeekBody, b'{"to": "end", "queue": 0, "offset": 1}', "the request has to, queue and offset"),
        (SelectionBody, b'{"all": true, "from": "x"}', "the request has all and from"),
        (SelectionBody, b'{"detail": "x"}', "the request has none of them"),
        (
            DecisionBody,
            b'{"then": "retry"}',
            'send either {"all": true} or {"keys": […]}: the request has none of them',
        ),
        (DecisionBody, b'{"then": "retry", "keys": ["a"], "all": true}', "the request has all and keys"),
        (DecisionBody, b'{"then": "retry", "all": false}', "all must be true"),
        (DecisionBody, b'{"then": 5, "all": true}', "then must be 'dead' or 'retry'"),
        (SelectionBody, b'{"all": false}', "all must be true"),
        (GroupBody, b'{"start": []}', "start must be 'earliest' or 'latest'"),
        (PushBody, b'{"kind": 1}', " or 'sqs'"),
        (CellBody, b'{"state": true}', "state must be 'draining', 'normal', 'offline' or 'read_only'"),
        (CellBody, b'{"kinds": [1]}', "kinds[0] must be 'delay' or 'real-time'"),
        (GroupBody, b'{"messages_per_second": -1}', "messages_per_second must be at least 0"),
        (GroupBody, b'{"messages_per_second": 1e9}', "messages_per_second must be at most 1000000"),
        (GroupBody, b'{"retry": {"factor": 0.5}}', "retry.factor must be at least 1"),
        (SubjectBody, b'{"queues": ' + b"1" * 5_000 + b"}", "queues must be from 1 to 64"),
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
    assert ".0" not in str(raised.value)
    assert not any(word in str(raised.value) for word in ABROAD)


@pytest.mark.parametrize("model", [DecisionBody, SelectionBody])
def test_false_is_not_offered_where_it_is_refused(model: Any) -> None:
    with pytest.raises(Rejected, match=r"^all must be true$"):
        decode_control(model, b'{"then": "retry", "all": "x"}' if model is DecisionBody else b'{"all": "x"}')


@pytest.mark.parametrize(
    ("model", "parameters", "says"),
    [
        (PageQuery, {"limit": "many"}, "limit must be a whole number"),
        (PageQuery, {"limit": "101"}, "limit must be at most 100"),
        (LeaveQuery, {"forget": "perhaps"}, "forget must be true or false"),
        (OverviewQuery, {"order": "up"}, "order must be 'asc' or 'desc'"),
        (OverviewQuery, {"order": "null"}, "order must be 'asc' or 'desc'"),
        (WithdrawQuery, {"queue": "null"}, "queue must be a whole number"),
        (PeekQuery, {"offset": "1", "time": "noon"}, "give either offset or time, not both"),
    ],
)
def test_of_a_query(model: Any, parameters: dict[str, str], says: str) -> None:
    with pytest.raises(Rejected, match=f"^{says}$"):
        decode_query(model, {"queryStringParameters": parameters})


@pytest.mark.parametrize(
    ("model", "body", "says"),
    [
        (NewMessage, b'{"body": 7}', "body must be text, got a whole number"),
        (NewMessage, b'{"body": "a", "tags": "eu"}', "tags must be a list"),
        (NewMessage, b'{"body": "a", "delay": []}', "delay must be a number or text, got a list"),
        (
            NewMessage,
            b'{"body": "a", "colour": "eu"}',
            "colour is unknown here: the fields are body, body_base64, key,",
        ),
        (
            ProduceRequest,
            b'{"messages": [{"body": "a"}], "key": "a"}',
            "key is unknown here: the fields are messages, idempotency_key, sequence",
        ),
        (
            ProduceRequest,
            b'{"messages": [{"body": "a"}, {"bodies": "a"}]}',
            "messages[1].bodies is unknown here: the fields are body, body_base64, key,",
        ),
        (
            SettleRequest,
            b'{"settle": [{"receipt": "r", "retry": [{"index": 0, "after": 1}]}]}',
            "settle[0].retry[0].after is unknown here: the fields are index, delay, detail",
        ),
        (NewMessage, b"7", "the body must be an object, got a whole number"),
        (NewMessage, b'{"body": ', "the body is not JSON in UTF-8"),
        (PullRequest, b'{"max_messages": 1}', "consumer is missing"),
        (PullRequest, b'{"consumer": "c", "max_messages": 100000}', "max_messages must be at most "),
        (PullRequest, b'{"consumer": "c", "max_messages": 1.5}', "max_messages must be a whole number, got a number"),
        (PullRequest, b'{"consumer": "c", "wait_seconds": 1e400}', "wait_seconds must be from 0 to 20"),
        (PullRequest, b'{"consumer": "c", "wait_seconds": -1e400}', "wait_seconds must be from 0 to 20"),
        (PullRequest, b'{"consumer": "c", "wait_seconds": ' + b"1" * 5_000 + b"}", "wait_seconds must be from 0 to 20"),
        (PullRequest, b'{"consumer": "c", "wakeup": "abel"}', "wakeup must be 'able', 'missing' or 'woken'"),
        (NewMessage, b'{"body": "a", "delay": 1e400}', f"delay {TOO_LARGE}"),
        (NewMessage, b'{"body": "a", "headers": {"x": 1e400}}', f"headers[...] {TOO_LARGE}"),
        (NewMessage, b'{"body": "a", "precision": "hour"}', "precision must be 'minute'"),
        (NewMessage, b'{"body_base64": "AAE"}', f"body_base64 {BASE64}"),
        (NewMessage, b'{"body_base64": "_-_-"}', f"body_base64 {BASE64}"),
        (NewMessage, b'{"body_base64": "@@@@"}', f"body_base64 {BASE64}"),
        (dict[str, Colour], b'{"x": "blue"}', "is none of the allowed values"),
        (datetime, b'"noon"', "must be a time as in RFC 3339, such as 2026-11-20T09:00:00Z"),
        (date, b'"noon"', "must be a date such as 2026-11-20"),
        (time, b'"noon"', "must be a time of day such as 09:00:00"),
        (UUID, b'"noon"', "must be a UUID"),
        (Decimal, b'"noon"', "must be a decimal number"),
        (timedelta, b'"noon"', "must be a duration as in ISO 8601, such as PT90S"),
        (UUID, b"7", "must be a UUID, got a whole number"),
        (tuple[int, int], b"[1]", "must have exactly 2 entries"),
    ],
)
def test_of_a_request_with_messages_or_receipts(model: Any, body: bytes, says: str) -> None:
    with pytest.raises(Rejected) as raised:
        decode(msgspec.json.Decoder(model), body)
    assert says in str(raised.value)
    assert not any(word in str(raised.value) for word in ABROAD)
