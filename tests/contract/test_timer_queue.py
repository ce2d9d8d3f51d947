"""The queue of precise timers starts the function at its second, while the queue is read."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import boto3
import pytest

from hourwheel.adapters.aws.timer_queue import TimerQueue
from hourwheel.buckets.buckets import Bucket
from hourwheel.errors import Broken
from hourwheel.system import SystemClock

from .timers import LOOK_AGAIN_SECONDS, make_function, on_ministack

PATIENCE_SECONDS = 120.0
BUCKET = Bucket(1_800_000_000_000, 60).name
_names = count()


@dataclass
class Opened:
    """``started`` returns the starts so far: the clock's time, and the event's messages."""

    timers: TimerQueue
    remove: Callable[[], Any]
    path: Path

    def started(self) -> list[tuple[int, list[dict[str, Any]]]]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        found = map(json.loads, lines)
        return [(at_ms, [json.loads(each["body"]) for each in event["Records"]]) for at_ms, event in found]

    def wait(self) -> list[tuple[int, list[dict[str, Any]]]]:
        deadline = monotonic() + PATIENCE_SECONDS
        while not (found := self.started()):
            assert monotonic() < deadline, "nothing was started"
            sleep(LOOK_AGAIN_SECONDS)
        return found


@pytest.fixture
def opened(ministack_endpoint: str, tmp_path: Path) -> Iterator[Opened]:
    path = tmp_path / "starts"
    function = make_function(ministack_endpoint, path)
    sqs = boto3.client("sqs", region_name="us-east-1", endpoint_url=ministack_endpoint)
    functions = boto3.client("lambda", region_name="us-east-1", endpoint_url=ministack_endpoint)
    url = sqs.create_queue(QueueName=f"timers-{next(_names)}")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    made = functions.create_event_source_mapping(EventSourceArn=arn, FunctionName=function, Enabled=False)
    location = {"region": "us-east-1", "endpoint_url": ministack_endpoint}
    with on_ministack(ministack_endpoint, function=function) as scheduler:
        timers = TimerQueue(scheduler, queue_url=url, mapping=made["UUID"], **location)
        yield Opened(timers, lambda: sqs.delete_queue(QueueUrl=url), path)
        timers.client.close()
    functions.delete_event_source_mapping(UUID=made["UUID"])
    for client in (sqs, functions):
        client.close()


def test_a_timer_starts_the_function_at_its_second_and_names_its_time(opened: Opened) -> None:
    assert opened.timers.listen(True) is False, "it was off"
    assert opened.timers.listen(True) is True
    ordered_ms = SystemClock().now_ms()
    opened.timers.after(2, BUCKET, 1_800_000_001_000)
    ((at_ms, messages), *_) = opened.wait()
    assert at_ms >= ordered_ms + 2_000
    assert messages == [{"bucket": BUCKET, "wakes_ms": 1_800_000_001_000}]


def test_a_timer_waits_until_the_queue_is_read(opened: Opened) -> None:
    assert opened.timers.listen(False) is True
    opened.timers.after(0, BUCKET, 1_800_000_001_000)
    opened.timers.listen(True)
    assert opened.wait()


def test_a_queue_that_was_deleted_by_hand_is_broken(opened: Opened) -> None:
    opened.remove()
    with pytest.raises(Broken, match="NonExistent"):
        opened.timers.after(2, BUCKET, 1_800_000_001_000)


def test_a_mapping_that_was_deleted_by_hand_is_broken(opened: Opened) -> None:
    timers = TimerQueue(
        opened.timers._timers,
        queue_url="https://sqs.example/timers",
        mapping="5e0b8c4a-0000-0000-0000-000000000000",
        region="us-east-1",
        endpoint_url=opened.timers._endpoint_url,
    )
    with pytest.raises(Broken, match="ResourceNotFoundException"):
        timers.listen(True)


def test_a_function_that_does_not_switch_the_mapping_never_says_that_the_queue_is_read(opened: Opened) -> None:
    timers = TimerQueue(opened.timers._timers, queue_url="https://sqs.example/timers")
    assert timers.listen(True) is False
