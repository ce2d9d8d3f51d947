"""The very handlers that are deployed, on DynamoDB, S3 and EventBridge Scheduler as moto imitates them."""

import base64
import gzip
import importlib
import io
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import boto3
import pytest
from moto import mock_aws

from hourwheel.adapters.aws import dynamodb
from hourwheel.adapters.aws.clients import session
from hourwheel.api.router import Match, Router, make_event
from hourwheel.buckets.buckets import LEAD_MS
from hourwheel.system import SystemClock
from hourwheel.times import rfc3339
from tests.lambdajson import MOST_ANSWER_BYTES, as_lambda_encodes
from tests.support import NOON_MS, HandClock

PREFIX, BUCKET, TIMERS = "hw-test", "hw-test-batches", "hw-test-timers"
FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:hw-test-wheel"
MESSAGES = "/v1/subjects/orders/messages"
GROUP = "/v1/subjects/orders/groups/billing"


class Invocation:
    """One that ends 10 s after now, or 15 minutes where it turns a wheel."""

    def __init__(self, seconds: int = 10) -> None:
        self._ends_ms = SystemClock().now_ms() + seconds * 1_000

    def get_remaining_time_in_millis(self) -> int:
        return self._ends_ms - SystemClock().now_ms()


class Deployment:
    """Functions by name, each loaded as Lambda would load it. ``started`` are the buckets whose wheels were started at
    once, ``schedules`` those for which that is to happen."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self._router = Router()
        self._loaded: dict[str, ModuleType] = {}
        # moto runs functions in Docker alone.
        session().register("before-call.lambda.Invoke", self._start)

    def _start(self, params: dict[str, Any], **_: Any) -> Any:
        assert FUNCTION.rpartition(":")[2] in params["url"]
        assert params["headers"]["X-Amz-Invocation-Type"] == "Event"
        event = json.loads(params["body"])
        if "bucket" in event:  # not a sweep
            self.started.append(event["bucket"])
        return SimpleNamespace(status_code=202), {"StatusCode": 202, "Payload": io.BytesIO()}

    @property
    def schedules(self) -> list[Any]:
        scheduler = boto3.client("scheduler", region_name="us-east-1")
        names = [found["Name"] for found in scheduler.list_schedules(GroupName=TIMERS)["Schedules"]]
        return [scheduler.get_schedule(GroupName=TIMERS, Name=name) for name in sorted(names)]

    def turn(self) -> list[str]:
        """Turns the wheels that were started; how they ended."""
        buckets, self.started = self.started, []
        return [self.invoke("wheel", {"bucket": bucket})["ended"] for bucket in sorted(set(buckets))]

    def invoke(self, function: str, event: dict[str, Any]) -> Any:
        if function not in self._loaded:
            sys.modules.pop(f"functions.{function}.handler", None)
            self._loaded[function] = importlib.import_module(f"functions.{function}.handler")
        return self._loaded[function].handler(event, Invocation(900 if function == "wheel" else 10))

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        response = self.respond(method, path, body)
        return response["statusCode"], json.loads(response["body"]) if response["body"] else None

    def respond(self, method: str, path: str, body: Any = None, headers: Sequence[tuple[bytes, bytes]] = ()) -> Any:
        match = self._router.find(method, path)
        assert isinstance(match, Match)
        data = b"" if body is None else json.dumps(body).encode()
        event = make_event(match, path=path, query="", headers=headers, body=data, request_id="r-1", source="127.0.0.1")
        return self.invoke(match.route.function, event)


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
        "HOURWHEEL_WHEEL_FUNCTION": FUNCTION,
        "HOURWHEEL_SWEEP_FUNCTION": FUNCTION,
        "HOURWHEEL_TIMER_GROUP": TIMERS,
        "HOURWHEEL_TIMER_ROLE": "arn:aws:iam::123456789012:role/hw-test-timers",
        "HOURWHEEL_BUCKET_MINUTES": "30",
        "HOURWHEEL_SHARDS": "1",
    }.items():
        monkeypatch.setenv(name, text)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    session.cache_clear()  # its event handlers would be those of another deployment
    # A function has a process to itself: its log does not go where that of another one went before it.
    log = logging.getLogger("hourwheel")
    monkeypatch.setattr(log, "handlers", [])
    for name in ("init", "powertools_handler"):
        monkeypatch.setattr(log, name, None, raising=False)
    with mock_aws():
        dynamodb.create_tables(dynamodb.client(region="us-east-1"), PREFIX)
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket=BUCKET)
        boto3.client("scheduler", region_name="us-east-1").create_schedule_group(Name=TIMERS)
        yield Deployment()
    session.cache_clear()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    """Returns the clock of the functions, in place of the system's: it moves when they sleep."""
    hand = HandClock(NOON_MS + 5 * 60_000)
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: hand.now_ms())
    monkeypatch.setattr(SystemClock, "sleep", lambda _, seconds: hand.sleep(seconds))
    return hand


