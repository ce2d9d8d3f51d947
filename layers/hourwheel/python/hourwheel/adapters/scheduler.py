"""Timers on EventBridge Scheduler: one one-time schedule for each time at which a wheel is wanted.

A schedule starts the function ``wheel`` with {"bucket": …} and removes itself. Where the time has come already the
function is invoked at once, without a schedule.

name       {bucket, with . for /}-{time, s}
at         that second, UTC
"""

import json
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from hourwheel.adapters.awserrors import error_code, translating
from hourwheel.ports import Clock

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_scheduler import EventBridgeSchedulerClient

CONNECT_SECONDS = 1.0
READ_SECONDS = 5.0
ATTEMPTS = 3

SOON_MS = 5_000
"""What is wanted within this time is started at once: a schedule that is made too late might never fire."""

# By then the sweeper has started the wheel.
_RETRY_SECONDS = 300
_RETRIES = 10


class SchedulerTimers:
    """``Timers`` that start the Lambda ``function`` (its ARN), up to ``SOON_MS`` early. Schedules are made in ``group``
    and start it as ``role`` (an ARN). Clients are made when the first timer is ordered: most processes order none. Not
    for threads that order their first timers at once."""

    def __init__(
        self,
        clock: Clock,
        *,
        function: str,
        role: str,
        group: str,
        region: str | None = None,
        endpoint_url: str | None = None,
    ) -> None:
        self._clock = clock
        self._function = function
        self._role = role
        self._group = group
        self._region = region
        self._endpoint_url = endpoint_url

    @cached_property
    def scheduler(self) -> "EventBridgeSchedulerClient":
        return boto3.client(
            "scheduler", region_name=self._region, endpoint_url=self._endpoint_url, config=_patient_config()
        )

    @cached_property
    def functions(self) -> "LambdaClient":
        return boto3.client(
            "lambda", region_name=self._region, endpoint_url=self._endpoint_url, config=_patient_config()
        )

    def at(self, when_ms: int, bucket: str) -> None:
        with translating():
            if when_ms > self._clock.now_ms() + SOON_MS:
                self._schedule(when_ms // 1_000, bucket)
            else:
                self._start(bucket)

    def _start(self, bucket: str) -> None:
        answer = self.functions.invoke(FunctionName=self._function, InvocationType="Event", Payload=_event(bucket))
        # Empty; until it is read its connection is not free for the next call.
        answer["Payload"].read()

    def _schedule(self, seconds: int, bucket: str) -> None:
        try:
            self.scheduler.create_schedule(
                Name=f"{bucket.replace('/', '.')}-{seconds}",
                GroupName=self._group,
                ScheduleExpression=f"at({datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S})",
                ScheduleExpressionTimezone="UTC",
                FlexibleTimeWindow={"Mode": "OFF"},
                ActionAfterCompletion="DELETE",
                Target={
                    "Arn": self._function,
                    "RoleArn": self._role,
                    "Input": _event(bucket),
                    "RetryPolicy": {"MaximumEventAgeInSeconds": _RETRY_SECONDS, "MaximumRetryAttempts": _RETRIES},
                },
            )
        except ClientError as error:
            # It is there already: somebody else ordered the same, or our own earlier try whose answer was lost.
            if error_code(error) != "ConflictException":
                raise


def _event(bucket: str) -> str:
    return json.dumps({"bucket": bucket})


def _patient_config() -> Config:
    """The SDK may repeat: a schedule that is there already is what was wanted, and so is a second start of a wheel."""
    return Config(
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
    )
