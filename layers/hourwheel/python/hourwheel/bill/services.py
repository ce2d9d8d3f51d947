"""Computes what the same workload costs with other services, each at its best: no retry, no avoidable call."""

from math import ceil

import msgspec

from hourwheel.bill.counts import MONTH_DAYS, MONTH_SECONDS, Counts, OtherPrice, added
from hourwheel.bill.items import Workload

_SQS_BATCH = 10  # the most messages of one request
_SQS_UNIT_BYTES = 64 * 1024  # SQS, SNS and EventBridge bill a request for each 64 KB
_LONGEST_POLL_SECONDS = 20  # an idle consumer makes one request in this time
_KAFKA_STORED_DAYS = 3
"""As long as Hourwheel keeps messages unless the subject says otherwise."""

_ROCKETMQ_UNIT_BYTES = 4 * 1024  # a larger message counts once for each 4 KB
_ROCKETMQ_DELAYED = 5
"""A delayed message counts as five."""


class ServiceBill(msgspec.Struct, frozen=True, kw_only=True):
    """A month with another service. ``remark`` says what the sum leaves out. ``checked`` is False where a price is from
    memory."""

    service: str
    dollars: float
    remark: str
    checked: bool


def other_bills(counts: Counts, prices: dict[str, OtherPrice], workload: Workload) -> list[ServiceBill]:
    """Returns a bill for each of the other services, SQS first."""
    return [
        _sqs(counts, workload),
        _event_bridge(counts, prices, workload),
        _rocketmq(prices, workload),
        _msk(prices, workload),
        _confluent(prices, workload),
    ]


def _calls(messages: float, batch: int, message_bytes: int) -> float:
    """Returns the billed requests of SQS for these messages, ten or fewer at a time, each 64 KB a request."""
    together = min(batch, _SQS_BATCH)
    return messages / together * max(1, ceil(together * message_bytes / _SQS_UNIT_BYTES))


def _received(workload: Workload) -> float:
    """Returns the requests of SQS for receiving, deleting and waiting, in all groups."""
    out = _calls(workload.messages, workload.batch, workload.message_bytes) + _calls(
        workload.messages, workload.batch, 0
    )
    return out * workload.groups + workload.all_consumers * MONTH_SECONDS / _LONGEST_POLL_SECONDS


def _sqs(counts: Counts, workload: Workload) -> ServiceBill:
    """SQS; with several groups SNS in front, which delivers to queues without charge; schedules for delays."""
    at_once = _calls(workload.messages - workload.delayed, workload.batch, workload.message_bytes)
    sent = at_once + _calls(workload.delayed, 1, workload.message_bytes)
    unit = "sqs-request" if workload.groups == 1 else "sns-publish"
    usage = added({unit: sent}, {"sqs-request": _received(workload)}, {"schedule-firing": workload.delayed})
    return ServiceBill(
        service="SQS" if workload.groups == 1 else "SNS + SQS",
        dollars=counts.dollars(usage),
        remark="delays by EventBridge Scheduler; those under 15 minutes need none" if workload.delayed else "",
        checked=True,
    )


def _event_bridge(counts: Counts, prices: dict[str, OtherPrice], workload: Workload) -> ServiceBill:
    """A bus of EventBridge that delivers to a queue of SQS for each group."""
    events = workload.messages * max(1, ceil(workload.message_bytes / _SQS_UNIT_BYTES))
    usage = {"sqs-request": _received(workload), "schedule-firing": workload.delayed}
    return ServiceBill(
        service="EventBridge + SQS",
        dollars=counts.dollars(usage) + _cost(prices, {"eventbridge-event": events}),
        remark="sending to the queues not counted",
        checked=prices["eventbridge-event"].checked,
    )


def _rocketmq(prices: dict[str, OtherPrice], workload: Workload) -> ServiceBill:
    """RocketMQ as a serverless instance: each message counts when it is sent, and for each group."""
    weighed = workload.messages - workload.delayed + workload.delayed * _ROCKETMQ_DELAYED
    units = max(1, ceil(workload.message_bytes / _ROCKETMQ_UNIT_BYTES))
    return ServiceBill(
        service="RocketMQ (Alibaba, serverless)",
        dollars=_cost(prices, {"rocketmq-request": weighed * units * (1 + workload.groups)}),
        remark="topics, storage and traffic not counted",
        checked=prices["rocketmq-request"].checked,
    )


def _msk(prices: dict[str, OtherPrice], workload: Workload) -> ServiceBill:
    """Kafka as Amazon MSK Serverless: a topic for each service, a partition for each consumer of a group."""
    gigabytes = workload.messages * workload.message_bytes / 1e9
    partitions = workload.services * workload.consumers
    hours = MONTH_SECONDS / 3_600
    usage = {
        "msk-cluster-hour": hours,
        "msk-partition-hour": partitions * hours,
        "msk-in-gb": gigabytes,
        "msk-out-gb": gigabytes * workload.groups,
        "msk-storage-gb": gigabytes * _KAFKA_STORED_DAYS / MONTH_DAYS,
    }
    return ServiceBill(
        service="Kafka (MSK Serverless)",
        dollars=_cost(prices, usage),
        remark="has no delays" if workload.delayed else "",
        checked=all(prices[unit].checked for unit in usage),
    )


def _confluent(prices: dict[str, OtherPrice], workload: Workload) -> ServiceBill:
    """Kafka as a Basic cluster of Confluent Cloud, which has no price of its own while one eCKU is enough."""
    gigabytes = workload.messages * workload.message_bytes / 2**30
    usage = {
        "confluent-transfer-gb": gigabytes * (1 + workload.groups),
        "confluent-storage-gb": gigabytes * _KAFKA_STORED_DAYS / MONTH_DAYS,
    }
    return ServiceBill(
        service="Kafka (Confluent Cloud Basic)",
        dollars=_cost(prices, usage),
        remark="more than one eCKU not counted" + ("; has no delays" if workload.delayed else ""),
        checked=all(prices[unit].checked for unit in usage),
    )


def _cost(prices: dict[str, OtherPrice], usage: dict[str, float]) -> float:
    return sum(amount * prices[unit].usd / prices[unit].per for unit, amount in usage.items())


def comparison(items: dict[str, float], others: list[ServiceBill]) -> str:
    """Returns sentences that say who is cheapest, and which item is the largest where that is not Hourwheel."""
    total = sum(items.values())
    cheapest = min((each for each in others if each.checked), key=lambda bill: bill.dollars)
    if total < cheapest.dollars:
        text = (
            f"Hourwheel is cheapest here: ${money(total)} a month, beside ${money(cheapest.dollars)} with"
            f" {cheapest.service}."
        )
    else:
        largest = max(items, key=lambda item: items[item])
        ratio = f" ({total / cheapest.dollars:,.1f} times as much)" if cheapest.dollars else ""
        text = (
            f"{cheapest.service} stays cheaper here: ${money(cheapest.dollars)} a month, beside ${money(total)} with"
            f" Hourwheel{ratio}, whose largest item is {largest} (${money(items[largest])})."
        )
    below = [each.service for each in others if not each.checked and each.dollars < min(total, cheapest.dollars)]
    return f"{text} By a price that was not checked, {' and '.join(below)} costs less still." if below else text


def money(dollars: float) -> str:
    """Returns dollars with three digits: 0.00123, 1.23, 123, 1,234."""
    if dollars >= 100:
        return f"{dollars:,.0f}"
    if dollars >= 1:
        return f"{dollars:.2f}"
    return f"{dollars:.3g}" if dollars else "0"
