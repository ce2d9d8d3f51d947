"""Provides servers that are always stopped."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.process import Server

Start = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a server on ``tmp_path / "data"`` unless told otherwise."""
    started: list[Server] = []

    def begin(data: Path = tmp_path / "data", **options: Any) -> Server:
        started.append(Server(data, **options))
        return started[-1]

    yield begin
    for server in started:
        if server.process.poll() is None:
            server.kill()
        server.process.close()


@pytest.fixture
def server(start: Start) -> Server:
    return start()
