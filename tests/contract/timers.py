"""Opens each adapter of ``Timers`` for the tests, with wheels that only record the times of their starts."""

import io
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple, cast

import boto3
import pytest
from aws_lambda_powertools import Logger

from hourwheel.adapters.aws.functions import AsyncFunction
from hourwheel.adapters.aws.scheduler import SchedulerTimers
from hourwheel.api.boundary import Boundary
from hourwheel.delay.wheel import WheelEnd
from hourwheel.deployment.deployment import Deployment
from hourwheel.embedded.workers.wheels import Wheels
from hourwheel.ports.timers import Timers
from hourwheel.system import SystemClock

ROLE = "arn:aws:iam::000000000000:role/timers"
GROUP = "hw-timers"
LOOK_AGAIN_SECONDS = 0.02
_names = count()

# The start of a Lambda function by its own clock.
_HANDLER = """
import json, time
def handler(event, context):
    with open({path!r}, "a") as file:
        file.write(json.dumps([time.time_ns() // 1_000_000, event]) + "\\n")
"""


class Start(NamedTuple):
    at_ms: int
    bucket: str


class Opened(NamedTuple):
    """An opened adapter. ``starts``: the starts so far. ``ahead_ms``: a time ahead for which the test can wait;
    ``early_ms``: the time by which a wheel may start before its order."""

    timers: Timers
    starts: Callable[[], list[Start]]
    ahead_ms: int
    early_ms: int

    def started(self, *buckets: str, seconds: float) -> list[Start]:
        """Waits until a wheel of each bucket was started, as often as it is named, and returns the starts. Fails after
        the time-out."""
        deadline = monotonic() + seconds
        while True:
            found = self.starts()
            if Counter(buckets) <= Counter(start.bucket for start in found):
                return found
            assert monotonic() < deadline, f"of {buckets} only these were started: {found}"
            sleep(LOOK_AGAIN_SECONDS)


class _Recorder:
    """Replaces the cell: its wheels end at once."""

    def __init__(self) -> None:
        self.starts: list[Start] = []

    def turn_wheel(self, bucket: str, *_: Any) -> WheelEnd:
        self.starts.append(Start(SystemClock().now_ms(), bucket))
        return WheelEnd.CLOSED


@contextmanager
def embedded_wheels(request: pytest.FixtureRequest) -> Iterator[Opened]:
    wheels = Wheels(SystemClock(), at_once=2)
    recorder = _Recorder()
    deployment = cast(Deployment, recorder)
    wheels.start(deployment, "tests", Boundary(deployment, Logger(service="timers")))
    yield Opened(wheels, lambda: list(recorder.starts), ahead_ms=300, early_ms=0)
    wheels.stop()


@contextmanager
def scheduler_on_ministack(request: pytest.FixtureRequest) -> Iterator[Opened]:
    endpoint = request.getfixturevalue("ministack_endpoint")
    path: Path = request.getfixturevalue("tmp_path") / "starts"

    def starts() -> list[Start]:
        lines = path.read_text().splitlines() if path.exists() else []
        return [Start(at_ms, event["bucket"]) for at_ms, event in map(json.loads, lines)]

    with on_ministack(endpoint, function=make_function(endpoint, path)) as timers:
        # Times are cut to the second.
        yield Opened(timers, starts, ahead_ms=6_500, early_ms=1_000)


def make_function(endpoint: str, path: Path) -> str:
    """Creates a Lambda function that writes to the file when it is started, and returns its ARN."""
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("index.py", _HANDLER.format(path=str(path)))
    functions = boto3.client("lambda", region_name="us-east-1", endpoint_url=endpoint)
    made = functions.create_function(
        FunctionName=f"wheel-{next(_names)}",
        Runtime="python3.11",
        Handler="index.handler",
        Role=ROLE,
        Code={"ZipFile": package.getvalue()},
    )
    functions.close()
    return made["FunctionArn"]


@contextmanager
def on_ministack(endpoint: str, *, function: str, group: str = GROUP) -> Iterator[SchedulerTimers]:
    wheel = AsyncFunction(function, region="us-east-1", endpoint_url=endpoint)
    timers = SchedulerTimers(
        SystemClock(), function=wheel, role=ROLE, group=group, region="us-east-1", endpoint_url=endpoint
    )
    if group == GROUP:
        with suppress(timers.scheduler.exceptions.ConflictException):  # the function of the test before
            timers.scheduler.create_schedule_group(Name=GROUP)
    yield timers
    timers.scheduler.close()
    timers.function.client.close()


TIMERS = {"embedded wheels": embedded_wheels, "scheduler on ministack": scheduler_on_ministack}
