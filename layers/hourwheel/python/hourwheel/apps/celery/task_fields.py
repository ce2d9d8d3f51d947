"""Checks the fields of a task before a worker of Celery gets it.

A worker reads some fields long after it took the message, in its event loop or in the thread that handles results. An
error there ends the worker before the message is settled, and the next worker takes the message.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

_LONGEST_LIMIT_SECONDS = 4_294_967  # of a task: timers count milliseconds in 32 bits

_Limit = Annotated[float, Meta(ge=0, le=_LONGEST_LIMIT_SECONDS)]
_Signature = dict[str, Any]


class NotTask(Exception):
    """Says which field of a message no worker of Celery can read."""


class _TaskFields(Struct, kw_only=True):
    """The headers of protocol 2, and the fields of a body of protocol 1 that have their names."""

    task: str
    id: str
    shadow: str | None = None
    root_id: str | None = None
    parent_id: str | None = None
    group: str | None = None
    retries: int | None = None
    timelimit: tuple[_Limit | None, _Limit | None] | None = None
    stamped_headers: list[str] | None = None
    stamps: dict[str, Any] | None = None


class _ReplyFields(Struct):
    reply_to: str | None = None
    correlation_id: str | None = None


class _NextTasks(Struct):
    """The tasks that follow: the third part of a body of protocol 2, or fields of a body of protocol 1."""

    callbacks: list[_Signature] | None = None
    errbacks: list[_Signature] | None = None
    chain: list[_Signature] | None = None
    chord: _Signature | None = None


class _TaskBody(Struct, array_like=True, forbid_unknown_fields=True):
    args: list[Any]
    kwargs: dict[str, Any]
    links: _NextTasks | None


class _TaskBodyVersion1(_NextTasks, kw_only=True):
    args: list[Any] = msgspec.field(default_factory=list)
    kwargs: dict[str, Any] = msgspec.field(default_factory=dict)


def check_task(message: Any) -> None:
    """Decodes the body of a ``kombu.Message`` whose ``accept`` is set, and checks the fields of the task.

    Raises:
        NotTask: the body cannot be decoded, or a field has a value that a worker cannot read.
    """
    try:
        _check(message)
    except Exception as error:  # decoders of bodies raise errors of any kind
        raise NotTask(f"{type(error).__name__}: {error}") from error


def _check(message: Any) -> None:
    if message.errors:  # the body could not be decompressed
        raise message.errors[0][1]
    payload, headers = message.payload, message.headers
    links: Mapping[str, Any] = {}
    if isinstance(payload, Mapping):  # protocol 1, or a body of protocol 1 with the headers of protocol 2
        headers = {**payload, **headers}
        msgspec.convert(payload, _TaskBodyVersion1)
    else:
        msgspec.convert(payload, _TaskBody)
        links = payload[2] or {}
    msgspec.convert(headers, _TaskFields)
    msgspec.convert(message.properties, _ReplyFields)
    _check_context({**headers, **links})


def _check_context(fields: Mapping[str, Any]) -> None:
    """Raises an error for fields that Celery cannot turn into attributes of the task's context."""
    if any(name.startswith("_") for name in fields):  # one may replace a method of the context
        # Imported here: a program of Kombu without Celery has no tasks to check.
        from celery.app.task import Context  # type: ignore[import-untyped]  # Celery has no types

        Context(fields)
