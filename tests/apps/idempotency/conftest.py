"""Provides a queue in memory, and a consumer that died between the effect of a message and its acknowledgement."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hourwheel.client import Consumer, Delivery
from hourwheel.client.consuming.idempotence import idempotent_handler
from hourwheel.client.consuming.lease_tracker import LeaseTracker
from hourwheel.testing import Queue

LEASE_SECONDS = 30


@pytest.fixture
def queue() -> Iterator[Queue]:
    with Queue() as queue:
        yield queue


def one_delivery(queue: Queue) -> Delivery:
    """Pulls a message for a consumer that never settles it."""
    (pull,) = queue.api.pull("orders", "billing", "killed", max_messages=1, lease_seconds=LEASE_SECONDS).pulls
    (delivery,) = LeaseTracker(lease_seconds=LEASE_SECONDS, linger_seconds=1).open(pull, 0.0, lambda *_: None)
    return delivery


def killed_before_it_acknowledged(queue: Queue, store: Any, function: Callable[..., object]) -> None:
    """Calls the handler as a consumer does that is killed once the handler has returned and the store is done."""
    idempotent_handler(function, store, "orders", "billing")(one_delivery(queue))


def set_handler(queue: Queue, store: Any, function: Callable[..., object]) -> Consumer:
    consumer = queue.consumer("orders", "billing")
    consumer.handler(idempotent=store)(function)
    return consumer
