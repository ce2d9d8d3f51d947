"""Each command explains itself: a sentence, its arguments and options, and an example, which runs."""

import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from hourwheel import outbox
from hourwheel.cli.app import app
from hourwheel.client import Api, Message, PushTarget, Settlement
from tests.docs.test_commands import parse

ARN = "arn:aws:execute-api:eu-west-1:111122223333:abc/prod"
LONG = {
    *("serve", "console", "pipeline run", "pipeline status", "pipeline report", "grant create", "grant rotate"),
    *("backup", "restore", "check"),
}
"""These run a server, or want an archive, a data directory or function URLs: their examples are only parsed."""


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


ROOT = typer.main.get_command(app)
COMMANDS = dict(commands(ROOT))


def example(name: str) -> str:
    text = " ".join(COMMANDS[name].help.split("\f")[0].split())
    return str(text.partition("Example: ")[2])


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_has_a_sentence_and_an_example_of_this_command(name: str) -> None:
    assert COMMANDS[name].help.split("\n\n")[0].rstrip().endswith(".")
    assert example(name).startswith(f"hourwheel {name}")
    parse(ROOT, "hourwheel", shlex.split(example(name))[1:])


@pytest.mark.parametrize("name", COMMANDS)
def test_each_argument_and_option_is_explained(name: str) -> None:
    assert [parameter.name for parameter in COMMANDS[name].params if not parameter.help] == []


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in LONG])
def test_the_example_runs(name: str, api: Api, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect("shop.db")) as shop:
        outbox.create_table(shop)
    line = example(name).replace("SCHEDULED_ID", prepare(api)).replace("$API_ARN", ARN)
    done = CliRunner().invoke(app, shlex.split(line)[1:], env={"HOURWHEEL_URL": url})
    assert (done.exit_code, done.exception) == (0, None), done.output


def prepare(api: Api) -> str:
    """Prepares a dead letter, a message that waits, an ordered group, a group with a target, an empty cell, and a
    delayed message. Returns the id of the delayed message."""
    api.drain_cell("old")
    (pull,) = api.pull("orders", "billing", "host-1").pulls
    api.settle("orders", "billing", [Settlement(receipt=pull.receipt, dead=[0])])
    api.put_group("orders", "ledger", ordered=True)
    api.put_group("invoices", "mail", push=PushTarget(kind="https", url="https://billing.example.org/orders"))
    _, accepted = api.produce("orders", [Message("order 1", id="order-7"), Message("remind", delay="90d")])
    assert accepted.scheduled_id is not None
    return accepted.scheduled_id
