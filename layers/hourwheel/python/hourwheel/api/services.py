"""What a Lambda function works with: a cell on DynamoDB and S3, from the environment."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
from aws_lambda_powertools import Logger
from pydantic import BaseModel, ConfigDict, Field

from hourwheel.adapters import dynamodb, s3
from hourwheel.adapters.metrics import PowertoolsMeter
from hourwheel.adapters.polling import PollingArrivals
from hourwheel.adapters.retrying import RetryingStore
from hourwheel.adapters.scheduler import SchedulerTimers
from hourwheel.adapters.system import SystemClock, SystemIds
from hourwheel.api.boundary import Boundary
from hourwheel.api.events import Event, Function, Invocation, Response
from hourwheel.cell import Cell
from hourwheel.context import Context, Settings

_PREFIX = "HOURWHEEL_"

_BATCH_BUCKETS = 100
"""Each takes up to five calls, one after the other, and API Gateway waits for 30 s."""


class Environment(BaseModel):
    """The variables of a function, each named ``HOURWHEEL_`` and the field in capitals."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    table_prefix: str = Field(min_length=3, max_length=200)
    bucket: str = Field(min_length=3, max_length=63)
    region: str | None = None
    endpoint_url: str | None = None
    wheel_function: str = Field(pattern=r"^arn:[^:]+:lambda:[^:]+:[^:]+:function:.+$")
    timer_group: str = Field(min_length=1, max_length=64)
    timer_role: str = Field(pattern=r"^arn:[^:]+:iam::[^:]*:role/.+$")
    inline_bytes: int = Settings().inline_bytes
    bucket_minutes: int = Settings().bucket_minutes
    shards: int = Settings().shards

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> "Environment":
        named = {
            name.removeprefix(_PREFIX).lower(): text for name, text in variables.items() if name.startswith(_PREFIX)
        }
        return cls.model_validate(named)

    @property
    def settings(self) -> Settings:
        """Raises ``ValueError`` where one is out of its limits."""
        given = {name: getattr(self, name) for name in ("inline_bytes", "bucket_minutes", "shards")}
        return msgspec.convert({**given, "batch_buckets": _BATCH_BUCKETS}, Settings)


@dataclass(frozen=True)
class Services:
    """One for each process of a function."""

    boundary: Boundary
    meter: PowertoolsMeter

    @classmethod
    def from_environment(cls) -> "Services":
        environment = Environment.read(os.environ)
        clock, ids = SystemClock(), SystemIds()
        store = dynamodb.DynamoStore(
            dynamodb.client(region=environment.region, endpoint_url=environment.endpoint_url),
            prefix=environment.table_prefix,
        )
        meter = PowertoolsMeter(namespace="Hourwheel", service="hourwheel")
        context = Context(
            store=RetryingStore(store, clock, ids),
            blobs=s3.S3Blobs(
                s3.client(region=environment.region, endpoint_url=environment.endpoint_url), environment.bucket
            ),
            clock=clock,
            ids=ids,
            arrivals=PollingArrivals(clock),
            meter=meter,
            timers=SchedulerTimers(
                clock,
                function=environment.wheel_function,
                role=environment.timer_role,
                group=environment.timer_group,
                region=environment.region,
                endpoint_url=environment.endpoint_url,
            ),
            settings=environment.settings,
        )
        return cls(Boundary(Cell(context), Logger(service="hourwheel")), meter)

    def http_handler(self, function: Function) -> Callable[[Event, Invocation], Response]:
        """A handler for requests: every error is an answer."""
        return self._handler(lambda event, context: self.boundary.answer(function, event, context))

    def task_handler(self, function: Function) -> Callable[[Event, Invocation], Response]:
        """A handler for what the clock starts: an error fails the invocation, so that it is seen and repeated."""
        return self._handler(lambda event, context: function(self.boundary.cell, event, context))

    def _handler(self, call: Callable[[Event, Invocation], Response]) -> Callable[[Event, Invocation], Response]:
        def handler(event: Event, context: Invocation) -> Response:
            try:
                return call(event, context)
            finally:
                self.meter.flush()

        return handler