def test_a_message_goes_through_every_function(deployment: Deployment) -> None:
    large = "".join(chr(0x100 + i * i % 5_000) for i in range(5_000))
    batch = {"messages": [{"body": "small"}, {"body": large}], "idempotency_key": "k"}
    status, accepted = deployment.call("POST", MESSAGES, batch)
    assert (status, [one["offset"] for one in accepted["results"]]) == (200, [0, 1])
    assert deployment.call("POST", MESSAGES, batch) == (200, accepted)

    status, pulled = deployment.call("POST", f"{GROUP}/pull", {"consumer": "c1"})
    assert [message["body"] for message in pulled["pulls"][0]["messages"]] == ["small", large]
    receipt = pulled["pulls"][0]["receipt"]
    settle = {"settle": [{"receipt": receipt, "ack": [0]}, {"receipt": receipt, "dead": [1]}]}
    status, settled = deployment.call("POST", f"{GROUP}/ack", settle)
    assert settled == {"results": [{"status": "open"}, {"status": "settled"}]}

    status, lag = deployment.call("GET", f"{GROUP}/lag")
    assert (lag["waiting"], lag["in_flight"], lag["dead"]) == (0, 0, 1)
    assert deployment.call("GET", "/v1/subjects/refunds")[0] == 404


def test_pulls_are_packed_for_those_who_take_it_and_fit_lambda_for_all(deployment: Deployment) -> None:
    texts = [json.dumps({"line": ["a", "b"] * 6_000, "number": number}) for number in range(100)]
    for at in range(0, 100, 50):
        deployment.call("POST", MESSAGES, {"messages": [{"body": text} for text in texts[at : at + 50]]})
    found: list[str] = []
    forms = set()
    while len(found) < len(texts):
        headers = [] if len(found) < 40 else [(b"accept-encoding", b"br, gzip")]
        response = deployment.respond("POST", f"{GROUP}/pull", {"consumer": "c1", "max_messages": 30}, headers)
        assert len(as_lambda_encodes(response)) <= MOST_ANSWER_BYTES
        body = response["body"]
        if response.get("isBase64Encoded"):
            body = gzip.decompress(base64.b64decode(body))
        forms.add((response["headers"].get("content-encoding"), response.get("isBase64Encoded", False)))
        found += [message["body"] for pull in json.loads(body)["pulls"] for message in pull["messages"]]
    assert sorted(found) == sorted(texts)
    assert forms == {(None, False), ("gzip", True)}


def test_the_sweep_ends_leases(deployment: Deployment) -> None:
    deployment.call("POST", MESSAGES, {"messages": [{"body": "a"}]})
    deployment.call("PUT", GROUP, {"retry": {"first_seconds": 0}})
    deployment.call("POST", f"{GROUP}/pull", {"consumer": "c1", "lease_seconds": 1})
    while True:
        report = deployment.invoke("sweep", {"source": "aws.scheduler"})
        assert (report["subjects"], report["groups"]) == (1, 1)
        if report["ended_leases"]:
            break
    _, pulled = deployment.call("POST", f"{GROUP}/pull", {"consumer": "c2"})
    assert (pulled["pulls"][0]["queue"], pulled["pulls"][0]["messages"][0]["attempt"]) == ("retry", 1)


