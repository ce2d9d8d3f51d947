"""Keeps wake-up queues in SQS, and sends wake-ups to them.

MessageRetentionPeriod 60 s     the shortest that SQS allows: nobody waits for an older wake-up
VisibilityTimeout      120 s    longer than that, so a received wake-up never comes back and need not be deleted
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, cast

from botocore.config import Config
from botocore.exceptions import ClientError

from hourwheel.adapters.aws.clients import make_client
from hourwheel.adapters.aws.errors import error_code, translating
from hourwheel.model.pulls import WakeupQueue
from hourwheel.ports.machine import Clock

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.literals import QueueAttributeNameType

_RETENTION_SECONDS = "60"
_VISIBILITY_SECONDS = "120"

_KEY_SECONDS = "86400"
"""SQS uses a data key for a day, the longest that it allows: with its default of five minutes, a queue that is busy all
month would cost $0.34 for requests to KMS."""

_OPENED_MS = 3_600_000
"""A process that has opened a queue does not call SQS for it again in this time. If the queue is deleted, its consumers
report that."""

_MOST_OPENED = 10_000  # else the queues of deleted groups would fill the memory of the process

_CONNECT_SECONDS, _READ_SECONDS = 0.3, 0.5
"""SQS usually answers within 20 ms. A sender whose message is stored waits for the call, and a wake-up is only a hint,
so these are short, and no call has a second try."""

THREADS = 16
"""The most calls under way at once: so 100 groups are woken in 7 rounds. Each thread has a connection."""

T = TypeVar("T")

_MISSING = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"})
_OTHERWISE = frozenset({"QueueAlreadyExists", "QueueNameExists"})


def impatient_config() -> Config:
    """Returns the configuration for calls that must not hold up a request: short time-outs, and a single try."""
    return Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        max_pool_connections=THREADS,
        retries={"total_max_attempts": 1, "mode": "standard"},
    )


class SqsWakeupQueues:
    """Implements ``WakeupQueues`` with queues of SQS whose names begin with ``prefix``. The first call makes the
    client, because most processes send no wake-up; so several threads must not make their first call at once."""

    def __init__(
        self,
        clock: Clock,
        prefix: str,
        account: str,
        *,
        key: str | None = None,
        region: str | None = None,
        endpoint_url: str | None = None,
        config: Config | None = None,
    ) -> None:
        """``key`` is the ARN of the KMS key under which new queues keep wake-ups; without it SQS uses its own.
        ``config`` replaces the short time-outs, for an imitation of SQS that is slower."""
        self._clock = clock
        self._prefix = prefix
        self._account = account
        self._key = key
        self._region = region
        self._endpoint_url = endpoint_url
        self._config = config or impatient_config()
        self._opened: dict[str, tuple[int, WakeupQueue]] = {}

    @cached_property
    def _threads(self) -> "ThreadPoolExecutor":
        from concurrent.futures import ThreadPoolExecutor  # most processes wake one group at a time, or none

        return ThreadPoolExecutor(THREADS, "wakeups")

    @cached_property
    def client(self) -> "SQSClient":
        client = make_client("sqs", self._config, region=self._region, endpoint_url=self._endpoint_url)
        return cast("SQSClient", client)

    def open(self, name: str, *, fresh: bool) -> WakeupQueue:
        now_ms = self._clock.now_ms()
        opened_ms, queue = self._opened.get(name, (0, None))
        if queue is None or fresh or not 0 <= now_ms - opened_ms < _OPENED_MS:
            queue = WakeupQueue(self._create(name), self.client.meta.region_name)
            if len(self._opened) >= _MOST_OPENED:
                self._opened.clear()
            self._opened[name] = now_ms, queue
        return queue

    def _create(self, name: str) -> str:
        attributes: dict[QueueAttributeNameType, str] = {
            "MessageRetentionPeriod": _RETENTION_SECONDS,
            "VisibilityTimeout": _VISIBILITY_SECONDS,
        }
        if self._key is not None:
            attributes |= {"KmsMasterKeyId": self._key, "KmsDataKeyReusePeriodSeconds": _KEY_SECONDS}
        with translating():
            try:
                return self.client.create_queue(QueueName=self._prefix + name, Attributes=attributes)["QueueUrl"]
            except ClientError as error:
                if error_code(error) not in _OTHERWISE:
                    raise
                return self._url(name)  # the queue exists with other attributes: of an operator, or another version

    def wake(self, name: str) -> bool:
        with translating():
            try:
                self.client.send_message(QueueUrl=self._url(name), MessageBody="wake")
            except ClientError as error:
                if error_code(error) not in _MISSING:
                    raise
                return False
        return True

    def remove(self, name: str) -> None:
        self._opened.pop(name, None)
        with translating():
            try:
                self.client.delete_queue(QueueUrl=self._url(name))
            except ClientError as error:
                if error_code(error) not in _MISSING:
                    raise

    def side_by_side(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        if len(calls) < 2:
            return [call() for call in calls]
        _ = self.client  # makes the client before the threads use it
        futures = [self._threads.submit(call) for call in calls]
        # A failed call does not end the wait for the others: Lambda freezes the process after the answer.
        for future in futures:
            future.exception()
        return [future.result() for future in futures]

    def _url(self, name: str) -> str:
        return f"{self.client.meta.endpoint_url}/{self._account}/{self._prefix}{name}"
