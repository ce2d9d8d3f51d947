"""The very handlers that are deployed, on DynamoDB and S3 as moto imitates them."""

import importlib
import json
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import boto3
import pytest
from moto import mock_aws

from hourwheel.adapters import dynamodb
from hourwheel.embedded.router import Match, Router, make_event

PREFIX, BUCKET = "hw-test", "hw-test-segments"
GROUP = "/v1/subjects/orders/groups/billing"


class Invocation:
    def get_remaining_time_in_millis(self) -> int:
        return 10_000


class Deployment:
    """Functions by name, each loaded as Lambda would load it."""

    def __init__(self) -> None:
        self._router = Router()
        self._loaded: dict[str, ModuleType] = {}

    def invoke(self, function: str, event: dict[str, Any]) -> Any:
        if function not in self._loaded:
            sys.modules.pop(f"functions.{function}.handler", None)
            self._loaded[function] = importlib.import_module(f"functions.{function}.handler")
        return self._loaded[function].handler(event, Invocation())

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        match = self._router.find(method, path)
        assert isinstance(match, Match)
        data = b"" if body is None else json.dumps(body).encode()
        event = make_event(match, path=path, query="", headers=(), body=data, request_id="r-1", source="127.0.0.1")
        response = self.invoke(match.route.function, event)
        return response["statusCode"], json.loads(response["body"]) if response["body"] else None


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    for name, text in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
        "HOURWHEEL_TABLE_PREFIX": PREFIX,
        "HOURWHEEL_BUCKET": BUCKET,
        "HOURWHEEL_REGION": "us-east-1",
        "HOURWHEEL_INLINE_BYTES": "1024",
    }.items():
        monkeypatch.setenv(name, text)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        dynamodb.create_tables(dynamodb.client(region="us-east-1"), PREFIX)
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket=BUCKET)
        yield Deployment()


def test_a_message_goes_through_every_function(deployment: Deployment) -> None:
    large = "".join(chr(0x100 + i * i % 5_000) for i in range(5_000))
    batch = {"messages": [{"body": "small"}, {"body": large}], "idempotency_key": "k"}
    status, placed = deployment.call("POST", "/v1/subjects/orders/messages", batch)
    assert (status, [one["offset"] for one in placed["results"]]) == (200, [0, 1])
    assert deployment.call("POST", "/v1/subjects/orders/messages", batch) == (200, placed)

    status, pulled = deployment.call("POST", f"{GROUP}/pull", {"consumer": "c1"})
    assert [message["body"] for message in pulled["pulls"][0]["messages"]] == ["small", large]
    receipt = pulled["pulls"][0]["receipt"]
    settle = {"settle": [{"receipt": receipt, "ack": [0]}, {"receipt": receipt, "dead": [1]}]}
    status, settled = deployment.call("POST", f"{GROUP}/ack", settle)
    assert settled == {"results": [{"status": "open"}, {"status": "settled"}]}

    status, lag = deployment.call("GET", f"{GROUP}/lag")
    assert (lag["waiting"], lag["in_flight"], lag["dead"]) == (0, 0, 1)
    assert deployment.call("GET", "/v1/subjects/refunds")[0] == 404


def test_the_sweep_ends_leases(deployment: Deployment) -> None:
    deployment.call("POST", "/v1/subjects/orders/messages", {"messages": [{"body": "a"}]})
    deployment.call("POST", f"{GROUP}/pull", {"consumer": "c1", "lease_seconds": 1})
    while True:
        report = deployment.invoke("sweep", {"source": "aws.scheduler"})
        assert (report["subjects"], report["groups"]) == (1, 1)
        if report["ended_leases"]:
            break
    _, pulled = deployment.call("POST", f"{GROUP}/pull", {"consumer": "c2"})
    assert (pulled["pulls"][0]["queue"], pulled["pulls"][0]["messages"][0]["attempt"]) == ("retry", 2)


def test_figures_are_flushed_with_the_invocation(deployment: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    test_the_sweep_ends_leases(deployment)
    metrics = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    assert [one["EndedLeases"] for one in metrics if "EndedLeases" in one] == [[1.0]]


def test_a_function_without_its_settings_does_not_start(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOURWHEEL_BUCKET")
    with pytest.raises(ValueError, match="bucket"):
        deployment.invoke("produce", {})
