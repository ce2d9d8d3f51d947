"""Ids and texts of others stand in one line of the log, with their control characters as escapes."""

from __future__ import annotations

import ast
import logging
from pathlib import Path
from typing import Any

import pytest

import hourwheel
from hourwheel.client import Delivery, Reject, Retry
from hourwheel.client.consuming.idempotence import mark_stays
from tests.unit.client.fake import FakeServer
from tests.unit.client.test_consumer import Running, consumer, group

FORGED = "o-7\nERROR hourwheel all is lost\x1b[2J"
ESCAPED = "o-7\\nERROR hourwheel all is lost\\x1b[2J"
ROOMS = ("client", "apps")
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
OWN = {
    "_named([message], handling)",
    "error.delay",
    "host",
    "self._queue",
    "named",
    "self.name",
    "self._server",
    "self.subject",
    "_NAME",
    "reason",
    "self._settle_outage.repeated",
}
"""Texts of this program, and texts whose parts are escaped where they are made."""


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "hourwheel")
    return caplog


def check(lines: pytest.LogCaptureFixture) -> None:
    assert any(ESCAPED in line for line in lines.messages), lines.messages
    assert not [line for line in lines.messages if "\n" in line or "\x1b" in line]


@pytest.mark.parametrize("error", [Reject(FORGED), Retry(FORGED, delay="1s"), ValueError("plain")])
def test_the_id_of_a_message_and_the_text_of_an_error(
    server: FakeServer, lines: pytest.LogCaptureFixture, error: Exception
) -> None:
    with server.broker.changed:
        server.broker.produce("orders", {"messages": [{"body": "a", "id": FORGED}]})

    def handle(message: Delivery) -> None:
        raise error

    with Running(consumer(server), handle):
        server.wait_until(lambda _: group(server).dead or group(server).retries or group(server).backing_off)
    check(lines)


@pytest.mark.parametrize("call", ["pull", "settle"])
def test_the_error_of_a_server(server: FakeServer, lines: pytest.LogCaptureFixture, call: str) -> None:
    problem = {"type": "urn:hourwheel:unavailable", "title": "unavailable", "status": 503, "detail": FORGED}
    server.fail(call, status=503, raw=str(problem).replace("'", '"').encode("unicode_escape"))
    with server.broker.changed:
        server.broker.produce("orders", {"messages": [{"body": "a"}]})
    with Running(consumer(server), lambda message: None):
        server.wait_until(lambda broker: broker.group("orders", "billing").acked)
    assert not [line for line in lines.messages if "\n" in line or "\x1b" in line]


def test_the_mark_of_a_message(lines: pytest.LogCaptureFixture) -> None:
    mark_stays(FORGED)
    check(lines)


def logged() -> list[tuple[str, str, list[str]]]:
    """Returns the place, the format and the values of each line of the log in the rooms of clients."""
    root, found = Path(hourwheel.__file__).parent, []
    for path in sorted(path for room in ROOMS for path in (root / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _is_log(node.func) and isinstance(node.args[0], ast.Constant):
                values = [ast.unparse(value) for value in node.args[1:]]
                found.append((f"{path.relative_to(root)}:{node.lineno}", str(node.args[0].value), values))
    return found


def _is_log(function: Any) -> bool:
    return isinstance(function, ast.Attribute) and function.attr in LEVELS and "log" in ast.unparse(function.value)


def test_every_text_in_a_line_is_escaped() -> None:
    seen = logged()
    assert len(seen) > 25
    raw = []
    for place, text, values in seen:
        kinds = [part[0] for part in text.replace("%%", "").replace("%.0f", "%d").split("%")[1:]]
        assert len(kinds) == len(values), place
        raw += [
            f"{place} {value}"
            for kind, value in zip(kinds, values, strict=True)
            if kind == "s" and value not in OWN and not value.startswith(("shown(", "counted("))
        ]
    assert not raw
