"""The adapter of EventBridge Scheduler keeps its own promises: about its schedules, its clients, and its errors."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hourwheel.adapters.aws.functions import AsyncFunction
from hourwheel.adapters.aws.scheduler import SOON_MS, SchedulerTimers
from hourwheel.buckets.buckets import LEAD_MS, Bucket
from hourwheel.errors import Broken, OutcomeUnknown, Throttled, Unavailable
from hourwheel.model.fields import MAX_DELAY_MS
from hourwheel.system import SystemClock

from . import wire
from .simulated import InstantClock
from .timers import GROUP, ROLE, make_function, on_ministack
from .wire import Wire

FUNCTION = "arn:aws:lambda:us-east-1:000000000000:function:wheel"
NOW_MS = InstantClock().now_ms()
BUCKET = Bucket.at(NOW_MS, 60, 7).name
LATER_MS = NOW_MS + 86_400_000


def wheel() -> AsyncFunction:
    return AsyncFunction(FUNCTION, region="us-east-1")


class Sent(list[tuple[str, dict[str, Any]]]):
    """Records the calls of timers as (operation, parameters); no call leaves the process."""

    def timers(self) -> SchedulerTimers:
        timers = SchedulerTimers(InstantClock(), function=wheel(), role=ROLE, group=GROUP, region="us-east-1")
        for client, service in ((timers.scheduler, "scheduler"), (timers.function.client, "lambda")):
            client.meta.events.register_first(f"provide-client-params.{service}", self._note)
            client.meta.events.register_first(f"before-send.{service}", self._answer)
        return timers

    def _note(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        self.append((model.name, {name: value for name, value in params.items() if name != "ClientToken"}))

    def _answer(self, request: Any, **_: Any) -> Any:
        return wire.answer(request, 202, b'{"ScheduleArn": "arn"}')


def sent(when_ms: int, bucket: str = BUCKET) -> tuple[str, dict[str, Any]]:
    calls = Sent()
    calls.timers().at(when_ms, bucket)
    (call,) = calls
    return call


def test_a_schedule_fires_once_in_utc_and_removes_itself() -> None:
    operation, schedule = sent(1_800_086_400_999)
    assert operation == "CreateSchedule"
    target = schedule.pop("Target")
    name = schedule.pop("Name")
    assert schedule == {
        "GroupName": GROUP,
        "ScheduleExpression": "at(2027-01-16T08:00:00)",
        "ScheduleExpressionTimezone": "UTC",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "DELETE",
    }
    assert name == "1800000000000-60.007-1800086400"
    assert (target["Arn"], target["RoleArn"], json.loads(target["Input"])) == (FUNCTION, ROLE, {"bucket": BUCKET})
    assert 60 <= target["RetryPolicy"]["MaximumEventAgeInSeconds"] <= 3_600
    assert 1 <= target["RetryPolicy"]["MaximumRetryAttempts"] <= 10


@pytest.mark.parametrize("over_ms", [1, 500, 999, 1_000, 60_000])
def test_a_schedule_is_never_later_than_asked_and_not_in_the_past(over_ms: int) -> None:
    _, schedule = sent(NOW_MS + SOON_MS + over_ms)
    seconds = int(schedule["Name"].rpartition("-")[2])
    assert seconds * 1_000 <= NOW_MS + SOON_MS + over_ms < (seconds + 1) * 1_000
    assert seconds * 1_000 > NOW_MS


@pytest.mark.parametrize("when_ms", [NOW_MS + SOON_MS, NOW_MS + 1, NOW_MS, NOW_MS - 1, 0])
def test_what_is_wanted_soon_is_started_at_once(when_ms: int) -> None:
    operation, call = sent(when_ms)
    assert operation == "Invoke"
    assert (call["FunctionName"], call["InvocationType"]) == (FUNCTION, "Event")
    assert json.loads(call["Payload"]) == {"bucket": BUCKET}


def test_each_time_of_each_bucket_has_a_name_that_the_service_takes() -> None:
    names = {
        sent(when_ms, bucket.name)[1]["Name"]
        for start_ms in (3_600_000, NOW_MS + MAX_DELAY_MS, 9_999_999_600_000)
        for minutes, shard in ((5, 0), (60, 0), (60, 99), (60, 999))
        for bucket in [Bucket(start_ms, minutes, shard)]
        for when_ms in (LATER_MS, LATER_MS + 1_000, NOW_MS + MAX_DELAY_MS - LEAD_MS)
    }
    assert len(names) == 3 * 4 * 3
    assert all(re.fullmatch(r"[0-9A-Za-z_.-]{1,64}", name) for name in names)


@pytest.fixture
def on_the_wire(ministack_endpoint: str, tmp_path: Path) -> Iterator[SchedulerTimers]:
    function = make_function(ministack_endpoint, tmp_path / "starts")
    with on_ministack(ministack_endpoint, function=function) as timers:
        yield timers


def test_the_service_keeps_one_schedule_of_equal_orders(on_the_wire: SchedulerTimers) -> None:
    timers = on_the_wire
    when_ms = SystemClock().now_ms() + 86_400_000
    for later_ms in (0, 0, 1_000):
        timers.at(when_ms + later_ms, BUCKET)
    prefix = BUCKET.replace("/", ".")
    kept = timers.scheduler.list_schedules(GroupName=GROUP, NamePrefix=prefix)["Schedules"]
    assert len(kept) == 2
    for schedule in kept:
        timers.scheduler.delete_schedule(GroupName=GROUP, Name=schedule["Name"])


def test_no_client_is_made_before_a_timer_is_ordered_and_none_that_is_not_needed() -> None:
    timers = SchedulerTimers(InstantClock(), function=wheel(), role=ROLE, group=GROUP, region="us-east-1")
    assert "scheduler" not in vars(timers)
    assert "client" not in vars(timers.function)
    functions: Any = timers.function.client
    functions.meta.events.register_first("before-send.lambda", lambda request, **_: wire.answer(request, 202, b""))
    timers.at(NOW_MS, BUCKET)
    assert "scheduler" not in vars(timers)


def test_no_call_takes_long() -> None:
    timers = Sent().timers()
    for client in (timers.scheduler, timers.function.client):
        config: Any = client.meta.config
        assert (config.connect_timeout, config.read_timeout, config.retries["total_max_attempts"]) == (1.0, 5.0, 3)


FAULTS: dict[str, tuple[wire.Fault, type[Unavailable]]] = {
    "throttled": (wire.refusal("ThrottlingException", 429), Throttled),
    "too many requests": (wire.refusal("TooManyRequestsException", 429), Throttled),
    "not connected": (wire.not_connected, OutcomeUnknown),
    "500 before the effect": (wire.failed_before_effect, OutcomeUnknown),
    "500 after the effect": (wire.failed_after_effect, OutcomeUnknown),
    "reply lost": (wire.reply_lost, OutcomeUnknown),
    "connection cut": (wire.connection_cut, OutcomeUnknown),
}
SERVICES = {"scheduler": 86_400_000, "lambda": -1}
"""The services that timers call, with a time ahead in milliseconds that leads to each."""


@pytest.fixture
def spoilt(on_the_wire: SchedulerTimers, monkeypatch: pytest.MonkeyPatch) -> SchedulerTimers:
    """Returns timers whose SDK does not pause before a retry."""
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda seconds: None)
    return on_the_wire


def spoil(timers: SchedulerTimers, service: str, *faults: wire.Fault) -> Wire:
    found = Wire(timers.scheduler if service == "scheduler" else timers.function.client, service)
    found.faults.extend(faults)
    return found


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("service", SERVICES)
def test_a_fault_that_stays_is_translated(spoilt: SchedulerTimers, service: str, fault: str) -> None:
    fails, expected = FAULTS[fault]
    seen = spoil(spoilt, service, *[fails] * 3)
    with pytest.raises(expected) as raised:
        spoilt.at(SystemClock().now_ms() + SERVICES[service], BUCKET)
    assert type(raised.value) is expected
    assert seen.requests == 3


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("service", SERVICES)
def test_a_fault_that_passes_is_not_seen(spoilt: SchedulerTimers, service: str, fault: str) -> None:
    spoil(spoilt, service, FAULTS[fault][0])
    spoilt.at(SystemClock().now_ms() + SERVICES[service], BUCKET)


@pytest.mark.parametrize("ahead_ms", SERVICES.values())
def test_a_fault_that_a_person_must_fix_is_broken(ministack_endpoint: str, ahead_ms: int) -> None:
    function = FUNCTION.replace("wheel", "nowhere")
    opened = on_ministack(ministack_endpoint, function=function, group="nowhere")
    with opened as timers, pytest.raises(Broken, match="ResourceNotFoundException"):
        timers.at(SystemClock().now_ms() + ahead_ms, BUCKET)
