"""A bill multiplies counts with prices, and other services are billed by their own rules."""

import msgspec
import pytest

from hourwheel.aws.bill.counts import (
    BatchCounts,
    Counts,
    DelayCounts,
    FrontCounts,
    OtherPrice,
    WaitingCounts,
    read_counts,
    read_other_prices,
)
from hourwheel.aws.bill.items import Workload, at_batch, bill_items
from hourwheel.aws.bill.services import ServiceBill, comparison, money, other_bills

MONTH_DAYS = 365 / 12
PRICES = {
    "dynamodb-write": 1.0,
    "dynamodb-read": 1.0,
    "dynamodb-storage": 0.0,
    "dynamodb-backup": 0.0,
    "s3-put": 1.0,
    "s3-get": 1.0,
    "s3-storage": 0.0,
    "http-request": 1.0,
    "lambda-request": 1.0,
    "sqs-request": 1.0,
    "sns-publish": 1.0,
    "schedule-firing": 1.0,
}
COUNTS = Counts(
    date="2026-11-23",
    region="us-east-1",
    message_bytes=100,
    inline_bytes=12_288,
    waiting="one long poll after the other",
    fronts={
        "api": FrontCounts(
            batches={
                1: BatchCounts(row_bytes=100, send={"http-request": 1}, take={"http-request": 1, "dynamodb-write": 1}),
                10: BatchCounts(row_bytes=1_000, send={"http-request": 1}, take={"http-request": 1}),
                1_000: BatchCounts(row_bytes=50_000, send={"http-request": 1}, take={"http-request": 1}),
            },
            waiting=WaitingCounts(resting={"lambda-request": 7}, waking={"s3-get": 2}, polling={"s3-get": 1_000}),
        )
    },
    idle_deployment={"lambda-request": 5},
    idle_group={"lambda-request": 1},
    delays=DelayCounts(
        alone={"lambda-request": 100}, shared={"dynamodb-write": 1}, wheel_hour={"lambda-request": 1_000}
    ),
    prices=PRICES,
)


def items(**workload: int) -> dict[str, float]:
    return bill_items(COUNTS, Workload(**workload), "api")


def test_each_group_takes_every_message_and_each_message_is_sent_once() -> None:
    one, three = (items(messages_per_day=10, groups=groups) for groups in (1, 3))
    month = 10 * MONTH_DAYS
    assert one["requests"] == pytest.approx(2 * month)
    assert three["requests"] == pytest.approx(4 * month)
    assert one["writes"] == pytest.approx(2 * month), "the row, and the claim of the group"
    assert three["writes"] == pytest.approx(4 * month)
    assert three["reads"] == pytest.approx(3 * month / 2)


def test_every_consumer_of_every_group_of_every_service_waits() -> None:
    bill = items(messages_per_day=0, services=2, groups=3, consumers=4)
    assert bill["waiting"] == 2 * 3 * 4 * 7
    assert bill["idle"] == 5 + 2 * 3
    assert sum(bill.values()) == bill["waiting"] + bill["idle"]


def test_each_batch_wakes_its_groups_until_one_consumer_of_each_stays_in_its_pulls() -> None:
    rare = items(messages_per_day=10, groups=3, consumers=2)
    assert rare["waiting"] == pytest.approx(3 * 2 * 7 + 10 * MONTH_DAYS * 3 * 2)
    batched = items(messages_per_day=10, batch=10, consumers=1)
    assert batched["waiting"] == pytest.approx(7 + MONTH_DAYS * 2)
    busy = items(messages_per_day=1_000_000, services=2, groups=3, consumers=2)
    assert busy["waiting"] == pytest.approx(2 * 3 * 2 * 7 + 2 * 3 * 1_000)
    assert items(messages_per_day=1_000_000, consumers=0)["waiting"] == 0, "messages are pushed"


def test_few_delays_wake_a_wheel_each_and_many_share_the_wheels_of_the_month() -> None:
    free = msgspec.structs.replace(COUNTS, prices={**PRICES, "sqs-request": 0.0})  # the queue of timers costs nothing
    few, many = (
        bill_items(free, Workload(messages_per_day=number, delayed_per_day=number), "api") for number in (12, 100_000)
    )
    assert few["delays"] == pytest.approx(12 * MONTH_DAYS * 100)
    assert many["delays"] == pytest.approx(MONTH_DAYS * 24 * 1_000 + 100_000 * MONTH_DAYS)


def test_the_queue_of_timers_is_read_while_starts_are_near_and_at_most_all_month() -> None:
    prices = {name: 1.0 if name == "sqs-request" else 0.0 for name in PRICES}
    counts = msgspec.structs.replace(COUNTS, prices=prices)
    counts = msgspec.structs.replace(
        counts, delays=msgspec.structs.replace(counts.delays, wheel_hour={"sqs-request": 1e9})
    )
    none, few, many = (
        bill_items(counts, Workload(messages_per_day=100_000, delayed_per_day=number), "api")["delays"]
        for number in (0, 1, 100_000)
    )
    assert none == 0
    assert few == pytest.approx(657_000 * MONTH_DAYS * 9 / (MONTH_DAYS * 1_440), rel=0.01)
    assert many == pytest.approx(657_000)


