"""Which messages of a chunk the server has, found out by looking: for who comes too late to send it again under its
idempotency key. A group of its own reads what the subject accepted around that time, and is deleted."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from hourwheel.client import AnswerError, Message, NotFound, Placed, Pulled
from hourwheel.client.records import Subject
from hourwheel.model import IDEMPOTENCY_MS, Settlement

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
    the time that a key is remembered). None where nobody can tell: they may have expired, or we may not look."""
    try:
        found = server.get_subject(subject)
        start_ms = since_ms - SKEW_MS
        if now_ms - start_ms >= found.retention_seconds * 1_000:
            return None
        server.put_group(subject, group, start="latest")
        try:
            server.seek(subject, group, datetime.fromtimestamp(start_ms / 1_000, UTC))
            return _read(server, subject, group, found.queues, ids, until_ms + IDEMPOTENCY_MS + SKEW_MS)
        finally:
            server.delete_group(subject, group)
    except NotFound:
        return set()  # there is no such subject: whatever was sent there is gone with it
    except AnswerError:
        return None


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
