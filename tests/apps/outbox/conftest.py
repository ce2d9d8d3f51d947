"""Provides databases with an outbox, and servers that are always stopped."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from hourwheel import outbox
from tests.integration.conftest import server, start

__all__ = ["server", "start"]

Reader = Callable[[], list[str]]


@pytest.fixture(params=["postgresql", "sqlite"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Returns the URL of a database with an outbox."""
    if request.param == "postgresql":
        url: str = request.getfixturevalue("postgres")
        with psycopg.connect(url) as connection:
            outbox.create_table(connection)
        return url
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as file:
        outbox.create_table(file)
    return f"sqlite:///{path}"


@pytest.fixture
def shop(database: str) -> str:
    """Returns the URL of a database with an outbox and a table of the application."""
    from hourwheel.apps.outbox.databases import database_of

    connection = database_of(database).open()
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    connection.close()
    return database
