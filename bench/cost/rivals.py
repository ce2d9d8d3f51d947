"""Computes the prices of other services for a million messages at their best: batches of ten, and no avoidable call."""

from collections import Counter
from math import ceil

from bench.cost.prices import MILLION, Usage

MOST = 10
"""The most messages in a call of SQS or SNS."""

_CHUNK = 64 * 1024  # SQS and SNS bill a request for each such part of it
_MONTH_SECONDS = 730 * 3_600
_LONGEST_POLL_SECONDS = 20


def sqs(batch: int, size: int = 200, *, taken: int | None = None) -> Usage:
    """Returns the usage of SQS: sends ``batch`` at a time, receives and deletes ``taken`` at a time (None: as they were
    sent)."""
    out = _calls(taken or batch, size)
    return Counter({"sqs-request": _calls(batch, size) + out + _calls(taken or batch, 0)})


def fan_out(batch: int, groups: int, size: int = 200, *, taken: int | None = None) -> Usage:
    """Returns the usage of SNS and SQS: publishes to a topic, receives and deletes from a queue for each group."""
    out = _calls(taken or batch, size) + _calls(taken or batch, 0)
    return Counter({"sns-publish": _calls(batch, size), "sqs-request": groups * out})


def scheduled(batch: int, size: int = 200) -> Usage:
    """Returns the usage of a one-time schedule for each message, which sends it to a queue, and of its receipt and
    deletion there."""
    usage = scheduled_only(size)
    usage["sqs-request"] += _calls(batch, size) + _calls(batch, 0)
    return usage


def scheduled_only(size: int = 200) -> Usage:
    """Returns the usage of a schedule for each message, which sends it to a queue, without its receipt there."""
    return Counter({"schedule-firing": MILLION, "sqs-request": _calls(1, size)})


def idle_poller() -> Usage:
    """Returns the usage of a consumer that polls an empty queue for a month, 20 s at a time."""
    return Counter({"sqs-request": ceil(_MONTH_SECONDS / _LONGEST_POLL_SECONDS)})


def nothing() -> Usage:
    return Counter()


def _calls(batch: int, size: int) -> float:
    """Returns the requests billed for a million messages of ``size`` bytes, ``batch`` or fewer at a time."""
    together = min(batch, MOST)
    return MILLION / together * max(1, ceil(together * size / _CHUNK))
