"""Reads the counted usage from which bills are computed.

``python -m bench.cost.bill`` runs the code of the functions, counts what AWS would bill for each call, and writes
``counts.json``. ``other_prices.json`` has the prices of other services, each with its source.
"""

from functools import cache
from pathlib import Path
from typing import TypeAlias

import msgspec

Usage: TypeAlias = dict[str, float]
"""Units used, by the names in the table of prices."""

MONTH_SECONDS = 730 * 3_600
MONTH_DAYS = 365 / 12

ROW_DAYS = 5
"""A row is stored for three days of retention, and for up to two more until DynamoDB removes it."""

ITEM_OVERHEAD_BYTES = 100
"""The bytes that DynamoDB bills for each item in addition to its content."""


class BatchCounts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Holds the usage of one request that sends a batch, and of one pull that takes the batch and settles the previous
    one.

    ``row_bytes`` is the size of the batch as it is stored. Writing, storing and reading the row is not part of ``send``
    and ``take``, because it depends on the size of the messages: ``row_usage`` and ``read_usage`` compute it.
    """

    row_bytes: float
    send: Usage
    take: Usage


class WaitingCounts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Holds the usage of consumers that wait. ``resting``: a month at the group's wake-up queue. ``waking``: one
    wake-up of the group by a message, until its consumer waits at the queue again. ``polling``: a month of pulls, one
    after the other."""

    resting: Usage
    waking: Usage
    polling: Usage


class FrontCounts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Holds the counts of one front, API Gateway (``api``) or function URLs (``url``): those of ``batches`` by the
    number of messages, and those of consumers that wait."""

    batches: dict[int, BatchCounts]
    waiting: WaitingCounts


class DelayCounts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Holds the usage that a delay adds to a message. ``alone``: no other message is due within its hour. ``shared``: a
    wheel turns anyway. ``wheel_hour``: the usage of a wheel that turns for an hour."""

    alone: Usage
    shared: Usage
    wheel_hour: Usage


class Counts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Holds the counts of one day. ``message_bytes``: the size of the counted messages. ``inline_bytes``: the largest
    batch that is stored in its row, not in an object. ``waiting``: how consumers of idle groups wait, in words.
    ``idle_deployment`` and ``idle_group``: a month of the sweeper, and the share of each group. ``prices``: dollars for
    one unit."""

    date: str
    region: str
    message_bytes: int
    inline_bytes: int
    waiting: str
    fronts: dict[str, FrontCounts]
    idle_deployment: Usage
    idle_group: Usage
    delays: DelayCounts
    prices: dict[str, float]

    def dollars(self, usage: Usage) -> float:
        """Returns the price of the usage. Raises ``KeyError`` for a unit that has no price."""
        return sum(amount * self.prices[unit] for unit, amount in usage.items())


class OtherPrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Holds the price in dollars of ``per`` units of another service. ``checked``: ``source`` named the price on this
    date; otherwise the price is from memory."""

    usd: float
    per: int
    unit: str
    date: str
    source: str
    checked: bool


@cache
def read_counts() -> Counts:
    return msgspec.json.decode(Path(__file__).with_name("counts.json").read_bytes(), type=Counts)


@cache
def read_other_prices() -> dict[str, OtherPrice]:
    text = Path(__file__).with_name("other_prices.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, OtherPrice])


def added(*usages: Usage) -> Usage:
    """Returns the sum of usages, unit by unit."""
    total: Usage = {}
    for usage in usages:
        for unit, amount in usage.items():
            total[unit] = total.get(unit, 0.0) + amount
    return total


def scaled(usage: Usage, factor: float) -> Usage:
    return {unit: amount * factor for unit, amount in usage.items()}
