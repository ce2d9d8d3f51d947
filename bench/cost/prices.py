"""Computes the costs of usage at list prices."""

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TypeAlias

PRICES = Path(__file__).parent.parent / "prices.json"

Usage: TypeAlias = "Counter[str]"
"""Units used, by the names in ``prices.json``; fractions are fine."""

MILLION = 1_000_000

SERVICES = {
    "DynamoDB writes": ("dynamodb-write",),
    "DynamoDB reads": ("dynamodb-read",),
    "S3": ("s3-put", "s3-get"),
    "HTTP API": ("http-request",),
    "Lambda": ("lambda-request", "lambda-gb-second"),
    "Scheduler": ("schedule-firing",),
    "EMR": ("emr-vcpu-hour", "emr-gb-hour"),
    "Logs": ("log-gb",),
    "Storage": ("dynamodb-storage", "dynamodb-backup", "s3-storage"),
    "SQS, SNS": ("sqs-request", "sns-publish"),
}


@cache
def prices() -> dict[str, float]:
    """Returns the dollars for one unit, by name."""
    listed = json.loads(PRICES.read_text())["prices"]
    return {name: price["usd"] / price["per"] for name, price in listed.items()}


def dollars(usage: Usage) -> float:
    """Returns the dollars that the usage costs. Raises ``KeyError`` for a unit that has no price."""
    return sum(amount * prices()[name] for name, amount in usage.items())


def by_service(usage: Usage) -> dict[str, float]:
    """Returns the dollars for each service that was used."""
    named = {
        service: dollars(Counter({name: usage[name] for name in names if usage[name]}))
        for service, names in SERVICES.items()
    }
    return {service: cost for service, cost in named.items() if cost}


def scaled(usage: Usage, factor: float) -> Usage:
    return Counter({name: amount * factor for name, amount in usage.items()})
