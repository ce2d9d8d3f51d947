"""Encodes the messages of Kombu.

A message of Hourwheel has the JSON object of Kombu's virtual transports as its body, and the id of the task as its id:

    {"body": "[[2, 2], {}, …]", "content-type": "application/json", "content-encoding": "utf-8",
     "headers": {"task": "shop.add", "id": "…", "eta": null, …},
     "properties": {"delivery_info": {"exchange": "", "routing_key": "celery"}, "body_encoding": null, …}}

``properties.body_encoding`` is ``base64`` where the body is not text.
"""

import sys
from base64 import b64decode
from datetime import UTC, datetime, tzinfo
from typing import Any, Literal, TypeAlias

import msgspec
from kombu.utils.json import dumps, loads
from msgspec import Struct

from hourwheel.client.records.messages import Message

KombuMessage: TypeAlias = dict[str, Any]

_MAX_ID = 100  # the longest id of a message


class NotKombu(Exception):
    """Says that the body of a message is not in Kombu's format."""


def encode(message: KombuMessage) -> Message:
    """Returns the message to send. Raises ``ValueError`` for a delay or an ``eta`` that is not valid."""
    properties = dict(message["properties"])
    delay, deliver_at = properties.pop("delay", None), properties.pop("deliver_at", None)
    headers = message.get("headers") or {}
    if delay is None and deliver_at is None:
        deliver_at = _eta(headers)
    text = dumps({**message, "properties": properties})
    task_id = headers.get("id")
    is_id = isinstance(task_id, str) and 1 <= len(task_id) <= _MAX_ID
    return Message(text, id=task_id if is_id else None, delay=delay, deliver_at=deliver_at)


def decode(body: str | bytes, *, redelivered: bool) -> KombuMessage:
    """Decodes a message for Kombu. Raises ``NotKombu`` for a body that Kombu could not read."""
    try:
        message: KombuMessage = loads(body)
        message["properties"].setdefault("delivery_info", {})["redelivered"] = redelivered
        _check(message)
    except Exception as error:  # Kombu has a decoder for each type of value, and these raise errors of any kind
        raise NotKombu(f"{type(error).__name__}: {error}") from error
    message["redelivered"] = redelivered
    return message


class _Route(Struct):
    exchange: str | None = None
    routing_key: str | None = None


class _DeliveryFields(Struct):
    delivery_info: _Route
    body_encoding: Literal["base64"] | None = None
    expiration: str | int | None = None


class _MessageFields(Struct, rename={"content_type": "content-type", "content_encoding": "content-encoding"}):
    properties: _DeliveryFields
    body: str | None = None
    headers: dict[str, Any] | None = None
    content_type: str | None = None
    content_encoding: str | None = None


def _check(message: KombuMessage) -> None:
    """Raises an error of any kind for fields that this transport or Kombu could not read. An error where they read the
    fields would end the worker before it could settle the message, again at each delivery."""
    fields = msgspec.convert(message, _MessageFields)
    if fields.properties.expiration is not None:
        int(fields.properties.expiration)
    if fields.properties.body_encoding is not None and fields.body:
        b64decode(fields.body)


def _eta(headers: KombuMessage) -> datetime | None:
    """Returns the time before which a task of Celery must not run.

    The header stays as it is: a worker whose clock is behind that of the server waits for the rest by itself.
    """
    eta = headers.get("eta")
    if not eta or "task" not in headers:
        return None
    moment = eta if isinstance(eta, datetime) else datetime.fromisoformat(str(eta))
    return moment if moment.tzinfo else moment.replace(tzinfo=_timezone())


def _timezone() -> tzinfo:
    """Returns the zone that Celery takes for times without one."""
    state = sys.modules.get("celery._state")  # a program of Kombu without Celery has not imported it
    if state is None:
        return UTC
    zone: tzinfo = state.get_current_app().timezone
    return zone