def test_larger_messages_write_more_units_until_an_object_holds_the_batch() -> None:
    small, large, huge = (items(messages_per_day=10, batch=10, message_bytes=size) for size in (100, 1_000, 10_000))
    assert (small["objects"], large["objects"]) == (0, 0)
    assert large["writes"] == pytest.approx(small["writes"] * 10), "a row of 1 and of 10 KB"
    assert huge["writes"] == small["writes"]
    assert huge["objects"] == pytest.approx(2 * MONTH_DAYS), "stored once, read by one group"


def test_a_batch_ends_where_the_client_ends_it() -> None:
    halves = items(messages_per_day=1_000, batch=1_000, message_bytes=1 << 20)
    assert halves["requests"] == pytest.approx(2 * 2 * 1_000 * MONTH_DAYS), "each alone, of two units of 512 KB"


def test_between_two_counted_sizes_the_usage_is_interpolated() -> None:
    between = at_batch(COUNTS.fronts["api"].batches, 505)
    assert between.row_bytes == 25_500
    assert at_batch(COUNTS.fronts["api"].batches, 10) is COUNTS.fronts["api"].batches[10]


def other(workload: Workload) -> dict[str, float]:
    prices = {unit: msgspec.structs.replace(price, usd=1.0, per=1) for unit, price in read_other_prices().items()}
    return {
        bill.service.removesuffix(" (Alibaba, serverless)"): bill.dollars
        for bill in other_bills(COUNTS, prices, workload)
    }


def test_sqs_sends_receives_deletes_and_polls() -> None:
    month, polls = 100 * MONTH_DAYS, 730 * 3_600 / 20
    assert other(Workload(messages_per_day=100))["SQS"] == pytest.approx(3 * month + polls)
    fanned_out = other(Workload(messages_per_day=100, groups=2, batch=100, consumers=0))
    assert fanned_out["SNS + SQS"] == pytest.approx((1 + 2 * 2) * month / 10)


def test_a_delay_is_a_schedule_and_its_message_is_sent_alone() -> None:
    bill = other(Workload(messages_per_day=100, delayed_per_day=100, batch=10, consumers=0))
    month = 100 * MONTH_DAYS
    assert bill["SQS"] == pytest.approx(month + month + 2 * month / 10)
    assert bill["RocketMQ"] == pytest.approx(5 * month * 2)


def test_kafka_costs_its_cluster_without_any_message() -> None:
    assert other(Workload(messages_per_day=0, services=3, consumers=2))["Kafka (MSK Serverless)"] == 730 + 6 * 730


def test_kafka_of_confluent_costs_what_is_written_and_read_and_nothing_without_messages() -> None:
    assert other(Workload(messages_per_day=0))["Kafka (Confluent Cloud Basic)"] == 0
    bill = other(Workload(messages_per_day=1 << 20, message_bytes=1 << 10, groups=3))
    assert bill["Kafka (Confluent Cloud Basic)"] == pytest.approx(4 * MONTH_DAYS + 3)


def bills(sqs: float, rocketmq: float) -> list[ServiceBill]:
    return [
        ServiceBill(service="SQS", dollars=sqs, remark="", checked=True),
        ServiceBill(service="RocketMQ", dollars=rocketmq, remark="", checked=False),
    ]


def test_the_sentence_says_who_is_cheapest() -> None:
    dear = comparison({"writes": 1.0, "waiting": 9.0}, bills(5.0, 50.0))
    assert dear == (
        "SQS stays cheaper here: $5.00 a month, beside $10.00 with Hourwheel (2.0 times as much), whose largest item is"
        " waiting ($9.00)."
    )
    cheap = comparison({"writes": 1.0}, bills(5.0, 0.5))
    assert cheap == (
        "Hourwheel is cheapest here: $1.00 a month, beside $5.00 with SQS. By a price that was not checked, RocketMQ"
        " costs less still."
    )


@pytest.mark.parametrize(
    ("dollars", "text"), [(0, "0"), (0.00123, "0.00123"), (1.234, "1.23"), (99.5, "99.50"), (1234.5, "1,234")]
)
def test_dollars_have_three_digits(dollars: float, text: str) -> None:
    assert money(dollars) == text


def test_each_price_has_its_unit_date_and_source() -> None:
    for price in read_other_prices().values():
        assert isinstance(price, OtherPrice)
        assert price.usd > 0
        assert price.unit
        assert price.date
        assert price.checked == price.source.startswith("https://")


def test_the_counts_of_the_package_have_a_price_for_each_unit() -> None:
    counts = read_counts()
    workload = Workload(messages_per_day=1_000, groups=2, delayed_per_day=10, message_bytes=20_000)
    for front in ("api", "url"):
        assert all(dollars >= 0 for dollars in bill_items(counts, workload, front).values())
    assert sum(bill_items(counts, workload, "url").values()) < sum(bill_items(counts, workload, "api").values())
