"""Provides an application with an outbox in SQLite, and a queue in memory. Every statement and every request is a step
at which the relay may die, before the step or after it."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hourwheel import errors, outbox
from hourwheel.apps.outbox.databases import RelayConnection
from hourwheel.apps.outbox.shards import Shards
from hourwheel.apps.outbox.worker import Worker
from hourwheel.client.errors import AnswerError, BadRequest, Conflict, NotFound, Problem, ServerUnavailable
from hourwheel.client.records.messages import Message, SendResult
from hourwheel.model.messages import NewMessage
from hourwheel.producing.idempotency import IdempotencyKey
from hourwheel.system import SystemIds
from tests.support import Bench

_KINDS: dict[int, type[AnswerError]] = {400: BadRequest, 404: NotFound, 409: Conflict}


class Death(BaseException):
    """The relay's process is killed."""


@dataclass
class Steps:
    """Counts steps, and kills the relay at one of them: before its effect, or after it."""

    deadly: int = -1
    after: bool = False
    count: int = 0

    @contextmanager
    def step(self) -> Iterator[None]:
        self.count += 1
        if self.count == self.deadly and not self.after:
            raise Death
        yield
        if self.count == self.deadly:
            raise Death


class SteppedConnection(RelayConnection):
    def __init__(self, raw: sqlite3.Connection, steps: Steps) -> None:
        super().__init__(raw)
        self.steps = steps
        self.dead = False

    def _run(self, sql: str, parameters: Sequence[Any]) -> tuple[list[Any], int]:
        if self.dead:
            raise sqlite3.ProgrammingError("the process is dead")
        try:
            with self.steps.step():
                return super()._run(sql, parameters)
        except Death:
            # The kernel closes the file of a process that is killed: SQLite rolls back.
            self.dead = True
            self._raw.close()
            raise


@dataclass
class Queue:
    """The protocol of the server on a store in memory. ``fault`` may refuse a request, or lose its answer."""

    bench: Bench
    steps: Steps
    fault: Callable[[str, Sequence[Message], int], AnswerError | None] = lambda *_: None
    lost: Callable[[], bool] = lambda: False
    sent: list[tuple[str, int, int]] = field(default_factory=list)
    """The subject, the sequence and the number of messages of each request."""
    repeated: list[tuple[tuple[str, str, int], bool]] = field(default_factory=list)
    """The subject, the key and the sequence of each request, and whether it said that it is repeated."""

    def produce(
        self,
        subject: str,
        messages: Sequence[Message],
        *,
        idempotency_key: str | None = None,
        sequence: int | None = None,
        repeated: bool = False,
        retry_seconds: float | None = None,
    ) -> list[SendResult]:
        assert idempotency_key is not None
        assert sequence is not None
        with self.steps.step():
            self.sent.append((subject, sequence, len(messages)))
            self.repeated.append(((subject, idempotency_key, sequence), repeated))
            refusal = self.fault(subject, messages, sequence)
            if refusal is not None:
                raise refusal
            bodies = [
                NewMessage(body=str(message.body), key=message.key, deliver_at=_text(message.deliver_at))
                for message in messages
            ]
            digest = hashlib.sha256(repr([subject, *messages]).encode()).digest()
            try:
                self.bench.deployment.produce(subject, bodies, IdempotencyKey(idempotency_key, digest, sequence))
            except errors.Rejected as error:
                raise _KINDS[error.status](problem(error.status, error.slug, error.field, str(error))) from error
        if self.lost():
            raise ServerUnavailable(problem(503, "unavailable"), sent=True)
        return []


def _text(moment: object) -> str | None:
    return None if moment is None else str(moment)


def problem(status: int, slug: str, field: str | None = None, detail: str = "") -> Problem:
    return Problem(type=f"urn:hourwheel:{slug}", status=status, field=field, detail=detail)


class Unpaused(threading.Event):
    """Pauses pass at once."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


class Application:
    """The database of an application, and relays beside it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "shop.db"
        self._opened = ExitStack()
        self.connection = self._connect()
        self.connection.execute("PRAGMA synchronous = OFF")  # processes die here, machines do not
        outbox.create_table(self.connection)
        self.connection.commit()
        self.bench = Bench()
        self.steps = Steps()
        self.queue = Queue(self.bench, self.steps)
        self.clock = self.bench.clock

    def close(self) -> None:
        self._opened.close()

    def _connect(self, **how: Any) -> sqlite3.Connection:
        return self._opened.enter_context(closing(sqlite3.connect(self.path, **how)))

    def send(self, *bodies: str, subject: str = "orders", key: str | None = None, **fields: Any) -> None:
        """Commits one row for each body."""
        for body in bodies:
            with self.connection:
                outbox.send(self.connection, subject, body, key=key, clock=self.clock, **fields)

    def worker(self, **how: Any) -> Worker:
        raw = self._connect(check_same_thread=False)
        raw.execute("PRAGMA synchronous = OFF")
        ids = SystemIds()
        shards = Shards(
            connection=SteppedConnection(raw, self.steps),
            ids=ids,
            token=ids.token().hex(),
            relay="relay",
            lease_ms=15_000,
            keep_ms=how.pop("keep_ms", 0),
        )
        shards.create()
        return Worker(shards, self.queue, self.clock, ids, Unpaused(), **how)

    def drain(self, **how: Any) -> Worker:
        worker = self.worker(**how)
        while worker.turn():
            pass
        return worker

    def bodies(self, subject: str = "orders", group: str = "reader") -> list[str]:
        """Returns the bodies of all messages of the subject, in the order in which a group gets them."""
        try:
            self.bench.deployment.subjects.get(subject)
        except errors.NotFound:
            return []
        return self.bench.bodies(subject=subject, group=group)

    def rows(self, state: int) -> list[int]:
        found = self.connection.execute("SELECT id FROM hourwheel_outbox WHERE state = ? ORDER BY id", [state])
        return [row for (row,) in found]
