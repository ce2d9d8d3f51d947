"""Runs the code of the Lambda functions, each in a process of its own, and counts the billed usage of each call."""

import io
import json
from collections import Counter
from contextlib import redirect_stdout
from math import ceil
from typing import Any, Literal, TypeAlias

import msgspec
from aws_lambda_powertools import Logger

from bench.cost.clock import ModelClock
from bench.cost.meter import (
    MONTH_DAYS,
    TIMER_SECONDS,
    CountedBlobs,
    CountedPreciseTimers,
    CountedQueues,
    CountedTimers,
    Meter,
    metered_client,
)
from bench.cost.prices import Usage
from hourwheel.adapters.aws import dynamodb
from hourwheel.adapters.metrics import EmfMeter
from hourwheel.adapters.polling import PollingWakeups
from hourwheel.adapters.retrying import RetryingStore
from hourwheel.api.ack import ack
from hourwheel.api.background.archive import archiving
from hourwheel.api.background.delayed import tending
from hourwheel.api.background.sweep import sweep
from hourwheel.api.background.wheel import turning
from hourwheel.api.boundary import Boundary
from hourwheel.api.events import Event
from hourwheel.api.meta import meta
from hourwheel.api.produce import produce
from hourwheel.api.pull import pull
from hourwheel.api.router import Match, Router, make_event
from hourwheel.aws.services import Environment, Services
from hourwheel.context import Context, Settings
from hourwheel.deployment.deployment import Deployment
from hourwheel.system import SystemIds
from infra.settings import Settings as Deployed

_DEPLOYED = Deployed()
MEMORY_MB = {
    "sweep": _DEPLOYED.memory_sweep,
    "delayed": _DEPLOYED.memory_sweep,
    "wheel": _DEPLOYED.memory_wheel,
    "push": _DEPLOYED.memory_push,
    "archive": _DEPLOYED.memory_archive,
}
HTTP_MEMORY_MB = _DEPLOYED.memory_api
"""The memory of the functions as they are deployed, unless a case sets another size."""
TIMEOUT_SECONDS = {
    "produce": 29,
    "pull": 29,
    "ack": 29,
    "meta": 29,
    "delayed": 120,
    "sweep": 300,
    "wheel": 900,
    "archive": 900,
}

INIT_SECONDS = 0.6
"""The start of a new process, which is billed like a call."""

INIT_SHARE = {"wheel": 1.0, "archive": 1.0}
"""The share of a function's calls that start a process. One in a hundred for the other functions, more than AWS states
as usual."""

ACCESS_LOG_BYTES = 400  # a line of the API's access log
EVENT_LOG_BYTES = 26
"""The bytes that are billed for each log line in addition to its text."""

_HTTP_UNIT = 512 * 1024  # the HTTP API bills a request for each such part of it

Front: TypeAlias = Literal["api", "url"]
"""How requests reach the functions: through the HTTP API, or through a URL of each function."""


def invocation(function: str, seconds: float, memory_mb: int) -> Usage:
    """Returns the billed usage of an invocation of this length. Lambda's own log lines for it are switched off."""
    billed = seconds + INIT_SECONDS * INIT_SHARE.get(function, 0.01)
    return Counter({"lambda-request": 1, "lambda-gb-second": billed * memory_mb / 1_024})


def logged(size: int, lines: int) -> Usage:
    return Counter({"log-gb": (size + EVENT_LOG_BYTES * lines) / 1e9})


def _environment(prefix: str) -> Environment:
    """Returns the environment of the functions in a deployment."""
    account = "us-east-1:123456789012"
    return Environment.read(
        {
            "HOURWHEEL_TABLE_PREFIX": prefix,
            "HOURWHEEL_BUCKET": f"{prefix}-batches",
            "HOURWHEEL_WHEEL_FUNCTION": f"arn:aws:lambda:{account}:function:{prefix}-wheel",
            "HOURWHEEL_TIMER_GROUP": prefix,
            "HOURWHEEL_TIMER_ROLE": "arn:aws:iam::123456789012:role/timers",
        }
    )


class Invocation:
    def __init__(self, clock: ModelClock, seconds: int) -> None:
        self._clock = clock
        self._ends_ms = clock.now_ms() + seconds * 1_000

    def get_remaining_time_in_millis(self) -> int:
        return self._ends_ms - self._clock.now_ms()


