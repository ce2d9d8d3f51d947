"""A run of the daily jobs that several modules look at: it takes Spark twenty seconds of CPU."""

import io
import json
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest

from hourwheel.system import SystemClock
from hourwheel_pipeline.__main__ import main
from hourwheel_pipeline.jobs.job_names import Job
from hourwheel_pipeline.outcomes import metrics_upload
from tests.contract.wire import answer
from tests.pipeline.test_lake_s3 import ENVIRONMENT, REGION
from tests.pipeline.worlds import World


class CloudWatch:
    """Takes the requests that the SDK would send to CloudWatch Logs, and reads metrics from them. Raises ``failure`` in
    place of sending."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in ENVIRONMENT.items():
            monkeypatch.setenv(name, value)
        self.services: set[str] = set()
        self.written: list[Any] = []
        self.requests = 0
        self.failure: Exception | None = None
        make = metrics_upload.make_client

        def made(service: str, config: Any, **place: Any) -> Any:
            self.services.add(service)
            client = make(service, config, region=REGION, endpoint_url=None)
            client.meta.events.register(f"before-send.{service}", self._sent)
            return client

        monkeypatch.setattr(metrics_upload, "make_client", made)

    def _sent(self, request: AWSPreparedRequest, **_: Any) -> Any:
        self.requests += 1
        if self.failure is not None:
            raise self.failure
        if request.headers["X-Amz-Target"].endswith(b".PutLogEvents"):
            self.written.append(json.loads(request.body))
        return answer(request, 200, b"{}")

    @property
    def figures(self) -> dict[str, int]:
        """Returns the metrics, read by CloudWatch's rules for embedded metrics."""
        found = {}
        assert self.services <= {"logs"}, "a job without a VPC reaches nothing else"
        for asked in self.written:
            assert asked["logGroupName"] == "/hourwheel/flights/jobs"
            for line in (json.loads(event["message"]) for event in asked["logEvents"]):
                (directive,) = line["_aws"]["CloudWatchMetrics"]
                assert (directive["Namespace"], directive["Dimensions"]) == ("Hourwheel", [["service"]])
                assert line["service"] == "flights"
                found |= {metric["Name"]: line[metric["Name"]] for metric in directive["Metrics"]}
        return found


@dataclass(frozen=True)
class Day:
    """A world below a folder ``orders-data``, and what its daily jobs did at ``now_ms``: the status of the program, the
    lines that it printed, the metrics that it sent, and the report of each job by its options as text."""

    world: World
    now_ms: int
    status: int
    printed: list[str]
    figures: dict[str, int]
    reports: dict[str, Any]


def arguments_of(world: World) -> list[str]:
    """Returns the arguments of the program that runs a job over this world."""
    places = {"archive": world.archive, "lake": world.lake, "output": str(world.root / "report"), "cell": "flights"}
    return [word for name, place in places.items() for word in (f"--{name}", place)]


def run_of(folder: Path, bodies: Sequence[str]) -> Day:
    """Sends these messages to ``orders``, lets a group settle them and a day pass, and runs the daily jobs once."""
    world = World(folder / "orders-data")
    world.bench.send(*bodies)
    world.acknowledge("orders", "billing")
    world.rest()
    now_ms = world.now_ms
    reports: dict[str, Any] = {}
    run = Job.run

    def recorded(job: Job, spark: Any, options: Any, now_ms: int) -> Any:
        reports[repr(options)] = run(job, spark, options, now_ms)
        return reports[repr(options)]

    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.setattr(SystemClock, "now_ms", lambda _: now_ms)
        patch.setattr(Job, "run", recorded)
        cloudwatch = CloudWatch(patch)
        status = main(["daily", *arguments_of(world)])
    return Day(world, now_ms, status, printed.getvalue().splitlines(), cloudwatch.figures, reports)
