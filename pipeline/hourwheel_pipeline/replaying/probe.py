"""Which messages of a chunk the server has, found out by looking: for who comes too late to send it again under its
idempotency key. A group of its own reads what the subject accepted around that time, and is deleted."""

import logging
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from hourwheel.client import AnswerError, Message, NotFound, Placed, Pulled, ServerUnavailable
from hourwheel.client.records import Subject
from hourwheel.errors import Unavailable
from hourwheel.model import IDEMPOTENCY_MS, Settlement

_logger = logging.getLogger("hourwheel")

SKEW_MS = 5 * 60_000
"""So far the clocks of the server and of this machine may be apart."""


class Server(Protocol):
    """Of ``hourwheel.client.Api``."""

    def produce(
        self,
        subject: str,
        messages: Sequence[Message],
        *,
        idempotency_key: str | None = None,
        retry_seconds: float | None = None,
    ) -> list[Placed]: ...

    def get_subject(self, subject: str) -> Subject: ...

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

    def delete_group(self, subject: str, group: str) -> None: ...


def stored(
    server: Server, subject: str, group: str, ids: Collection[str], *, since_ms: int, until_ms: int, now_ms: int
) -> set[str] | None:
    """Those of the ids that the subject has, of messages first sent at ``since_ms`` and never after ``until_ms`` (and
    the time that a key is remembered). None where nobody can tell: they may have expired, or we may not look. Raises
    ``Unavailable`` where the server does not answer now. ``group``: one that nobody else uses."""
    try:
        found = _subject(server, subject)
        if found is None:
            return set()  # whatever was sent there is gone with it
        start_ms = since_ms - SKEW_MS
        if now_ms - start_ms >= found.retention_seconds * 1_000:
            return None
        server.put_group(subject, group, start="latest")
        try:
            server.seek(subject, group, datetime.fromtimestamp(start_ms / 1_000, UTC))
            return _read(server, subject, group, found.queues, ids, until_ms + IDEMPOTENCY_MS + SKEW_MS)
        finally:
            _forget(server, subject, group)
    except ServerUnavailable as error:
        raise Unavailable(
            f"the server cannot be asked what it has of a chunk: run the replay again: {error}"
        ) from error
    except AnswerError:
        return None


def _subject(server: Server, subject: str) -> Subject | None:
    """None where there is none; another address that is not found says nothing of what is stored."""
    try:
        return server.get_subject(subject)
    except NotFound as error:
        if error.slug != "subject-unknown":
            raise
        return None


def _forget(server: Server, subject: str, group: str) -> None:
    """What was read is known, whether or not the group can be deleted."""
    try:
        server.delete_group(subject, group)
    except AnswerError as error:
        _logger.warning("group %s of subject %s could not be deleted, delete it: %s", group, subject, error)


def _read(server: Server, subject: str, group: str, queues: int, ids: Collection[str], until_ms: int) -> set[str]:
    wanted, seen = set(ids), set[str]()
    over = set[int | str]()
    receipts: list[Settlement] = []
    while len(over) < queues and seen != wanted:
        pulls = server.pull(subject, group, "replay", max_messages=1_000, settle=receipts).pulls
        if not pulls:
            break
        receipts = [Settlement(receipt=pull.receipt) for pull in pulls]
        for pull in pulls:
            seen |= wanted.intersection(message.id for message in pull.messages)
            if pull.messages[-1].produced_at.timestamp() * 1_000 > until_ms:
                over.add(pull.queue)
    return seen
