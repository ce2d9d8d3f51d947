"""Text of other users reaches a terminal without control characters. A pseudo-terminal replaces the terminal."""

import json
import os
import pty
import subprocess
import sys
import termios
import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest

from hourwheel.wire.words import shown
from tests.unit.cli.conftest import Shell
from tests.unit.client.fake import FakeServer

TITLE = "\x1b]0;pwned\x07"
EVIL = (
    f"{TITLE}\x9b31m[red]bold[/red]\x08\x7f\r\n\tforged row\x00\x85\xad"
    "\u061c\u200b\u200d\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
    "\U000e0041\U0001f600 é \u3000."
)
SHOWN = (
    r"\x1b]0;pwned\x07\x9b31m[red]bold[/red]\x08\x7f\r\n\tforged row\x00\x85\xad"
    r"\u061c\u200b\u200d\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
    "\\U000e0041\U0001f600 é \u3000."
)


class Terminal:
    """``hourwheel`` in a process whose stdin, stdout and stderr are a terminal."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server

    def __call__(self, *args: str) -> str:
        """Returns the bytes that were sent to the terminal."""
        ours, theirs = pty.openpty()
        modes = termios.tcgetattr(theirs)
        modes[1] &= ~termios.OPOST  # otherwise line ends would be turned into others
        termios.tcsetattr(theirs, termios.TCSANOW, modes)
        environment = {**os.environ, "HOURWHEEL_URL": self.server.url, "TERM": "dumb", "COLUMNS": "300"}
        command = [sys.executable, "-m", "hourwheel", *args]
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        told = b"".join(iter(lambda: self._read(ours), b""))
        os.close(ours)
        process.wait(30)
        return told.decode()

    def _read(self, ours: int) -> bytes:
        try:
            return os.read(ours, 65_536)
        except OSError:  # Linux says so, where the other side is closed
            return b""

    def send(self, **message: Any) -> None:
        with self.server.broker.changed:
            self.server.broker.produce("orders", {"messages": [{"body": EVIL, **message}]})


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    with FakeServer().running() as server:
        yield Terminal(server)


def assert_harmless(told: str) -> None:
    for character in told.replace("\n", ""):
        assert character.isprintable() or unicodedata.category(character) == "Zs", ascii(character)


def bury(server: FakeServer) -> str:
    with server.broker.changed:
        [pull] = server.broker.pull("orders", "billing", {})["pulls"]
        server.broker.settle("orders", "billing", {"settle": [{"receipt": pull["receipt"], "dead": [0]}]})
        return str(server.broker.group("orders", "billing").dead[0]["dead_id"])


def test_everything_that_a_terminal_would_obey_is_escaped() -> None:
    assert shown(EVIL) == SHOWN
    assert shown("\ud800") == r"\ud800"
    for code in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)):
        assert shown(chr(code)).isascii()
        assert shown(chr(code)).isprintable()
    assert shown("naïve 日本語 [b]") == "naïve 日本語 [b]"


def test_a_body_is_one_harmless_line(terminal: Terminal) -> None:
    terminal.send()
    assert terminal("consume", "orders", "billing", "--once") == SHOWN + "\n"


def test_bytes_that_are_no_text_are_shown_as_such(terminal: Terminal) -> None:
    with terminal.server.broker.changed:
        terminal.server.broker.produce("orders", {"messages": [{"body_base64": "/xsbCg=="}]})
    assert terminal("consume", "orders", "billing", "--once") == r"\xff\x1b\x1b\n" + "\n"


def test_json_on_a_terminal_is_harmless_and_means_the_same(terminal: Terminal) -> None:
    terminal.send(key=TITLE, headers={EVIL: EVIL})
    told = terminal("consume", "orders", "billing", "--once", "--json")
    assert_harmless(told)
    message = json.loads(told)
    assert (message["body"], message["key"], message["headers"]) == (EVIL, TITLE, {EVIL: EVIL})


def test_tables_and_fields_are_harmless_and_have_no_markup(terminal: Terminal) -> None:
    terminal.send(id=EVIL, headers={EVIL: EVIL})
    dead_id = bury(terminal.server)
    assert_harmless(terminal("dead", "list", "orders", "billing"))
    told = terminal("dead", "show", "orders", "billing", dead_id)
    assert_harmless(told)
    assert "[red]bold[/red]" in told


def test_what_a_server_says_of_an_error_is_one_harmless_line(terminal: Terminal) -> None:
    problem = {"type": f"urn:hourwheel:{TITLE}", "title": EVIL, "status": 400, "detail": EVIL}
    terminal.server.fail("show_subject", status=400, raw=json.dumps(problem).encode())
    assert terminal("subject", "show", "orders") == f"hourwheel: {SHOWN}\n"


def test_a_line_of_a_file_that_is_quoted_in_an_error_is_harmless(terminal: Terminal, tmp_path: Any) -> None:
    (tmp_path / "in").write_text(json.dumps({"body": "a", f"[red]{TITLE}": 1}, ensure_ascii=False) + "\n")
    told = terminal("produce", "orders", "--jsonl", "--file", str(tmp_path / "in"))
    assert_harmless(told)
    assert "[red]" in told


def test_raw_is_asked_for_or_goes_into_a_pipe(terminal: Terminal, shell: Shell) -> None:
    terminal.send()
    assert terminal("consume", "orders", "billing", "--once", "--raw") == EVIL + "\n"
    with shell.server.broker.changed:
        shell.server.broker.produce("orders", {"messages": [{"body": EVIL}]})
    assert shell("consume", "orders", "billing", "--once").stdout_bytes == (EVIL + "\n").encode()


SCHEDULED_ID = "6b0446e0-6d2c-4f0e-9d55-2f4a1b8f7c11"
BODY = "customer-42 ordered 7 pieces " * 5


def list_one(server: FakeServer) -> None:
    """Lets the server list one delayed message, the row of which is wider than 80 columns."""
    due = {"deliver_at": "2026-11-20T10:00:00Z", "scheduled_id": SCHEDULED_ID, "state": "waiting"}
    named = {"subject": "orders-of-europe", "key": "customer-42", "id": SCHEDULED_ID[::-1], "body": BODY}
    server.fail("list_delayed", raw=json.dumps({"messages": [{**due, **named}], "next": None}).encode())


def test_a_table_in_a_pipe_cuts_nothing(shell: Shell) -> None:
    list_one(shell.server)
    table = shell("scheduled", "list", "--bodies", COLUMNS="80").stdout
    row = " ".join(table.splitlines()[3].split())
    named = f"orders-of-europe waiting customer-42 {SCHEDULED_ID[::-1]} {BODY.strip()} {SCHEDULED_ID}"
    assert row == f"2026-11-20 10:00:00Z {named}"


def test_a_table_on_a_narrow_terminal_folds_free_text_alone(terminal: Terminal) -> None:
    list_one(terminal.server)
    table = terminal("scheduled", "list", "--bodies")
    for whole in ("2026-11-20 10:00:00Z", SCHEDULED_ID, SCHEDULED_ID[::-1]):
        assert whole in table
    assert BODY not in table
    assert "…" not in table
    assert table.count("pieces") == 5
