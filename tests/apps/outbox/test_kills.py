"""Relays and servers are killed again and again: each committed row is in the queue once, in order for each key."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import defaultdict
from typing import Any

import psycopg
import pytest

from hourwheel import outbox
from hourwheel.apps.outbox.databases import database_of
from tests.integration.conftest import Start
from tests.integration.process import Connection, Server

STAGES = 9
KEYS = 4
EACH = 12  # transactions of each key in a stage

# A relay may be told to end while it still imports what handles the signal.
_RELAY = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("started", flush=True)
from hourwheel.outbox import Relay
Relay(sys.argv[1], url=sys.argv[2], lease_seconds=1).run()
"""


class Relays:
    """Two relays in processes of their own."""

    def __init__(self, database: str, port: int) -> None:
        self._command = [sys.executable, "-c", _RELAY, database, f"http://127.0.0.1:{port}"]
        self._running = [self._start(), self._start()]

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def kill(self, number: int) -> None:
        with self._running[number] as victim:
            victim.kill()
        self._running[number] = self._start()

    def end(self) -> None:
        for relay in self._running:
            with relay:
                assert relay.stdout is not None
                assert relay.stdout.readline() == b"started\n"
                relay.terminate()
            assert relay.returncode == 0


class Writer(threading.Thread):
    """Commits rows of one key, two in a transaction, and some without a key; rolls every third transaction back."""

    def __init__(self, database: str, key: int, stage: int) -> None:
        super().__init__()
        self.database, self.key, self.stage = database, key, stage
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._write()
        except BaseException as error:
            self.error = error

    def _write(self) -> None:
        connection = database_of(self.database).open()
        for number in range(EACH):
            connection.execute(connection.dialect.begin)
            first = (self.stage * EACH + number) * 2
            for each in (first, first + 1):
                body = f"{each:05}" if number % 3 else f"rolled back {each}"
                outbox.send(connection.raw, "orders", body, key=f"key-{self.key}")
            outbox.send(connection.raw, "orders", f"free {self.key} {first}" if number % 3 else "rolled back")
            connection.execute("COMMIT" if number % 3 else "ROLLBACK")
        connection.close()


COMMITTED = STAGES * KEYS * 3 * sum(1 for number in range(EACH) if number % 3)


def all_messages(server: Server) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    offset: int | None = 0
    while offset is not None:
        page = server.ok("GET", f"/v1/subjects/orders/queues/0/messages?offset={offset}&limit=100")
        messages += page["messages"]
        offset = page["next"]
    return messages


def until_messages(connection: Connection, count: int) -> None:
    """Waits until this many messages, or more, have been pulled."""
    while count > 0:
        request = {"consumer": "c", "wait_seconds": 20, "max_messages": 20}
        pulls = connection.ok("POST", "/v1/subjects/orders/groups/signal/pull", request)["pulls"]
        count -= sum(len(each["messages"]) for each in pulls)


def test_each_committed_row_is_in_the_queue_once_and_in_order_whatever_is_killed(database: str, start: Start) -> None:
    server = start()
    port = server.port
    relays = Relays(database, port)
    for stage in range(STAGES):
        writers = [Writer(database, key, stage) for key in range(KEYS)]
        for writer in writers:
            writer.start()
        with server.connect() as connection:
            until_messages(connection, 15)
        if stage % 3 == 2:
            server.kill()
            relays.kill(0)
            server = start(port=port)
        else:
            relays.kill(stage % 2)
        for writer in writers:
            writer.join()
            assert writer.error is None
    messages = _complete(server)
    relays.end()
    bodies = [message["body"] for message in messages]
    assert [body for body in bodies if body.startswith("rolled back")] == []
    assert len(set(map(str, zip(bodies, [message.get("key") for message in messages], strict=True)))) == len(messages)
    by_key: dict[str, list[str]] = defaultdict(list)
    for message in messages:
        by_key[message.get("key", "")].append(message["body"])
    for key in range(KEYS):
        assert by_key[f"key-{key}"] == sorted(by_key[f"key-{key}"])
        assert len(by_key[f"key-{key}"]) == COMMITTED // 3 * 2 // KEYS
    assert len(messages) == COMMITTED == len(all_messages(server))


def _complete(server: Server) -> list[dict[str, Any]]:
    """Returns all messages once there are as many as rows were committed."""
    with server.connect() as connection:
        while len(messages := all_messages(server)) < COMMITTED:
            request = {"consumer": "c", "wait_seconds": 20, "max_messages": 1_000}
            connection.ok("POST", "/v1/subjects/orders/groups/signal/pull", request)
    return messages


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_relay_goes_on_after_the_database_has_ended_its_connections(database: str, server: Server) -> None:
    with outbox.Relay(database, url=f"http://127.0.0.1:{server.port}"), server.connect() as connection:
        with psycopg.connect(database) as shop:
            outbox.send(shop, "orders", "before")
        until_messages(connection, 1)
        with psycopg.connect(database, autocommit=True) as operator:
            ended = operator.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchone()
        assert ended is not None
        assert ended[0] >= 3
        with psycopg.connect(database) as shop:
            outbox.send(shop, "orders", "after")
        until_messages(connection, 1)
    assert [message["body"] for message in all_messages(server)] == ["before", "after"]
