"""``make screenshot``: takes the picture of the console that README shows, of a server with traffic."""

import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from tests.console import chromium, scene
from tests.console.pages import Visits
from tests.integration.process import Connection, Server, pull

PICTURE = chromium.ROOT / "docs/console.png"
MOST_BYTES = 200_000
TRAFFIC_SECONDS = 40.0
"""The sparklines fill meanwhile."""
WIDTH, HEIGHT = 1280, 440


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, chromium.browser() as browser:
        server = Server(Path(folder) / "data")
        try:
            with server.connect() as connection:
                scene.fill(connection)
            visits = Visits(browser)
            with traffic(server):
                page = visits.open(f"http://127.0.0.1:{server.port}/console/")
                page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
                page.wait_for_timeout(TRAFFIC_SECONDS * 1_000)
                page.screenshot(path=PICTURE)
            visits.close()
        finally:
            server.kill()
            server.process.close()
    sys.stdout.write(f"{PICTURE.relative_to(chromium.ROOT)}: {PICTURE.stat().st_size:,} bytes\n")


@contextmanager
def traffic(server: Server) -> Iterator[None]:
    """Sends and consumes orders and shipments at a rate that swings, until the end."""
    ended = threading.Event()
    threads = [
        threading.Thread(target=_send, args=(server, "orders", 12, ended)),
        threading.Thread(target=_send, args=(server, "shipments", 5, ended)),
        *(
            threading.Thread(target=_consume, args=(server, subject, group, ended))
            for subject, group in (("orders", "mail"), ("orders", "billing"), ("shipments", "tracking"))
        ),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _send(server: Server, subject: str, most: int, ended: threading.Event) -> None:
    with server.connect() as connection:
        for turn in count():
            scene.send(connection, subject, scene.orders(1_000 + turn * most, 1 + turn * 7 % most))
            if ended.wait(0.25):
                return


def _consume(server: Server, subject: str, group: str, ended: threading.Event) -> None:
    with server.connect() as connection:
        while not ended.is_set():
            for got in pull(connection, subject=subject, group=group, consumer=f"{group}-3", max_messages=8):
                _acknowledge(connection, subject, group, got["receipt"])
            time.sleep(0.2)


def _acknowledge(connection: Connection, subject: str, group: str, receipt: str) -> None:
    connection.ok("POST", f"/v1/subjects/{subject}/groups/{group}/ack", {"settle": [{"receipt": receipt}]})


if __name__ == "__main__":
    main()
