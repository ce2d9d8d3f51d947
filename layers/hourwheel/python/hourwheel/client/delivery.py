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
from hourwheel.client.records import AddressedMessage, Message, Placed
from hourwheel.ports import Ids
from hourwheel.words import counted

T = TypeVar("T")

_CULPRIT = re.compile(r"messages\[(\d+)\]")

# Mistakes that one message of a batch can make for all, beside its size. The others (the subject's name, the token) are
# everybody's: splitting the batch would only repeat them.
_OF_ONE_MESSAGE = {"field-invalid", "json-invalid", "delay-too-long"}

_NOT_SENT = "the message was not sent in time: the server is too slow, or has been away"


def deliver(api: Api, ids: Ids, subject: str, batch: Sequence[Pending], *, timeout_seconds: float) -> None:
    """Every future of the batch, is done when this returns.

    When the server refuses the batch for one message's sake, the others are sent without it, in their order.
    """
    now = time.monotonic()
    wanted = [pending for pending in batch if pending.future.set_running_or_notify_cancel()]
    _fail([pending for pending in wanted if now >= pending.sent_at + timeout_seconds], DeliveryTimeout(_NOT_SENT))
    parts = [[pending for pending in wanted if now < pending.sent_at + timeout_seconds]]
    while parts:
        part = parts.pop(0)
        if not part:
            continue
        messages = [pending.message for pending in part]
        give_up_at = min(pending.sent_at for pending in part) + timeout_seconds
        try:
            placed = place(api, ids, subject, messages, timeout_seconds=give_up_at - time.monotonic())
        except (BadRequest, TooLarge) as error:
            # A proxy that says 413 names no mistake of ours.
            if len(part) > 1 and (isinstance(error, TooLarge) or error.slug in _OF_ONE_MESSAGE):
                parts[:0] = split(part, error.problem)
            else:
                _fail(part, error)
        except Exception as error:  # whatever it is, nobody else would tell those who wait
            _fail(part, error)
        else:
            for pending, place_of_it in zip(part, placed, strict=True):
                _settle(pending.future.set_result, place_of_it)


def place(api: Api, ids: Ids, subject: str, messages: Sequence[Message], *, timeout_seconds: float) -> list[Placed]:
    """One batch, tried under one idempotency key until it is accepted or refused; else ``DeliveryTimeout``."""
    key = ids.token().hex()
    try:
        placed = api.produce(subject, messages, idempotency_key=key, retry_seconds=timeout_seconds)
    except ServerUnavailable as error:
        raise DeliveryTimeout(f"the messages were not accepted in time; they may be stored or not: {error}") from error
    if len(placed) != len(messages):
        raise ClientError(
            f"the server answered {counted(len(placed), 'place')} for {counted(len(messages), 'message')}"
        )
    return placed


def split(part: Sequence[Pending], problem: Problem) -> list[list[Pending]]:
    """Pieces to send instead, in order: the culprit apart if the problem names it, halves otherwise."""
    named = _CULPRIT.match(problem.field or "")
    index = int(named[1]) if named else -1
    if 0 <= index < len(part):
        pieces = [part[:index], part[index : index + 1], part[index + 1 :]]
    else:
        pieces = [part[: len(part) // 2], part[len(part) // 2 :]]
    return [list(piece) for piece in pieces]


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
    unsent: list[tuple[AddressedMessage, BaseException]] = []
    for subject, pending in outstanding:
        if not pending.future.done():
            _fail([pending], error)
        if pending.future.cancelled():
            continue
        reason = pending.future.exception(0)
        if reason is not None:
            unsent.append((AddressedMessage(**msgspec.structs.asdict(pending.message), subject=subject), reason))
    return unsent


def _settle(settle: Callable[[T], object], outcome: T) -> None:
    """A producer that is closed fails the futures of a batch whose connection cannot be cut."""
    with suppress(InvalidStateError):
        settle(outcome)
