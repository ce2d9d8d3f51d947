"""Runs the workers of a relay, in threads of the program that starts it."""

import logging
import os
import signal
import socket
import threading
from types import TracebackType
from typing import Any, Self

from hourwheel.apps.outbox.databases import Database, RelayConnection, database_of
from hourwheel.apps.outbox.errors import OutboxMissing
from hourwheel.apps.outbox.shards import Shards
from hourwheel.apps.outbox.wakeups import Wakeup
from hourwheel.apps.outbox.worker import MOST_ROWS, Stopping, Worker, unreachable
from hourwheel.client.api import DEFAULT_URL, Api
from hourwheel.client.transport.backoff import pause_seconds
from hourwheel.client.transport.signing import Sign
from hourwheel.locks import Event
from hourwheel.ports.machine import Clock, Ids
from hourwheel.system import SystemClock, SystemIds
from hourwheel.times import DAY_MS
from hourwheel.wire.words import shown

logger = logging.getLogger("hourwheel.outbox")

_FIRST_POLL_SECONDS = 0.01  # the pause after the last rows: more of them often follow; it doubles while none come
_POLL_SECONDS = 0.25  # the longest pause where nobody announces rows: they are sent this late at most
_LISTENING_POLL_SECONDS = 1.0  # the longest pause otherwise: finds missed announcements, and leases that ended
_LISTEN_SECONDS = 0.5  # ``stop`` waits this long for the listening thread at most
_HOUSEKEEPING_MS = 60_000  # the pause between two deletions of sent rows that are kept for ``keep_days``
_TRIES_ONCE = 8  # with pauses of at most six seconds together: the next run of cron sends the rows


