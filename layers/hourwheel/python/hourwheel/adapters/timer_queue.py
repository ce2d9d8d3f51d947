"""Sets precise timers on SQS: a delayed message for each start of a wheel, which an event source mapping hands to the
function ``wheel``. The mapping is enabled only while timers are out, as Lambda asks the queue all the time.

body    {"bucket": …, "wakes_ms": …}
delay   the seconds until the start
"""

import json
from functools import cached_property
from typing import TYPE_CHECKING, cast

from hourwheel.adapters.aws import make_client
from hourwheel.adapters.aws_errors import translating
from hourwheel.adapters.functions import MappedStream, patient_config
from hourwheel.adapters.scheduler import SchedulerTimers, started_with

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


class TimerQueue:
    """``PreciseTimers`` on the queue with this URL, and on the schedules of ``timers`` beyond its reach. ``mapping`` is
    the event source mapping that reads the queue; None where another function switches it. The first timer makes the
    client; several threads must not order their first timer at once."""

    def __init__(
        self,
        timers: SchedulerTimers,
        *,
        queue_url: str,
        mapping: str | None = None,
        region: str | None = None,
        endpoint_url: str | None = None,
    ) -> None:
        self._timers = timers
        self._queue_url = queue_url
        self._mapping = mapping
        self._source = MappedStream((), region=region, endpoint_url=endpoint_url)
        self._region = region
        self._endpoint_url = endpoint_url

    @cached_property
    def client(self) -> "SQSClient":
        # The SDK may repeat the call: a wheel that is started twice turns once.
        client = make_client("sqs", patient_config(), region=self._region, endpoint_url=self._endpoint_url)
        return cast("SQSClient", client)

    def after(self, seconds: int, bucket: str, wakes_ms: int) -> None:
        body = json.dumps(started_with(bucket, wakes_ms))
        with translating():
            self.client.send_message(QueueUrl=self._queue_url, MessageBody=body, DelaySeconds=seconds)

    def relay(self, when_ms: int, bucket: str, wakes_ms: int) -> None:
        self._timers.relay(when_ms, bucket, wakes_ms)

    def listen(self, on: bool) -> bool:
        return self._mapping is not None and self._source.switch(self._mapping, on)
