"""Runs the command line against a real server, which serves all tests of a module."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hourwheel.cli.app import app
from hourwheel.client import Api
from tests.integration.process import three_cells


class Shell:
    """Runs ``hourwheel`` against a server, as a user would type it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, *args: str, stdin: str = "") -> Result:
        return CliRunner().invoke(app, args, input=stdin, env={"HOURWHEEL_URL": self.url, "COLUMNS": "200"})

    def ok(self, *args: str, stdin: str = "") -> str:
        result = self(*args, stdin=stdin)
        assert result.exit_code == 0, result.output
        return " ".join(result.stdout.split())

    def json(self, *args: str, stdin: str = "") -> Any:
        """Returns the value, or the list of values, that the command prints with ``--json``."""
        result = self(*args, "--json", stdin=stdin)
        assert result.exit_code == 0, result.output
        values = [json.loads(line) for line in result.stdout.splitlines()]
        return values[0] if len(values) == 1 else values

    def refused(self, *args: str) -> str:
        """Returns the sentence with which the command refuses its options, before it calls the server."""
        result = self(*args)
        assert result.exit_code == 2, result.output
        return " ".join(result.stderr.replace("│", " ").split())

    def failed(self, *args: str) -> str:
        """Returns the sentence of the command when the server refuses its call."""
        result = self(*args)
        assert result.exit_code == 1, result.output
        return " ".join(result.stderr.split())


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with three_cells(tmp_path_factory.mktemp("commands")) as url:
        yield url


@pytest.fixture
def api(url: str) -> Iterator[Api]:
    """Deletes all subjects after the test."""
    with Api(url) as api:
        yield api
        for subject in api.list_subjects().subjects:
            api.delete_subject(subject.subject)


@pytest.fixture
def shell(url: str, api: Api) -> Shell:
    return Shell(url)
