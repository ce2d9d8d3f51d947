"""Sends one batch of a subject buffer and settles its futures."""

import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import InvalidStateError
from contextlib import suppress
from typing import TypeVar

import msgspec

from hourwheel.client.accumulator import Pending
from hourwheel.client.api import Api
from hourwheel.client.errors import (
    BadRequest,
    ClientError,
    DeliveryTimeout,
    Problem,
    ServerUnavailable,
    TooLarge,
)
from hourwheel.client.records.messages import AddressedMessage, Message, SendResult
from hourwheel.ports import Ids
from hourwheel.words import counted

T = TypeVar("T")

_CULPRIT = re.compile(r"messages\[(\d+)\]")

# Refusals, beside those for size, that one message of a batch may cause for all of it. Others concern the whole batch
# (the subject's name, the token), so splitting the batch would only repeat the refusal.
_OF_ONE_MESSAGE = {"field-invalid", "json-invalid", "delay-too-long"}

_NOT_SENT = "the message was not sent in time: the server is too slow, or was unavailable"


def deliver(api: Api, ids: Ids, subject: str, batch: Sequence[Pending], *, timeout_seconds: float) -> None:
    """Sends a batch. When it returns, every future of the batch is done.

    Where the server refuses the batch because of one message, the others are sent without it, in their order.
    """
    now = time.monotonic()
    active = [pending for pending in batch if pending.future.set_running_or_notify_cancel()]
    _fail([pending for pending in active if now >= pending.sent_at + timeout_seconds], DeliveryTimeout(_NOT_SENT))
    parts = [[pending for pending in active if now < pending.sent_at + timeout_seconds]]
    while parts:
        part = parts.pop(0)
        if not part:
            continue
        messages = [pending.message for pending in part]
        give_up_at = min(pending.sent_at for pending in part) + timeout_seconds
        try:
            results = store(api, ids, subject, messages, timeout_seconds=give_up_at - time.monotonic())
        except (BadRequest, TooLarge) as error:
            # A 413 may also come from a proxy, without a slug of Hourwheel.
            if len(part) > 1 and (isinstance(error, TooLarge) or error.slug in _OF_ONE_MESSAGE):
                parts[:0] = split(part, error.problem)
            else:
                _fail(part, error)
        except Exception as error:  # any other error: else the callers would wait for ever
            _fail(part, error)
        else:
            for pending, result in zip(part, results, strict=True):
                _settle(pending.future.set_result, result)


def store(api: Api, ids: Ids, subject: str, messages: Sequence[Message], *, timeout_seconds: float) -> list[SendResult]:
    """Sends one batch under one idempotency key until the server accepts or refuses it. Returns the results.

    Raises ``DeliveryTimeout`` where neither happened in time.
    """
    key = ids.token().hex()
    try:
        results = api.produce(subject, messages, idempotency_key=key, retry_seconds=timeout_seconds)
    except ServerUnavailable as error:
        raise DeliveryTimeout(f"the messages were not accepted in time; they may be stored or not: {error}") from error
    if len(results) != len(messages):
        raise ClientError(
            f"the server answered {counted(len(results), 'result')} for {counted(len(messages), 'message')}"
        )
    return results


def split(part: Sequence[Pending], problem: Problem) -> list[list[Pending]]:
    """Returns smaller batches to send instead, in order: the culprit apart where the problem names it, else halves."""
    culprit = _CULPRIT.match(problem.field or "")
    index = int(culprit[1]) if culprit else -1
    if 0 <= index < len(part):
        batches = [part[:index], part[index : index + 1], part[index + 1 :]]
    else:
        batches = [part[: len(part) // 2], part[len(part) // 2 :]]
    return [list(batch) for batch in batches]


def _fail(part: Sequence[Pending], error: Exception) -> None:
    for pending in part:
        _settle(pending.future.set_exception, error)


def give_up(waiting: Sequence[Pending], error: Exception) -> None:
    """Fails the futures of messages that are not under way."""
    _fail([pending for pending in waiting if pending.future.set_running_or_notify_cancel()], error)


def give_up_rest(
    outstanding: Sequence[tuple[str, Pending]], error: Exception
) -> list[tuple[AddressedMessage, BaseException]]:
    """Fails the futures that are not done. Returns the messages that were not accepted, each with its error."""
    refused: list[tuple[AddressedMessage, BaseException]] = []
    for subject, pending in outstanding:
        if not pending.future.done():
            _fail([pending], error)
        if pending.future.cancelled():
            continue
        reason = pending.future.exception(0)
        if reason is not None:
            refused.append((AddressedMessage(**msgspec.structs.asdict(pending.message), subject=subject), reason))
    return refused


def _settle(settle: Callable[[T], object], outcome: T) -> None:
    """Sets the outcome of a future. A closed producer may have failed the future before, and its outcome stays."""
    with suppress(InvalidStateError):
        settle(outcome)
