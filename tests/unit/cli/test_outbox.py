"""``hourwheel outbox`` shows operators the outbox, and carries out their decisions about refused rows."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hourwheel import outbox
from tests.unit.cli.conftest import Shell


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Returns an outbox with two rows that wait and two that were refused."""
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    outbox.create_table(connection)
    for body in ("1", "2", "3", "4"):
        outbox.send(connection, "orders", body, key="one")
    connection.execute("UPDATE hourwheel_outbox SET state = 1, settled_ms = 0, reason = 'no such queue' WHERE id > 2")
    connection.execute(
        "INSERT INTO hourwheel_outbox_shard (shard, sender, batch, relay) VALUES (3, 'x', x'920102', 'host-1:7')"
    )
    connection.commit()
    connection.close()
    return f"sqlite:///{path}"


def test_status_counts_rows_and_names_the_relays_that_send_some(shell: Shell, database: str) -> None:
    (status,) = shell.json("outbox", "status", "--database", database)
    assert (status["waiting"], status["refused"], status["kept"]) == (2, 2, 0)
    assert [(shard["relay"], shard["rows"]) for shard in status["shards"]] == [("host-1:7", 2)]
    text = shell.ok("outbox", "status", "--database", database)
    assert "host-1:7" in text
    assert "waiting" in text


def test_status_shows_no_lease_of_a_batch_that_its_relay_gave_back(shell: Shell, database: str) -> None:
    with closing(sqlite3.connect(database.removeprefix("sqlite:///"))) as shop:
        shop.execute("UPDATE hourwheel_outbox_shard SET lease_until_ms = 0, token = '' WHERE batch IS NOT NULL")
        shop.commit()
    (status,) = shell.json("outbox", "status", "--database", database)
    assert [shard["lease_until_ms"] for shard in status["shards"]] == [None]
    last = shell.ok("outbox", "status", "--database", database).split()[-1]
    assert last == "-"


def test_refused_rows_are_listed_with_their_reasons(shell: Shell, database: str) -> None:
    rows = shell.json("outbox", "list", "--database", database)
    assert [(row["id"], row["key"], row["body"], row["reason"]) for row in rows] == [
        (3, "one", "3", "no such queue"),
        (4, "one", "4", "no such queue"),
    ]
    assert "no such queue" in shell.ok("outbox", "list", "--database", database)


def test_a_list_of_refused_rows_goes_on_behind_its_limit(shell: Shell, database: str) -> None:
    first = shell("outbox", "list", "--database", database, "--limit", "1", "--json")
    assert [json.loads(line)["id"] for line in first.stdout.splitlines()] == [3]
    assert first.stderr.startswith("hourwheel: the list ends at its limit, and there may be more: --after 3 goes on")
    rest = shell("outbox", "list", "--database", database, "--limit", "1", "--after", "3", "--json")
    assert [json.loads(line)["id"] for line in rest.stdout.splitlines()] == [4]
    assert rest.stderr == ""
    assert shell("outbox", "list", "--database", database, "--limit", "2").stderr == ""
    assert shell.ok("outbox", "list", "--database", database, "--after", "4") == "none\n"


def test_refused_rows_are_retried_and_dropped(shell: Shell, database: str) -> None:
    assert shell.ok("outbox", "retry", "3", "--database", database) == "retried 1\n"
    assert shell.ok("outbox", "drop", "--all", "--yes", "--database", database) == "dropped 1\n"
    (status,) = shell.json("outbox", "status", "--database", database)
    assert (status["waiting"], status["refused"]) == (3, 0)


@pytest.mark.parametrize("rows", [["1"], ["3", "99"]])
def test_a_row_that_is_not_refused_is_told(shell: Shell, database: str, rows: list[str]) -> None:
    result = shell("outbox", "retry", *rows, "--database", database)
    assert (result.exit_code, "not refused, or not there" in result.stderr) == (1, True)


@pytest.mark.parametrize("which", [[], ["3", "--all"]])
def test_which_rows_must_be_said(shell: Shell, database: str, which: list[str]) -> None:
    assert shell("outbox", "retry", *which, "--database", database).exit_code == 2


@pytest.mark.parametrize(
    ("database", "reason"),
    [
        ("sqlite:///nothing.db", r"there is no file nothing\.db in /.*: name the database"),
        ("postgresql://shop:secret@127.0.0.1:1/shop?connect_timeout=2", "cannot connect|needs a driver"),
        ("oracle://shop", "sqlite:///FILE"),
    ],
)
@pytest.mark.parametrize("command", ["relay", "status"])
def test_a_database_that_cannot_be_reached_is_told_in_one_line(
    shell: Shell, command: str, database: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = shell("outbox", command, "--database", database)
    assert result.exit_code == 1
    assert re.search(reason, result.stderr)
    assert "secret" not in result.stderr
    assert "Traceback" not in result.stderr


def test_an_outbox_is_made_where_it_is_missing(shell: Shell, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "new.db")) as shop:
        shop.execute("CREATE TABLE shop (id INTEGER)")
    database = f"sqlite:///{tmp_path}/new.db"
    missing = shell("outbox", "relay", "--once", "--database", database)
    assert (missing.exit_code, "hourwheel outbox create" in missing.stderr) == (1, True)
    for _ in range(2):
        assert shell.ok("outbox", "create", "--database", database) == "the database has an outbox\n"
    assert shell.ok("outbox", "relay", "--once", "--database", database) == "sent 0\n"
