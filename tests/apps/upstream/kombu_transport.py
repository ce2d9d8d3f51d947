"""Collects the cases of Kombu's integration tests, for a connection to Hourwheel. Pytest runs this file by itself."""

from __future__ import annotations

import os

import kombu
import pytest

import hourwheel.celery

pytest.register_assert_rewrite("t.integration.common")

from t.integration import common  # noqa: E402  # Kombu's, once its asserts are rewritten

BROKER = os.environ["UPSTREAM_BROKER"]
AWAY = "hourwheel://127.0.0.1:1"
LEVELS = {"priority_steps": list(range(10))}

__all__ = ["hourwheel"]


@pytest.fixture
def connection() -> kombu.Connection:
    return kombu.Connection(BROKER)


@pytest.fixture
def failover_connection() -> kombu.Connection:
    return kombu.Connection(f"{AWAY};{BROKER}")


@pytest.fixture
def invalid_connection() -> kombu.Connection:
    return kombu.Connection(AWAY)


class TestBasicFunctionality(common.BasicFunctionality):
    pass


class TestExchangeTypes(common.BaseExchangeTypes):
    pass


class TestTimeToLive(common.BaseTimeToLive):
    pass


class TestPriority(common.BasePriority):
    @pytest.fixture
    def connection(self) -> kombu.Connection:
        return kombu.Connection(BROKER, transport_options=LEVELS)


class TestMessage(common.BaseMessage):
    pass


class TestEventLoop(common.BaseEventLoop):
    pass


class TestFailover(common.BaseFailover):
    pass
