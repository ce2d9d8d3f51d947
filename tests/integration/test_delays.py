"""Delayed messages through a server that is killed again and again: each comes once, none early, none that was
cancelled."""

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random

import pytest

from hourwheel.times import parse_rfc3339
from tests.integration.process import SECONDS, Connection, Server, bodies, pull

KILLS = 5
MANY_KILLS = 20
EACH_LIFE = 300
BATCH = 10
LONGEST_MS = 1_500
EACH_CANCELLED = 13


class Traffic:
    """Threads that send, cancel and consume at whichever server there is, and record the answers that they got."""

    def __init__(self) -> None:
        self.accepted: set[str] = set()
        self.asked: set[str] = set()
        """To be cancelled: where the answer was lost it may be or not."""
        self.cancelled: set[str] = set()
        self.dispatched: set[str] = set()
        self.early: list[str] = []
        self.received = 0
        self._changed = threading.Condition()
        self._port = 0
        self._over = False
        work = [self._send, self._send, self._consume]
        self._threads = [threading.Thread(target=self._live, args=(one, name)) for name, one in enumerate(work)]
        for thread in self._threads:
            thread.start()

    def send_to(self, port: int) -> None:
        with self._changed:
            self._port = port
            self._changed.notify_all()

    def until_more(self, messages: int) -> None:
        with self._changed:
            wanted = len(self.accepted) + messages
            assert self._changed.wait_for(lambda: len(self.accepted) >= wanted, SECONDS)

    def end(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(SECONDS)

    def _live(self, work: Callable[[Connection, int, int], None], name: int) -> None:
        memory = count()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._port or self._over)
                port = self._port
                if self._over:
                    return
            try:
                with Connection(port) as connection:
                    while not self._over:
                        work(connection, name, next(memory))
            except (OSError, http.client.HTTPException):
                with self._changed:
                    if self._port == port:
                        self._port = 0

    def _send(self, connection: Connection, name: int, number: int) -> None:
        chance = Random(name << 32 | number)
        texts = [f"{name}-{number}-{index}" for index in range(BATCH)]
        messages = [{"body": text, "delay": f"{chance.randrange(LONGEST_MS)}ms"} for text in texts]
        results = connection.ok("POST", "/v1/subjects/orders/messages", {"messages": messages})["results"]
        with self._changed:
            self.accepted.update(texts)
            self._changed.notify_all()
        for text, accepted in zip(texts, results, strict=True):
            if "scheduled_id" in accepted and chance.randrange(EACH_CANCELLED) == 0:
                self.asked.add(text)
                self._cancel(connection, text, accepted["scheduled_id"])

    def _cancel(self, connection: Connection, text: str, scheduled_id: str) -> None:
        state = connection.ok("DELETE", f"/v1/scheduled/{scheduled_id}")["state"]
        (self.cancelled if state == "cancelled" else self.dispatched).add(text)

    def _consume(self, connection: Connection, name: int, number: int) -> None:
        pulls = pull(connection, wait_seconds=1, max_messages=1_000)
        now_ms = time.time() * 1_000
        for message in (message for one in pulls for message in one["messages"]):
            self.received += 1
            if "due_at" in message and parse_rfc3339(message["due_at"], "") > now_ms:
                self.early.append(message["body"])
        if pulls:
            settle = [{"receipt": one["receipt"]} for one in pulls]
            connection.ok("POST", "/v1/subjects/orders/groups/billing/ack", {"settle": settle})


@pytest.mark.parametrize("kills", [KILLS, pytest.param(MANY_KILLS, marks=pytest.mark.volume)])
def test_kills_under_load_deliver_each_delayed_message_once(tmp_path: Path, kills: int) -> None:
    traffic = Traffic()
    try:
        for life in range(kills):
            server = Server(tmp_path)
            traffic.send_to(server.port)
            # Another moment in each life: within the ticks of the wheel as between them.
            traffic.until_more(EACH_LIFE + 37 * life)
            server.kill()
    finally:
        traffic.end()
    server = Server(tmp_path)
    with server.connect() as connection:
        deadline = time.monotonic() + SECONDS
        found: Counter[str] = Counter()
        while True:
            waiting = connection.ok("GET", "/v1/subjects/orders/scheduled")["messages"]
            pulls = pull(connection, group="auditor", max_messages=1_000, wait_seconds=1)
            found.update(bodies(pulls))
            if not pulls and not waiting:
                break
            assert time.monotonic() < deadline
    assert server.stop() == (0, "")
    assert len(traffic.accepted) >= kills * EACH_LIFE
    assert traffic.received
    assert traffic.cancelled
    assert not traffic.early
    assert [text for text, times in found.items() if times > 1] == []
    assert traffic.accepted - traffic.asked - found.keys() == set()
    assert traffic.cancelled & found.keys() == set()
    assert traffic.dispatched <= found.keys()


def test_what_fell_due_while_no_server_ran_comes_at_its_start(tmp_path: Path) -> None:
    first = Server(tmp_path)
    sent = first.ok("POST", "/v1/subjects/orders/messages", {"messages": [{"body": "a", "delay": "1s"}]})["results"]
    first.kill()
    second = Server(tmp_path)
    (one,) = pull(second, wait_seconds=10)
    assert [message["due_at"] for message in one["messages"]] == [sent[0]["scheduled"]]
    assert second.stop() == (0, "")


def test_a_server_that_stops_gives_its_buckets_back(tmp_path: Path) -> None:
    first = Server(tmp_path)
    first.ok("POST", "/v1/subjects/orders/messages", {"messages": [{"body": "a", "delay": "6s"}]})
    second = Server(tmp_path)  # not alone: it must not take over the work of the first one
    assert first.stop() == (0, "")
    second.ok("POST", "/v1/subjects/orders/messages", {"messages": [{"body": "b", "delay": "100ms"}]})
    found: list[str] = []
    while len(found) < 2:
        got = bodies(pull(second, wait_seconds=10))
        assert got
        found += got
    assert found == ["b", "a"]
    assert second.stop() == (0, "")
