"""Options of the client that cannot work are refused at once, by the call that takes them."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hourwheel.client import Api, AsyncConsumer, AsyncProducer, Consumer, DeadSelection, Message, Producer, Retry
from hourwheel.client.webhooks import verify
from tests.unit.client.fake import FakeServer

MAKERS = (Api, Producer, lambda url, **how: Consumer(url, "orders", "billing", **how))


@pytest.mark.parametrize("make", MAKERS, ids=["api", "producer", "consumer"])
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"token": " "}, "the token is blank"),
        ({"sign": "azure"}, "sign is 'aws' or left out, got 'azure'"),
        ({"region": "eu-west-1"}, "a region is only for signed requests"),
        ({"token": "secret", "sign": "aws"}, "give a token, or sign for AWS, not both"),
    ],
)
def test_each_client_refuses_credentials_that_contradict_each_other(
    make: Callable[..., object], options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        make("http://127.0.0.1:7420", **options)


@pytest.mark.parametrize("url", ["127.0.0.1:7420", "ftp://127.0.0.1", "http://", ""])
@pytest.mark.parametrize("make", MAKERS, ids=["api", "producer", "consumer"])
def test_each_client_refuses_a_url_without_a_scheme_or_a_host(make: Callable[..., object], url: str) -> None:
    with pytest.raises(ValueError, match="must begin with http:// or https:// and name a host"):
        make(url)


def test_a_file_without_certificates_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(ValueError, match="holds no certificates in PEM"):
        Api("https://127.0.0.1:7420", ca_file=tmp_path / "ca.pem")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"deliver_at": datetime(2030, 1, 1)}, "deliver_at has no zone"),  # noqa: DTZ001 - that is what is refused
        ({"deliver_at": "tomorrow"}, "deliver_at must be an RFC 3339 time"),
        ({"delay": 1, "deliver_at": "2030-01-01T00:00:00Z"}, "not both"),
        ({"delay": -1}, "delay"),
        ({"delay": "1 fortnight"}, "delay"),
        ({"delay": timedelta(days=-1)}, "delay"),
        ({"delay": float("nan")}, "delay"),
    ],
)
def test_a_message_whose_time_is_none_is_not_made(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Message("a", **fields)


def test_a_producer_without_a_subject_asks_for_one(server: FakeServer) -> None:
    with Producer(server.url) as producer:
        with pytest.raises(ValueError, match="name a subject, here or when the producer is made"):
            producer.send("a")
        with pytest.raises(ValueError, match="name a subject, here or when the producer is made"):
            producer.send_batch(["a"])
        assert producer.send("a", subject="orders").result().offset == 0


def test_a_consumer_runs_with_a_handler_and_loops_inside_of_its_block(server: FakeServer) -> None:
    consumer = Consumer(server.url, "orders", "billing")
    with pytest.raises(RuntimeError, match=r"@consumer\.handler"):
        consumer.run()
    with pytest.raises(RuntimeError, match="loop inside a with block"):
        next(iter(Consumer(server.url, "orders", "billing")))


def test_a_signing_secret_has_its_prefix_and_base64() -> None:
    for secret in ("secret", "whsec_", "whsec_%%%"):
        with pytest.raises(ValueError, match="a signing secret is whsec_ and base64"):
            verify(body=b"{}", headers={}, secret=secret)


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_a_batch_handler_with_an_idempotency_store_is_refused_with_advice(kind: type[Any]) -> None:
    consumer = kind("http://127.0.0.1:7420", "orders", "billing")
    with pytest.raises(TypeError, match=r"takes no idempotency store.* use handler\(idempotent=\.\.\.\)"):
        consumer.batch_handler(idempotent=object())


def producer(**options: Any) -> None:
    Producer("http://127.0.0.1:7420", subject="orders", **options).close()


def async_producer(**options: Any) -> None:
    AsyncProducer("http://127.0.0.1:7420", subject="orders", **options)


def consumer(**options: Any) -> None:
    Consumer("http://127.0.0.1:7420", "orders", "billing", **options)


def async_consumer(**options: Any) -> None:
    AsyncConsumer("http://127.0.0.1:7420", "orders", "billing", **options)


PRODUCERS, CONSUMERS = (producer, async_producer), (consumer, async_consumer)
RANGES: list[tuple[tuple[Callable[..., None], ...], str, str, list[Any]]] = [
    (PRODUCERS, "batch_messages", "a whole number from 1 to 1,000", [0, 1_001]),
    (PRODUCERS, "batch_bytes", "a whole number from 1", [0]),
    (PRODUCERS, "max_pending_messages", "a whole number from 1", [0]),
    (PRODUCERS, "max_pending_bytes", "a whole number from 1", [-1]),
    (PRODUCERS, "delivery_timeout_seconds", "a number from 0.001 to 1,000,000,000", [0, float("inf")]),
    (PRODUCERS, "close_timeout_seconds", "a number from 0 to 1,000,000,000", [-1, float("nan")]),
    ((producer,), "linger_seconds", "a number from 0 to 1,000,000,000", [-0.1, float("inf")]),
    (CONSUMERS, "concurrency", "a whole number from 1", [0, -3]),
    (CONSUMERS, "max_messages", "a whole number from 1 to 1,000", [0, 1_001]),
    (CONSUMERS, "wait_seconds", "a number from 0 to 20", [-1, 20.5]),
    (CONSUMERS, "lease_seconds", "a whole number from 1 to 43,200", [0, 43_201]),
    (CONSUMERS, "settle_linger_seconds", "a number from 0 to 1,000,000,000", [-1]),
    (CONSUMERS, "drain_seconds", "a number from 0 to 1,000,000,000", [-1]),
]
CASES = [
    pytest.param(make, option, wanted, value, id=f"{make.__name__} {option}={value!r}")
    for makers, option, wanted, outside in RANGES
    for make in makers
    for value in [*outside, "5", None, True, *([2.5] if "whole" in wanted else [])]
    if (option, value) != ("max_messages", None)  # the stock follows the handlers then
]


@pytest.mark.parametrize(("make", "option", "wanted", "value"), CASES)
def test_an_option_that_is_no_number_of_its_range_is_refused_by_name(
    make: Callable[..., None], option: str, wanted: str, value: Any
) -> None:
    of_its_type = type(value) is int or (type(value) is float and "whole" not in wanted)
    with pytest.raises(ValueError if of_its_type else TypeError) as caught:
        make(**{option: value})
    assert str(caught.value) == f"{option} is {wanted}, got {value!r}"


def test_the_ends_of_the_ranges_are_taken() -> None:
    for make in PRODUCERS:
        make(batch_messages=1_000, batch_bytes=1, max_pending_messages=1, max_pending_bytes=1, close_timeout_seconds=0)
    for make in CONSUMERS:
        make(concurrency=1, max_messages=1_000, wait_seconds=20, lease_seconds=43_200, drain_seconds=0)


NO_TIME: Any = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda api: api.trace("orders", "a", since=NO_TIME), "since must be a datetime with a zone"),
        (lambda api: api.trace("orders", "a", until=5), "until must be a datetime with a zone"),
        (lambda api: api.peek("orders", time=NO_TIME), "time must be a datetime with a zone"),
        (lambda api: api.list_delayed(since=NO_TIME), "since must be a datetime with a zone"),
        (lambda api: api.list_subject_delayed("orders", until=NO_TIME), "until must be a datetime with a zone"),
        (lambda api: api.due(since=NO_TIME), "since must be a datetime with a zone"),
        (lambda api: api.seek("orders", "billing", 7), 'to must be "start", "end", a datetime'),
        (lambda api: DeadSelection.between(NO_TIME, None), "since must be a datetime with a zone"),
        (lambda api: DeadSelection.between(None, NO_TIME), "until must be a datetime with a zone"),
        (lambda api: api.reschedule("id", delay=[1]), "delay must be a number of seconds, text such as '10m'"),
        (lambda api: Message("a", delay=True), "delay must be a number of seconds, text such as '10m'"),
        (lambda api: Retry(delay=None), "delay must be a number of seconds, text such as '10m'"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_by_the_name_of_its_parameter(
    call: Callable[[Any], object], sentence: str
) -> None:
    with Api("http://127.0.0.1:1") as api, pytest.raises(ValueError, match=re.escape(sentence)):
        call(api)
