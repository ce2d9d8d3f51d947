"""The outbox takes connections that other libraries made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from hourwheel import outbox

_POOLED = """
import sys
from django.conf import settings
pooled = {"ENGINE": "django.db.backends.postgresql", "NAME": "shop", "HOST": sys.argv[1], "OPTIONS": {"pool": True}}
settings.configure(DATABASES={"default": pooled})
from django.db import connection
from hourwheel.apps.outbox.databases import database_of
try:
    database_of(connection).open()
finally:
    assert connection.settings_dict["OPTIONS"] == {"pool": True}
"""


def test_a_connection_that_is_awaited_is_refused_before_anything_is_lost() -> None:
    """A statement of such a connection does nothing until it is awaited."""
    connection = psycopg.AsyncConnection.__new__(psycopg.AsyncConnection)
    with pytest.raises(TypeError, match="asynchronous"):
        outbox.send(connection, "orders", "paid")


def test_a_relay_takes_no_connection_from_the_pool_of_a_django_project(tmp_path: Path) -> None:
    """The pool could not know that the connection ended. Without a server, the error says who tried to connect."""
    ended = subprocess.run(
        [sys.executable, "-c", _POOLED, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert "psycopg_pool" not in ended.stderr
    assert "OutboxUnreachable: cannot connect to the database 'default': connection" in ended.stderr
