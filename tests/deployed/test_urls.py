"""Sends, pulls and settles through function URLs, with tokens of ``hourwheel grant``.

The functions run here, behind servers that make the events of function URLs, and keep their data in the DynamoDB, S3
and SQS of ministack. The function URLs of ministack cannot be used: their events do not say who called, and the
functions find their operators by that.
"""

import json
import os
import random
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import boto3
import pytest
from typer.testing import CliRunner

from hourwheel.adapters.aws import dynamodb
from hourwheel.aws import services
from hourwheel.aws.services import Services
from hourwheel.cli.app import app
from hourwheel.client import Api, Message, Settlement, Unauthorized
from hourwheel.client.calls.pull import pull_encoded
from hourwheel.client.transport import signing
from hourwheel.system import SystemClock
from tests.contract.services import ministack
from tests.function_urls import ACCOUNT, FUNCTIONS, OPERATOR, OPERATOR_SESSION, SERVICE_SESSION, UrlDeployment, serving

REGION = "us-east-1"
SQS_ACCOUNT = "000000000000"
HOUR = 3_600


class ShiftedClock(SystemClock):
    """The clock of the functions. Tests pass its time."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + ShiftedClock.ahead_ms


class DeployedFunctions(UrlDeployment):
    """Functions whose services are made from their environment, as in Lambda, each for itself."""

    def __init__(self, ministack_url: str) -> None:
        function = f"arn:aws:lambda:{REGION}:{SQS_ACCOUNT}:function:shop-wheel"
        self.endpoints = {}
        self._variables = {
            "HOURWHEEL_TABLE_PREFIX": "shop",
            "HOURWHEEL_BUCKET": "shop-batches",
            "HOURWHEEL_WHEEL_FUNCTION": function,
            "HOURWHEEL_TIMER_GROUP": "shop",
            "HOURWHEEL_TIMER_ROLE": f"{ACCOUNT}:role/timers",
            "HOURWHEEL_OPERATORS": OPERATOR,
            "HOURWHEEL_CELL": "shop",
            "HOURWHEEL_WAKE": "true",
            "HOURWHEEL_REGION": REGION,
            "HOURWHEEL_ENDPOINT_URL": ministack_url,
        }
        self.restart()

    def _handler(self, name: str) -> Any:
        with patch.dict(os.environ, {**self._variables, "HOURWHEEL_ENDPOINTS": json.dumps(self.endpoints)}):
            return Services.from_environment().http_handler(FUNCTIONS[name], name)


class Shop(NamedTuple):
    """The deployment: its first URL, its services by their clients, and the command of an operator."""

    url: str
    aws: Callable[[str], Any]
    hourwheel: Callable[..., Any]

    def api(self, token: str) -> Api:
        return Api(self.url, region=REGION, token=token, retry_seconds=0)

    def granted(self, *options: str) -> str:
        """Returns a token for sending to ``orders`` and pulling for its group ``billing``."""
        grant = self.hourwheel("grant", "create", "--produce", "orders", "--pull", "orders/billing", *options)
        return str(grant["token"])


@pytest.fixture(scope="module")
def imitation(tmp_path_factory: pytest.TempPathFactory, no_account: None) -> Iterator[str]:
    with ministack(tmp_path_factory.mktemp("urls")) as endpoint:
        client = dynamodb.client(region=REGION, endpoint_url=endpoint)
        dynamodb.create_tables(client, "shop")
        client.close()
        boto3.client("s3", region_name=REGION, endpoint_url=endpoint).create_bucket(Bucket="shop-batches")
        yield endpoint


@pytest.fixture
def shop(imitation: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Shop]:
    monkeypatch.setattr(signing, "LAMBDA_URL", re.compile(r"127\.0\.0\.1(?P<region>)"))
    monkeypatch.setattr(services, "SystemClock", ShiftedClock)
    monkeypatch.setattr(ShiftedClock, "ahead_ms", 0)

    def hourwheel(*arguments: str) -> Any:
        environment = {"HOURWHEEL_URL": urls["meta"], "AWS_DEFAULT_REGION": REGION, "AWS_ACCESS_KEY_ID": "AKIAOPS"}
        result = CliRunner().invoke(app, [*arguments, "--json"], env=environment)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def aws(service: str) -> Any:
        return boto3.client(service, region_name=REGION, endpoint_url=imitation)

    with serving(DeployedFunctions(imitation), {"testing": SERVICE_SESSION, "AKIAOPS": OPERATOR_SESSION}) as urls:
        yield Shop(urls["meta"], aws, hourwheel)


def large() -> str:
    """Returns a body that compression does not shorten: its batch goes to the bucket."""
    return b64encode(random.Random(1).randbytes(20_000)).decode()


def test_a_token_sends_pulls_and_settles_what_it_names(shop: Shop) -> None:
    shop.hourwheel("group", "create", "orders", "billing")
    bodies = ["small", large()]
    with shop.api(shop.granted()) as api:
        for body in bodies:
            api.produce("orders", [Message(body)])
        pulls = api.pull("orders", "billing", "c1").pulls
        assert sorted(message.body for pull in pulls for message in pull.messages) == sorted(bodies)
        settled = api.settle("orders", "billing", [Settlement(receipt=pull.receipt) for pull in pulls])
        assert {each.status for each in settled} == {"settled"}
        assert api.pull("orders", "billing", "c1", wait_seconds=0).pulls == []
        lag = api.lag("orders", "billing")
        assert (lag.waiting, lag.in_flight) == (0, 0)
    (stored,) = shop.aws("s3").list_objects_v2(Bucket="shop-batches")["Contents"]
    assert stored["Size"] > 15_000


def test_what_a_token_does_not_name_is_refused_and_not_done(shop: Shop) -> None:
    for subject, group in (("orders", "billing"), ("orders", "mail"), ("paid", "billing")):
        shop.hourwheel("group", "create", subject, group)
    with shop.api(shop.granted()) as api:
        calls: list[Callable[[], object]] = [
            lambda: api.produce("paid", [Message("x")]),
            lambda: api.pull("orders", "mail", "c1"),
            lambda: api.pull("paid", "billing", "c1"),
            lambda: api.put_group("orders", "other"),
            lambda: api.create_grant(produce=["paid"]),
        ]
        for call in calls:
            with pytest.raises(Unauthorized) as refused:
                call()
            assert (refused.value.status, refused.value.slug) == (403, "grant-insufficient")
    assert shop.hourwheel("lag", "paid", "billing")["waiting"] == 0


def test_an_expired_token_is_refused(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.hourwheel("group", "create", "orders", "billing")
    token = shop.granted("--for", "2h")
    with shop.api(token) as api:
        monkeypatch.setattr(ShiftedClock, "ahead_ms", (2 * HOUR - 60) * 1_000)
        api.produce("orders", [Message("in time")])
        monkeypatch.setattr(ShiftedClock, "ahead_ms", (2 * HOUR + 1) * 1_000)
        for call in (lambda: api.produce("orders", [Message("late")]), lambda: api.pull("orders", "billing", "c1")):
            with pytest.raises(Unauthorized) as refused:
                call()
            assert (refused.value.status, refused.value.slug) == (401, "grant-expired")
    with shop.api(shop.granted()) as api:
        (pull,) = api.pull("orders", "billing", "c1").pulls
        assert [message.body for message in pull.messages] == ["in time"]
        api.settle("orders", "billing", [Settlement(receipt=pull.receipt)])


def test_a_changed_token_is_refused(shop: Shop) -> None:
    token = shop.granted()
    for index in (0, len(token) // 2, len(token) - 2):
        changed = token[:index] + ("A" if token[index] != "A" else "B") + token[index + 1 :]
        with shop.api(changed) as api, pytest.raises(Unauthorized) as refused:
            api.produce("orders", [Message("x")])
        assert (refused.value.status, refused.value.slug) == (401, "grant-invalid")


def test_a_message_sent_through_a_url_wakes_a_group_that_waits_at_its_queue(shop: Shop) -> None:
    shop.hourwheel("group", "create", "orders", "billing")
    sqs = shop.aws("sqs")
    with shop.api(shop.granted()) as api:
        for _ in range(100):
            idle = {"wakeup": "able", "idle_seconds": 1e6}
            answer = pull_encoded(
                api, "orders", "billing", "c1", max_messages=10, wait_seconds=0, lease_seconds=30, settle=[], rest=idle
            )
            if answer.wakeup is not None:
                break
            SystemClock().sleep(answer.next_pull_seconds)
        assert answer.wakeup is not None
        api.produce("orders", [Message("wake up")])
        received = sqs.receive_message(QueueUrl=answer.wakeup.url, WaitTimeSeconds=20)
        assert [message["Body"] for message in received["Messages"]] == ["wake"]
        (pull,) = api.pull("orders", "billing", "c1").pulls
        assert [message.body for message in pull.messages] == ["wake up"]
        api.settle("orders", "billing", [Settlement(receipt=pull.receipt)])
