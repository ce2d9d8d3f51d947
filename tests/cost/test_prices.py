"""Usage costs its units times their prices."""

import json
import re
from collections import Counter

import pytest

from bench.cost import rivals
from bench.cost.cases import wheel_hour
from bench.cost.clock import VCPU_MB, ModelClock
from bench.cost.deployment import INIT_SECONDS, MEMORY_MB, invocation
from bench.cost.meter import item_bytes, write_units
from bench.cost.prices import MILLION, PRICES, SERVICES, by_service, dollars, scaled


def test_each_price_has_a_unit_and_a_source_and_the_file_a_date() -> None:
    listed = json.loads(PRICES.read_text())
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", listed["date"])
    assert listed["region"] == "us-east-1"
    for price in listed["prices"].values():
        assert price["usd"] > 0
        assert price["per"] in (1, MILLION)
        assert price["unit"]
        assert price["source"].startswith("https://aws.amazon.com/")


def test_what_a_million_of_each_unit_costs() -> None:
    units = {"dynamodb-write": 0.625, "dynamodb-read": 0.125, "http-request": 1.0, "lambda-request": 0.2, "s3-put": 5.0}
    for name, price in units.items():
        assert dollars(Counter({name: MILLION})) == pytest.approx(price)


def test_a_unit_without_a_price_is_an_error() -> None:
    with pytest.raises(KeyError):
        dollars(Counter({"lunch": 1}))


def test_the_services_make_up_the_whole() -> None:
    usage = Counter({name: 1_000 for names in SERVICES.values() for name in names})
    assert sum(by_service(usage).values()) == pytest.approx(dollars(usage))
    assert set(by_service(Counter({"s3-get": 1}))) == {"S3"}


def test_usage_is_scaled() -> None:
    assert scaled(Counter({"s3-put": 3}), 0.5) == {"s3-put": 1.5}


@pytest.mark.parametrize(("batch", "expected"), [(1, 1.2), (2, 0.6), (10, 0.12), (100, 0.12)])
def test_sqs_bills_sending_receiving_and_deleting_ten_at_a_time_at_best(batch: int, expected: float) -> None:
    assert dollars(rivals.sqs(batch)) == pytest.approx(expected)


def test_sqs_bills_each_64_kb_of_what_is_sent_and_received() -> None:
    # 10 x 20,000 bytes are four requests of 64 KB; a deletion is one.
    assert rivals.sqs(10, 20_000)["sqs-request"] == pytest.approx(MILLION / 10 * (4 + 4 + 1))


def test_messages_sent_one_by_one_are_received_ten_at_a_time() -> None:
    assert dollars(rivals.sqs(1, taken=100)) == pytest.approx(0.4 + 0.04 + 0.04)


def test_fan_out_bills_one_publish_and_the_queue_of_each_group() -> None:
    assert dollars(rivals.fan_out(10, 70)) == pytest.approx(0.05 + 70 * 0.08)


def test_a_schedule_for_each_message_cannot_be_batched() -> None:
    assert dollars(rivals.scheduled(1)) == pytest.approx(1 + 3 * 0.4)
    assert dollars(rivals.scheduled(10)) == pytest.approx(1 + 0.4 + 0.08)
    assert dollars(rivals.scheduled_only()) == pytest.approx(1.4)


def test_a_consumer_that_polls_for_a_month() -> None:
    assert rivals.idle_poller()["sqs-request"] == 730 * 3_600 / 20


def test_an_invocation_is_billed_by_time_and_memory_and_its_share_of_starts() -> None:
    usage = invocation("pull", 2.0, 512)
    assert usage["lambda-request"] == 1
    assert usage["lambda-gb-second"] == pytest.approx((2.0 + INIT_SECONDS / 100) / 2)
    assert invocation("wheel", 2.0, 512)["lambda-gb-second"] == pytest.approx((2.0 + INIT_SECONDS) / 2)


def test_a_wheel_turns_for_an_hour_in_five_runs() -> None:
    seconds = 3_600 + 90 + 4 * 45 + 5 * INIT_SECONDS
    usage = wheel_hour()
    assert usage["lambda-gb-second"] == pytest.approx(seconds * MEMORY_MB["wheel"] / 1_024)
    assert (usage["lambda-request"], usage["schedule-firing"]) == (5, 1)


def test_an_item_is_as_large_as_its_names_and_values() -> None:
    item = {"pk": {"S": "é"}, "v": {"B": b"abc"}, "e": {"N": "1234"}, "sealed": {"BOOL": True}}
    assert item_bytes(item) == (2 + 2) + (1 + 3) + (1 + 3) + (6 + 1)
    assert [write_units(size) for size in (0, 1, 1_024, 1_025)] == [1, 1, 1, 2]


def test_time_is_what_is_waited_and_cpu_at_the_share_of_a_cpu() -> None:
    clock = ModelClock()
    began = clock.elapsed_ms()
    sum(range(10_000))
    assert clock.elapsed_ms() == began, "nothing runs"
    clock.wait(0.25)
    assert clock.elapsed_ms() == began + 250
    with clock.running(VCPU_MB // 4):
        before = clock.elapsed_ms()
        sum(range(100_000))
        assert clock.elapsed_ms() > before