def test_metrics_are_flushed_with_the_invocation(deployment: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    test_the_sweep_ends_leases(deployment)
    metrics = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    assert [one["EndedLeases"] for one in metrics if "EndedLeases" in one] == [1]


FUNCTIONS = ("produce", "pull", "ack", "meta", "delayed", "sweep", "wheel")
SETTINGS = ("BUCKET", "TABLE_PREFIX", "WHEEL_FUNCTION", "TIMER_GROUP", "TIMER_ROLE")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_without_its_settings_does_not_start(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    for name in SETTINGS:
        with monkeypatch.context() as patch:
            patch.delenv(f"HOURWHEEL_{name}")
            with pytest.raises(ValueError, match=name.lower()):
                deployment.invoke(function, {})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("BUCKET_MINUTES", "61"),
        ("BUCKET_MINUTES", "hour"),
        ("SHARDS", "0"),
        ("INLINE_BYTES", "1"),
        ("WHEEL_FUNCTION", "hw-test-wheel"),
        ("TIMER_ROLE", FUNCTION),
        ("TIMER_GROUP", ""),
        ("TICKS", "1"),
        ("CELL", "a/b"),
        ("RETENTION_SECONDS", "59"),
        ("PUSH_FUNCTION", "hw-test-push"),
    ],
)
def test_a_function_with_a_setting_out_of_its_limits_does_not_start(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv(f"HOURWHEEL_{name}", text)
    with pytest.raises(ValueError, match=name.lower()):
        deployment.invoke("produce", {})


def test_metrics_and_log_lines_name_the_cell(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOURWHEEL_CELL", "cell-7")
    test_the_sweep_ends_leases(deployment)
    logging.getLogger("hourwheel").warning("a line of the library")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert any("EndedLeases" in line for line in lines)
    assert "a line of the library" in [line.get("message") for line in lines]
    assert {line["service"] for line in lines} == {"cell-7"}


def test_subjects_are_kept_as_long_as_the_deployment_says(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOURWHEEL_RETENTION_SECONDS", "3600")
    deployment.call("POST", MESSAGES, {"messages": [{"body": "a"}]})
    assert deployment.call("GET", "/v1/subjects/orders")[1]["retention_seconds"] == 3600


def send_later(deployment: Deployment, body: str, **when: Any) -> str:
    status, accepted = deployment.call("POST", MESSAGES, {"messages": [{"body": body, **when}]})
    assert status == 200, accepted
    return str(accepted["results"][0]["scheduled_id"])


def received(deployment: Deployment, **how: Any) -> list[dict[str, Any]]:
    status, pulled = deployment.call("POST", f"{GROUP}/pull", {"consumer": "c1", **how})
    assert status == 200, pulled
    return list(pulled["pulls"])


def test_a_delayed_message_is_handed_over_by_a_wheel(deployment: Deployment, clock: HandClock) -> None:
    sent_ms = clock.ms
    scheduled_id = send_later(deployment, "soon", delay=90)
    assert len(set(deployment.started)) == 1, "its bucket is open already"
    assert deployment.schedules == []
    assert received(deployment) == []
    assert deployment.turn() == ["asleep"]
    assert sent_ms + 90_000 <= clock.ms < sent_ms + 91_000
    ((message,),) = [pull["messages"] for pull in received(deployment)]
    assert (message["body"], message["due_at"]) == ("soon", rfc3339(sent_ms + 90_000))
    status, told = deployment.call("GET", f"/v1/scheduled/{scheduled_id}")
    assert (status, told["state"], told["queue"], told["offset"]) == (200, "dispatched", 0, 0)


def test_a_bucket_to_come_has_one_schedule(
    deployment: Deployment, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOURWHEEL_SHARDS", "2")
    for body in "abcdefgh":
        send_later(deployment, body, deliver_at=rfc3339(NOON_MS + 90 * 60_000))
    assert deployment.started == []
    assert 1 <= len(deployment.schedules) <= 2, "one for each shard"
    for schedule in deployment.schedules:
        bucket = json.loads(schedule["Target"]["Input"])["bucket"]
        assert bucket in {f"{NOON_MS + 90 * 60_000}-30/00{shard}" for shard in (0, 1)}
        assert schedule["ScheduleExpression"] == f"at({rfc3339(NOON_MS + 90 * 60_000 - LEAD_MS)[:19]})"
        assert schedule["Target"]["Arn"] == FUNCTION
        deployment.started.append(bucket)
    clock.ms = NOON_MS + 90 * 60_000 - LEAD_MS
    assert set(deployment.turn()) == {"asleep"}
    assert sorted(message["body"] for pull in received(deployment) for message in pull["messages"]) == [*"abcdefgh"]


def test_a_delayed_message_is_cancelled_and_another_one_moved(deployment: Deployment, clock: HandClock) -> None:
    cancelled = send_later(deployment, "cancelled", delay="2h")
    moved = send_later(deployment, "moved", delay="2h")
    status, answer = deployment.call("DELETE", f"/v1/scheduled/{cancelled}")
    assert (status, answer["state"]) == (200, "cancelled")
    status, answer = deployment.call("PATCH", f"/v1/scheduled/{moved}", {"delay": "1m"})
    assert (status, answer["state"], answer["deliver_at"]) == (200, "moved", rfc3339(clock.ms + 60_000))
    assert answer["scheduled_id"] != moved
    status, pending = deployment.call("GET", "/v1/subjects/orders/scheduled")
    assert (status, pending["messages"]) == (200, 1)
    assert deployment.turn() == ["asleep"]
    assert [message["body"] for pull in received(deployment) for message in pull["messages"]] == ["moved"]
    assert deployment.call("DELETE", f"/v1/scheduled/{moved}")[1]["state"] == "dispatched"


def test_a_retry_waits_for_the_delay_that_its_consumer_wants(deployment: Deployment, clock: HandClock) -> None:
    deployment.call("POST", MESSAGES, {"messages": [{"body": "a"}, {"body": "b"}]})
    (pull,) = received(deployment)
    retry = [{"index": 1, "delay": "1m"}]
    status, _ = deployment.call("POST", f"{GROUP}/ack", {"settle": [{"receipt": pull["receipt"], "retry": retry}]})
    assert status == 200
    assert deployment.call("GET", f"{GROUP}/lag")[1]["backing_off"] == 1
    asked_ms = clock.ms
    assert deployment.turn() == ["asleep"]
    assert clock.ms >= asked_ms + 60_000
    (again,) = received(deployment)
    assert [(message["body"], message["attempt"]) for message in again["messages"]] == [("b", 2)]


def test_a_wheel_that_is_missing_is_started(deployment: Deployment, clock: HandClock) -> None:
    send_later(deployment, "late", delay=60)
    lost, deployment.started = set(deployment.started), []
    clock.pass_time(120)
    report = deployment.invoke("delayed", {"source": "aws.scheduler"})
    assert report["started_wheels"] == 1
    assert set(deployment.started) == lost
    assert deployment.turn() == ["asleep"]
    assert [message["body"] for pull in received(deployment) for message in pull["messages"]] == ["late"]


def test_a_wheel_of_no_bucket_fails(deployment: Deployment, clock: HandClock) -> None:
    for event in ({}, {"bucket": "noon"}, {"source": "aws.scheduler"}):
        with pytest.raises(ValueError, match="bucket"):
            deployment.invoke("wheel", event)


def test_a_wheel_prints_its_metrics_as_it_turns(
    deployment: Deployment, clock: HandClock, capsys: pytest.CaptureFixture[str]
) -> None:
    for minute in (1, 2, 3):
        send_later(deployment, "a", delay=f"{minute}m")
    capsys.readouterr()
    deployment.turn()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    assert len(lines) >= 3
