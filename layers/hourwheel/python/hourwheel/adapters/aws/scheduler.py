"""Sets timers on EventBridge Scheduler: a one-time schedule for each bucket and time at which its wheel is to start.

A schedule starts the function ``wheel`` with {"bucket": …} and removes itself. If the time has already come, the
function is invoked at once, without a schedule. A schedule that relays starts it with {"bucket": …, "wakes_ms": …},
and the function then orders a precise timer.

name       {bucket, with . for /}-{time, s}, with an r behind it for one that relays
at         that second, UTC
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, cast

from botocore.exceptions import ClientError

from hourwheel.adapters.aws.clients import make_client
from hourwheel.adapters.aws.errors import error_code, translating
from hourwheel.adapters.aws.functions import AsyncFunction, patient_config
from hourwheel.ports.machine import Clock

if TYPE_CHECKING:
    from mypy_boto3_scheduler import EventBridgeSchedulerClient

SOON_MS = 5_000
"""A wheel that is due within this time is started at once: a schedule that is created too late might never fire."""

# Later retries would be in vain, because the sweeper has started the wheel by then.
_RETRY_SECONDS = 300
_RETRIES = 10


class SchedulerTimers:
    """Implements ``Timers``: starts the Lambda ``function``, up to ``SOON_MS`` early. The schedules belong to the
    schedule group ``group``, and start the function as ``role`` (an ARN). The first schedule makes the client, so
    several threads must not order their first timer at once."""

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
        # The SDK may repeat the call: a schedule of the name that exists is the same one, as the name has bucket and
        # time.
        client = make_client("scheduler", patient_config(), region=self._region, endpoint_url=self._endpoint_url)
        return cast("EventBridgeSchedulerClient", client)

    def at(self, when_ms: int, bucket: str) -> None:
        if when_ms > self._clock.now_ms() + SOON_MS:
            with translating():
                self._schedule(when_ms // 1_000, bucket, "", started_with(bucket))
        else:
            self.function.start(started_with(bucket))

    def relay(self, when_ms: int, bucket: str, wakes_ms: int) -> None:
        """Starts the function at that time, up to ``SOON_MS`` early, to order the start of the wheel at
        ``wakes_ms``."""
        if when_ms > self._clock.now_ms() + SOON_MS:
            with translating():
                self._schedule(when_ms // 1_000, bucket, "r", started_with(bucket, wakes_ms))
        else:
            self.function.start(started_with(bucket, wakes_ms))

    def _schedule(self, seconds: int, bucket: str, kind: str, event: Mapping[str, str | int]) -> None:
        try:
            self.scheduler.create_schedule(
                Name=f"{bucket.replace('/', '.')}-{seconds}{kind}",
                GroupName=self._group,
                ScheduleExpression=f"at({datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S})",
                ScheduleExpressionTimezone="UTC",
                FlexibleTimeWindow={"Mode": "OFF"},
                ActionAfterCompletion="DELETE",
                Target={
                    "Arn": self.function.arn,
                    "RoleArn": self._role,
                    "Input": json.dumps(event),
                    "RetryPolicy": {"MaximumEventAgeInSeconds": _RETRY_SECONDS, "MaximumRetryAttempts": _RETRIES},
                },
            )
        except ClientError as error:
            # The schedule exists: another process created it, or an earlier try whose answer was lost.
            if error_code(error) != "ConflictException":
                raise


def started_with(bucket: str, wakes_ms: int = 0) -> dict[str, str | int]:
    """Returns the event with which the function starts. ``wakes_ms`` is the time at which the wheel has to start; 0: at
    once."""
    return {"bucket": bucket, "wakes_ms": wakes_ms} if wakes_ms else {"bucket": bucket}
