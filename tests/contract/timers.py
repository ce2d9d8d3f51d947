"""Opens each adapter of ``Timers`` for the tests, with wheels that only write down when they were started."""

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple, cast

import boto3
import pytest
from aws_lambda_powertools import Logger

from hourwheel.adapters.functions import AsyncFunction
from hourwheel.adapters.scheduler import SchedulerTimers
from hourwheel.api.boundary import Boundary
from hourwheel.cell import Cell
from hourwheel.delay.wheel import WheelEnd
from hourwheel.embedded.wheels import Wheels
from hourwheel.ports import Timers
from hourwheel.system import SystemClock

ROLE = "arn:aws:iam::000000000000:role/timers"
GROUP = "hw-timers"
LOOK_AGAIN_SECONDS = 0.02
_names = count()

# The time a Lambda was started at, by its own clock.
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
    """``starts`` are those until now. ``ahead_ms``: a time that is not yet now, and worth waiting for; ``early_ms``: so
    much earlier than asked for a wheel may be started."""

    timers: Timers
    starts: Callable[[], list[Start]]
    ahead_ms: int
    early_ms: int

    def started(self, *buckets: str, seconds: float) -> list[Start]:
        """The starts, once each of the buckets was started; fails when that takes longer."""
        deadline = monotonic() + seconds
        while True:
            found = self.starts()
            if set(buckets) <= {start.bucket for start in found}:
                return found
            assert monotonic() < deadline, f"of {buckets} only these were started: {found}"
            sleep(LOOK_AGAIN_SECONDS)


class _Recorder:
    """Stands for the cell whose wheels are turned: they end at once."""

    def __init__(self) -> None:
        self.starts: list[Start] = []

    def turn_wheel(self, bucket: str, *_: Any) -> WheelEnd:
        self.starts.append(Start(SystemClock().now_ms(), bucket))
        return WheelEnd.CLOSED


@contextmanager
def embedded_wheels(request: pytest.FixtureRequest) -> Iterator[Opened]:
    wheels = Wheels(SystemClock(), at_once=2)
    recorder = _Recorder()
    cell = cast(Cell, recorder)
    wheels.start(cell, "tests", Boundary(cell, Logger(service="timers")))
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
    """The ARN of a Lambda that writes to the file when it is started."""
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
        with suppress(timers.scheduler.exceptions.ConflictException):  # that of the test before
            timers.scheduler.create_schedule_group(Name=GROUP)
    yield timers
    timers.scheduler.close()
    timers.function.client.close()


TIMERS = {"embedded wheels": embedded_wheels, "scheduler on ministack": scheduler_on_ministack}
