"""The costs of an open page follow from the prices of the cost model."""

import json
from pathlib import Path

import pytest

from hourwheel.console import costs

PRICES = json.loads((Path(__file__).parents[3] / "bench/prices.json").read_text())["prices"]


@pytest.mark.parametrize(
    ("usd", "unit"),
    [
        (costs.HTTP_REQUEST_USD, "http-request"),
        (costs.INVOCATION_USD, "lambda-request"),
        (costs.GB_SECOND_USD, "lambda-gb-second"),
        (costs.READ_UNIT_USD, "dynamodb-read"),
    ],
)
def test_a_price_is_that_of_the_list(usd: float, unit: str) -> None:
    assert usd == pytest.approx(PRICES[unit]["usd"] / PRICES[unit]["per"])


def test_a_call_costs_more_than_its_request_and_reading_a_subject_some_read_units() -> None:
    assert costs.HTTP_REQUEST_USD < costs.CALL_USD < 1e-5
    assert costs.READ_UNIT_USD < costs.READ_USD < 1e-5
