"""The wake-up queues of SQS keep the contract of ``WakeupQueues``, and the client receives from them without an SDK."""

import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from hourwheel.adapters.aws.functions import patient_config
from hourwheel.adapters.aws.sqs import SqsWakeupQueues
from hourwheel.client.consuming.dozing import Doze, QueueListener, WaitResult
from hourwheel.client.transport.signing import Signer
from hourwheel.client.transport.steps import finished
from hourwheel.errors import OutcomeUnknown
from hourwheel.model.pulls import WakeupQueue
from tests.support import HandClock

if TYPE_CHECKING:
    from mypy_boto3_sqs.literals import QueueAttributeNameType

REGION, ACCOUNT, PREFIX = "us-east-1", "000000000000", "hourwheel-wake-cell_"
LONG_SECONDS = 60.0


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def queues(ministack_endpoint: str, clock: HandClock) -> Iterator[SqsWakeupQueues]:
    config = patient_config()  # the server shares its processor with other tests
    queues = SqsWakeupQueues(clock, PREFIX, ACCOUNT, region=REGION, endpoint_url=ministack_endpoint, config=config)
    yield queues
    queues.client.close()


def heard(queue: WakeupQueue, seconds: float) -> WaitResult:
    """Waits as a consumer does, in requests that wait for at most this many seconds in all."""
    doze = Doze(Signer(queue.url, REGION), urlsplit(queue.url).hostname or "")
    waiting = doze.begin(WakeupQueue(queue.url, queue.region, seconds))
    assert waiting is not None
    listener = QueueListener()
    finished(listener.wait(waiting))
    finished(listener.close())
    return waiting.last


def test_a_queue_under_a_key_says_so(ministack_endpoint: str, clock: HandClock, partition: str) -> None:
    key = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/of-the-cell"
    queues = SqsWakeupQueues(
        clock, PREFIX, ACCOUNT, key=key, region=REGION, endpoint_url=ministack_endpoint, config=patient_config()
    )
    queue = queues.open(partition, fresh=False)
    names: list[QueueAttributeNameType] = ["KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds"]
    found = queues.client.get_queue_attributes(QueueUrl=queue.url, AttributeNames=names)["Attributes"]
    assert found == {"KmsMasterKeyId": key, "KmsDataKeyReusePeriodSeconds": "86400"}
    assert queues.wake(partition)
    queues.client.close()


def test_a_queue_is_made_once_and_again_when_it_is_missing(
    queues: SqsWakeupQueues, clock: HandClock, partition: str
) -> None:
    queue = queues.open(partition, fresh=False)
    assert queue.url.endswith(f"/{PREFIX}{partition}")
    queues.client.delete_queue(QueueUrl=queue.url)
    assert queues.open(partition, fresh=False) == queue  # this process takes it to be there
    assert not queues.wake(partition)
    assert heard(queue, 1.5) is WaitResult.MISSING
    assert queues.open(partition, fresh=True) == queue
    assert queues.wake(partition)
    queues.client.delete_queue(QueueUrl=queue.url)
    clock.pass_time(3_601)
    queues.open(partition, fresh=False)
    assert queues.wake(partition)


def test_a_queue_has_the_times_that_spare_its_consumers_the_removal(queues: SqsWakeupQueues, partition: str) -> None:
    queue = queues.open(partition, fresh=False)
    found = queues.client.get_queue_attributes(QueueUrl=queue.url, AttributeNames=["All"])["Attributes"]
    assert (found["MessageRetentionPeriod"], found["VisibilityTimeout"]) == ("60", "120")


def test_a_queue_that_was_made_otherwise_is_used(queues: SqsWakeupQueues, partition: str) -> None:
    queues.client.create_queue(QueueName=PREFIX + partition, Attributes={"VisibilityTimeout": "45"})
    assert queues.open(partition, fresh=False).url.endswith(partition)
    assert queues.wake(partition)


def test_a_wakeup_is_received_once(queues: SqsWakeupQueues, partition: str) -> None:
    queue = queues.open(partition, fresh=False)
    for _ in range(3):
        assert queues.wake(partition)
    assert heard(queue, LONG_SECONDS) is WaitResult.WAKEUP
    assert heard(queue, 1.5) is WaitResult.NOTHING


def test_a_wakeup_ends_the_wait_of_a_consumer_that_waits_already(queues: SqsWakeupQueues, partition: str) -> None:
    queue = queues.open(partition, fresh=False)
    results: list[WaitResult] = []
    consumer = threading.Thread(target=lambda: results.append(heard(queue, LONG_SECONDS)))
    consumer.start()
    began = time.monotonic()
    while consumer.is_alive() and time.monotonic() < began + LONG_SECONDS / 2:
        queues.wake(partition)
        consumer.join(0.5)
    assert results == [WaitResult.WAKEUP]


def test_what_is_removed_is_not_there_and_may_be_removed_again(queues: SqsWakeupQueues, partition: str) -> None:
    queues.open(partition, fresh=False)
    for _ in range(2):
        queues.remove(partition)
    assert not queues.wake(partition)


def test_a_service_that_is_away_is_an_error_of_the_library(clock: HandClock) -> None:
    queues = SqsWakeupQueues(clock, PREFIX, ACCOUNT, region=REGION, endpoint_url="http://127.0.0.1:9")
    for call in (lambda: queues.open("a", fresh=False), lambda: queues.wake("a"), lambda: queues.remove("a")):
        with pytest.raises(OutcomeUnknown):
            call()
    queues.client.close()
