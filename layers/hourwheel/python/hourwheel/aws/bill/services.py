"""Computes the bills of other services for a workload, each at its best: no retry, no avoidable call."""

from math import ceil

import msgspec

from hourwheel.aws.bill.counts import MONTH_DAYS, MONTH_SECONDS, Counts, OtherPrice, added
from hourwheel.aws.bill.items import Workload

_SQS_BATCH = 10  # the most messages of one request
_SQS_UNIT_BYTES = 64 * 1024  # SQS, SNS and EventBridge bill a request for each 64 KB
_LONGEST_POLL_SECONDS = 20  # an idle consumer makes one request in this time
_KAFKA_STORED_DAYS = 3  # as long as Hourwheel keeps messages by default

_ROCKETMQ_UNIT_BYTES = 4 * 1024  # a larger message counts once for each 4 KB
_ROCKETMQ_DELAYED = 5  # a delayed message counts as five


class ServiceBill(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the bill of a month with another service. ``remark`` names the costs that the sum leaves out. ``checked``
    is False where a price is from memory."""

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
    """Returns the number of billed requests of SQS for these messages: at most ten messages share a request, and each
    64 KB of a request count as one."""
    together = min(batch, _SQS_BATCH)
    return messages / together * max(1, ceil(together * message_bytes / _SQS_UNIT_BYTES))


def _received(workload: Workload) -> float:
    """Returns the number of billed requests of SQS for receiving, deleting and waiting, in all groups."""
    received = _calls(workload.messages, workload.batch, workload.message_bytes)
    deleted = _calls(workload.messages, workload.batch, 0)
    waited = workload.all_consumers * MONTH_SECONDS / _LONGEST_POLL_SECONDS
    return (received + deleted) * workload.groups + waited


def _sqs(counts: Counts, workload: Workload) -> ServiceBill:
    """Returns the bill of SQS. With several groups SNS stands in front, which delivers to queues without charge.
    Schedules delay messages."""
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
    """Returns the bill of a bus of EventBridge that delivers to a queue of SQS for each group."""
    events = workload.messages * max(1, ceil(workload.message_bytes / _SQS_UNIT_BYTES))
    usage = {"sqs-request": _received(workload), "schedule-firing": workload.delayed}
    return ServiceBill(
        service="EventBridge + SQS",
        dollars=counts.dollars(usage) + _cost(prices, {"eventbridge-event": events}),
        remark="sending to the queues not counted",
        checked=prices["eventbridge-event"].checked,
    )


def _rocketmq(prices: dict[str, OtherPrice], workload: Workload) -> ServiceBill:
    """Returns the bill of a serverless instance of RocketMQ: each message counts when it is sent, and for each
    group."""
    weighted = workload.messages - workload.delayed + workload.delayed * _ROCKETMQ_DELAYED
    units = max(1, ceil(workload.message_bytes / _ROCKETMQ_UNIT_BYTES))
    return ServiceBill(
        service="RocketMQ (Alibaba, serverless)",
        dollars=_cost(prices, {"rocketmq-request": weighted * units * (1 + workload.groups)}),
        remark="topics, storage and traffic not counted",
        checked=prices["rocketmq-request"].checked,
    )


def _msk(prices: dict[str, OtherPrice], workload: Workload) -> ServiceBill:
    """Returns the bill of Kafka as Amazon MSK Serverless, with a topic for each service and a partition for each
    consumer of a group."""
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
    """Returns the bill of Kafka as a Basic cluster of Confluent Cloud, whose first eCKU is free."""
    gigabytes = workload.messages * workload.message_bytes / 2**30  # Confluent bills by the GiB
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
    """Returns sentences that name the cheapest service by checked prices, the largest item of Hourwheel's bill where
    that is another service, and cheaper services whose prices were not checked."""
    total = sum(items.values())
    cheapest = min((bill for bill in others if bill.checked), key=lambda bill: bill.dollars)
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
    below = [bill.service for bill in others if not bill.checked and bill.dollars < min(total, cheapest.dollars)]
    return f"{text} By a price that was not checked, {' and '.join(below)} costs less still." if below else text


def money(dollars: float) -> str:
    """Returns dollars with three digits or all before the point: 0.00123, 1.23, 123, 1,234."""
    if dollars >= 100:
        return f"{dollars:,.0f}"
    if dollars >= 1:
        return f"{dollars:.2f}"
    return f"{dollars:.3g}" if dollars else "0"
