"""Runs the code of all Lambda functions, each execution with a process of its own, on the simulated services."""

import io
import json
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

import msgspec
from aws_lambda_powertools import Logger

from bench.cost.meter import S3_GET_SECONDS, S3_PUT_SECONDS, CountedBlobs
from bench.cost.meter import Meter as Billed
from bench.cost.prices import Usage
from hourwheel.adapters.polling import PollingWakeups
from hourwheel.adapters.retrying import RetryingStore
from hourwheel.api.ack import ack
from hourwheel.api.background.archive import archiving
from hourwheel.api.background.delayed import tending
from hourwheel.api.background.sweep import sweep
from hourwheel.api.background.wheel import turning
from hourwheel.api.boundary import Boundary
from hourwheel.api.events import Function as Code
from hourwheel.api.meta import meta
from hourwheel.api.produce import produce
from hourwheel.api.pull import pull
from hourwheel.api.router import Match, Router, make_event
from hourwheel.aws.services import BRIEF_SECONDS, THREADS, Environment
from hourwheel.context import Context
from hourwheel.deployment.deployment import Deployment
from hourwheel.ports.machine import MeterUnit
from hourwheel.sweep.subjects import SubjectSweep
from infra.settings import Settings as Deployed
from tests.load.lambdas import Handler, Invocation, Lambdas, TooManyRequests
from tests.load.limits import spread, value
from tests.load.machine import Machine
from tests.load.quotas import Quota
from tests.load.services import SimulatedScheduler, SimulatedTimerQueue, SimulatedWakeupQueues
from tests.load.store import MeteredBlobs, MeteredStore
from tests.load.throughput import Throughputs
from tests.simulation.world import SimulatedIds

