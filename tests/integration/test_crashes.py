"""Killed at any moment, the server has lost nothing that it accepted."""

import http.client
import threading
from itertools import count
from pathlib import Path

from tests.integration.process import SECONDS, Connection, Server, bodies, pull, send

KILLS = 20
WRITERS = 4
EACH_LIFE = 25


class Writers:
    """Runs threads that send to the server that runs, and record the messages that it accepted."""

    def __init__(self) -> None:
        self.accepted: list[str] = []
        self._grown = threading.Condition()
        self._port = 0
        self._over = False
        self._threads = [threading.Thread(target=self._work, args=(name,)) for name in range(WRITERS)]
        for thread in self._threads:
            thread.start()

    def send_to(self, port: int) -> None:
        with self._grown:
            self._port = port
            self._grown.notify_all()

    def until_more(self, messages: int) -> None:
        with self._grown:
            wanted = len(self.accepted) + messages
            assert self._grown.wait_for(lambda: len(self.accepted) >= wanted, SECONDS)

    def end(self) -> None:
        with self._grown:
            self._over = True
            self._grown.notify_all()
        for thread in self._threads:
            thread.join(SECONDS)

    def _work(self, name: int) -> None:
        numbers = count()
        while True:
            with self._grown:
                self._grown.wait_for(lambda: self._port or self._over)
                port = self._port
                if self._over:
                    return
            try:
                with Connection(port) as connection:
                    while True:
                        batch = [f"{name}-{next(numbers)}" for _ in range(1 + name)]
                        send(connection, *batch)
                        with self._grown:
                            self.accepted += batch
                            self._grown.notify_all()
            except (OSError, http.client.HTTPException):
                with self._grown:
                    # The server is gone, until the next one is named.
                    if self._port == port:
                        self._port = 0


def test_twenty_kills_under_load_lose_nothing_that_was_accepted(tmp_path: Path) -> None:
    writers = Writers()
    try:
        for _ in range(KILLS):
            server = Server(tmp_path)
            writers.send_to(server.port)
            writers.until_more(EACH_LIFE)
            server.kill()
    finally:
        writers.end()
    server = Server(tmp_path)
    found: list[str] = []
    with server.connect() as connection:
        while pulls := pull(connection, max_messages=1_000):
            found += bodies(pulls)
    assert server.stop() == (0, "")
    assert len(writers.accepted) >= KILLS * EACH_LIFE
    assert set(found) >= set(writers.accepted)
    assert len(found) == len(set(found)), "what was stored was stored once"
