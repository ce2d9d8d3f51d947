"""Collects the cases of Dramatiq's tests, for actors on Hourwheel. Pytest runs this file in a process of its own.

Dramatiq's package has its tests without their fixtures and their module ``common``: these are here.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

import dramatiq
import pytest
from dramatiq import Worker
from dramatiq.rate_limits.backends import StubBackend as RateLimiterBackend
from dramatiq.results.backends import StubBackend as ResultBackend

from hourwheel.dramatiq import HourwheelBroker
from tests.apps.upstream.sources import TESTS, folder

MODULES = ("test_actors", "test_callbacks", "test_composition", "test_generic_actors", "test_redis", "test_worker")
NUMBERS = itertools.count(1)


@contextmanager
def worker(*arguments: Any, **how: Any) -> Iterator[Worker]:
    started = Worker(*arguments, **how)
    started.start()
    try:
        yield started
    finally:
        started.stop()


class TestedBroker(HourwheelBroker):
    """Takes the options of ``join`` that only the other brokers have, without their effect."""

    __test__ = False

    def join(self, queue_name: str, *, fail_fast: bool = False, **how: Any) -> None:
        super().join(queue_name, **how)


@pytest.fixture
def stub_broker() -> Iterator[HourwheelBroker]:
    broker = TestedBroker(os.environ["UPSTREAM_BROKER"], namespace=f"case-{next(NUMBERS)}.")
    broker.emit_after("process_boot")
    dramatiq.set_broker(broker)
    yield broker
    broker.close()


@pytest.fixture
def stub_worker(stub_broker: HourwheelBroker) -> Iterator[Worker]:
    with worker(stub_broker, worker_timeout=100, worker_threads=8) as started:
        yield started


@pytest.fixture
def redis_broker(stub_broker: HourwheelBroker) -> HourwheelBroker:
    return stub_broker


@pytest.fixture
def redis_worker(stub_worker: Worker) -> Worker:
    return stub_worker


@pytest.fixture
def result_backend() -> ResultBackend:
    return ResultBackend()


@pytest.fixture
def rate_limiter_backend() -> RateLimiterBackend:
    return RateLimiterBackend()


def _module(name: str, **contents: Any) -> None:
    made = ModuleType(name)
    vars(made).update(contents)
    sys.modules[name] = made


def _unchanged(case: Any) -> Any:
    return case


pytest.register_assert_rewrite("dramatiq_tests")
_module("dramatiq_tests", __path__=[str(folder("dramatiq") / TESTS["dramatiq"])])
_module("dramatiq_tests.common", worker=worker, skip_on_pypy=_unchanged)
for module in MODULES:
    cases = {
        name: case for name, case in vars(import_module(f"dramatiq_tests.{module}")).items() if name.startswith("test_")
    }
    assert not cases.keys() & globals().keys()
    globals().update(cases)
