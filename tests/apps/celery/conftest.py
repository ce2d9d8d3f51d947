"""Provides each module with a server of its own, and connections of Kombu to it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from kombu import Connection

import hourwheel.celery
from hourwheel.client import Api
from tests.integration.process import Server

NUMBERS = count(1)

__all__ = ["hourwheel"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("data"))
    yield started
    started.stop()


@pytest.fixture(scope="module")
def broker(server: Server) -> str:
    return f"hourwheel://127.0.0.1:{server.port}"


@pytest.fixture
def connection(broker: str) -> Iterator[Connection]:
    with Connection(broker) as made:
        yield made


@pytest.fixture
def api(server: Server) -> Iterator[Api]:
    with Api(f"http://127.0.0.1:{server.port}") as made:
        yield made


@pytest.fixture
def name() -> str:
    """Returns a name for a queue that no other test uses."""
    return f"queue-{next(NUMBERS)}"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path
