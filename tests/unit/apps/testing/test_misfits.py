"""A program that sets up no logging sees each message that is rejected because its body does not fit."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from hourwheel.client import Reject
from hourwheel.testing import Queue


class MarksNothing:
    """An idempotency store that has seen no message before."""

    def begin(self, identity: str) -> bool:
        return True

    def end(self, identity: str, *, done: bool) -> None:
        assert identity


class MarksNothingInTasks:
    async def begin(self, identity: str) -> bool:
        return True

    async def end(self, identity: str, *, done: bool) -> None:
        assert identity


class SessionOfNothing:
    @contextmanager
    def transaction(self, identity: str) -> Iterator[object]:
        assert identity
        yield self


def _bill(order: dict[str, int]) -> None:
    if order["number"] < 0:
        raise Reject("the number is negative")


async def _bill_in_task(order: dict[str, int]) -> None:
    _bill(order)


def _bill_all(orders: list[dict[str, int]]) -> None:
    for order in orders:
        _bill(order)


async def _bill_all_in_task(orders: list[dict[str, int]]) -> None:
    _bill_all(orders)


def _handles(queue: Queue) -> None:
    queue.consumer("orders", "billing").handler(_bill)


def _handles_batches(queue: Queue) -> None:
    queue.consumer("orders", "billing").batch_handler(_bill_all)


def _handles_once(queue: Queue) -> None:
    queue.consumer("orders", "billing").handler(idempotent=MarksNothing())(_bill)


def _handles_in_transactions(queue: Queue) -> None:
    queue.consumer("orders", "billing").handler(idempotent=SessionOfNothing())(_bill)


def _handles_in_tasks(queue: Queue) -> None:
    queue.async_consumer("orders", "billing").handler(_bill_in_task)


def _handles_batches_in_tasks(queue: Queue) -> None:
    queue.async_consumer("orders", "billing").batch_handler(_bill_all_in_task)


def _handles_once_in_tasks(queue: Queue) -> None:
    queue.async_consumer("orders", "billing").handler(idempotent=MarksNothingInTasks())(_bill_in_task)


HANDLERS: list[Callable[[Queue], Any]] = [
    _handles,
    _handles_batches,
    _handles_once,
    _handles_in_transactions,
    _handles_in_tasks,
    _handles_batches_in_tasks,
    _handles_once_in_tasks,
]


@pytest.mark.parametrize("set_handler", HANDLERS)
def test_a_body_that_does_not_fit_is_logged_as_a_warning(
    set_handler: Callable[[Queue], Any], caplog: pytest.LogCaptureFixture
) -> None:
    with Queue() as queue, caplog.at_level(logging.INFO, logger="hourwheel"):
        set_handler(queue)
        queue.producer("orders").send_batch(["paid", {"number": -1}])
        queue.advance(timedelta(minutes=1))
        assert len(queue.dead("orders", "billing")) == 2
    levels = {record.getMessage().partition("rejected: ")[2]: record.levelno for record in caplog.records}
    assert levels["the body does not fit dict[str, int]: the body is not JSON in UTF-8 (byte 0)"] == logging.WARNING
    assert levels["the number is negative"] == logging.INFO, "the program decided so"