_GATEWAY = spread("HTTP API, median", "HTTP API, p99")
_DEPLOYED = Deployed()
_SWEEP_SECONDS = 60.0
_HTTP = {"produce": produce, "pull": pull, "ack": ack, "meta": meta}


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What a run stands on. ``has_overheads``: gateway, starts and CPU take time; without them only the store, the
    timers and S3 do. ``warm_units``: what each table serves from the beginning. ``warm_processes``: those of each
    function that were started before. ``requests``: those that the API lets
    through in a second, and at once. ``creations``: the schedules that may be made in a second. ``settings``: settings
    of the queue that differ from those of a deployment."""

    seed: int = 1
    has_overheads: bool = True
    warm_units: float = 0.0
    warm_processes: int = 0
    burst_seconds: float = 1.0
    requests: float = float(_DEPLOYED.throttle_rate)
    concurrency: int = int(value("executions"))
    creations: float = value("schedules, large regions")
    sweeps: bool = True
    settings: dict[str, Any] = field(default_factory=dict)


DEFAULTS = Conditions()


class Metrics:
    """Adds up what the library reports to its operators."""

    def __init__(self) -> None:
        self.sums: Usage = Counter()

    def record(self, name: str, value: float, *, unit: MeterUnit = "Count") -> None:
        self.sums.update({name: value})


def _environment() -> Environment:
    account = "us-east-1:123456789012"
    return Environment.read(
        {
            "HOURWHEEL_TABLE_PREFIX": "load",
            "HOURWHEEL_BUCKET": "load-batches",
            "HOURWHEEL_WHEEL_FUNCTION": f"arn:aws:lambda:{account}:function:load-wheel",
            "HOURWHEEL_TIMER_GROUP": "load",
            "HOURWHEEL_TIMER_ROLE": "arn:aws:iam::123456789012:role/timers",
            "HOURWHEEL_SWEEP_SHARES": str(_DEPLOYED.sweep_shares),
        }
    )


def _flush() -> None:
    """Sends no metrics."""


class SimulatedDeployment:
    """A deployment with its services, and the API in front of it."""

    def __init__(self, conditions: Conditions) -> None:
        self.conditions = conditions
        self.machine = machine = Machine(conditions.seed)
        self.ids = SimulatedIds(machine.rng)
        self.usage: Usage = Counter()
        self.metrics = Metrics()
        self.throughputs = Throughputs(
            lambda: machine.now, machine.rng.random, conditions.warm_units, conditions.burst_seconds
        )
        self.store = MeteredStore(machine, self.throughputs, self.usage)
        self.lambdas = Lambdas(
            machine,
            self.usage,
            conditions.concurrency,
            conditions.warm_processes,
            has_overheads=conditions.has_overheads,
        )
        self.scheduler = SimulatedScheduler(machine, self.lambdas, self.usage, conditions.creations)
        self.timer_queue = SimulatedTimerQueue(self.scheduler, self.lambdas)
        self.queues = SimulatedWakeupQueues(machine, self.usage)
        self.blobs = MeteredBlobs(machine, self.usage, S3_PUT_SECONDS * 1_000, S3_GET_SECONDS * 1_000)
        self._settings = msgspec.structs.replace(_environment().settings, **conditions.settings)
        self._router = Router()
        self.api = Quota("requests of the API", machine, conditions.requests, conditions.requests)
        self.log = io.StringIO()
        self.tended: dict[str, list[float]] = {}
        """The times at which sweeps tended each subject."""
        logging.getLogger("hourwheel").setLevel(logging.CRITICAL)
        self._add_functions()
        if conditions.sweeps:
            machine.at(machine.now + _SWEEP_SECONDS * 1_000, self._sweep)

    def _add_functions(self) -> None:
        for name, code in _HTTP.items():
            self.lambdas.add(name, partial(self._handler, code, http=True))
        self.lambdas.add("delayed", lambda: self._handler(tending(partial(self.lambdas.start, "sweep"))))
        self.lambdas.add("sweep", lambda: self._handler(sweep))
        self.lambdas.add("wheel", lambda: self._handler(turning(_flush)))
        lake = CountedBlobs(Billed())
        self.lambdas.add("archive", lambda: self._handler(archiving(lake, _flush)))

    def process(self) -> Deployment:
        """Returns the library as a new process has it."""
        machine = self.machine
        return Deployment(
            Context(
                store=RetryingStore(self.store, machine, self.ids, meter=self.metrics),
                brief_store=RetryingStore(
                    self.store, machine, self.ids, meter=self.metrics, budget_seconds=BRIEF_SECONDS
                ),
                threads=THREADS,
                blobs=self.blobs,
                clock=machine,
                ids=self.ids,
                wakeups=PollingWakeups(machine),
                meter=self.metrics,
                timers=self.scheduler,
                wakeup_queues=self.queues,
                precise_timers=self.timer_queue,
                settings=self._settings,
            )
        )

    def _handler(self, code: Code, *, http: bool = False) -> Handler:
        boundary = Boundary(self.process(), Logger(service="hourwheel", stream=self.log))

        def handler(event: Any, invocation: Invocation) -> Any:
            call: Callable[..., Any] = boundary.answer if http else boundary.run
            return call(code, event, invocation)

        return handler

    def _sweep(self) -> None:
        self.lambdas.start("delayed", {})
        self.machine.at(self.machine.now + _SWEEP_SECONDS * 1_000, self._sweep)

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Sends a request through the API, in this task. Returns the status and the decoded answer."""
        data = b"" if body is None else msgspec.json.encode(body)
        self.usage["http-request"] += 1
        if not self.api.takes():
            return 429, None
        if self.conditions.has_overheads:
            self.machine.wait(self.machine.rng.lognormvariate(*_GATEWAY))
        match = self._router.find(method, path)
        assert isinstance(match, Match), path
        event = make_event(match, path=path, query="", headers=(), body=data, request_id="r-1", source="127.0.0.1")
        try:
            answer = self.lambdas.invoke(match.route.function, event)
        except TooManyRequests:
            return 503, None
        return answer["statusCode"], json.loads(answer["body"] or "null")

    @property
    def quotas(self) -> list[Quota]:
        return [self.api, self.scheduler.creations, *self.lambdas.quotas]

    def run(self, seconds: float) -> None:
        with patch.object(SubjectSweep, "prepare", self._prepare):
            self.machine.run(seconds)

    @property
    def _prepare(self) -> Callable[[SubjectSweep], None]:
        real = SubjectSweep.prepare

        def prepare(sweep: SubjectSweep) -> None:
            self.tended.setdefault(sweep.entry.name, []).append(self.machine.now)
            real(sweep)

        return prepare
