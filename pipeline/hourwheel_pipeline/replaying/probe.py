"""Finds out which messages of a chunk the server has, when it is too late to send the chunk again under its idempotency
key. A group of its own reads the messages that the subject accepted around that time, and is deleted afterwards."""

import logging
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from hourwheel.client import AnswerError, Message, NotFound, Pulled, SendResult, ServerUnavailable
from hourwheel.client.records.subjects import Subject
from hourwheel.errors import Unavailable
from hourwheel.model.fields import IDEMPOTENCY_MS
from hourwheel.model.pulls import Settlement
from hourwheel.model.route_records import SubjectRoute

_logger = logging.getLogger("hourwheel")

SKEW_MS = 5 * 60_000
"""The clocks of the server and of this machine may differ by this much."""


class ReplayServer(Protocol):
    """The calls of ``hourwheel.client.Api`` that a replay needs."""

    def produce(
        self,
        subject: str,
        messages: Sequence[Message],
        *,
        idempotency_key: str | None = None,
        retry_seconds: float | None = None,
    ) -> list[SendResult]: ...

    def get_subject(self, subject: str) -> Subject: ...

    def get_route(self, subject: str) -> SubjectRoute: ...

    def put_group(self, subject: str, group: str, *, start: Any = None) -> Any: ...

    def seek(self, subject: str, group: str, to: Any) -> Any: ...

    def pull(
        self,
        subject: str,
        group: str,
        consumer: str,
        *,
        max_messages: int = 100,
        settle: Sequence[Settlement] = (),
    ) -> Pulled: ...

    def delete_group(self, subject: str, group: str) -> object: ...


def stored(
    server: ReplayServer, subject: str, group: str, ids: Collection[str], *, since_ms: int, until_ms: int, now_ms: int
) -> set[str] | None:
    """Returns the ids that the subject has, of messages that were sent between ``since_ms`` and ``until_ms`` (plus the
    time for which the server remembers a key). Returns None if the server cannot tell: the messages may have expired,
    or the caller may not read. Raises ``Unavailable`` if the server does not answer. Creates ``group``, which nobody
    else may use, and deletes it."""
    try:
        settings = _subject(server, subject)
        if settings is None:
            return set()  # its messages were deleted with it
        start_ms = since_ms - SKEW_MS
        if now_ms - start_ms >= settings.retention_seconds * 1_000:
            return None
        server.put_group(subject, group, start="latest")
        try:
            server.seek(subject, group, datetime.fromtimestamp(start_ms / 1_000, UTC))
            return _read(server, subject, group, settings.queues, ids, until_ms + IDEMPOTENCY_MS + SKEW_MS)
        finally:
            _forget(server, subject, group)
    except ServerUnavailable as error:
        raise Unavailable(f"the server does not say what it has of a chunk: run the replay again: {error}") from error
    except AnswerError:
        return None


def _subject(server: ReplayServer, subject: str) -> Subject | None:
    """Returns the subject; None if it does not exist. Any other ``NotFound`` says nothing about messages, and is
    raised."""
    try:
        return server.get_subject(subject)
    except NotFound as error:
        if error.slug != "subject-unknown":
            raise
        return None


def _forget(server: ReplayServer, subject: str, group: str) -> None:
    """Deletes the group. Logs a failure and returns: the ids are read already."""
    try:
        server.delete_group(subject, group)
    except AnswerError as error:
        _logger.warning("group %s of subject %s could not be deleted, delete it: %s", group, subject, error)


def _read(server: ReplayServer, subject: str, group: str, queues: int, ids: Collection[str], until_ms: int) -> set[str]:
    sought, seen = set(ids), set[str]()
    over = set[int | str]()
    receipts: list[Settlement] = []
    while len(over) < queues and seen != sought:
        pulls = server.pull(subject, group, "replay", max_messages=1_000, settle=receipts).pulls
        if not pulls:
            break
        receipts = [Settlement(receipt=pull.receipt) for pull in pulls]
        for pull in pulls:
            seen |= sought.intersection(message.id for message in pull.messages)
            # A queue in one log gives later messages alone from here on.
            beyond = pull.messages[-1].produced_at.timestamp() * 1_000 > until_ms
            if beyond and pull.queue not in over and _undivided(server, subject, pull.queue):
                over.add(pull.queue)
    return seen


def _undivided(server: ReplayServer, subject: str, queue: int | str) -> bool:
    """Returns whether all messages of the queue lie in one log: a queue that was moved may give later messages before
    earlier ones. Returns False if the caller may not read the route, and so has to read to the end."""
    try:
        routes = server.get_route(subject).queues
    except AnswerError:
        return False
    readable = [mapping for route in routes if route.queue == queue for mapping in route.mappings]
    return sum(mapping.state not in ("expired", "lost") for mapping in readable) == 1
