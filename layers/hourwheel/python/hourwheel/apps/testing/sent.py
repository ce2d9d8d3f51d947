"""Describes the messages that a queue in memory has accepted."""

from datetime import datetime
from typing import Any

import msgspec

from hourwheel.apps.testing.clock import moment
from hourwheel.apps.testing.server import Accepted
from hourwheel.client.encoding import encoded_body


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a message that the queue accepted. ``due_at`` is the time at which a delayed message is due, and None
    for any other.

    Example:
        >>> with Queue() as queue:
        ...     queue.producer("orders").send("paid", key="customer-42").result().offset
        ...     queue.sent("orders")[0].key
        0
        'customer-42'
    """

    body: str | bytes
    key: str | None
    tags: list[str]
    headers: dict[str, str]
    id: str
    sent_at: datetime
    due_at: datetime | None

    def json(self) -> Any:
        """Returns the body, decoded from JSON.

        Raises:
            ValueError: the body is no JSON.

        Example:
            >>> with Queue() as queue:
            ...     result = queue.producer("orders").send({"order": 7}).result()
            ...     queue.sent("orders")[0].json()
            {'order': 7}
        """
        return msgspec.json.decode(self.body)


def sent_of(accepted: Accepted) -> Sent:
    message, result = accepted.message, accepted.result
    body = message.body if message.body is not None else message.body_base64
    return Sent(
        body=body or "",
        key=message.key,
        tags=message.tags or [],
        headers=message.headers or {},
        id=result.id,
        sent_at=moment(accepted.at_ms),
        due_at=None if result.scheduled is None else datetime.fromisoformat(result.scheduled),
    )


def described(body: Any, fields: dict[str, Any]) -> str:
    expected = {name: value for name, value in {"body": body, **fields}.items() if value is not None}
    return ", ".join(f"{name}={value!r}" for name, value in expected.items())


def fits(message: Sent, body: Any, fields: dict[str, Any]) -> bool:
    return (body is None or _has_body(message, body)) and all(
        getattr(message, name) == value for name, value in fields.items()
    )


def _has_body(message: Sent, body: Any) -> bool:
    try:
        encoded = encoded_body(body)
    except TypeError:  # a matcher, such as ``unittest.mock.ANY``
        return bool(message.body == body)
    if encoded is body or isinstance(encoded, bytes):
        return bool(message.body == encoded)
    try:
        return bool(message.json() == msgspec.json.decode(encoded))
    except ValueError:
        return False
