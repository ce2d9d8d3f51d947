"""The example project of Django: its orders and their messages are committed together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.integration.process import Server, bodies, pull

PROJECT = Path(__file__).with_name("django_shop")

Manage = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(params=["postgresql", "sqlite"])
def manage(request: pytest.FixtureRequest, tmp_path: Path, server: Server) -> Manage:
    """Runs ``manage.py`` of the project."""
    if request.param == "sqlite":
        names = {"SHOP_SQLITE": str(tmp_path / "shop.db")}
    else:
        parts = urlsplit(request.getfixturevalue("postgres"))
        names = {"SHOP_NAME": parts.path[1:], "SHOP_HOST": parse_qs(parts.query)["host"][0]}
    environment = {**os.environ, **names, "SHOP_HOURWHEEL": f"http://127.0.0.1:{server.port}"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(PROJECT / "manage.py"), *arguments]
        return subprocess.run(command, env=environment, cwd=PROJECT, capture_output=True, text=True, check=False)

    return run


def test_an_order_and_its_message_are_committed_together(manage: Manage, server: Server) -> None:
    missing = manage("hourwheel_relay", "--once")
    assert (missing.returncode, "manage.py migrate hourwheel" in missing.stderr) == (1, True)
    assert manage("migrate", "--run-syncdb").returncode == 0
    assert "declined" in manage("buy", "book").stderr
    assert manage("buy", "lamp", "--paid").returncode == 0
    assert manage("hourwheel_relay", "--once").stdout == "sent 1\n"
    (message,) = bodies(pull(server))
    assert json.loads(message)["item"] == "lamp"


@pytest.mark.parametrize("manage", ["sqlite"], indirect=True)
def test_the_migrations_of_the_app_are_complete(manage: Manage) -> None:
    checked = manage("makemigrations", "--check", "--dry-run", "hourwheel")
    assert (checked.returncode, checked.stdout) == (0, "No changes detected in app 'hourwheel'\n")
