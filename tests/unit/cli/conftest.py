import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hourwheel.cli.app import app
from tests.unit.client.fake import FakeServer


class Shell:
    """Runs ``hourwheel`` against a server, as a user would type it."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self._environment = {"HOURWHEEL_URL": server.url, "COLUMNS": "200", "TERM": "dumb"}

    def __call__(self, *args: str, stdin: str | bytes = "", **environment: str) -> Result:
        return CliRunner().invoke(app, args, input=stdin, env={**self._environment, **environment})

    def ok(self, *args: str, stdin: str | bytes = "") -> str:
        result = self(*args, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *args: str, stdin: str | bytes = "") -> list[Any]:
        return [json.loads(line) for line in self.ok(*args, "--json", stdin=stdin).splitlines()]


@pytest.fixture
def shell() -> Iterator[Shell]:
    with FakeServer().running() as server:
        yield Shell(server)
