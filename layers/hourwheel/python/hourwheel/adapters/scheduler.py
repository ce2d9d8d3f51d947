"""Sets timers on EventBridge Scheduler: a one-time schedule for each bucket and time at which its wheel is to start.

A schedule starts the function ``wheel`` with {"bucket": …} and removes itself. If the time has already come, the
function is invoked at once, without a schedule.

name       {bucket, with . for /}-{time, s}
at         that second, UTC
"""

import json
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, cast

from botocore.exceptions import ClientError

from hourwheel.adapters.aws import make_client
from hourwheel.adapters.aws_errors import error_code, translating
from hourwheel.adapters.functions import AsyncFunction, patient_config
from hourwheel.ports import Clock

if TYPE_CHECKING:
    from mypy_boto3_scheduler import EventBridgeSchedulerClient

SOON_MS = 5_000
"""A wheel that is due within this time is started at once: a schedule that is made too late might never fire."""

# After this time the sweeper has started the wheel.
_RETRY_SECONDS = 300
_RETRIES = 10


class SchedulerTimers:
    """``Timers`` that start the Lambda ``function``, up to ``SOON_MS`` early. Schedules belong to the schedule group
    ``group`` and start the function as ``role`` (an ARN). The first schedule makes the client; several threads must not
    order their first timer at once."""

    def __init__(
        self,
        clock: Clock,
        *,
        function: AsyncFunction,
        role: str,
        group: str,
        region: str | None = None,
        endpoint_url: str | None = None,
    ) -> None:
        self._clock = clock
        self.function = function
        self._role = role
        self._group = group
        self._region = region
        self._endpoint_url = endpoint_url

    @cached_property
    def scheduler(self) -> "EventBridgeSchedulerClient":
        # The SDK may repeat the call: a schedule that exists already has the name, so also the bucket and the time.
        client = make_client("scheduler", patient_config(), region=self._region, endpoint_url=self._endpoint_url)
        return cast("EventBridgeSchedulerClient", client)

    def at(self, when_ms: int, bucket: str) -> None:
        if when_ms > self._clock.now_ms() + SOON_MS:
            with translating():
                self._schedule(when_ms // 1_000, bucket)
        else:
            self.function.start(_event(bucket))

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
                    "Arn": self.function.arn,
                    "RoleArn": self._role,
                    "Input": json.dumps(_event(bucket)),
                    "RetryPolicy": {"MaximumEventAgeInSeconds": _RETRY_SECONDS, "MaximumRetryAttempts": _RETRIES},
                },
            )
        except ClientError as error:
            # The schedule exists: another process ordered it, or an earlier try did and its answer was lost.
            if error_code(error) != "ConflictException":
                raise


def _event(bucket: str) -> dict[str, str]:
    return {"bucket": bucket}
