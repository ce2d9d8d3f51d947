"""Commands name what is missing on a server that creates nothing by itself (``--no-auto-create``)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.commands.conftest import Shell
from tests.integration.process import Server

NO_SUBJECT = (
    "hourwheel: there is no subject 'nosuch': create it with hourwheel subject create nosuch,"
    " or PUT /v1/subjects/nosuch"
)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    server = Server(tmp_path / "data", auto_create=False)
    yield Shell(f"http://127.0.0.1:{server.port}")
    server.stop()
    for pipe in (server.process.stdout, server.process.stderr):
        assert pipe is not None
        pipe.close()


def test_a_command_says_once_how_to_create_what_is_missing(shell: Shell) -> None:
    assert shell.failed("consume", "nosuch", "billing", "--once") == NO_SUBJECT
    assert shell.failed("consume", "nosuch", "billing") == NO_SUBJECT
    assert shell.failed("produce", "nosuch", "hello") == NO_SUBJECT
    shell.ok("subject", "create", "nosuch")
    assert shell.failed("consume", "nosuch", "billing", "--once") == (
        "hourwheel: subject 'nosuch' has no group 'billing': create it with hourwheel group create nosuch billing,"
        " or PUT /v1/subjects/nosuch/groups/billing"
    )
    shell.ok("group", "create", "nosuch", "billing")
    shell.ok("produce", "nosuch", "hello")
    assert shell.ok("consume", "nosuch", "billing", "--once") == "hello"