class Relay:
    """Sends the rows of an outbox to a server. Any number of relays may run at once, in any number of processes.

    ``database`` is a URL (``postgresql://…``, ``sqlite:///…``, ``mysql://…``), an ``Engine`` of SQLAlchemy, a
    connection of Django, or a function that returns a new connection of the DB-API. ``url``, ``token``, ``ca_file``,
    ``sign`` and ``region`` are those of ``Api``. ``name`` is for logs and ``status`` only: two relays may have one
    name.

    A relay has ``workers`` threads, each with one connection to the database and one batch of at most ``batch_rows``
    rows and about 1 MiB. When a process dies, other relays take over its rows after ``lease_seconds``. Rows that were
    sent are kept for ``keep_days``. ``poll_seconds`` bounds the pauses of a worker that finds no rows.

    Raises:
        OutboxError: ``database`` is none of these.
        ValueError: ``token``, ``sign`` and ``region`` contradict each other, or a number is out of bounds.

    Example:
        >>> relay = Relay("sqlite:///shop.db", url="http://127.0.0.1:7420").start()
        >>> relay.stop()
    """

    def __init__(
        self,
        database: Any,
        *,
        url: str = DEFAULT_URL,
        token: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        sign: Sign | None = None,
        region: str | None = None,
        name: str | None = None,
        workers: int = 2,
        batch_rows: int = MOST_ROWS,
        lease_seconds: float = 15.0,
        keep_days: float = 0.0,
        poll_seconds: float | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        if not 1 <= batch_rows <= 1_000 or workers < 1 or lease_seconds <= 0 or keep_days < 0:
            raise ValueError("batch_rows is 1 to 1,000, workers 1 or more, lease_seconds above 0, keep_days 0 or more")
        self._database: Database = database_of(database)
        self._server = url.partition("//")[2].rpartition("@")[2]  # without a password
        self._api = Api(url, token=token, ca_file=ca_file, sign=sign, region=region)
        self.name = (name or f"{socket.gethostname()}:{os.getpid()}")[:200]
        self._workers = workers
        self._batch_rows = batch_rows
        self._lease_ms = int(lease_seconds * 1_000)
        self._keep_ms = int(keep_days * DAY_MS)
        self._poll_seconds = poll_seconds
        self._clock: Clock = clock or SystemClock()
        self._ids: Ids = ids or SystemIds()
        self._wakeup = Wakeup()
        self._stopping = Event()
        self._threads: list[threading.Thread] = []
        self._listening = False
        self._housekeeping_ms = 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Starts the threads of the relay, which end with the program.

        Raises:
            OutboxError: the driver of the database is not installed.
            OutboxMissing: the database has no outbox, or one of another version.
            OutboxUnreachable: the database refuses the connection or does not answer.

        Example:
            >>> with Relay("sqlite:///shop.db") as relay:
            ...     relay.name != ""
            True
        """
        self._database.check()
        bodies = [self._work] * self._workers + [self._listen]
        self._threads = [threading.Thread(target=body, name="hourwheel-outbox", daemon=True) for body in bodies]
        for thread in self._threads:
            thread.start()
        return self

    def run(self) -> None:
        """Runs the relay until ``stop`` is called, or until the program gets SIGINT or SIGTERM. Signals end it only on
        the main thread.

        Raises:
            OutboxError, OutboxMissing, OutboxUnreachable: as ``start``.

        Example:
            >>> threading.Timer(1, relay.stop).start()
            >>> relay.run()
        """
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # raises KeyboardInterrupt, as SIGINT does
        try:
            self.start()
            logger.info("relay %s sends the rows of the outbox to %s", self.name, self._server)
            self._stopping.wait()
        except KeyboardInterrupt:
            logger.info("the relay stops")
        finally:
            self.stop()

    def run_once(self) -> int:
        """Sends rows until none waits, and removes rows that were kept for ``keep_days``: for cron, and for tests.
        Returns the number of rows that were sent or refused.

        Raises:
            OutboxError, OutboxMissing, OutboxUnreachable: as ``start``.
            ServerUnreachable: the server took no rows for some seconds, or does not let this relay send to a subject.
                The rows wait for the next relay.

        Example:
            >>> Relay("sqlite:///shop.db").run_once()
            0
        """
        self._database.check()
        connection = self._database.open()
        try:
            worker = self._worker(connection)
            worker.most_tries = _TRIES_ONCE
            total = 0
            while worker.is_waiting():
                total += worker.turn()
            worker.shards.remove_sent(self._clock.now_ms())
            if worker.not_allowed is not None:
                raise unreachable(worker.not_allowed)
            return total
        except Stopping:
            return 0
        finally:
            connection.close()

    def stop(self) -> None:
        """Stops after the batches under way, and closes the connections. A batch that the server has not answered for
        yet stays recorded, and the next relay sends it.

        Raises nothing.

        Example:
            >>> Relay("sqlite:///shop.db").stop()
        """
        self._stopping.set()
        self._wakeup.set()
        self._join()
        self._api.close()

    def _join(self) -> None:
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _worker(self, connection: RelayConnection) -> Worker:
        shards = Shards(
            connection=connection,
            ids=self._ids,
            token=self._ids.token().hex(),
            relay=self.name,
            lease_ms=self._lease_ms,
            keep_ms=self._keep_ms,
        )
        shards.create()
        return Worker(shards, self._api, self._clock, self._ids, self._stopping, self._batch_rows)

    def _work(self) -> None:
        attempt = 0
        while not self._stopping.is_set():
            try:
                connection = self._database.open()
                try:
                    worker = self._worker(connection)
                    attempt = 0
                    self._turns(worker)
                finally:
                    connection.close()
            except Stopping:
                return
            except Exception as error:  # each driver has errors of its own for a lost connection
                # One line for each outage. Missing tables are logged each time: only an operator can make them.
                if attempt == 0 or isinstance(error, OutboxMissing):
                    logger.warning(
                        "the database of the outbox does not answer, the relay tries again: %s", shown(str(error))
                    )
                self._stopping.wait(pause_seconds(attempt, self._ids))
                attempt += 1

    def _turns(self, worker: Worker) -> None:
        poll_seconds = _FIRST_POLL_SECONDS
        while not self._stopping.is_set():
            count = self._wakeup.count  # read before the turn: rows that are committed during the turn end the pause
            if worker.turn():
                poll_seconds = _FIRST_POLL_SECONDS
                continue
            self._housekeep(worker)
            longest = self._poll_seconds or (_LISTENING_POLL_SECONDS if self._listening else _POLL_SECONDS)
            if self._wakeup.wait(count, min(poll_seconds, longest)):
                poll_seconds = _FIRST_POLL_SECONDS
            else:
                poll_seconds *= 2

    def _housekeep(self, worker: Worker) -> None:
        now_ms = self._clock.now_ms()
        if now_ms >= self._housekeeping_ms:
            self._housekeeping_ms = now_ms + _HOUSEKEEPING_MS
            worker.shards.remove_sent(now_ms)

    def _listen(self) -> None:
        attempt = 0
        while not self._stopping.is_set():
            try:
                connection = self._database.open()
                try:
                    if not connection.listen():
                        return
                    self._listening = True
                    attempt = 0
                    self._wakeup.set()  # for rows that were announced before this connection listened
                    while not self._stopping.is_set():
                        if connection.announced(_LISTEN_SECONDS):
                            self._wakeup.set()
                finally:
                    self._listening = False
                    connection.close()
            except Exception as error:  # any driver's error: the workers poll meanwhile
                logger.debug("the relay does not hear of new rows: %s", shown(str(error)))
                self._stopping.wait(pause_seconds(attempt, self._ids))
                attempt += 1
