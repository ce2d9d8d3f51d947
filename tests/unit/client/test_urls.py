"""Clients and function URLs: each request goes to its function, signed for Lambda, with the newest token."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from hourwheel.client import Api, AsyncApi, AsyncProducer, Consumer, Message, Producer, Settlement, Unauthorized
from hourwheel.client.transport import signing
from hourwheel.client.transport.urls import FrontUrls
from tests.function_urls import OPERATOR_SESSION, SERVICE_SESSION, UrlDeployment, serving, take_loopback_for_urls
from tests.support import Bench

REGION = "eu-west-1"


@pytest.fixture(autouse=True)
def local(monkeypatch: pytest.MonkeyPatch) -> None:
    take_loopback_for_urls(monkeypatch)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def deployment(bench: Bench) -> UrlDeployment:
    return UrlDeployment(bench.deployment)


@pytest.fixture
def url(deployment: UrlDeployment) -> Iterator[str]:
    with serving(deployment, {"AKIASHOP": SERVICE_SESSION, "AKIAOPS": OPERATOR_SESSION}) as urls:
        yield urls["meta"]


def granted(url: str, monkeypatch: pytest.MonkeyPatch, **body: Any) -> str:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOPS")
    with Api(url, region=REGION) as operator:
        token = operator.create_grant(**body).token
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIASHOP")
    return token


def test_a_token_sends_pulls_and_settles(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    token = granted(url, monkeypatch, produce=["orders"], pull=["orders/billing"])
    with Api(url, region=REGION, token=token) as api:
        api.produce("orders", [Message("one"), Message(b"\x00two")])
        (pull,) = api.pull("orders", "billing", "c1").pulls
        assert [message.body for message in pull.messages] == ["one", b"\x00two"]
        assert api.settle("orders", "billing", [Settlement(receipt=pull.receipt)])[0].status == "settled"
        assert api.lag("orders", "billing").waiting == 0
        with pytest.raises(Unauthorized, match="does not allow") as refused:
            api.produce("paid", [Message("x")])
        assert (refused.value.status, refused.value.slug) == (403, "grant-insufficient")


def test_producers_and_consumers_need_nothing_but_the_url_and_a_token(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = granted(url, monkeypatch, produce=["orders"], pull=["orders/billing"])
    with Producer(url, region=REGION, token=token, subject="orders") as producer:
        producer.send_batch(["one"])
    with Consumer(url, "orders", "billing", region=REGION, token=token, wait_seconds=0) as messages:
        for message in messages:
            assert message.body == "one"
            break


def test_asyncio_too(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    token = granted(url, monkeypatch, produce=["orders"], pull=["orders/billing"])

    async def run() -> list[object]:
        async with AsyncProducer(url, region=REGION, token=token, subject="orders") as producer:
            await producer.send("one")
        async with AsyncApi(url, region=REGION, token=token) as api:
            pulled = await api.pull("orders", "billing", "c1")
            return [message.body for pull in pulled.pulls for message in pull.messages]

    assert asyncio.run(run()) == ["one"]


def test_a_client_takes_the_token_that_an_answer_brings(
    url: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = granted(url, monkeypatch, produce=["orders"], seconds=3_600, renew_seconds=86_400)
    with Api(url, region=REGION, token=token) as api:
        for _ in range(10):
            bench.clock.pass_time(1_900)
            api.produce("orders", [Message("x")])

    async def run() -> None:
        async with AsyncApi(url, region=REGION, token=token) as api:
            for _ in range(3):
                bench.clock.pass_time(1_900)
                await api.produce("orders", [Message("x")])

    token = granted(url, monkeypatch, produce=["orders"], seconds=3_600, renew_seconds=86_400)
    asyncio.run(run())


def test_without_a_token_or_the_right_to_invoke_the_error_says_what_to_do(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Api(url, region=REGION, retry_seconds=0) as api, pytest.raises(Unauthorized, match="no operator") as refused:
        api.produce("orders", [Message("x")])
    assert refused.value.slug == "grant-missing"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIANOBODY")
    with Api(url, region=REGION, retry_seconds=0) as api, pytest.raises(Unauthorized, match="InvokeFunctionUrl"):
        api.health()


def test_a_revoked_token_is_refused_by_every_function(
    url: str, bench: Bench, deployment: UrlDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = granted(url, monkeypatch, produce=["orders"], pull=["orders/billing"])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOPS")
    with Api(url, region=REGION) as operator:
        assert operator.rotate_grants(revoke=True) == 2
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIASHOP")
    with Api(url, region=REGION, token=token) as api:
        for call in (lambda: api.produce("orders", [Message("x")]), lambda: api.pull("orders", "billing", "c")):
            with pytest.raises(Unauthorized, match="revoked"):
                call()


@pytest.mark.parametrize(
    ("method", "target", "function"),
    [
        ("POST", "/v1/messages", "produce"),
        ("POST", "/v1/subjects/pull/messages", "produce"),
        ("GET", "/v1/subjects/orders/messages/a", "meta"),
        ("POST", "/v1/subjects/orders/groups/ack/pull", "pull"),
        ("POST", "/v1/subjects/orders/groups/pull/ack", "ack"),
        ("PUT", "/v1/subjects/orders/groups/pull", "meta"),
        ("GET", "/v1/subjects/orders/queues/0/messages?limit=5", "meta"),
        ("POST", "/v1/subjects/orders/groups/pull/pause", "meta"),
    ],
)
def test_the_function_of_a_request(method: str, target: str, function: str) -> None:
    urls = FrontUrls("https://m.lambda-url.eu-west-1.on.aws/", ca_file=None)
    assert urls.function(method, target) == "meta", "as long as no other is known"
    urls.learn({name: f"https://{name}.lambda-url.eu-west-1.on.aws/" for name in ("produce", "pull", "ack", "meta")})
    assert urls.function(method, target) == function
    host = {"meta": "m"}.get(function, function)
    assert urls.origin(method, target) == f"https://{host}.lambda-url.eu-west-1.on.aws"


def test_the_hosts_that_are_function_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    named = signing.LAMBDA_URL.fullmatch("abc123.lambda-url.eu-west-1.on.aws")
    assert named is not None
    assert named["region"] == "eu-west-1"
    for host in ("abc.lambda-url.eu-west-1.on.aws.example", "lambda-url.eu-west-1.on.aws", "a.b.lambda-url.x.on.aws"):
        assert signing.LAMBDA_URL.fullmatch(host) is None
