"""Sets precise timers on SQS. Each start of a wheel is a delayed message, which an event source mapping hands to the
function ``wheel``. The mapping is enabled only while timers are out, because an enabled one polls the queue all the
time, and each poll costs money.

body    {"bucket": …, "wakes_ms": …}
delay   the seconds until the start
"""

import json
from functools import cached_property
from typing import TYPE_CHECKING, cast

from hourwheel.adapters.aws.clients import make_client
from hourwheel.adapters.aws.errors import translating
from hourwheel.adapters.aws.functions import MappedStream, patient_config
from hourwheel.adapters.aws.scheduler import SchedulerTimers, started_with

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


class TimerQueue:
    """Implements ``PreciseTimers`` with the queue at this URL; ``relay`` uses the schedules of ``timers``. ``mapping``
    is the event source mapping that reads the queue; None in a function that does not switch it. The first timer makes
    the client, so several threads must not order their first timer at once."""

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