class CountedDeployment:
    """All functions on tables of their own, whose names begin with ``prefix``."""

    def __init__(
        self,
        endpoint: str,
        prefix: str,
        settings: Settings | None = None,
        *,
        http_memory_mb: int = HTTP_MEMORY_MB,
        archive: bool = False,
        front: Front = "api",
        precise: bool = False,
    ) -> None:
        self._front = front
        self.meter = Meter()
        self.clock = self.meter.clock
        self.timers = CountedTimers(self.meter)
        self.queues = CountedQueues(self.meter)
        self.precise = CountedPreciseTimers(self.meter) if precise else None
        self.seconds: dict[str, list[float]] = {}
        """The billed seconds of each call, by function."""
        self.printed: list[str] = []
        """The output of the functions: metrics."""
        self._client = metered_client(endpoint, self.meter)
        self.store = dynamodb.DynamoStore(self._client, prefix=prefix)
        self._blobs = CountedBlobs(self.meter)
        self._environment = _environment(prefix)
        self._settings = msgspec.structs.replace(settings or self._environment.settings, archive=archive)
        self._http_memory_mb = http_memory_mb
        self._prefix = prefix
        self._left = ""
        self._router = Router()
        dynamodb.create_tables(self._client, prefix)
        http = {"produce": produce, "pull": pull, "ack": ack, "meta": meta}
        self._handlers = {name: self._services().http_handler(function, name) for name, function in http.items()}
        self._handlers["sweep"] = self._services().task_handler(sweep)
        self._handlers["delayed"] = self._services().task_handler(tending(self._order_sweep))
        turner = self._services()
        self._handlers["wheel"] = turner.task_handler(turning(turner.meter.flush))
        archiver, lake = self._services(), CountedBlobs(self.meter, kept_days=MONTH_DAYS)
        self._handlers["archive"] = archiver.task_handler(archiving(lake, archiver.meter.flush))

    def close(self) -> None:
        self._client.close()

    def items(self, table: str) -> list[Any]:
        """Returns all items of a table, without counting the reads."""
        return list(self._client.scan(TableName=f"{self._prefix}-{table}")["Items"])

    def _services(self) -> Services:
        ids = SystemIds()
        metrics = EmfMeter(namespace="Hourwheel", service="hourwheel", clock=self.clock)
        context = Context(
            store=RetryingStore(self.store, self.clock, ids),
            blobs=self._blobs,
            clock=self.clock,
            ids=ids,
            wakeups=PollingWakeups(self.clock),
            meter=metrics,
            timers=self.timers,
            wakeup_queues=self.queues,
            precise_timers=self.precise,
            settings=self._settings,
        )
        return Services(Boundary(Deployment(context), Logger(service="hourwheel")), metrics, self._environment)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Sends a request, which must succeed, and returns the answer."""
        match = self._router.find(method, path)
        assert isinstance(match, Match), path
        data = b"" if body is None else json.dumps(body).encode()
        event = make_event(match, path=path, query="", headers=(), body=data, request_id="r-1", source="127.0.0.1")
        response = self.invoke(match.route.function, event)
        assert response["statusCode"] == 200, response
        answer = response["body"]
        if self._front == "api":  # a function URL has no price of its own, and no access log
            self.meter.usage["http-request"] += ceil(max(1, len(data), len(answer)) / _HTTP_UNIT)
            self._log(ACCESS_LOG_BYTES, 1)
        return json.loads(answer)

    def invoke(self, function: str, event: dict[str, Any], *, waited_seconds: float = 0.0) -> Any:
        """Invokes a function and returns its result. ``waited_seconds``: the time for which the invocation had waited
        before, which is billed as well."""
        memory_mb = MEMORY_MB.get(function, self._http_memory_mb)
        began_ms = self.clock.elapsed_ms()
        printed = io.StringIO()
        with redirect_stdout(printed), self.clock.running(memory_mb):
            answer = self._handlers[function](event, Invocation(self.clock, TIMEOUT_SECONDS[function]))
        seconds = ceil(self.clock.elapsed_ms() - began_ms) / 1_000 + waited_seconds
        self.seconds.setdefault(function, []).append(seconds)
        self.meter.usage.update(invocation(function, seconds, memory_mb))
        lines = printed.getvalue().splitlines()
        self.printed += lines
        self._log(len(printed.getvalue().encode()), len(lines))
        return answer

    def tend(self) -> None:
        """Invokes what runs each minute: the function ``delayed``, and the sweep that it starts."""
        self.invoke("delayed", {})
        self.invoke("sweep", {})

    def _order_sweep(self, event: Event) -> None:
        self.clock.wait(TIMER_SECONDS)

    def _log(self, size: int, lines: int) -> None:
        self.meter.usage.update(logged(size, lines))

    def turn_wheels(self) -> list[str]:
        """Runs the ordered wheels one after the other until none is left. Returns their results."""
        ended = []
        while self.timers.ordered:
            ended.append(self.turn_wheel())
        return ended

    def turn_wheel(self) -> str:
        """Moves the clock to the earliest ordered wheel, runs the wheel, and returns how it ended. A wheel that its
        predecessor called is billed from the call on."""
        when_ms, bucket = order = min(self.timers.ordered)
        self.timers.ordered.remove(order)
        waited_ms = self.clock.now_ms() - when_ms if bucket == self._left else 0
        self.clock.go_to(when_ms)
        answer = self.invoke("wheel", {"bucket": bucket}, waited_seconds=max(0, waited_ms) / 1_000)
        self._left = bucket if answer["ended"] == "left" else ""
        return str(answer["ended"])
