"""Provides one engine for the session, and tables of its own for each test."""

from collections.abc import Iterator
from itertools import count

import pytest

from bench.cost.deployment import CountedDeployment
from bench.cost.engine import ACCOUNT, dynalite

_numbers = count()


@pytest.fixture(scope="session")
def engine() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        for name, text in ACCOUNT.items():
            patch.setenv(name, text)
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
            patch.delenv(name, raising=False)
        with dynalite() as url:
            yield url


@pytest.fixture
def deployment(engine: str) -> Iterator[CountedDeployment]:
    opened = CountedDeployment(engine, f"test-{next(_numbers)}")
    yield opened
    opened.close()
