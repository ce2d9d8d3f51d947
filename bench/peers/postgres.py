"""Uses PostgreSQL as a queue, as PGMQ does it: a table, rows that are hidden until a time, and SKIP LOCKED."""

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import chown
from typing import Any

from bench.peers.peer import Absent, Peer, Receiver, Sender, first_line, found, free_port, running

_PROGRAMS = "/usr/lib/postgresql/*/bin"
_PAUSE_SECONDS = 0.002  # a queue in a table wakes nobody: PGMQ asks again, every 100 ms if not told otherwise
_START_SECONDS, _LOOK_SECONDS = 30, 0.05
_TABLE = (
    'CREATE TABLE IF NOT EXISTS "{0}" (id bigserial PRIMARY KEY, due timestamptz NOT NULL, body bytea NOT NULL);'
    ' CREATE INDEX IF NOT EXISTS "{0}_due" ON "{0}" (due)'
)


class _Sender:
    def __init__(self, connection: Any, queue: str) -> None:
        self._connection, self._queue = connection, queue

    def send(self, bodies: Sequence[bytes]) -> None:
        insert = f'INSERT INTO "{self._queue}" (due, body) SELECT clock_timestamp(), unnest(%s::bytea[])'
        self._connection.execute(insert, (list(bodies),), prepare=True)

    def send_later(self, bodies: Sequence[bytes], due: Sequence[float]) -> None:
        insert = f'INSERT INTO "{self._queue}" (due, body) SELECT to_timestamp(at), body'
        insert += " FROM unnest(%s::float8[], %s::bytea[]) AS sent (at, body)"
        self._connection.execute(insert, (list(due), list(bodies)), prepare=True)

    def close(self) -> None:
        self._connection.close()


class _Receiver:
    def __init__(self, connection: Any, queue: str) -> None:
        self._connection = connection
        self._read = (
            f"UPDATE \"{queue}\" SET due = clock_timestamp() + interval '30 seconds' WHERE id IN (SELECT id FROM"
            f' "{queue}" WHERE due <= clock_timestamp() ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING id, body'
        )
        self._delete = f'DELETE FROM "{queue}" WHERE id = ANY(%s)'

    def take(self, most: int, wait_seconds: float) -> list[bytes]:
        until = time.monotonic() + wait_seconds
        while not (rows := self._connection.execute(self._read, (most,), prepare=True).fetchall()):
            if time.monotonic() >= until:
                return []
            time.sleep(_PAUSE_SECONDS)
        self._connection.execute(self._delete, ([number for number, _ in rows],), prepare=True)
        return [bytes(body) for _, body in rows]

    def close(self) -> None:
        self._connection.close()


class Postgres:
    name = "PostgreSQL, SKIP LOCKED"
    settings = "synchronous_commit on; shared_buffers 512 MB; a table with SKIP LOCKED, asked every 2 ms"

    def __init__(self, version: str, port: int) -> None:
        self.version = version
        self._address = f"host=127.0.0.1 port={port} user=bench dbname=postgres"
        self._await()

    def _await(self) -> None:
        """Waits until the server, which listens already, has recovered its log."""
        import psycopg

        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                psycopg.connect(self._address).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(_LOOK_SECONDS)

    def sender(self, queue: str) -> Sender:
        return _Sender(self._connected(queue), queue)

    def receiver(self, queue: str) -> Receiver:
        return _Receiver(self._connected(queue), queue)

    def _connected(self, queue: str) -> Any:
        import psycopg

        connection = psycopg.connect(self._address, autocommit=True)
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(1)")  # two at once may not create one table
            connection.execute(_TABLE.format(queue))
        return connection


@contextmanager
def opened(folder: Path) -> Iterator[Peer]:
    try:
        import psycopg  # noqa: F401  # checks that it is installed
    except ImportError:
        raise Absent("its Python client is not installed (psycopg)") from None
    newest = sorted(Path("/").glob(_PROGRAMS[1:]), key=lambda path: int(path.parent.name))
    programs = newest[-1] if newest else Path(found("postgres", "Debian: postgresql")).resolve().parent
    version = first_line(str(programs / "postgres"), "--version").split()[2]
    user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
    if user is not None:
        chown(folder, user)
        folder.parent.chmod(0o755)
    data, port = folder / "data", free_port()
    made = [str(programs / "initdb"), "-D", str(data), "-U", "bench", "--auth=trust"]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL, user=user)
    options = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "shared_buffers": "512MB"}
    command = [str(programs / "postgres"), "-D", str(data)]
    command += [text for name, value in options.items() for text in ("-c", f"{name}={value}")]
    with running(command, port, folder.with_suffix(".log"), user=user):
        yield Postgres(version, port)
