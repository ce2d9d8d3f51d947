"""Computes the items of a month's bill of a deployment on AWS.

Each item is a product of the team's numbers and of usage that was counted, not estimated. Three rules cannot be
counted: the row of a batch grows with its messages, sizes of batches between the counted ones are interpolated, and
waiting and delays cost the cheaper of two ways. A busy process reads less, by some $0.70 for a million messages sent
alone.
"""

from itertools import pairwise
from math import ceil, exp

import msgspec

from hourwheel.aws.bill.counts import (
    ITEM_OVERHEAD_BYTES,
    MONTH_DAYS,
    ROW_DAYS,
    BatchCounts,
    Counts,
    Usage,
    added,
    scaled,
)

REQUEST_BYTES = 1 << 20
"""The producer of the client begins another batch at this size."""

# API Gateway and DynamoDB bill a request by units of these sizes.
_HTTP_UNIT_BYTES = 512 * 1024
_WRITE_UNIT_BYTES, _READ_UNIT_BYTES = 1_024, 4_096
_READ_SHARE = 0.5  # a pull reads rows eventually consistently, which costs half a unit for each 4 KB

# The queue of timers is read from four minutes before a start until the sweeper's last promise, of five minutes, is
# over.
_READ_MINUTES = 9
_READS_OF_TIMERS = 657_000  # the reads of a month while it is read: Lambda has five pollers, which wait 20 s each

_ROW_OF_OBJECT_BYTES = 250  # the row that names the object of a large batch

_HOURS_A_DAY = 24
_MONTH_HOURS = MONTH_DAYS * _HOURS_A_DAY

_ITEMS = {
    "writes": ("dynamodb-write",),
    "reads": ("dynamodb-read",),
    "objects": ("s3-put", "s3-get"),
    "requests": ("http-request",),
    "functions": ("lambda-request", "lambda-gb-second", "schedule-firing"),
    "logs": ("log-gb",),
    "storage": ("dynamodb-storage", "dynamodb-backup", "s3-storage"),
}


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Describes the messages of a team. Each of ``services`` has one subject with ``groups`` groups, and each group has
    ``consumers`` that wait for messages. ``delayed_per_day`` of the messages are delayed, spread over the day."""

    messages_per_day: int
    groups: int = 1
    consumers: int = 1
    services: int = 1
    batch: int = 1
    message_bytes: int = 327
    delayed_per_day: int = 0

    @property
    def messages(self) -> float:
        """The number of messages in a month."""
        return self.messages_per_day * MONTH_DAYS

    @property
    def delayed(self) -> float:
        """The number of delayed messages in a month."""
        return self.delayed_per_day * MONTH_DAYS

    @property
    def all_groups(self) -> int:
        return self.services * self.groups

    @property
    def all_consumers(self) -> int:
        return self.all_groups * self.consumers


def bill_items(counts: Counts, workload: Workload, front: str) -> dict[str, float]:
    """Returns the dollars of each item in a month. Raises ``KeyError`` for a front that was not counted."""
    batch = max(1, min(workload.batch, REQUEST_BYTES // workload.message_bytes))
    batches = workload.messages / batch
    usage = scaled(_batch_usage(counts, front, batch, workload), batches)
    items = {
        item: counts.dollars({unit: usage[unit] for unit in units if unit in usage}) for item, units in _ITEMS.items()
    }
    idle = added(counts.idle_deployment, scaled(counts.idle_group, workload.all_groups))
    return {
        **items,
        "waiting": _waiting_dollars(counts, front, workload, batches),
        "delays": _delay_dollars(counts, workload),
        "idle": counts.dollars(idle),
    }


def _batch_usage(counts: Counts, front: str, batch: int, workload: Workload) -> Usage:
    """Returns the usage of sending a batch, and of taking it in each group."""
    counted = at_batch(counts.fronts[front].batches, batch)
    row_bytes = counted.row_bytes * workload.message_bytes / counts.message_bytes
    sent = added(counted.send, row_usage(row_bytes, counts.inline_bytes))
    taken = added(counted.take, read_usage(row_bytes, counts.inline_bytes))
    usage = added(sent, scaled(taken, workload.groups))
    # The counted requests are small: larger ones are billed for each 512 KB.
    return {
        **usage,
        "http-request": usage.get("http-request", 0.0) * ceil(batch * workload.message_bytes / _HTTP_UNIT_BYTES),
    }


def at_batch(counted: dict[int, BatchCounts], batch: int) -> BatchCounts:
    """Returns the counts of a batch of this size, between two counted sizes by interpolation."""
    if batch in counted:
        return counted[batch]
    below, above = next((low, high) for low, high in pairwise(sorted(counted)) if low < batch < high)
    share = (batch - below) / (above - below)

    def between(low: Usage, high: Usage) -> Usage:
        return added(scaled(low, 1 - share), scaled(high, share))

    low, high = counted[below], counted[above]
    return BatchCounts(
        row_bytes=low.row_bytes * (1 - share) + high.row_bytes * share,
        send=between(low.send, high.send),
        take=between(low.take, high.take),
    )


def row_usage(row_bytes: float, inline_bytes: int) -> Usage:
    """Returns the usage of writing and storing a batch: in its row, or in an object that a small row names."""
    in_object = row_bytes > inline_bytes
    stored = _ROW_OF_OBJECT_BYTES if in_object else row_bytes
    months = ROW_DAYS / MONTH_DAYS / 1e9
    usage = {
        "dynamodb-write": float(max(1, ceil(stored / _WRITE_UNIT_BYTES))),
        "dynamodb-storage": (stored + ITEM_OVERHEAD_BYTES) * months,
        "dynamodb-backup": (stored + ITEM_OVERHEAD_BYTES) * months,
    }
    return {**usage, "s3-put": 1.0, "s3-storage": row_bytes * months} if in_object else usage


def read_usage(row_bytes: float, inline_bytes: int) -> Usage:
    """Returns the usage of reading a batch once."""
    if row_bytes > inline_bytes:
        return {"dynamodb-read": _READ_SHARE, "s3-get": 1.0}
    return {"dynamodb-read": _READ_SHARE * max(1, ceil(row_bytes / _READ_UNIT_BYTES))}


def _waiting_dollars(counts: Counts, front: str, workload: Workload, batches: float) -> float:
    """Returns the dollars of waiting, by the cheaper of two estimates: each batch wakes its groups, or batches come so
    fast that one consumer of each group pulls all month."""
    if not workload.consumers:
        return 0.0
    waiting = counts.fronts[front].waiting
    woken = batches * workload.groups * counts.dollars(waiting.waking)
    polling = workload.all_groups * counts.dollars(waiting.polling)
    return workload.all_consumers * counts.dollars(waiting.resting) + min(woken, polling)


def _delay_dollars(counts: Counts, workload: Workload) -> float:
    """Returns the dollars of delays, by the cheaper of two estimates. Either each message starts a wheel of its own,
    and the queue of timers is read meanwhile; or the messages share wheels that turn all the time."""
    delays = counts.delays
    # Messages are due at random times: the readings of several overlap.
    read_share = 1 - exp(-workload.delayed * _READ_MINUTES / (_MONTH_HOURS * 60))
    reading = read_share * counts.dollars({"sqs-request": _READS_OF_TIMERS})
    alone = counts.dollars(delays.alone) * workload.delayed + reading
    wheels = min(_MONTH_HOURS, workload.delayed) * counts.dollars(delays.wheel_hour)
    return min(alone, wheels + counts.dollars(delays.shared) * workload.delayed)
